"""Which positions a subscription takes next, where that is not simply the next one.

A queue whose messages are not delivered in commit order has a selection for each subscription: what
is available, by rank. It is derived state, made from the messages' header columns when somebody
takes and never journaled: a restart makes it anew.

- SL1: of what is available the lowest rank is taken, and within a rank the lowest position: what a
  rollback returns is back at its place.
- SL2: every position below `known` that is not read is in exactly one of four: in a lane, in
  flight, not looked at again (`unknown`), or read by a `read_to` and still in a lane, where it is
  passed over when its turn comes.
- SL4: of a queue whose times count, what is not due yet is `scheduled`, and what has expired is set
  aside (`expired`) until the maintenance has moved or dropped it; in flight it may be read still.
- SL3: what is available takes 8 bytes a message, and some 40 where it was returned; what is in
  flight some 150. All of them are counted (`memory_bytes`).
"""

from __future__ import annotations

from array import array
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedDict

from quire.intervals import IntervalSet
from quire.limits import (
    HEAPIFIED,
    LANE_BYTES,
    LANE_SLACK,
    NEVER_US,
    RETURNED_BYTES,
    TAKEN_BYTES,
    TIMED_BYTES,
)

# Of messages that follow each other: rank, when they are due (0: at once), when they expire.
Headers = tuple[NDArray[np.int64], NDArray[np.int64] | None, NDArray[np.int64] | None]


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


def _push(heap: list[Any], items: list[Any]) -> None:
    """Add many to a heap."""
    if len(items) > HEAPIFIED:
        heap += items
        heapify(heap)
    else:
        for item in items:
            heappush(heap, item)


class Selection:
    """See the module. The queue's lock covers it."""

    __slots__ = (
        "_expiring",
        "_lanes",
        "_late",
        "_out",
        "_scheduled",
        "expired",
        "known",
        "unknown",
    )

    def __init__(self, returned: IntervalSet, known: int) -> None:
        """`returned`: what is available below `known`; what is behind that is looked at later."""
        self.unknown = returned
        self.known = known
        self._lanes: SortedDict[int, _Lane] = SortedDict()  # those that have something, by rank
        self._out: dict[int, int] = {}  # the rank of what was taken from a lane
        self._scheduled: list[tuple[int, int, int]] = []  # a heap: when, position, rank
        self._expiring: list[tuple[int, int]] = []  # a heap: when, position
        self._late: set[int] = set()  # what expired in flight
        self.expired = IntervalSet()

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

    def learn(self, start: int, found: Headers, done: IntervalSet, now_us: int) -> None:
        """What the messages from a position on say, as `next_unknown` gave it."""
        ranks, due, expires = found
        end = start + len(ranks)
        positions = np.arange(start, end, dtype=np.int64)
        left = np.ones(len(ranks), bool)
        for lo, hi in done.intersection(start, end):
            left[lo - start : hi - start] = False
        if expires is not None:
            over = left & (expires <= now_us)
            for position in positions[over].tolist():
                self.expired.add(position, position + 1)
            left &= ~over
            some = left & (expires != NEVER_US)
            pairs = zip(expires[some].tolist(), positions[some].tolist(), strict=True)
            _push(self._expiring, list(pairs))
        if due is not None:
            some = left & (due > now_us)
            rows = zip(*(a[some].tolist() for a in (due, positions, ranks)), strict=True)
            _push(self._scheduled, list(rows))
            left &= ~some
        if not left.all():
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

    # Time

    def advance(self, now_us: int, done: IntervalSet) -> bool:
        """What is due is available, what has expired is not; whether anything became available."""
        is_any = False
        while self._scheduled and self._scheduled[0][0] <= now_us:
            _, position, rank = heappop(self._scheduled)
            if not done.contains(position):
                self._add(position, rank)
                is_any = True
        while self._expiring and self._expiring[0][0] <= now_us:
            _, position = heappop(self._expiring)
            if position in self._out:
                self._late.add(position)
            elif not done.contains(position):
                self.expired.add(position, position + 1)
        return is_any

    def take_expired(self, start: int, end: int) -> None:
        """[start, end) has expired, and is in flight now."""
        for position in range(start, end):
            self._out[position] = 0
            self._late.add(position)

    @property
    def next_due_us(self) -> int:
        """When the next scheduled message is due; `NEVER_US`: there is none."""
        return self._scheduled[0][0] if self._scheduled else NEVER_US

    @property
    def scheduled(self) -> int:
        """How many messages are not due yet."""
        return len(self._scheduled)

    def _add(self, position: int, rank: int) -> None:
        lane = self._lanes.get(rank)
        if lane is None:
            lane = self._lanes[rank] = _Lane()
        heappush(lane.again, position)

    # Taking and giving back

    def take(self, limit: int, done: IntervalSet) -> tuple[int, int] | None:
        """The next run of at most `limit` positions, now in flight, or None (SL1)."""
        lanes = self._lanes
        while lanes:
            rank, lane = lanes.peekitem(0)
            start = end = lane.first()
            while (
                end - start < limit
                and lane.first() == end >= 0
                and not done.contains(end)
                and not self.expired.contains(end)
            ):
                lane.pop()
                self._out[end] = rank
                end += 1
            if end == start and start >= 0:
                lane.pop()  # somebody has read past it, or it has expired
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
            elif position in self._late:
                self._late.remove(position)
                self.expired.add(position, position + 1)
            else:
                self._add(position, rank)

    def forget(self, start: int, end: int) -> None:
        """[start, end) is read."""
        out = self._out
        if self.expired:
            self.expired.remove(start, end)
        if self._late:
            self._late -= {position for position in self._late if start <= position < end}
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
        for _, position, _ in self._scheduled:
            if not done.contains(position):
                found.add(position, position + 1)
        for start, end in self.expired:
            found.add(start, end)
        return found

    @property
    def memory_bytes(self) -> int:
        """What it takes (SL3)."""
        again = sum(len(lane.again) for lane in self._lanes.values())
        new = sum(len(lane.new) for lane in self._lanes.values())
        timed = len(self._scheduled) + len(self._expiring)
        return (
            TIMED_BYTES * timed
            + LANE_BYTES * new
            + RETURNED_BYTES * again
            + TAKEN_BYTES * len(self._out)
        )
