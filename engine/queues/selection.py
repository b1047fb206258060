"""Which positions a subscription takes next, where that is not simply the next one.

A queue whose messages are not delivered in commit order has a selection for each subscription: what
is available, by rank. It is derived state, made from the messages' header columns when somebody
takes and never journaled: a restart makes it anew.

- SL1: of what is available the lowest rank is taken, and within a rank the lowest position: what a
  rollback returns is back at its place.
- SL2: every position below `known` that is not read is in exactly one of four: in a lane, in
  flight, not looked at again (`unknown`), or read by a `read_to` and still in a lane, where it is
  passed over when its turn comes.
- SL3: what is available takes 8 bytes a message, and some 40 where it was returned; what is in
  flight some 150. All of them are counted (`memory_bytes`).
"""

from __future__ import annotations

from array import array
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedDict

from quire.intervals import IntervalSet
from quire.limits import LANE_BYTES, LANE_SLACK, RETURNED_BYTES, TAKEN_BYTES


class _Lane:
    """The available positions of one rank, which ascend but for those that came back."""

    __slots__ = ("again", "head", "new")

    def __init__(self) -> None:
        self.new = array("q")
        self.head = 0  # what is before it in `new` was taken
        self.again: list[int] = []  # a heap

    def __len__(self) -> int:
        return len(self.new) - self.head + len(self.again)

    def add(self, positions: NDArray[np.int64]) -> None:
        """Ascending positions, which are not here yet."""
        if self.new and positions[0] <= self.new[-1]:
            self.again += positions.tolist()
            heapify(self.again)
        else:
            self.new.frombytes(positions.tobytes())

    def first(self) -> int:
        """The lowest position; -1: there is none."""
        new, head, again = self.new, self.head, self.again
        if head < len(new) and not (again and again[0] < new[head]):
            return new[head]
        return again[0] if again else -1

    def pop(self) -> None:
        """Take the lowest position away."""
        new, head, again = self.new, self.head, self.again
        if head == len(new) or (again and again[0] < new[head]):
            heappop(again)
            return
        self.head = head = head + 1
        if head > LANE_SLACK and head > len(new) >> 1:
            del new[:head]
            self.head = 0

    def positions(self) -> list[int]:
        return [*self.new[self.head :], *self.again]


class Selection:
    """See the module. The queue's lock covers it."""

    __slots__ = ("_lanes", "_out", "known", "unknown")

    def __init__(self, returned: IntervalSet, known: int) -> None:
        """`returned`: what is available below `known`; what is behind that is looked at later."""
        self.unknown = returned
        self.known = known
        self._lanes: SortedDict[int, _Lane] = SortedDict()  # those that have something, by rank
        self._out: dict[int, int] = {}  # the rank of what was taken from a lane

    # What is not known yet

    def is_behind(self, end: int) -> bool:
        """Whether there are positions below `end` whose messages are to be looked at."""
        return self.known < end or bool(self.unknown)

    def next_unknown(self, done: IntervalSet, end: int, most: int) -> tuple[int, int] | None:
        """The next of them, a run of at most so many; None: there are none."""
        while self.unknown:
            start, stop = self.unknown.first() or (0, 0)
            stop = min(stop, start + most)
            if not done.covers(start, stop):
                return start, stop
            self.unknown.remove(start, stop)
        start = done.first_gap(self.known)
        if start >= end:
            self.known = max(self.known, end)
            return None
        self.known = start
        return start, min(start + most, end)

    def learn(self, start: int, ranks: NDArray[np.int64], done: IntervalSet) -> None:
        """The ranks of the messages from a position on, as `next_unknown` gave it."""
        end = start + len(ranks)
        positions = np.arange(start, end, dtype=np.int64)
        if done.overlaps(start, end):
            left = np.zeros(len(ranks), bool)
            for lo, hi in done.gaps(start, end):
                left[lo - start : hi - start] = True
            positions, ranks = positions[left], ranks[left]
        for rank in np.unique(ranks).tolist():
            lane = self._lanes.get(rank)
            if lane is None:
                lane = self._lanes[rank] = _Lane()
            lane.add(positions[ranks == rank])
        if start < self.known:
            self.unknown.remove(start, end)
        else:
            self.known = end

    # Taking and giving back

    def take(self, limit: int, done: IntervalSet) -> tuple[int, int] | None:
        """The next run of at most `limit` positions, now in flight, or None (SL1)."""
        lanes = self._lanes
        while lanes:
            rank, lane = lanes.peekitem(0)
            start = end = lane.first()
            while end - start < limit and lane.first() == end >= 0 and not done.contains(end):
                lane.pop()
                self._out[end] = rank
                end += 1
            if end == start and start >= 0:
                lane.pop()  # somebody has read past it
            if not lane:
                del lanes[rank]
            if end > start:
                return start, end
        return None

    def give_back(self, start: int, end: int) -> None:
        """[start, end) is available again."""
        for position in range(start, end):
            rank = self._out.pop(position, None)
            if rank is None:
                self.unknown.add(position, position + 1)
                continue
            lane = self._lanes.get(rank)
            if lane is None:
                lane = self._lanes[rank] = _Lane()
            heappush(lane.again, position)

    def forget(self, start: int, end: int) -> None:
        """[start, end) is read."""
        out = self._out
        if end - start > len(out):
            for position in [position for position in out if start <= position < end]:
                del out[position]
        else:
            for position in range(start, end):
                out.pop(position, None)

    @property
    def has_any(self) -> bool:
        """Whether there may be something to take, of what is known."""
        return bool(self._lanes)

    def available(self, done: IntervalSet) -> IntervalSet:
        """All that is available below `known`."""
        found = self.unknown.copy()
        for lane in self._lanes.values():
            for position in lane.positions():
                if not done.contains(position):
                    found.add(position, position + 1)
        return found

    @property
    def memory_bytes(self) -> int:
        """What it takes (SL3)."""
        again = sum(len(lane.again) for lane in self._lanes.values())
        new = sum(len(lane.new) for lane in self._lanes.values())
        return LANE_BYTES * new + RETURNED_BYTES * again + TAKEN_BYTES * len(self._out)
