"""The COMMIT record: packing it for the journal and reading it back. Layout: `format`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast, final

from quire.block import EncodedBlock, checked_one, plain_one
from quire.block.format import CHECKSUM_BYTES
from quire.journal.format import RECORD_HEADER_BYTES, WholeRecord
from quire.limits import CONTROL_BYTES, COPY_TWICE_BYTES, JOINED_RECORD_BYTES
from quire.messages.message_fields import Fields

from . import format
from .local_tail import pack_tail

ID_AND_TIME_OFFSET: Final = RECORD_HEADER_BYTES
# The payload of a message alone is told from its block by this much more than the block's address,
# which is a multiple of 8.
PAYLOAD_AT: Final = 1


_HEAD: Final = struct.Struct("<IHHQ" + "QqIIII")  # the journal's header of a record, and COMMIT's
_HEAD_BYTES: Final = _HEAD.size
_PART_BYTES: Final = format.PART.size
_READ_BYTES: Final = format.READ.size
_INLINE: Final = format.INLINE
_DATA: Final = format.DATA
_LONE_OFFSET: Final = _HEAD_BYTES + _PART_BYTES  # of the only part's block
_pack_head = _HEAD.pack
_pack_part = format.PART.pack
# What is the same in all records of one message alone, and in all parts of one message.
_LONE_KIND: Final = struct.pack("<HH", format.COMMIT, 0)
_LONE_COUNTS: Final = struct.pack("<IIII", 1, 0, 0, 1)
_ONE_INLINE: Final = struct.pack("<IBBHQ", 1, _INLINE, 0, 0, 0)
_LONE_HEAD: Final = "<I4sQ16x16sQQQII16s"
_pack_lone_head = struct.Struct(_LONE_HEAD).pack
_pack_lone_plain = struct.Struct(_LONE_HEAD + "Q").pack  # with the checksum of its block
# The same of one run of messages that were read.
_LONE_READ_COUNTS: Final = struct.pack("<IIII", 0, 1, 0, 0)
_pack_read_head = struct.Struct("<I4sQ16x16s" + format.READ.format.lstrip("<")).pack
_pack_one = struct.Struct("<QQQII16s").pack
_pack_read = format.READ.pack
_block_checksum = struct.Struct("<Q").unpack_from
_pack_checksum = struct.Struct("<Q").pack

assert RECORD_HEADER_BYTES + format.COMMIT_HEADER.size == _HEAD_BYTES


class Part(NamedTuple):
    """One block or one large transaction's file of one queue, in the order of the format."""

    address: int  # inline: bytes from the record's start
    charge: int
    checksum: int
    queue_id: int
    length: int
    count: int  # type: ignore[assignment]  # of messages; tuple.count is not needed
    kind: int
    flags: int = 0
    reserved: int = 0
    payload_bytes: int = 0


PartRow = tuple[int, int, int, int, int, int, int, int, int, int]
"""The fields of a `Part`. A plain tuple of them is made, and taken apart, in half the time."""


@final
class Read(NamedTuple):
    """Positions [start, end) that the transaction has read for a subscription."""

    queue_id: int
    subscription_id: int
    start: int
    end: int


ReadRow = tuple[int, int, int, int, *tuple[Any, ...]]  # begins with the fields of a `Read`


class RecordQueue(Protocol):
    """A queue of the durable state, as far as a record names it."""

    @property
    def queue_id(self) -> int: ...


Q = TypeVar("Q", bound=RecordQueue)
Q_co = TypeVar("Q_co", bound=RecordQueue, covariant=True)


class Put(Protocol[Q_co]):
    """What messages were put to."""

    @property
    def durable(self) -> Q_co:
        """The queue of the durable state."""


class LoneMessage(Protocol[Q_co]):
    """The only message of a transaction for a queue."""

    payload: bytes
    fields: Fields | None
    charge: int  # without the control records

    @property
    def queue(self) -> Put[Q_co]:
        """Where it goes."""


