"""A queue's records since its last checkpoint, packed as in a record page.

Kept as bytes they take 72 bytes each with their position, not some 400 as objects, and the garbage
collector has nothing to walk through: every commit adds one record for each queue that it puts to,
and they stay until the checkpoint.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from .block_ref import BlockRef, Row
from .commit_record import Part
from .format import INLINE, PACKED_RECORD

_ref = partial(tuple.__new__, BlockRef)  # faster than `_make`
_pack = PACKED_RECORD.pack
_unpack_from = PACKED_RECORD.unpack_from
_BYTES: Final = PACKED_RECORD.size

_AT_ONCE: Final = 1024  # records that are unpacked together


class RecordTail:
    """See the module. The queue's lock covers changes; what is there may be read beside appends."""

    __slots__ = ("_data", "_starts")

    def __init__(self) -> None:
        self._data = bytearray()
        self._starts = array("Q")  # the records' positions

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> BlockRef:
        return _ref(_unpack_from(self._data, index * _BYTES))

    def append(self, row: Row) -> None:
        self._data += _pack(*row)
        self._starts.append(row[0])

    def at(self, position: int) -> BlockRef | None:
        """The record that holds the position, if it is here."""
        index = bisect_right(self._starts, position) - 1
        if index < 0:
            return None
        ref = _ref(_unpack_from(self._data, index * _BYTES))
        return ref if position < ref[0] + ref[7] else None

    def extend(
        self, parts: Sequence[Part], position: int, first_id: int, time_us: int, address: int
    ) -> tuple[int, int, int]:
        """The parts of a commit whose record is at the address, from the position on.

        Returns the position behind them, what they charge, and the bits of their kinds.
        """
        data, starts = self._data, self._starts
        total = kinds = 0
        for place, charge, checksum, _, length, count, kind, _, _, _ in parts:
            if kind == INLINE:
                place += address
            data += _pack(position, first_id, time_us, place, charge, checksum, length, count, kind)
            starts.append(position)
            position += count
            first_id += count
            total += charge
            kinds |= kind
        return position, total, kinds

    def overlapping(self, start: int, end: int) -> Iterator[BlockRef]:
        """The records that hold messages of [start, end), in order."""
        starts = self._starts
        first = max(bisect_right(starts, start) - 1, 0)
        if first < len(starts) and self[first].end <= start:
            first += 1
        return self.between(first, bisect_left(starts, end))

    def between(self, first: int, stop: int) -> Iterator[BlockRef]:
        """The records of these indices."""
        for index in range(first, stop, _AT_ONCE):
            last = min(index + _AT_ONCE, stop)
            part = self._data[index * _BYTES : last * _BYTES]
            yield from map(_ref, PACKED_RECORD.iter_unpack(part))

    def copy(self) -> RecordTail:
        """To be looked at without the queue's lock."""
        other = RecordTail()
        other._data, other._starts = self._data[:], self._starts[:]
        return other

    def drop(self, count: int) -> None:
        """Forget the first so many."""
        del self._data[: count * _BYTES], self._starts[:count]
