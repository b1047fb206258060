"""Records of a queue, packed as in a record page: those of a page, or since the last checkpoint.

Kept as bytes they take 72 bytes each with their position, not some 400 as objects, and the garbage
collector has nothing to walk through: every commit adds one record for each queue that it puts to,
and they stay until the checkpoint.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from struct import Struct
from typing import Final

from quire.intervals import IntervalSet
from quire.libraries import np
from quire.limits import RECORDS_AT_ONCE

from .block_ref import BlockRef, BlockRow, packed
from .format import PACKED_RECORD, record_type

_ref = partial(tuple.__new__, BlockRef)  # faster than `_make`
_unpack_from = PACKED_RECORD.unpack_from
_BYTES: Final = PACKED_RECORD.size
_number_from = Struct("<q").unpack_from  # the first four fields are of eight bytes each

_OBJECT_BYTES: Final = 190  # measured


class PackedRecords:
    """A queue's packed records. The queue's lock covers changes; reads may go on beside appends.

    `DurableQueue.append` adds to `data` and `starts` itself.
    """

    __slots__ = ("data", "starts")

    def __init__(self) -> None:
        self.data = bytearray()
        self.starts = array("Q")  # the records' positions

    @classmethod
    def of(cls, data: bytes | memoryview) -> PackedRecords:
        """The records of a page, in memory of their own."""
        self = cls()
        self.data += data
        self.starts.extend(memoryview(data).cast("Q")[:: _BYTES // 8])
        return self

    @property
    def memory_bytes(self) -> int:
        """Return the bytes that the records take, objects included."""
        return len(self.data) + 8 * len(self.starts) + _OBJECT_BYTES

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[BlockRef]:
        return self.between(0, len(self))

    def __getitem__(self, index: int) -> BlockRef:
        return _ref(_unpack_from(self.data, index * _BYTES))

    def number(self, index: int, field: int) -> int:
        """Position, first id or time of a record."""
        return int(_number_from(self.data, index * _BYTES + 8 * field)[0])

    def last_up_to(self, field: int, most: int) -> int:
        """The index of the last whose number, which ascends, is not above `most`; -1: none."""
        data, first = self.data, 8 * field

        def number(index: int) -> int:
            return int(_number_from(data, index * _BYTES + first)[0])

        return bisect_right(range(len(self.starts)), most, key=number) - 1

    def at(self, position: int) -> BlockRow | None:
        """The record that holds the position, if it is here."""
        index = bisect_right(self.starts, position) - 1
        if index < 0:
            return None
        row: BlockRow = _unpack_from(self.data, index * _BYTES)
        return row if position < row[0] + row[7] else None

    def overlapping(self, start: int, end: int) -> Iterator[BlockRef]:
        """The records that hold messages of [start, end), in order."""
        starts = self.starts
        first, stop = max(bisect_right(starts, start) - 1, 0), bisect_left(starts, end)
        if first < len(starts):
            ref = self[first]
            if ref.end <= start:
                first += 1
            elif stop - first == 1:  # as of one message, which may be anywhere
                return iter((ref,))
        return self.between(first, stop)

    def between(self, first: int, stop: int) -> Iterator[BlockRef]:
        """The records of these indices."""
        for index in range(first, stop, RECORDS_AT_ONCE):
            last = min(index + RECORDS_AT_ONCE, stop)
            part = self.data[index * _BYTES : last * _BYTES]
            yield from map(_ref, PACKED_RECORD.iter_unpack(part))

    def copy(self) -> PackedRecords:
        """To be looked at without the queue's lock."""
        other = PackedRecords()
        other.data, other.starts = self.data[:], self.starts[:]
        return other

    def replace(self, count: int, refs: Sequence[BlockRef]) -> None:
        """Put others, or none, in the place of the first so many."""
        self.data[: count * _BYTES] = packed(refs)
        self.starts[:count] = array("Q", (ref.position for ref in refs))

    def drop_released(self, released: IntervalSet) -> None:
        """Forget the records all of whose messages are released."""
        rows = np.frombuffer(bytes(self.data), record_type())
        if not len(rows):
            return
        starts = rows["position"].astype(np.int64)
        runs = np.array(released.to_list(), np.int64).reshape(-1, 2)
        at = np.searchsorted(runs[:, 0], starts, side="right") - 1
        ends = np.where(at >= 0, runs[at, 1], 0) if len(runs) else np.zeros_like(starts)
        kept = rows[starts + rows["count"] > ends]
        self.data[:] = kept.tobytes()
        self.starts[:] = array("Q", kept["position"].tobytes())