# A record; its first piece, in which whoever knows the commit's place in the order puts id and time
# at `ID_AND_TIME_OFFSET`; its parts by queue; the inline blocks with their offsets there, or of
# a message with nothing but a payload that, at `PAYLOAD_AT` more; how many messages they are.
Packed = tuple[
    WholeRecord,
    bytearray,
    Sequence[tuple[Q, Sequence[PartRow]]],
    Sequence[tuple[int, bytes | bytearray]],
    int,
]


new_part: Final = partial(tuple.__new__, Part)  # of all its fields; faster than `Part`


class LedgerEntry(NamedTuple):
    """A ledger entry, the key's last committed version; or the request id of a put.

    That has the id of its queue, and the place of its message among those put there as version.
    """

    key: str
    version: int
    queue_id: int = 0

    @property
    def held_as(self) -> str | tuple[int, str]:
        """What no other transaction may commit meanwhile."""
        return (self.queue_id, self.key) if self.queue_id else self.key


class CommitRecord(NamedTuple):
    """What a COMMIT record says."""

    first_id: int
    time_us: int
    parts: Sequence[Part]
    reads: Sequence[Read]
    entries: Sequence[LedgerEntry]
    sections: Sequence[Any] = ()  # the further ones (see `sections`)

    def section(self, kind: int) -> Any:
        """The further section of a kind; None: it has none."""
        return next((section for section in self.sections if section.kind == kind), None)


ReadMore = Callable[[memoryview, str], Sequence[Any]]


def pack_light(
    transaction_id: int,
    lone: Collection[LoneMessage[Q]],
    reads: Sequence[ReadRow],
    entries: Sequence[LedgerEntry],
) -> Packed[Q]:
    """The record of a small transaction, with one message at most for each queue: as most are.

    It has the bytes that `pack` makes, in half the time and with fewer objects (a test compares
    them).
    """
    count = len(lone)
    if not entries:
        if count == 1 and not reads:
            (only,) = lone
            queue = only.queue.durable
            return pack_lone(transaction_id, queue, only.payload, only.fields, only.charge)
        if count == 0 and len(reads) == 1:
            return _pack_lone_read(transaction_id, reads[0])
    offset = _HEAD_BYTES + _PART_BYTES * count + _READ_BYTES * len(reads)
    keys = b""
    if entries:
        keys = _packed_entries(entries)
        offset += len(keys)
    pieces: list[bytes | bytearray] = [b""]
    inline: list[bytes | bytearray] = []
    groups: list[tuple[Q, Sequence[PartRow]]] = []
    blocks: list[tuple[int, bytes | bytearray]] = []
    for message in lone:
        payload, fields = message.payload, message.fields
        data: bytes | bytearray
        is_plain = fields is None or not fields.columns
        if is_plain and len(payload) <= COPY_TWICE_BYTES:
            own_checksum, data = plain_one(payload)
            inline.append(_pack_checksum(own_checksum))
            length = CHECKSUM_BYTES + len(data)
        else:
            own_checksum, data = checked_one(payload, fields)
            length = len(data)
        queue = message.queue.durable
        queue_id = queue.queue_id
        charge = message.charge + CONTROL_BYTES
        part = (offset, charge, own_checksum, queue_id, length, 1, _INLINE, 0, 0, 0)
        groups.append((queue, (part,)))
        blocks.append((offset + PAYLOAD_AT, payload) if is_plain else (offset, data))
        pieces.append(_pack_one(offset, charge, own_checksum, queue_id, length, _ONE_INLINE))
        inline.append(data)
        offset += length  # a multiple of 8
    if reads:
        pieces += [_pack_read(read[0], read[1], read[2], read[3]) for read in reads]
    if entries:
        pieces.append(keys)
    pieces[0] = _pack_head(
        offset,
        format.COMMIT,
        0,
        transaction_id,
        0,
        0,
        count,
        len(reads),
        len(entries),
        count,
    )
    pieces += inline
    record = bytearray().join(pieces)
    return record, record, groups, blocks, count


