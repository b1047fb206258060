"""The COMMIT record: packing it for the journal and reading it back. Layout: `format`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar, final

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
# What is the same in all records of lone messages, and in all parts of one message.
_NO_FLAGS: Final = struct.pack("<HH", format.COMMIT, 0)
_ONE_INLINE: Final = struct.pack("<IBBHQ", 1, _INLINE, 0, 0, 0)
_ONE_PART: Final = struct.pack("<IIII", 1, 0, 0, 1)
_ONE_OFFSET: Final = _HEAD_BYTES + _PART_BYTES  # of the block of a message alone
_pack_plain_one = struct.Struct("<I4sQ16x16sQQQII16sQ").pack  # and the block's checksum
_put_light_head = struct.Struct("<I4sQ16xIIII").pack_into
_put_inline_part = struct.Struct("<QQQII16s").pack_into
_put_head = _HEAD.pack_into
_put_part = format.PART.pack_into
_put_read = format.READ.pack_into
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
    """The messages that a transaction puts to one queue."""

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
        """The puts of the transaction to the message's queue."""


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
        """Return the key of the entry, which no other transaction may commit meanwhile."""
        return (self.queue_id, self.key) if self.queue_id else self.key


class CommitRecord(NamedTuple):
    """A decoded COMMIT record."""

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
    """Return the record of a small transaction: lone messages, whose blocks are made here.

    It has the bytes that `pack` makes, in half the time and with fewer objects (a test compares
    them).
    """
    count, at, keys = len(lone), _HEAD_BYTES, b""
    if count == 1 and not reads and not entries:  # as of many: all but the block with one call
        (message,) = lone
        payload, fields = message.payload, message.fields
        if len(payload) <= COPY_TWICE_BYTES and (fields is None or not fields.columns):
            own_checksum, body = plain_one(payload)
            queue, length = message.queue.durable, CHECKSUM_BYTES + len(body)
            queue_id, charge = queue.queue_id, message.charge + CONTROL_BYTES
            record = bytearray(
                _pack_plain_one(
                    _ONE_OFFSET + length, _NO_FLAGS, transaction_id, _ONE_PART, _ONE_OFFSET,
                    charge, own_checksum, queue_id, length, _ONE_INLINE, own_checksum,
                )
            )  # fmt: skip
            record += body
            part = (_ONE_OFFSET, charge, own_checksum, queue_id, length, 1, _INLINE, 0, 0, 0)
            return record, record, ((queue, (part,)),), ((_ONE_OFFSET + PAYLOAD_AT, payload),), 1
    offset = at + _PART_BYTES * count
    if reads or entries:
        keys = _packed_entries(entries)
        offset += _READ_BYTES * len(reads) + len(keys)
    record = bytearray(offset)  # the blocks follow
    groups: list[tuple[Q, Sequence[PartRow]]] = []
    blocks: list[tuple[int, bytes | bytearray]] = []
    for message in lone:
        payload, fields = message.payload, message.fields
        data: bytes | bytearray
        known: tuple[int, bytes | bytearray] = offset + PAYLOAD_AT, payload
        if len(payload) <= COPY_TWICE_BYTES and (fields is None or not fields.columns):
            own_checksum, data = plain_one(payload)
            record += _pack_checksum(own_checksum)
        else:
            own_checksum, data = checked_one(payload, fields)
            if fields is not None and fields.columns:
                known = offset, data
        record += data
        queue, length = message.queue.durable, len(record) - offset  # a multiple of 8
        queue_id, charge = queue.queue_id, message.charge + CONTROL_BYTES
        _put_inline_part(record, at, offset, charge, own_checksum, queue_id, length, _ONE_INLINE)
        part = (offset, charge, own_checksum, queue_id, length, 1, _INLINE, 0, 0, 0)
        groups.append((queue, (part,)))
        blocks.append(known)
        at += _PART_BYTES
        offset += length
    if reads or entries:
        _put_reads(record, at, reads, keys)
    _put_light_head(
        record, 0, offset, _NO_FLAGS, transaction_id, count, len(reads), len(entries), count
    )
    return record, record, groups, blocks, count


