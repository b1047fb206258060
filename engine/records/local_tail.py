"""The local tail of a record: where this machine keeps the blocks that the record names.

A record is a shared part, the same bytes on every machine, and, where it has blocks on data pages,
a tail with their places. The shared part names such a block by its offset in the transaction's
attachment. Layout: `format`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack, unpack_from

from quire.errors import StoreCorrupt
from quire.journal.format import RECORD_HEADER, RECORD_HEADER_BYTES

from . import format


def pack_tail(places: Sequence[int], mark: int) -> bytes:
    """`mark`: of the group that the record is written in (see `mark_of`)."""
    return pack(f"<{len(places)}Q", *places) + format.TAIL_END.pack(len(places), mark)


def tail_bytes(places: int) -> int:
    """Return the bytes of a tail with so many places."""
    return format.PLACE.size * places + format.TAIL_END.size if places else 0


def mark_of(generation: int) -> int:
    """Return the mark of a journal generation's groups: another machine's have another mark."""
    return generation & 0xFFFFFFFF


def split(body: memoryview, where: str, mark: int | None) -> tuple[memoryview, tuple[int, ...]]:
    """A record's body without its tail, and the places. `mark`: to be checked.

    Raises StoreCorrupt.
    """
    end = len(body) - format.TAIL_END.size
    count, found = format.TAIL_END.unpack_from(body, end) if end >= 0 else (0, 0)
    start = end - format.PLACE.size * count
    if not count or start < format.COMMIT_HEADER.size:
        raise StoreCorrupt(f"{where}: contradictory local tail of {count} places")
    if mark is not None and found != mark:
        raise StoreCorrupt(
            f"{where}: its local tail has mark {found:#x}, its group {mark:#x}: the places are of "
            "another machine's disk; copy records without their tails"
        )
    return body[:start], unpack_from(f"<{count}Q", body, start)


def shared(record: bytes | bytearray) -> bytes:
    """The shared part of a whole record: a record without a tail, which says so."""
    length, kind, flags, sequence = RECORD_HEADER.unpack_from(record)
    if not flags & format.TAIL:
        return bytes(record)
    body, places = split(memoryview(record)[RECORD_HEADER_BYTES:], "the record", None)
    length -= tail_bytes(len(places))
    return RECORD_HEADER.pack(length, kind, flags & ~format.TAIL, sequence) + body


def placed(record: bytes | bytearray, places: Sequence[int], mark: int) -> bytes:
    """The whole record again, with places of the machine that is to keep it."""
    if not places:
        return bytes(record)
    length, kind, flags, sequence = RECORD_HEADER.unpack_from(record)
    length += tail_bytes(len(places))
    header = RECORD_HEADER.pack(length, kind, flags | format.TAIL, sequence)
    return header + record[RECORD_HEADER_BYTES:] + pack_tail(places, mark)
