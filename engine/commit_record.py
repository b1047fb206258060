"""The COMMIT record: packing it for the journal and reading it back. Layout: `format`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from quire.errors import StoreCorrupt
from quire.journal import RECORD_HEADER, RECORD_HEADER_BYTES

from . import format

_PARTS_OFFSET = RECORD_HEADER_BYTES + format.COMMIT_HEADER.size
ID_AND_TIME_OFFSET = RECORD_HEADER_BYTES


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


class Entry(NamedTuple):
    """A ledger entry: the key's last committed version."""

    key: str
    version: int


class CommitRecord(NamedTuple):
    """What a COMMIT record says."""

    first_id: int
    time_us: int
    parts: Sequence[Part]
    reads: Sequence[Read]
    entries: Sequence[Entry]


def pack(
    transaction_id: int,
    parts: list[Part],
    blocks: Sequence[bytes | bytearray],
    reads: Sequence[Read],
    entries: Sequence[Entry],
) -> tuple[bytearray, tuple[bytes | bytearray, ...]]:
    """The record's head, with id and time still zero, and the pieces that follow it.

    Inline parts get their addresses in place.

    `blocks` are the bytes of the inline parts, in order. The caller puts id and time at
    `ID_AND_TIME_OFFSET` when the commit's place in the order is known.
    """
    keys = [entry.key.encode() for entry in entries]
    offset = (
        _PARTS_OFFSET
        + format.PART.size * len(parts)
        + format.READ.size * len(reads)
        + sum(format.ENTRY.size + _up(len(key)) for key in keys)
    )
    pieces: list[bytes] = []
    messages = 0
    block = iter(blocks)
    inline: list[bytes | bytearray] = []
    for index, part in enumerate(parts):
        messages += part.count
        if part.kind == format.INLINE:
            parts[index] = part = part._replace(address=offset)
            data = next(block)
            inline.append(data)
            offset += _up(len(data))
            if len(data) & 7:
                inline.append(bytes(-len(data) & 7))
        pieces.append(format.PART.pack(*part))
    pieces.extend(format.READ.pack(*read) for read in reads)
    for key, entry in zip(keys, entries, strict=True):
        pieces.append(format.ENTRY.pack(len(key), 0, 0, entry.version))
        pieces.append(key + bytes(-len(key) & 7))
    header = RECORD_HEADER.pack(
        offset, format.COMMIT, 0, transaction_id
    ) + format.COMMIT_HEADER.pack(0, 0, len(parts), len(reads), len(entries), messages)
    return bytearray().join([header, *pieces]), tuple(inline)


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