def pack(
    transaction_id: int,
    groups: Sequence[tuple[Put[Q], Sequence[EncodedBlock | Part]]],
    reads: Sequence[ReadRow],
    entries: Sequence[LedgerEntry],
    more: Sequence[bytes | bytearray] = (),
    mark: int = 0,
) -> Packed[Q]:
    """Return the record of any transaction; its blocks become inline parts.

    `more`: the pieces of its further sections, which stay pieces, and may be filled in later; with
    parts on pages an attachment is one of them. `mark`: of its local tail (see `local_tail`).
    """
    keys = _packed_entries(entries)
    parts = sum([len(own) for _, own in groups])
    at, messages, attached = _HEAD_BYTES, 0, 0
    head = bytearray(at + _PART_BYTES * parts + _READ_BYTES * len(reads) + len(keys))
    offset = len(head) + sum([len(piece) for piece in more])
    pieces, places = [*more], []
    by_queue: list[tuple[Q, Sequence[PartRow]]] = []
    blocks: list[tuple[int, bytes | bytearray]] = []
    for target, own in groups:
        rows: list[PartRow] = []
        by_queue.append((target.durable, rows))
        for placed in own:
            row: PartRow
            if isinstance(placed, EncodedBlock):
                data, queue_id = placed.data, target.durable.queue_id
                row = (
                    offset, placed.charge_bytes, _block_checksum(data)[0], queue_id, len(data),
                    placed.count, _INLINE, 0, 0, 0,
                )  # fmt: skip
                _put_part(head, at, *row)
                blocks.append((offset, data))
                pieces += (data, bytes(-len(data) & 7))
                offset += _round_up(len(data))
            elif placed.kind == _DATA:
                row = placed
                _put_part(head, at, attached, *placed[1:])
                places.append(placed.address)
                attached += _round_up(placed.length)
            else:
                row = placed
                _put_part(head, at, *placed)
            rows.append(row)
            messages += row[5]
            at += _PART_BYTES
    _put_reads(head, at, reads, keys)
    tail = pack_tail(places, mark) if places else b""
    flags = (format.SECTIONS if more else 0) | (format.TAIL if tail else 0)
    _put_head(
        head, 0, offset + len(tail), format.COMMIT, flags, transaction_id, 0, 0, parts, len(reads),
        len(entries), messages,
    )  # fmt: skip
    if tail:
        pieces.append(tail)
    if pieces and (more or offset > JOINED_RECORD_BYTES):
        return (head, *pieces), head, by_queue, blocks, messages
    head += b"".join(pieces)
    return head, head, by_queue, blocks, messages


def _put_reads(record: bytearray, at: int, reads: Sequence[ReadRow], keys: bytes) -> None:
    """Put reads, and packed entries behind them, into a record."""
    for read in reads:
        _put_read(record, at, read[0], read[1], read[2], read[3])
        at += _READ_BYTES
    record[at : at + len(keys)] = keys


def _packed_entries(entries: Sequence[LedgerEntry]) -> bytes:
    pieces: list[bytes] = []
    for key, version, queue_id in entries:
        name = key.encode()
        pieces += (format.ENTRY.pack(len(name), 0, queue_id, version), name, bytes(-len(name) & 7))
    return b"".join(pieces)


def entry_bytes(key: str) -> int:
    """Return the bytes of a ledger entry in a record."""
    return format.ENTRY.size + _round_up(len(key.encode()))


def attached_bytes(groups: Iterable[tuple[object, Sequence[EncodedBlock | Part]]]) -> int:
    """Return the bytes of a transaction's attachment: its blocks that are on pages."""
    size = 0
    for _, own in groups:
        for part in own:
            if isinstance(part, Part) and part[6] == _DATA:
                size += _round_up(part[4])
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
        offset += _round_up(length)
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
            attached += _round_up(part.length)
            found.append(part._replace(address=place))
        else:
            found.append(part)
    if next(rest, None) is not None:
        raise ValueError("a local tail with more places than parts on pages")
    return found


def _round_up(length: int) -> int:
    return (length + 7) & -8
