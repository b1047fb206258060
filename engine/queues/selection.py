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
  It may stand in a lane meanwhile: what is in flight is never taken once more.
- SL5: of a queue whose messages are grouped, the lanes have what is of no group, and what `groups`
  shows: they may have what it has shown before, too, which is passed over.
- SL6: what is taken before it is due is in flight, and still stands where it is scheduled, until it
  would be due: then it is passed over, and noted as due for when it is given back.
- SL3: what is available takes 8 bytes a message, and some 40 where it was returned; what is in
  flight some 150. All of them are counted (`memory_bytes`). What was read and still stands
  somewhere is dropped before it is twice as much as all the rest.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection
from heapq import heapify, heappop, heappush, nsmallest
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedDict

from quire.engine.records.attempts import Attempts
from quire.intervals import IntervalSet
from quire.limits import (
    HEAPIFIED,
    LANE_BYTES,
    LANE_SLACK,
    NEVER_US,
    POSITION_BITS,
    POSITIONS,
    RETURNED_BYTES,
    TAKEN_BYTES,
    TIMED_BYTES,
)

from .groups import Groups, code_of

_Column = NDArray[np.int64] | None
# Of messages that follow each other: rank, when they are due (0: at once), when they expire, and
# the number of their group (0: none).
Headers = tuple[NDArray[np.int64], _Column, _Column, _Column]


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

    def drop(self, done: IntervalSet) -> None:
        """Take away what is read."""
        self.new = array("q", [p for p in self.new[self.head :] if not done.contains(p)])
        self.head = 0
        self.again = [p for p in self.again if not done.contains(p)]
        heapify(self.again)


