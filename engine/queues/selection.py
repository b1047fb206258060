"""Which positions a subscription takes next, where that is not simply the next one.

A queue whose messages are not delivered in commit order has a selection for each subscription: what
is available, by rank. It is derived state, made from the messages' header columns when somebody
takes and never journaled: a restart makes it anew.

- SL1: of what is available the lowest rank is taken, and within a rank the lowest position: what a
  rollback returns is back at its place.
- SL2: every position below `known` that is not read is in exactly one of five: standing ready,
  waiting for others of its sequence (SL7), in flight, not looked at again (`unknown`), or read by a
  `read_to` and still standing there, where it is passed over when its turn comes.
- SL4: of a queue whose times count, what is not due yet is `scheduled`, and what has expired is set
  aside (`expired`) until the maintenance has moved or dropped it; in flight it may be read still.
  It may stand ready meanwhile: what is in flight is never taken once more.
- SL9: moments (`deliver_at`, `expires_at`) come by the wall clock. What lasts so many seconds from
  the commit on (the queue's `ttl` and `max_ttl`, the wait of a sequence) is counted by the
  monotonic clock from when it is learned, less what its commit's time then says has passed: a
  clock that is set, back or forward, neither prolongs nor shortens what is known.
- SL5: of a queue whose messages are grouped, there stands what is of no group, and what `groups`
  shows: what it has shown before may stand there, too, and is passed over.
- SL6: what is taken before it is due is in flight, and still stands where it is scheduled, until it
  would be due: then it is passed over, and noted as due for when it is given back.
- SL7: in an order by sequences, what `sequences` has let through stands ready, with the rank that
  that gives. What has waited long enough is let through once all that is there was looked at.
- SL8: what was in flight, or came later, before anything was known of it is `_outside`, until it is
  read or comes back; so is what is taken by its position, to give way to others, and what is spent.
  It may stand ready meanwhile, and is passed over. Given back it is looked at again.
- SL3: what is available takes 8 bytes a message by priority, some 60 by numbers, some 120 by texts,
  and some 40 more where it was returned; what is in flight some 150. All of them are counted
  (`memory_bytes`). What was read and still stands somewhere is dropped before it is twice as much
  as all the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, nsmallest
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quire.engine.records.attempts import Attempts
from quire.intervals import IntervalSet
from quire.limits import LANE_SLACK, NEVER_US, POSITION_BITS, POSITIONS, TIMED_BYTES
from quire.order import BUILT_IN, COMMIT, by_sequence

from .groups import Groups
from .sequences import Sequences
from .standing import Keyed, Lanes, Ranks, Standing, code_of, held_between, push

_Column = NDArray[np.int64] | None


class Headers(NamedTuple):
    """What messages that follow each other say, as far as their queue's properties ask."""

    ranks: Ranks  # in an order by sequences their links (see `sequences`)
    due: _Column = None  # 0: at once
    expires: _Column = None
    groups: _Column = None  # the number of the group; 0: none
    times: _Column = None  # of the commit
    lives: _Column = None  # microseconds from then on, at most; `NEVER_US`: as `expires` says