def pack_lone(
    transaction_id: int, queue: Q, payload: bytes, fields: Fields | None, charge: int
) -> Packed[Q]:
    """The record of a transaction of one message and nothing else."""
    queue_id = queue.queue_id
    charge += CONTROL_BYTES
    known: tuple[int, bytes | bytearray] = _LONE_OFFSET + PAYLOAD_AT, payload
    if len(payload) <= COPY_TWICE_BYTES and (fields is None or not fields.columns):
        own_checksum, body = plain_one(payload)
        length = CHECKSUM_BYTES + len(body)
        record = bytearray(
            _pack_lone_plain(
                _LONE_OFFSET + length, _LONE_KIND, transaction_id, _LONE_COUNTS, _LONE_OFFSET,
                charge, own_checksum, queue_id, length, _ONE_INLINE, own_checksum,
            )
        )  # fmt: skip
        record += body
    else:
        own_checksum, data = checked_one(payload, fields)
        length = len(data)
        record = bytearray(
            _pack_lone_head(
                _LONE_OFFSET + length, _LONE_KIND, transaction_id, _LONE_COUNTS, _LONE_OFFSET,
                charge, own_checksum, queue_id, length, _ONE_INLINE,
            )
        )  # fmt: skip
        record += data
        if fields is not None and fields.columns:
            known = _LONE_OFFSET, data
    part = (_LONE_OFFSET, charge, own_checksum, queue_id, length, 1, _INLINE, 0, 0, 0)
    return record, record, ((queue, (part,)),), (known,), 1


def _pack_lone_read(transaction_id: int, read: ReadRow) -> Packed[Any]:
    """The record of a transaction that has read one run of messages, and nothing else."""
    record = bytearray(
        _pack_read_head(
            _HEAD_BYTES + _READ_BYTES, _LONE_KIND, transaction_id, _LONE_READ_COUNTS,
            read[0], read[1], read[2], read[3],
        )
    )  # fmt: skip
    return record, record, (), (), 0


def pack(
    transaction_id: int,
    groups: Sequence[tuple[Put[Q], list[EncodedBlock | Part]]],
    reads: Sequence[ReadRow],
    entries: Sequence[LedgerEntry],
    more: Sequence[bytes | bytearray] = (),
    mark: int = 0,
) -> Packed[Q]:
    """The record of any transaction. Blocks become inline parts: `groups` hold parts only then.

    `more`: the pieces of its further sections, which stay pieces, and may be filled in later; with
    parts on pages an attachment is one of them. `mark`: of its local tail (see `local_tail`).
    """
    keys = _packed_entries(entries) if entries else b""
    offset = _HEAD_BYTES + _READ_BYTES * len(reads) + len(keys)
    for piece in more:
        offset += len(piece)
    for _, pieces in groups:
        offset += _PART_BYTES * len(pieces)
    head: list[bytes | bytearray] = [b""]
    blocks: list[tuple[int, bytes | bytearray]] = []
    by_queue: list[tuple[Q, Sequence[Part]]] = []
    messages = parts = attached = 0
    places: list[int] = []
    for target, own in groups:
        queue = target.durable
        by_queue.append((queue, cast("list[Part]", own)))
        for index, placed in enumerate(own):
            if isinstance(placed, EncodedBlock):
                data, count = placed.data, placed.count
                length = len(data)
                fields = (
                    offset, placed.charge_bytes, _block_checksum(data)[0], queue.queue_id, length,
                    count, _INLINE, 0, 0, 0,
                )  # fmt: skip
                own[index] = new_part(fields)
                blocks.append((offset, data))
                offset += (length + 7) & -8
                head.append(_pack_part(*fields))
                messages += count
            else:
                if placed[6] == _DATA:
                    places.append(placed[0])
                    head.append(_pack_part(attached, *placed[1:]))
                    attached += (placed[4] + 7) & -8
                else:
                    head.append(_pack_part(*placed))
                messages += placed[5]
            parts += 1
    if reads:
        head += [_pack_read(read[0], read[1], read[2], read[3]) for read in reads]
    head.append(keys)
    tail = pack_tail(places, mark) if places else b""
    flags = (format.SECTIONS if more else 0) | (format.TAIL if tail else 0)
    head[0] = _pack_head(
        offset + len(tail), format.COMMIT, flags, transaction_id, 0, 0, parts, len(reads),
        len(entries), messages,
    )  # fmt: skip
    is_joined = offset <= JOINED_RECORD_BYTES and not more
    first = len(head) + 2 * len(blocks) if is_joined else 2 + parts + len(reads)
    head += more
    for _, data in blocks:
        head += (data, bytes(-len(data) & 7))
    if tail:
        head.append(tail)
    beginning = bytearray().join(head[:first])
    record = (beginning, *head[first:]) if head[first:] else beginning
    return record, beginning, by_queue, blocks, messages