def held_between(held: Collection[int], start: int, end: int) -> list[int]:
    """Those of the positions, of a set or dict, that are in [start, end)."""
    if end - start > len(held):
        return [position for position in held if start <= position < end]
    return [position for position in range(start, end) if position in held]


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
        "_early",
        "_expiring",
        "_lanes",
        "_late",
        "_most",
        "_out",
        "_passed",
        "_scheduled",
        "expired",
        "groups",
        "known",
        "unknown",
    )

    def __init__(self, returned: IntervalSet, known: int, away: IntervalSet | None = None) -> None:
        """`returned`: what is available below `known`; what is behind that is looked at later.

        `away`: messages are grouped, and these are in flight or come later.
        """
        self.groups = None if away is None else Groups(away)
        for start, end in away or ():
            returned.add(start, end)
        self.unknown = returned
        self.known = known
        self._lanes: SortedDict[int, _Lane] = SortedDict()  # those that have something, by rank
        self._out: dict[int, int] = {}  # the rank of what was taken from a lane
        # A heap: when, position, rank, group.
        self._scheduled: list[tuple[int, int, int, int]] = []
        self._expiring: list[tuple[int, int]] = []  # a heap: when, position
        self._late: set[int] = set()  # what expired in flight
        # What was taken before it was due: None, as long as it still stands in `_scheduled`, or
        # its rank and group.
        self._early: dict[int, tuple[int, int] | None] = {}
        self._passed = 0  # messages that were read, which may stand in any of these still
        self._most = LANE_SLACK  # of them, or of what expires, until those that are read go
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
        ranks, due, expires, numbers = found
        end = start + len(ranks)
        positions = np.arange(start, end, dtype=np.int64)
        left = np.ones(len(ranks), bool)
        for lo, hi in done.intersection(start, end):
            left[lo - start : hi - start] = False
        if numbers is not None:
            self._find_away(start, end, numbers, left)
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
            groups = np.zeros_like(ranks) if numbers is None else numbers
            rows = zip(*(a[some].tolist() for a in (due, positions, ranks, groups)), strict=True)
            _push(self._scheduled, list(rows))
            left &= ~some
        if numbers is not None:
            self._learn_groups(positions, ranks, numbers, left)
        if not left.all():
            positions, ranks = positions[left], ranks[left]
        for rank in np.unique(ranks).tolist():
            self._lane(rank).add(positions[ranks == rank])
        if start < self.known:
            self.unknown.remove(start, end)
        else:
            self.known = end
        if self._passed > self._most or len(self._expiring) > self._most:
            self._drop_read(done)

    def _find_away(
        self, start: int, end: int, numbers: NDArray[np.int64], left: NDArray[np.bool_]
    ) -> None:
        """What is in flight of [start, end), or comes later, is not left; its group is known."""
        groups = self.groups
        if groups is None or not groups.away:
            return
        for lo, hi in list(groups.away.intersection(start, end)):
            left[lo - start : hi - start] = False
            for position in range(lo, hi):
                groups.find(position, int(numbers[position - start]))

    def _learn_groups(
        self,
        positions: NDArray[np.int64],
        ranks: NDArray[np.int64],
        numbers: NDArray[np.int64],
        left: NDArray[np.bool_],
    ) -> None:
        """What is left of messages of groups is the groups' to show (SL5), and not left."""
        if self.groups is None:
            return
        some = left & (numbers != 0)
        rows = zip(*(a[some].tolist() for a in (positions, ranks, numbers)), strict=True)
        self.groups.arrive_many(rows)
        self._open()
        left &= ~some

    def _open(self) -> bool:
        """What the groups show goes to the lanes; whether there was anything."""
        groups = self.groups
        if groups is None or not groups.open:
            return False
        shown, groups.open = groups.open, []
        for code in shown:
            position, rank = code & POSITIONS, code >> POSITION_BITS
            lane = self._lane(rank)
            if not lane.new or position > lane.new[-1]:
                lane.new.append(position)
            else:
                heappush(lane.again, position)
        return True

    def _drop_read(self, done: IntervalSet) -> None:
        """Forget what is read, wherever it stands (SL3)."""
        if self.groups is not None:
            self.groups.drop(done)
            self._open()
        for rank, lane in list(self._lanes.items()):
            lane.drop(done)
            if not lane:
                del self._lanes[rank]
        self._scheduled = [row for row in self._scheduled if not done.contains(row[1])]
        self._expiring = [pair for pair in self._expiring if not done.contains(pair[1])]
        heapify(self._scheduled)
        heapify(self._expiring)
        self._passed = 0
        held = len(self._scheduled) + len(self._expiring) + sum(map(len, self._lanes.values()))
        held += 0 if self.groups is None else self.groups.waiting
        self._most = LANE_SLACK + 2 * held

    # Time

    def advance(self, now_us: int, done: IntervalSet) -> bool:
        """What is due is available, what has expired is not; whether anything became available."""
        is_any = False
        while self._scheduled and self._scheduled[0][0] <= now_us:
            _, position, rank, number = heappop(self._scheduled)
            if done.contains(position):
                continue
            if position in self._early:
                self._early[position] = rank, number
                continue
            is_any = True
            self._arrive(position, rank, number)
        while self._expiring and self._expiring[0][0] <= now_us:
            _, position = heappop(self._expiring)
            if position in self._out:
                self._late.add(position)
            elif not done.contains(position):
                self.expired.add(position, position + 1)
        return is_any

    def _arrive(self, position: int, rank: int, number: int) -> None:
        """It is due."""
        if number and self.groups is not None:
            self.groups.arrive(code_of(position, rank), number)
            self._open()
        else:
            self._add(position, rank)

    def next_scheduled(self, done: IntervalSet, most: int) -> list[int]:
        """The positions of what is due next, in that order, up to `most` of them."""
        rows = (row for row in self._scheduled if row[1] not in self._out)
        return [row[1] for row in nsmallest(most, rows) if not done.contains(row[1])]

    def take_scheduled(self, position: int, done: IntervalSet) -> bool:
        """Take it though it is not due; False: it is not scheduled. Looks through all that is."""
        if position in self._out or done.contains(position) or self.expired.contains(position):
            return False
        if not any(row[1] == position for row in self._scheduled):
            return False
        self._early[position] = None
        self._out[position] = 0
        return True

    def _give_back_early(self, position: int) -> None:
        """What was taken before it was due is scheduled again, or due by now, or over."""
        popped = self._early.pop(position)
        del self._out[position]
        if position in self._late:
            self._late.remove(position)
            self.expired.add(position, position + 1)
        elif popped is not None:
            self._arrive(position, *popped)

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
    def has_scheduled(self) -> bool:
        """Whether there may be messages that are not due yet."""
        return bool(self._scheduled)

    def scheduled(self, done: IntervalSet) -> int:
        """How many messages are not due yet."""
        if self._passed and self._scheduled:
            self._drop_read(done)
        return len(self._scheduled) - sum(popped is None for popped in self._early.values())

    def _add(self, position: int, rank: int) -> None:
        heappush(self._lane(rank).again, position)

    def _lane(self, rank: int) -> _Lane:
        lane: _Lane | None = self._lanes.get(rank)
        if lane is None:
            lane = self._lanes[rank] = _Lane()
        return lane

    # Taking and giving back

    def take(
        self, limit: int, done: IntervalSet, attempts: Attempts, taker: object = None
    ) -> tuple[int, int] | None:
        """The next run of at most `limit` positions that were delivered equally often (SL1).

        They are in flight now; None: there are none. `taker`: which transaction takes them.
        """
        if self.groups is not None:
            return self._take_grouped(self.groups, limit, done, attempts, taker)
        lanes, out, expired = self._lanes, self._out, self.expired
        while lanes:
            rank, lane = lanes.peekitem(0)
            start = end = lane.first()
            stop = attempts.equal(start, start + limit)
            while (
                end < stop
                and lane.first() == end
                and end not in out
                and not done.contains(end)
                and not expired.contains(end)
            ):
                lane.pop()
                out[end] = rank
                end += 1
            if end == start:
                lane.pop()  # somebody has read past it, or it has expired
            if not lane:
                del lanes[rank]
            if end > start:
                return start, end
        return None

    def _take_grouped(
        self, groups: Groups, limit: int, done: IntervalSet, attempts: Attempts, taker: object
    ) -> tuple[int, int] | None:
        """The same where messages are grouped (SL5)."""
        start = end = stop = -1
        while start < 0 or end < stop:
            if self.unknown:  # it may be of a group before what is known of it
                break
            code = self._first_open(groups, done)
            own = groups.first_of(taker)
            is_own = own >= 0 and not 0 <= code < own
            if is_own:
                code = own
            if code < 0:
                break
            position, rank = code & POSITIONS, code >> POSITION_BITS
            if is_own and self._is_gone(position, done):
                groups.pass_over(position)
                continue
            if start < 0:
                start = end = position
                stop = attempts.equal(start, start + limit)
            elif position != end:
                break
            self._out[position] = rank
            end += 1
            if not is_own:
                self._pop(rank)
            groups.take(position, taker)
        return (start, end) if end > start else None

    def _is_gone(self, position: int, done: IntervalSet) -> bool:
        return position in self._out or done.contains(position) or self.expired.contains(position)

    def _first_open(self, groups: Groups, done: IntervalSet) -> int:
        """The code of the first that everybody may take; -1: there is none."""
        while self._lanes:
            rank, lane = self._lanes.peekitem(0)
            position = lane.first()
            is_gone = self._is_gone(position, done)
            if not is_gone and groups.is_open(position, rank):
                return code_of(position, rank)
            self._pop(rank)
            if is_gone:
                groups.pass_over(position)
                self._open()
        return -1

    def _pop(self, rank: int) -> None:
        lane = self._lanes[rank]
        lane.pop()
        if not lane:
            del self._lanes[rank]

    def give_back(self, start: int, end: int) -> None:
        """[start, end) is available again."""
        groups = self.groups
        for position in range(start, end):
            if position in self._early:
                self._give_back_early(position)
                continue
            rank = self._out.pop(position, None)
            if rank is None:
                self.unknown.add(position, position + 1)
                if groups is not None:
                    groups.away.remove(position, position + 1)
                    groups.let_go(position)
            elif position in self._late:
                self._late.remove(position)
                self.expired.add(position, position + 1)
                if groups is not None:
                    groups.let_go(position)
            elif groups is not None and position in groups.held:
                groups.let_go(position, code_of(position, rank))
            else:
                self._add(position, rank)
        self._open()

    def wait_for(self, start: int, end: int) -> None:
        """[start, end), in flight until now, comes later: so do its groups."""
        if self.groups is not None:
            for position in held_between(self.groups.held, start, end):
                self.groups.wait_for(position)

    def let_go(self, start: int, end: int) -> None:
        """[start, end), in flight until now, is spent: its groups go on."""
        if self.groups is not None:
            for position in held_between(self.groups.held, start, end):
                self.groups.let_go(position)
            self._open()

    def forget(self, start: int, end: int) -> bool:
        """[start, end) is read; whether anything else became available by that."""
        out = self._out
        if self.expired:
            self.expired.remove(start, end)
        taken = held_between(out, start, end)
        for position in taken:
            del out[position]
        self._passed += end - start - len(taken)
        if self._early:
            early = held_between(self._early, start, end)
            for position in early:
                del self._early[position]
            self._passed += len(early)
        if self._late:
            late = held_between(self._late, start, end)
            self._late.difference_update(late)
            self._passed += len(late)
        if self.groups is None:
            return False
        self.groups.away.remove(start, end)
        for position in held_between(self.groups.held, start, end):
            self.groups.let_go(position)
        return self._open()

    @property
    def has_any(self) -> bool:
        """Whether there may be something to take, of what is known."""
        return bool(self._lanes)

    def available(self, done: IntervalSet) -> IntervalSet:
        """All that is available below `known`."""
        found = IntervalSet()
        for start, end in self.unknown:
            for lo, hi in done.gaps(start, end):  # it may have been read since
                found.add(lo, hi)
        for start, end in () if self.groups is None else self.groups.away:
            found.remove(start, end)
        standing = [position for lane in self._lanes.values() for position in lane.positions()]
        standing += [position for _, position, _, _ in self._scheduled]
        standing += [] if self.groups is None else self.groups.available()
        for position in sorted(standing):
            if position not in self._out and not done.contains(position):
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
            + (0 if self.groups is None else self.groups.memory_bytes)
        )