class Selection:
    """See the module. The queue's lock covers it."""

    __slots__ = (
        "_aging",
        "_early",
        "_expiring",
        "_is_back",
        "_late",
        "_most",
        "_now_us",
        "_out",
        "_outside",
        "_passed",
        "_scheduled",
        "_standing",
        "expired",
        "groups",
        "known",
        "over",
        "sequences",
        "unknown",
    )

    def __init__(
        self,
        returned: IntervalSet,
        known: int,
        away: IntervalSet | None = None,
        order: object = COMMIT,
        *,
        is_grouped: bool = False,
        read: Mapping[int, int] | None = None,
    ) -> None:
        """`returned`: what is available below `known`; what is behind that is looked at later.

        `away`: what is in flight, or comes later. `order`: the queue's. `read`: see `Sequences`.
        """
        self._outside = IntervalSet() if away is None else away
        self.groups = Groups(self._outside.copy()) if is_grouped else None
        self.sequences: Sequences | None = None
        if isinstance(order, dict) and by_sequence(order):
            self.sequences = Sequences(order["wait"], order["most"], read or {})
        for start, end in () if self.groups is None else self.groups.away:
            returned.add(start, end)
        self.unknown = returned
        self.known = known
        self._standing: Standing = Lanes() if order in BUILT_IN else Keyed()
        self._out: dict[int, int] = {}  # the rank of what was taken from there
        # A heap: when, position, rank, group.
        self._scheduled: list[tuple[int, int, int, int]] = []
        self._expiring: list[tuple[int, int]] = []  # a heap: when, position
        self._aging: list[tuple[int, int]] = []  # the same, by the monotonic clock (SL9)
        self._late: set[int] = set()  # what expired in flight
        self.over: list[int] = []  # of that, what nobody has looked at: it may come later
        # What was taken before it was due: None, as long as it still stands in `_scheduled`, or
        # its rank and group.
        self._early: dict[int, tuple[int, int] | None] = {}
        self._now_us = 0  # the latest time at which it was looked what is due
        self._is_back = False  # the clock was set back behind that
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

    def learn(
        self, start: int, found: Headers, done: IntervalSet, now_us: int, clock_us: int
    ) -> None:
        """What the messages from a position on say, as `next_unknown` gave it.

        `clock_us`: the monotonic clock's (SL9).
        """
        ranks, due, _, numbers, times, _ = found
        end = start + len(ranks)
        positions = np.arange(start, end, dtype=np.int64)
        left = np.ones(len(ranks), bool)
        for lo, hi in done.intersection(start, end):
            left[lo - start : hi - start] = False
        if numbers is not None:
            self._find_away(start, end, numbers, left)
        groups = np.zeros(len(ranks), np.int64) if numbers is None else numbers
        ages = np.zeros(len(ranks), np.int64) if times is None else np.maximum(now_us - times, 0)
        self._learn_ends(positions, found, ages, left, now_us, clock_us)
        if due is not None:
            self._look_at(now_us)
            some = left & (due > now_us)
            rows = zip(*(a[some].tolist() for a in (due, positions, ranks, groups)), strict=True)
            push(self._scheduled, list(rows))
            left &= ~some
        if self.sequences is not None:
            since = clock_us - np.minimum(ages, self.sequences.wait_us)
            columns = (positions, ranks, groups, since)
            for row in zip(*(a[left].tolist() for a in columns), strict=True):
                self._sequence(*row)
            left[:] = False
        if numbers is not None:
            self._learn_groups(positions, ranks, numbers, left)
        self._standing.learn(positions[left], ranks[left])
        self.unknown.remove(start, end)
        self.known = max(self.known, end)
        if self._passed > self._most or len(self._expiring) + len(self._aging) > self._most:
            self._drop_read(done)

    def _learn_ends(
        self,
        positions: NDArray[np.int64],
        found: Headers,
        ages: NDArray[np.int64],
        left: NDArray[np.bool_],
        now_us: int,
        clock_us: int,
    ) -> None:
        """What of it expires, and when; what has expired is not left."""
        expires, lives = found.expires, found.lives
        if expires is None:
            return
        over = left & (expires <= now_us)
        if lives is not None:
            over |= left & (lives <= ages)
        for position in positions[over].tolist():
            self.expired.add(position, position + 1)
        some = left & ~over & (expires != NEVER_US)
        push(
            self._expiring, list(zip(expires[some].tolist(), positions[some].tolist(), strict=True))
        )
        if lives is not None:
            some = left & ~over & (lives != NEVER_US)
            ends = clock_us + lives[some] - ages[some]
            push(self._aging, list(zip(ends.tolist(), positions[some].tolist(), strict=True)))
        if self.sequences is None:  # else it has its place in its sequence, where it is passed over
            left &= ~over

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
        """What the groups show stands ready; whether there was anything."""
        groups = self.groups
        if groups is None or not groups.open:
            return False
        shown, groups.open = groups.open, []
        for code in shown:
            self._standing.show(code & POSITIONS, code >> POSITION_BITS)
        return True

    def hear(self, sender: int, number: int) -> bool:
        """All of a sender below this number is read; whether anything became available by that."""
        return self.sequences is not None and self._let_through(self.sequences.hear(sender, number))

    def _sequence(self, position: int, link: int, group: int, time_us: int) -> None:
        """One of a sequence is there since then, by the monotonic clock."""
        assert self.sequences is not None
        self._let_through(self.sequences.arrive(position, link, group, time_us))

    def _let_through(self, rows: Iterable[tuple[int, int, int]]) -> bool:
        """What waits no more for those before it; whether there was anything."""
        is_any = False
        for position, rank, group in rows:
            is_any = True
            self._stand(position, rank, group)
        return is_any

    def _drop_read(self, done: IntervalSet) -> None:
        """Forget what is read, wherever it stands (SL3)."""
        if self.groups is not None:
            self.groups.drop(done)
            self._open()
        self._standing.drop(done)
        self._scheduled = [row for row in self._scheduled if not done.contains(row[1])]
        self._expiring = [pair for pair in self._expiring if not done.contains(pair[1])]
        self._aging = [pair for pair in self._aging if not done.contains(pair[1])]
        heapify(self._scheduled)
        heapify(self._expiring)
        heapify(self._aging)
        self._passed = 0
        held = len(self._scheduled) + len(self._expiring) + len(self._aging) + len(self._standing)
        held += 0 if self.groups is None else self.groups.waiting
        self._most = LANE_SLACK + 2 * held

    # Time

    def advance(self, now_us: int, clock_us: int, done: IntervalSet, end: int) -> bool:
        """What is due is available, what has expired is not; whether anything became available.

        `clock_us`: the monotonic clock's (SL9). `end`: of the queue.
        """
        is_any = False
        self._look_at(now_us)
        while self._scheduled and self._scheduled[0][0] <= now_us:
            _, position, rank, number = heappop(self._scheduled)
            if done.contains(position):
                continue
            if position in self._early:
                self._early[position] = rank, number
                continue
            is_any = True
            self._arrive(position, rank, number, clock_us)
        if self.sequences is not None and not self.is_behind(end):  # else it may be there
            is_any |= self._let_through(self.sequences.overdue(clock_us))
        for heap, now in ((self._expiring, now_us), (self._aging, clock_us)):
            while heap and heap[0][0] <= now:
                self._expire(heappop(heap)[1], done)
        return is_any

    def _expire(self, position: int, done: IntervalSet) -> None:
        if position in self._out:
            if position not in self._late:
                self._late.add(position)
                self.over.append(position)
        elif not self._is_gone(position, done):
            self.expired.add(position, position + 1)

    def _look_at(self, now_us: int) -> None:
        self._is_back = now_us < self._now_us
        self._now_us = max(self._now_us, now_us)

    def _arrive(self, position: int, rank: int, number: int, clock_us: int) -> None:
        """It is due, since then."""
        if self.sequences is not None:
            self._sequence(position, rank, number, clock_us)
        else:
            self._stand(position, rank, number)

    def _stand(self, position: int, rank: int, number: int) -> None:
        """It is ready to be taken, as soon as its group lets it."""
        if number and self.groups is not None:
            self.groups.arrive(code_of(position, rank), number)
            self._open()
        else:
            self._standing.add(position, rank)

    def next_scheduled(self, done: IntervalSet, most: int) -> list[int]:
        """The positions of what is due next, in that order, up to `most` of them."""
        rows = (row for row in self._scheduled if not self._is_gone(row[1], done))
        return [row[1] for row in nsmallest(most, rows)]

    def take_scheduled(
        self, position: int, due_us: int, number: int, done: IntervalSet, taker: object
    ) -> bool:
        """Take it though it is not due, which it says it is then; False: it is not scheduled.

        With a taker that takes its group, too: False also where others have that.
        """
        is_known = position < self.known and not self.unknown.contains(position)
        if not self._scheduled or not is_known or self._is_gone(position, done):
            return False
        if due_us <= self._now_us and not (self._is_back and self._is_scheduled(position)):
            return False  # by then it was looked at, or became available
        groups = None if not number or taker is None else self.groups
        if groups is not None and not groups.hold(position, number, taker):
            return False
        self._early[position] = None
        self._out[position] = 0
        return True

    def _is_scheduled(self, position: int) -> bool:
        return any(row[1] == position for row in self._scheduled)

    def _give_back_early(self, position: int) -> None:
        """What was taken before it was due is scheduled again, or due by now, or over."""
        popped = self._early.pop(position)
        del self._out[position]
        if self.groups is not None:
            self.groups.let_go(position)
        if position in self._late:
            self._late.remove(position)
            self.expired.add(position, position + 1)
        elif popped is not None:
            self._arrive(position, *popped, -self.sequences.wait_us if self.sequences else 0)

    def take_expired(self, start: int, end: int) -> None:
        """[start, end) has expired, and is in flight now."""
        for position in range(start, end):
            self._out[position] = 0
            self._late.add(position)

    def due_in(self, now_us: int, clock_us: int) -> float:
        """Seconds until the next message that comes later is due; infinite: there is none."""
        due_us = self._scheduled[0][0] - now_us if self._scheduled else math.inf
        waits_until = None if self.sequences is None else self.sequences.next_due_us
        return min(due_us, math.inf if waits_until is None else waits_until - clock_us) / 1e6

    def scheduled(self, done: IntervalSet) -> int:
        """How many messages are not due yet, or wait for others before them."""
        if self._passed and (self._scheduled or self.sequences is not None):
            self._drop_read(done)
        waiting = 0 if self.sequences is None else self.sequences.waiting
        early = sum(popped is None for popped in self._early.values())
        return len(self._scheduled) - early + waiting

    def missing(self, start: int, end: int) -> tuple[int, int | None]:
        """What is missing before the first of [start, end), None: nothing; where others follow."""
        gaps = {} if self.sequences is None else self.sequences.gaps
        if start in gaps:
            return start + 1, gaps[start]
        return min(held_between(gaps, start, end), default=end), None

    @property
    def missed(self) -> int:
        """How many messages were let through though something before them was missing."""
        return 0 if self.sequences is None else self.sequences.missed

    # Taking and giving back

    def take(
        self, limit: int, done: IntervalSet, attempts: Attempts, taker: object = None
    ) -> tuple[int, int] | None:
        """The next run of at most `limit` positions that were delivered equally often (SL1).

        They are in flight now; None: there are none. `taker`: which transaction takes them.
        """
        if self.groups is not None:
            return self._take_grouped(self.groups, limit, done, attempts, taker)
        standing, out, expired, outside = self._standing, self._out, self.expired, self._outside
        some_outside = bool(outside)
        code = standing.first()
        while code >= 0:
            start = end = code & POSITIONS
            stop = attempts.equal(start, start + limit)
            while (
                end < stop
                and code & POSITIONS == end
                and end not in out
                and not done.contains(end)
                and not expired.contains(end)
                and not (some_outside and outside.contains(end))
            ):
                standing.pop()
                out[end] = code >> POSITION_BITS
                end += 1
                code = standing.first()
            if end > start:
                return start, end
            standing.pop()  # somebody has read past it, or it has expired, or gives way
            code = standing.first()
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
                self._standing.pop()
            groups.take(position, taker)
        return (start, end) if end > start else None

    def _is_gone(self, position: int, done: IntervalSet) -> bool:
        return (
            position in self._out
            or done.contains(position)
            or self.expired.contains(position)
            or self._outside.contains(position)
        )

    def _first_open(self, groups: Groups, done: IntervalSet) -> int:
        """The code of the first that everybody may take; -1: there is none."""
        standing = self._standing
        while (code := standing.first()) >= 0:
            position = code & POSITIONS
            is_gone = self._is_gone(position, done)
            if not is_gone and groups.is_open(position, code >> POSITION_BITS):
                return code
            standing.pop()
            if is_gone:
                groups.pass_over(position)
                self._open()
        return -1

    def give_back(self, start: int, end: int) -> None:
        """[start, end) is available again."""
        groups = self.groups
        for position in range(start, end):
            if position in self._early:
                self._give_back_early(position)
                continue
            rank = self._out.pop(position, None)
            if rank is None:
                self._outside.remove(position, position + 1)
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
                self._standing.add(position, rank)
        self._open()

    def late_in(self, start: int, end: int) -> list[int]:
        """What of [start, end), which is in flight or comes later, has expired."""
        return sorted(held_between(self._late, start, end)) if self._late else []

    def wait_for(self, start: int, end: int) -> None:
        """[start, end), in flight until now, comes later: so do its groups."""
        if self.groups is not None:
            for position in held_between(self.groups.held, start, end):
                self.groups.wait_for(position)

    def let_go(self, start: int, end: int) -> None:
        """[start, end), in flight until now, is spent: its groups go on."""
        for position in held_between(self._out, start, end):
            if position not in self._early:
                del self._out[position]
                self._late.discard(position)
                self._outside.add(position, position + 1)
        if self.groups is not None:
            for position in held_between(self.groups.held, start, end):
                self.groups.let_go(position)
            self._open()

    def forget(self, start: int, end: int) -> bool:
        """[start, end) is read; whether anything else became available by that."""
        out = self._out
        if self.expired:
            self.expired.remove(start, end)
        if self._outside:
            self._outside.remove(start, end)
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
        if self.sequences is not None and self.sequences.gaps:
            self.sequences.forget(start, end)
        if self.groups is None:
            return False
        self.groups.away.remove(start, end)
        for position in held_between(self.groups.held, start, end):
            self.groups.let_go(position)
        return self._open()

    # What gives way to others (SL8)

    def held_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that are in flight, come later or are set aside."""
        out = [(position, position + 1) for position in held_between(self._out, start, end)]
        held = (self._outside, self.expired)
        return out + [part for some in held for part in some.intersection(start, end)]

    @property
    def coming(self) -> set[int]:
        """What is not due yet, and perhaps some that is read."""
        return {position for _, position, _, _ in self._scheduled}

    def take_part(self, start: int, end: int) -> None:
        """[start, end), none of which is held or read, is in flight now."""
        if self.known < end:
            if self.known < start:
                self.unknown.add(self.known, start)
            self.known = end
        self.unknown.remove(start, end)
        self._outside.add(start, end)

    @property
    def has_any(self) -> bool:
        """Whether there may be something to take, of what is known."""
        return self._standing.first() >= 0

    def available(self, done: IntervalSet) -> IntervalSet:
        """All that is available below `known`."""
        found = IntervalSet()
        for start, end in self.unknown:
            for lo, hi in done.gaps(start, end):  # it may have been read since
                found.add(lo, hi)
        for start, end in () if self.groups is None else self.groups.away:
            found.remove(start, end)
        standing = self._standing.positions()
        standing += [] if self.sequences is None else self.sequences.positions()
        standing += [position for _, position, _, _ in self._scheduled]
        standing += [] if self.groups is None else self.groups.available()
        for position in sorted(standing):
            if position not in self._out and not done.contains(position):
                found.add(position, position + 1)
        for start, end in self._outside:
            found.remove(start, end)
        for start, end in self.expired:
            found.add(start, end)
        return found

    @property
    def memory_bytes(self) -> int:
        """What it takes (SL3)."""
        timed = len(self._scheduled) + len(self._expiring) + len(self._aging)
        return (
            TIMED_BYTES * timed
            + self._standing.memory_bytes
            + self._standing.taken_bytes * len(self._out)
            + (0 if self.groups is None else self.groups.memory_bytes)
            + (0 if self.sequences is None else self.sequences.memory_bytes)
        )
