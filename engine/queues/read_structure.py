"""The read structure of a subscription: pointers to what is to be delivered next.

Source: "Managing message queues" (JP 2008-547130), paragraphs 0054-0057: the queue's records are
scanned in order, headers only, and pointers to the messages of each write transaction are collected
in a FIFO sublist, which is delivered once the transaction's commit record was met. Here a
transaction's records enter the record list together, when it commits, so a scanned run is complete
as it is; what is scanned is one record for a block of messages, never a payload.

- The FIFO is bounded by `SCAN_AHEAD` records whatever the backlog (promise 9).
- RS2: pointers may be outdated by a checkpoint that moved blocks; `reset` drops them and the next
  delivery scans anew from its position.
- RS3: it scans ahead where it is read on from where it ends. A message that is asked for by what it
  is stands anywhere: then its record alone is looked up, and the FIFO stays as it is.
"""

from __future__ import annotations

import sys
from collections import deque
from itertools import islice
from typing import NamedTuple

from quire.engine.records.block_ref import BlockRef
from quire.limits import SCAN_AHEAD

from .record_list import RecordList


class Pointer(NamedTuple):
    """Messages [start, stop), counted within the record, to deliver."""

    ref: BlockRef
    start: int
    stop: int

    @property
    def position(self) -> int:
        """The queue's position of the first message."""
        return self.ref.position + self.start

    @property
    def end_position(self) -> int:
        """The queue's position behind the last message."""
        return self.ref.position + self.stop


class ReadStructure:
    """Pointers to the messages to be delivered next. Covered by the queue's lock."""

    __slots__ = ("_alone", "_end", "_fifo", "_records", "scanned_records")

    def __init__(self, records: RecordList) -> None:
        self._records = records
        self._fifo: deque[BlockRef] = deque()
        self._end = 0  # where the FIFO ends, or ended
        self._alone: BlockRef | None = None  # looked up the last time that it was not read on
        self.scanned_records = 0

    def pointers(self, start: int, end: int, limit: int) -> list[Pointer]:
        """At most so many pointers to messages at positions [start, end), all of which exist."""
        result: list[Pointer] = []
        while start < end and len(result) < limit:
            ref = self._at(start)
            stop = min(end, ref.position + ref.count)
            result.append(Pointer(ref, start - ref.position, stop - ref.position))
            start = stop
        return result

    def _at(self, position: int) -> BlockRef:
        fifo = self._fifo
        while fifo:
            ref = fifo[0]
            if position < ref.position:
                break
            if position < ref.position + ref.count:
                return ref
            if position > self._end:
                break
            fifo.popleft()
        alone = self._alone
        if alone is not None and alone.position <= position < alone.end:
            return alone
        if position == self._end or (alone is not None and position == alone.end):
            ref = self._scan(position)
        else:  # RS3
            ref = self._alone = next(self._records.near(position, position + 1))
            self.scanned_records += 1
        assert ref.position <= position < ref.end, "a released position was asked for"
        return ref

    def _scan(self, position: int) -> BlockRef:
        """Fill the FIFO with the next records from the one that holds the position; that one."""
        fifo = self._fifo
        fifo.clear()
        fifo += islice(self._records.overlapping(position, sys.maxsize), SCAN_AHEAD)
        self.scanned_records += len(fifo)
        self._alone, self._end = None, fifo[-1].end
        return fifo[0]

    def reset(self) -> None:
        """Blocks have been moved (RS2)."""
        self._fifo.clear()
        self._alone = None