def _packed_entries(entries: Sequence[LedgerEntry]) -> bytes:
    pieces: list[bytes] = []
    for key, version, queue_id in entries:
        name = key.encode()
        pieces += (format.ENTRY.pack(len(name), 0, queue_id, version), name, bytes(-len(name) & 7))
    return b"".join(pieces)


def entry_bytes(key: str) -> int:
    """What an entry takes in a record."""
    return format.ENTRY.size + _up(len(key.encode()))


def attached_bytes(groups: Iterable[tuple[object, Sequence[EncodedBlock | Part]]]) -> int:
    """What a transaction's attachment takes: its blocks that are on pages."""
    size = 0
    for _, own in groups:
        for part in own:
            if isinstance(part, Part) and part[6] == _DATA:
                size += (part[4] + 7) & -8
    return size


def unpack(
    body: memoryview,
    where: str,
    read_more: ReadMore | None = None,
    places: Sequence[int] = (),
) -> CommitRecord:
    """Read a record's body (without the journal's header).

    `read_more`: reads the further sections that it has. `places`: of its blocks on pages, which its
    parts name by their offsets in the attachment. Raises ValueError, OverflowError and struct.error
    for contradictions.
    """
    first_id, time_us, part_count, read_count, entry_count, messages = (
        format.COMMIT_HEADER.unpack_from(body)
    )
    offset = format.COMMIT_HEADER.size
    parts = []
    for _ in range(part_count):
        parts.append(Part(*format.PART.unpack_from(body, offset)))
        offset += format.PART.size
    reads = []
    for _ in range(read_count):
        reads.append(Read(*format.READ.unpack_from(body, offset)))
        offset += format.READ.size
    entries = []
    for _ in range(entry_count):
        length, _, queue_id, version = format.ENTRY.unpack_from(body, offset)
        offset += format.ENTRY.size
        entries.append(LedgerEntry(str(body[offset : offset + length], "utf-8"), version, queue_id))
        offset += _up(length)
    if sum(part.count for part in parts) != messages or any(
        part.kind > format.LTDS for part in parts
    ):
        raise ValueError("contradictory parts")
    if places:
        parts = _located(parts, places)
    sections = () if read_more is None else read_more(body[offset:], where)
    return CommitRecord(first_id, time_us, parts, reads, entries, sections)


def _located(parts: Sequence[Part], places: Sequence[int]) -> list[Part]:
    """The parts with the places of those on pages. Raises ValueError."""
    found: list[Part] = []
    rest, attached = iter(places), 0
    for part in parts:
        if part.kind == format.DATA:
            place = next(rest, None)
            if part.address != attached or place is None:
                raise ValueError("parts that are not those of its attachment")
            attached += (part.length + 7) & -8
            found.append(part._replace(address=place))
        else:
            found.append(part)
    if next(rest, None) is not None:
        raise ValueError("a local tail with more places than parts on pages")
    return found


def _up(length: int) -> int:
    return (length + 7) & -8
