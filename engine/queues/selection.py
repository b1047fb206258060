"""Which positions a subscription takes next, where that is not simply the next one.

A queue whose messages are not delivered in commit order has a selection for each subscription:
where each message is (`whereabouts`), and what is available, by rank. It is derived state, made
from the messages' header columns when somebody takes and never journaled: a restart makes it anew.

- SL1: of what is available the lowest rank is taken, and within a rank the lowest position: what a
  rollback returns is back at its place.
- SL2: where a position is, its byte says alone (`delivery_table`). What stands in an index beside
  (ready, by its time, in its sequence, shown by its group) may be elsewhere by then: it is passed
  over when its turn comes. `unknown` is what is to be looked at below `known`: all that is UNSEEN,
  and of a queue whose messages are grouped what was in flight, or came later, before that.
- SL3: what is available takes some 10 bytes a message by priority, 60 by numbers, 120 by texts,
  and some 40 more where it was returned; what is in flight some 150. All of them are counted
  (`memory_bytes`). What was read and still stands somewhere is dropped before it is twice as much
  as all the rest.
- SL4: `expired` is what is EXPIRED, for the maintenance to move or drop it.
- SL5: what is of a group stands ready as `groups` shows it.
- SL6: of what is taken in the queue's order its rank is kept, with which it comes back; of what is
  taken before it is due, that it still stands in `_scheduled`, or what stood there. Nothing is
  kept of what is taken by its position, or is spent after all: it is looked at again.
- SL7: in an order by sequences, what `sequences` has let through stands ready, with the rank that
  that gives. What has waited long enough is let through once all that is there was looked at.
- SL9: moments (`deliver_at`, `expires_at`) come by the wall clock. What lasts so many seconds from
  the commit on (the queue's `ttl` and `max_ttl`, the wait of a sequence) is counted by the
  monotonic clock from when it is learned, less what its commit's time then says has passed: a
  clock that is set, back or forward, neither prolongs nor shortens what is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, nsmallest
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quire.engine.records.attempts import Attempts
from quire.intervals import IntervalSet
from quire.limits import LANE_SLACK, NEVER_US, POSITION_BITS, POSITIONS, TIMED_BYTES
from quire.order import BUILT_IN, COMMIT, by_sequence

from .delivery_table import WAYS, DeliveryState, Event
from .groups import Groups
from .sequences import Sequences
from .standing import Keyed, Lanes, Ranks, Standing, code_of, held_between, push
from .whereabouts import Whereabouts, those_of

_Column = NDArray[np.int64] | None
_Runs = Iterable[tuple[int, int]]

(
    UNSEEN, WAITING, SCHEDULED, AVAILABLE, IN_FLIGHT, AHEAD, LATE, REJECTED, SPENT, EXPIRED, READ,
) = [state.number for state in DeliveryState]  # fmt: skip
_IN_HAND: Final = those_of(DeliveryState.IN_FLIGHT, DeliveryState.AHEAD, DeliveryState.LATE)
_HELD: Final = those_of(
    *(state for state in DeliveryState if state.number in range(IN_FLIGHT, READ))
)
_COMING: Final = those_of(DeliveryState.SCHEDULED, DeliveryState.WAITING)
_FREE: Final = those_of(
    *(state for state in DeliveryState if state.number < IN_FLIGHT), DeliveryState.EXPIRED
)

_SCHEDULED: Final = None  # of `_out`: it still stands in `_scheduled`
_OVER: Final = ()  # it is spent, and has expired
_NOTHING: Final = -1  # nothing is kept of it
_LATE: Final = those_of(DeliveryState.LATE)
_TAKEN: Final = WAYS[Event.TAKE][IN_FLIGHT]
_PASSED: Final = WAYS[Event.READ][READ]


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
        "_expiring",
        "_most",
        "_out",
        "_passed",
        "_scheduled",
        "_standing",
        "expired",
        "groups",
        "over",
        "sequences",
        "unknown",
        "where",
    )

    def __init__(
        self,
        returned: IntervalSet,
        known: int,
        order: object = COMMIT,
        *,
        held: Mapping[DeliveryState, _Runs] | None = None,
        is_grouped: bool = False,
        read: Mapping[int, int] | None = None,
    ) -> None:
        """`returned`: what is available below `known`; what is behind that is looked at later.

        `held`: what else is not read. `order`: the queue's. `read`: see `Sequences`.
        """
        self.where = Whereabouts()
        self.where.fill(returned, DeliveryState.UNSEEN, known)
        away = IntervalSet()
        for state, runs in ({} if held is None else held).items():
            self.where.fill(runs, state, known)
            for start, end in () if state is DeliveryState.SPENT else runs:
                away.add(start, end)
        self.groups = Groups(away) if is_grouped else None
        self.sequences: Sequences | None = None
        if isinstance(order, dict) and by_sequence(order):
            self.sequences = Sequences(order["wait"], order["most"], read or {})
        for start, end in away if is_grouped else ():
            returned.add(start, end)
        self.unknown = returned
        self._standing: Standing = Lanes() if order in BUILT_IN else Keyed()
        # A rank; or `_SCHEDULED`, or by then the rank and group that stood there; or `_OVER`.
        self._out: dict[int, int | tuple[int, ...] | None] = {}
        # A heap: when, position, rank, group.
        self._scheduled: list[tuple[int, int, int, int]] = []
        self._expiring: list[tuple[int, int]] = []  # a heap: when, position
        self._aging: list[tuple[int, int]] = []  # the same, by the monotonic clock (SL9)
        self.over: list[int] = []  # what has expired, and what nobody has looked at may come later
        self._passed = 0  # messages that were read, which may stand in any of these still
        self._most = LANE_SLACK  # of them, or of what expires, until those that are read go
        self.expired = IntervalSet()

    @property
    def known(self) -> int:
        """All below it was looked at, but for what is unknown."""
        return self.where.end

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
        self.where.reach(min(start, end), done)
        return (start, min(start + most, end)) if start < end else None

    def learn(
        self, start: int, found: Headers, done: IntervalSet, now_us: int, clock_us: int
    ) -> None:
        """What the messages from a position on say, as `next_unknown` gave it.

        `clock_us`: the monotonic clock's (SL9).
        """
        ranks, due, _, numbers, times, _ = found
        end = start + len(ranks)
        self.where.reach(end, done)
        states = self.where.states(start, end)
        left = states == UNSEEN
        positions = np.arange(start, end, dtype=np.int64)
        if numbers is not None:
            self._find_away(start, end, numbers)
        groups = np.zeros(len(ranks), np.int64) if numbers is None else numbers
        ages = np.zeros(len(ranks), np.int64) if times is None else np.maximum(now_us - times, 0)
        states[left] = AVAILABLE if self.sequences is None else WAITING
        if due is not None:
            states[left & (due > now_us)] = SCHEDULED
        self._learn_ends(positions, found, ages, states, left, now_us, clock_us)
        self.where.look(start, states)
        if due is not None:
            some = left & (states == SCHEDULED)
            rows = zip(*(a[some].tolist() for a in (due, positions, ranks, groups)), strict=True)
            push(self._scheduled, list(rows))
            left &= ~some
        if self.sequences is not None:  # what has expired has its place there, too
            since = clock_us - np.minimum(ages, self.sequences.wait_us)
            columns = (positions, ranks, groups, since)
            for row in zip(*(a[left].tolist() for a in columns), strict=True):
                self._sequence(*row)
        else:
            left &= states == AVAILABLE
            if self.groups is not None:
                some = left & (groups != 0)
                rows = zip(*(a[some].tolist() for a in (positions, ranks, groups)), strict=True)
                self.groups.arrive_many(rows)
                self._open()
                left &= ~some
            self._standing.learn(positions[left], ranks[left])
        self.unknown.remove(start, end)
        if self._passed > self._most or len(self._expiring) + len(self._aging) > self._most:
            self._drop_read(done)

    def _learn_ends(
        self,
        positions: NDArray[np.int64],
        found: Headers,
        ages: NDArray[np.int64],
        states: NDArray[np.uint8],
        left: NDArray[np.bool_],
        now_us: int,
        clock_us: int,
    ) -> None:
        """What of what is left expires, and when; or has expired."""
        expires, lives = found.expires, found.lives
        if expires is None:
            return
        over = left & (expires <= now_us)
        if lives is not None:
            over |= left & (lives <= ages)
        states[over] = EXPIRED
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

    def _find_away(self, start: int, end: int, numbers: NDArray[np.int64]) -> None:
        """Of what is in flight of [start, end), or comes later, the group is known now."""
        groups = self.groups
        if groups is not None and groups.away:
            for lo, hi in list(groups.away.intersection(start, end)):
                for position in range(lo, hi):
                    groups.find(position, int(numbers[position - start]))

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
            if self.where.of(position) == WAITING:  # else it has its place there, and no other
                is_any = True
                self._stand(position, rank, group)
                self.where.move(position, position + 1, WAYS[Event.DUE][AVAILABLE])
        return is_any

    def _drop_read(self, done: IntervalSet) -> None:
        """Forget what is read, wherever it stands (SL3)."""
        if self.groups is not None:
            self.groups.drop(done)
            self._open()
        self._standing.drop(done)
        of, out = self.where.of, self._out
        self._scheduled = [
            row
            for row in self._scheduled
            if of(row[1]) == SCHEDULED or out.get(row[1], _NOTHING) is _SCHEDULED
        ]
        self._expiring = [pair for pair in self._expiring if of(pair[1]) != READ]
        self._aging = [pair for pair in self._aging if of(pair[1]) != READ]
        heapify(self._scheduled)
        heapify(self._expiring)
        heapify(self._aging)
        self._passed = 0
        held = len(self._scheduled) + len(self._expiring) + len(self._aging) + len(self._standing)
        held += 0 if self.groups is None else self.groups.waiting
        self._most = LANE_SLACK + 2 * held

    # Time

    def advance(self, now_us: int, clock_us: int, end: int) -> bool:
        """What is due is available, what has expired is not; whether anything became available.

        `clock_us`: the monotonic clock's (SL9). `end`: of the queue.
        """
        is_any = False
        while self._scheduled and self._scheduled[0][0] <= now_us:
            _, position, rank, number = heappop(self._scheduled)
            if self._out.get(position, _NOTHING) is _SCHEDULED:
                self._out[position] = rank, number
            elif self.where.of(position) == SCHEDULED:
                is_any = True
                self._arrive(position, rank, number, clock_us, Event.DUE)
        if self.sequences is not None and not self.is_behind(end):  # else it may be there
            is_any |= self._let_through(self.sequences.overdue(clock_us))
        for heap, now in ((self._expiring, now_us), (self._aging, clock_us)):
            while heap and heap[0][0] <= now:
                self._expire(heappop(heap)[1])
        return is_any

    def _expire(self, position: int) -> None:
        state = self.where.of(position)
        if state in (WAITING, SCHEDULED, AVAILABLE):
            self.expired.add(position, position + 1)
            self.where.move(position, position + 1, WAYS[Event.EXPIRE][EXPIRED])
        elif position not in self._out:  # of what is looked at again it is learned then
            return
        elif state in (IN_FLIGHT, AHEAD):
            self.where.move(position, position + 1, WAYS[Event.EXPIRE][LATE])
        elif state == REJECTED:
            self.over.append(position)
        elif state == SPENT:
            self._out[position] = _OVER

    def _arrive(self, position: int, rank: int, number: int, clock_us: int, event: Event) -> None:
        """It is due, since then."""
        if self.sequences is not None:
            self.where.move(position, position + 1, WAYS[event][WAITING])
            self._sequence(position, rank, number, clock_us)
        else:
            self._stand(position, rank, number)
            self.where.move(position, position + 1, WAYS[event][AVAILABLE])

    def _stand(self, position: int, rank: int, number: int) -> None:
        """It is ready to be taken, as soon as its group lets it."""
        if number and self.groups is not None:
            self.groups.arrive(code_of(position, rank), number)
            self._open()
        else:
            self._standing.add(position, rank)

    def next_scheduled(self, most: int) -> list[int]:
        """The positions of what is due next, in that order, up to `most` of them."""
        of = self.where.of
        rows = (row for row in self._scheduled if of(row[1]) == SCHEDULED)
        # What was taken by its position, and is back, stands there twice.
        return list(dict.fromkeys(row[1] for row in nsmallest(2 * most, rows)))[:most]

    def is_scheduled(self, position: int) -> bool:
        """Whether it is not due yet, as far as it is known."""
        return position < self.known and self.where.of(position) == SCHEDULED

    def take_scheduled(self, position: int, number: int, taker: object) -> bool:
        """Take it though it is not due; False: it is not scheduled.

        With a taker that takes its group, too: False also where others have that.
        """
        if not self.is_scheduled(position):
            return False
        groups = None if not number or taker is None else self.groups
        if groups is not None and not groups.hold(position, number, taker):
            return False
        self._out[position] = _SCHEDULED
        self.where.move(position, position + 1, WAYS[Event.TAKE][AHEAD])
        return True

    def take_gone(self, start: int, end: int, *, is_expired: bool) -> None:
        """[start, end), which has expired or is spent, is in flight now."""
        ways = WAYS[Event.GO]
        for position in held_between(self._out, start, end):  # what was taken before it was due
            is_late = self._out[position] is _OVER
            self.where.move(start, position, ways[IN_FLIGHT])
            self.where.move(position, position + 1, ways[LATE if is_late else AHEAD])
            start = position + 1
        self.where.move(start, end, ways[LATE if is_expired else IN_FLIGHT])

    def due_in(self, now_us: int, clock_us: int) -> float:
        """Seconds until the next message that comes later is due; infinite: there is none."""
        due_us = self._scheduled[0][0] - now_us if self._scheduled else math.inf
        waits_until = None if self.sequences is None else self.sequences.next_due_us
        return min(due_us, math.inf if waits_until is None else waits_until - clock_us) / 1e6

    @property
    def coming(self) -> int:
        """How many messages are not due yet, or wait for others before them."""
        is_any = self._scheduled or self.sequences is not None
        return self.where.count(_COMING) if is_any else 0

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

    def take(self, limit: int, attempts: Attempts, taker: object = None) -> tuple[int, int] | None:
        """The next run of at most `limit` positions that were delivered equally often (SL1).

        They are in flight now; None: there are none. `taker`: which transaction takes them.
        """
        if self.groups is not None:
            return self._take_grouped(self.groups, limit, attempts, taker)
        standing, out, of = self._standing, self._out, self.where.of
        code = standing.first()
        while code >= 0:
            start = end = code & POSITIONS
            stop = attempts.equal(start, start + limit)
            while end < stop and code & POSITIONS == end and of(end) == AVAILABLE:
                standing.pop()
                out[end] = code >> POSITION_BITS
                end += 1
                code = standing.first()
            if end > start:
                self.where.move(start, end, _TAKEN)
                return start, end
            standing.pop()  # it is elsewhere by now (SL2)
            code = standing.first()
        return None

    def _take_grouped(
        self, groups: Groups, limit: int, attempts: Attempts, taker: object
    ) -> tuple[int, int] | None:
        """The same where messages are grouped (SL5)."""
        start = end = stop = -1
        while start < 0 or end < stop:
            if self.unknown:  # it may be of a group before what is known of it
                break
            code = self._first_open(groups)
            own = groups.first_of(taker)
            is_own = own >= 0 and not 0 <= code < own
            if is_own:
                code = own
            if code < 0:
                break
            position, rank = code & POSITIONS, code >> POSITION_BITS
            if is_own and self.where.of(position) != AVAILABLE:
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
            self.where.move(position, end, _TAKEN)
        return (start, end) if end > start else None

    def _first_open(self, groups: Groups) -> int:
        """The code of the first that everybody may take; -1: there is none."""
        standing = self._standing
        while (code := standing.first()) >= 0:
            position = code & POSITIONS
            is_gone = self.where.of(position) != AVAILABLE
            if not is_gone and groups.is_open(position, code >> POSITION_BITS):
                return code
            standing.pop()
            if is_gone:
                groups.pass_over(position)
                self._open()
        return -1

    def give_back(self, start: int, end: int, event: Event = Event.GIVE_BACK) -> None:
        """[start, end) is available again, by that; from `known` on it is already (SL2)."""
        for position in range(start, min(end, self.known)):
            self._give_back(position, event)
        self._open()

    def _give_back(self, position: int, event: Event) -> None:
        groups, state = self.groups, self.where.of(position)
        known = self._out.get(position, _NOTHING)
        back, code = AVAILABLE, -1
        if state == LATE or event is Event.EXPIRE or known is _OVER:
            back = EXPIRED
            self.expired.add(position, position + 1)
        elif known is _SCHEDULED:
            back = SCHEDULED
        elif known == _NOTHING:
            back = UNSEEN
            self.unknown.add(position, position + 1)
            if groups is not None:
                groups.away.remove(position, position + 1)
        elif not isinstance(known, int):
            if groups is not None:
                groups.let_go(position)
            wait_us = self.sequences.wait_us if self.sequences else 0
            del self._out[position]
            rank, number = known
            self._arrive(position, rank, number, -wait_us, event)
            return
        elif groups is not None and position in groups.held:
            code = code_of(position, known)
        else:
            self._standing.add(position, known)
        if groups is not None:
            groups.let_go(position, code)
        self.where.move(position, position + 1, WAYS[event][back])
        self._out.pop(position, None)

    def in_hand(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that transactions have in flight."""
        return self.where.runs(start, end, _IN_HAND)

    def late_in(self, start: int, end: int) -> list[int]:
        """What of [start, end), which is in flight, has expired."""
        runs = self.where.runs(start, end, _LATE)
        return [position for lo, hi in runs for position in range(lo, hi)]

    def wait_for(self, start: int, end: int) -> None:
        """[start, end), in flight until now, comes later: so do its groups."""
        end = min(end, self.known)  # recovery looks at nothing
        self.where.move(start, end, WAYS[Event.DELAY][REJECTED])
        if self.groups is not None:
            for position in held_between(self.groups.held, start, end):
                self.groups.wait_for(position)

    def spend(self, start: int, end: int, event: Event) -> list[tuple[int, int]]:
        """[start, end), in flight until now, or coming later, is spent: its groups go on.

        But what the maintenance had, as it has expired, has so again. The runs that are spent.
        """
        spent: list[tuple[int, int]] = []
        end = min(end, self.known)
        had = [position for position in self.late_in(start, end) if position not in self._out]
        for position in [*had, end]:
            if start < position:
                self._spend(start, position, event)
                spent.append((start, position))
            if position < end:
                self._give_back(position, event)
            start = position + 1
        self._open()
        return spent

    def _spend(self, start: int, end: int, event: Event) -> None:
        for position in held_between(self._out, start, end):
            if isinstance(self._out[position], int):
                del self._out[position]
            elif self.where.of(position) == LATE or event is Event.EXPIRE:
                self._out[position] = _OVER
        self.where.move(start, end, WAYS[event][SPENT])
        if self.groups is not None:
            for position in held_between(self.groups.held, start, end):
                self.groups.let_go(position)

    def forget(self, start: int, end: int) -> bool:
        """[start, end) is read; whether anything else became available by that."""
        self.where.move(start, end, _PASSED)
        if self.expired:
            self.expired.remove(start, end)
        self._passed += end - start
        for position in (start,) if end - start == 1 else held_between(self._out, start, end):
            self._passed -= isinstance(self._out.pop(position, None), int)
        if self.sequences is not None and self.sequences.gaps:
            self.sequences.forget(start, end)
        if self.groups is None:
            return False
        self.groups.away.remove(start, end)
        for position in held_between(self.groups.held, start, end):
            self.groups.let_go(position)
        return self._open()

    # What gives way to others

    def held_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that are in flight, come later or are set aside."""
        return self.where.runs(start, end, _HELD)

    def pick(self, start: int, end: int, done: IntervalSet) -> None:
        """[start, end), none of which is held or read, is in flight now."""
        if self.known < end:
            if self.known < start:
                self.unknown.add(self.known, start)
            self.where.reach(end, done)
        self.unknown.remove(start, end)
        self.where.move(start, end, WAYS[Event.PICK][IN_FLIGHT])

    @property
    def has_any(self) -> bool:
        """Whether there may be something to take, of what is known."""
        return self._standing.first() >= 0

    def available(self) -> IntervalSet:
        """All that nobody holds below `known`."""
        return IntervalSet.from_list(self.where.runs(0, self.known, _FREE))

    @property
    def memory_bytes(self) -> int:
        """What it takes (SL3)."""
        timed = len(self._scheduled) + len(self._expiring) + len(self._aging)
        return (
            self.where.memory_bytes
            + TIMED_BYTES * timed
            + self._standing.memory_bytes
            + self._standing.taken_bytes * len(self._out)
            + (0 if self.groups is None else self.groups.memory_bytes)
            + (0 if self.sequences is None else self.sequences.memory_bytes)
        )
