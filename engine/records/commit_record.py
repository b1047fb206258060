"""The COMMIT record: packing it for the journal and reading it back. Layout: `format`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from quire.block import EncodedBlock
from quire.errors import StoreCorrupt
from quire.journal.format import RECORD_HEADER_BYTES, WholeRecord
from quire.limits import JOINED_RECORD_BYTES

from . import format

ID_AND_TIME_OFFSET: Final = RECORD_HEADER_BYTES


_HEAD: Final = struct.Struct("<IHHQ" + "QqIIII")  # the journal's header of a record, and COMMIT's
_HEAD_BYTES: Final = _HEAD.size
_PART_BYTES: Final = format.PART.size
_READ_BYTES: Final = format.READ.size
_INLINE: Final = format.INLINE
_LONE_OFFSET: Final = _HEAD_BYTES + _PART_BYTES  # of the only part's block
_pack_head = _HEAD.pack
_pack_head_and_part = struct.Struct(_HEAD.format + format.PART.format.lstrip("<")).pack
_pack_part = format.PART.pack
_pack_read = format.READ.pack
_block_checksum = struct.Struct("<Q").unpack_from

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


class Read(NamedTuple):
    """Positions [start, end) that the transaction has read for a subscription."""

    queue_id: int
    subscription_id: int
    start: int
    end: int


ReadRow = tuple[int, int, int, int, *tuple[Any, ...]]  # begins with the fields of a `Read`


class Target(Protocol):
    """A queue, as far as a record is concerned."""

    @property
    def queue_id(self) -> int:
        """Its number."""


_part = partial(tuple.__new__, Part)  # faster than `_make`


class Entry(NamedTuple):
    """A ledger entry: the key's last committed version."""

    key: str
    version: int


# What a transaction has for its queues, each in order: blocks, and parts that have their places.
Groups = Sequence[tuple[Target, list[EncodedBlock | Part]]]


class CommitRecord(NamedTuple):
    """What a COMMIT record says."""

    first_id: int
    time_us: int
    parts: Sequence[Part]
    reads: Sequence[Read]
    entries: Sequence[Entry]


def pack(
    transaction_id: int,
    groups: Groups,
    reads: Sequence[ReadRow],
    entries: Sequence[Entry],
) -> tuple[WholeRecord, list[tuple[int, bytes | bytearray]], int]:
    """The record, with id and time still zero: for every COMMIT there is, in one place.

    Blocks become inline parts: `groups` hold parts only afterwards. Returns the record, the inline
    blocks with their addresses in it, and the number of messages. Whoever knows the commit's place
    in the order puts id and time at `ID_AND_TIME_OFFSET`, which is in the first piece.
    """
    if len(groups) == 1 and not reads and not entries:
        lone = _pack_lone(transaction_id, *groups[0])
        if lone is not None:
            return lone
    offset = _HEAD_BYTES + _READ_BYTES * len(reads)
    for _, pieces in groups:
        offset += _PART_BYTES * len(pieces)
    keys = _packed_entries(entries) if entries else b""
    offset += len(keys)
    head: list[bytes | bytearray] = [b""]
    blocks: list[tuple[int, bytes | bytearray]] = []
    messages = parts = 0
    for queue, pieces in groups:
        for index, piece in enumerate(pieces):
            if isinstance(piece, EncodedBlock):
                data, count = piece.data, piece.count
                length = len(data)
                fields = (
                    offset, piece.charge_bytes, _block_checksum(data)[0], queue.queue_id, length,
                    count, _INLINE, 0, 0, 0,
                )  # fmt: skip
                pieces[index] = _part(fields)
                blocks.append((offset, data))
                offset += (length + 7) & -8
                head.append(_pack_part(*fields))
                messages += count
            else:
                head.append(_pack_part(*piece))
                messages += piece[5]
            parts += 1
    if reads:
        head += [_pack_read(read[0], read[1], read[2], read[3]) for read in reads]
    head.append(keys)
    head[0] = _pack_head(
        offset, format.COMMIT, 0, transaction_id, 0, 0, parts, len(reads), len(entries), messages
    )
    for _, data in blocks:
        head.append(data)
        if len(data) & 7:
            head.append(bytes(-len(data) & 7))
    if offset <= JOINED_RECORD_BYTES:
        return bytearray().join(head), blocks, messages
    first = 2 + parts + len(reads)
    return (bytearray().join(head[:first]), *head[first:]), blocks, messages


def _pack_lone(
    transaction_id: int, queue: Target, pieces: list[EncodedBlock | Part]
) -> tuple[bytearray, list[tuple[int, bytes | bytearray]], int] | None:
    """The same for one small block and nothing else, as most commits have it: half the time."""
    if len(pieces) != 1:
        return None
    block = pieces[0]
    if not isinstance(block, EncodedBlock):
        return None
    data, count = block.data, block.count
    length = len(data)
    if length > JOINED_RECORD_BYTES - _LONE_OFFSET:
        return None
    fields = (
        _LONE_OFFSET, block.charge_bytes, _block_checksum(data)[0], queue.queue_id, length, count,
        _INLINE, 0, 0, 0,
    )  # fmt: skip
    pieces[0] = _part(fields)
    record = bytearray(
        _pack_head_and_part(
            _LONE_OFFSET + ((length + 7) & -8), format.COMMIT, 0, transaction_id, 0, 0, 1, 0, 0,
            count, *fields,
        )
    )  # fmt: skip
    record += data
    if length & 7:
        record += bytes(-length & 7)
    return record, [(_LONE_OFFSET, data)], count


def _packed_entries(entries: Sequence[Entry]) -> bytes:
    pieces: list[bytes] = []
    for key, version in entries:
        name = key.encode()
        pieces += (format.ENTRY.pack(len(name), 0, 0, version), name, bytes(-len(name) & 7))
    return b"".join(pieces)


def unpack(body: memoryview, where: str) -> CommitRecord:
    """Read a record's body (without the journal's header); `StoreCorrupt` for contradictions."""
    try:
        first_id, time_us, part_count, read_count, entry_count, messages = (
            format.COMMIT_HEADER.unpack_from(body)
        )
        offset = format.COMMIT_HEADER.size
        parts = []
        for _ in range(part_count):
            part = Part(*format.PART.unpack_from(body, offset))
            parts.append(part)
            offset += format.PART.size
        reads = []
        for _ in range(read_count):
            reads.append(Read(*format.READ.unpack_from(body, offset)))
            offset += format.READ.size
        entries = []
        for _ in range(entry_count):
            length, _, _, version = format.ENTRY.unpack_from(body, offset)
            offset += format.ENTRY.size
            entries.append(Entry(str(body[offset : offset + length], "utf-8"), version))
            offset += _up(length)
    except (ValueError, OverflowError, struct.error) as error:
        raise StoreCorrupt(f"{where}: unreadable commit record ({error})") from error
    if sum(part.count for part in parts) != messages or any(
        part.kind > format.LTDS for part in parts
    ):
        raise StoreCorrupt(f"{where}: contradictory commit record")
    return CommitRecord(first_id, time_us, parts, reads, entries)


def _up(length: int) -> int:
    return (length + 7) & -8
