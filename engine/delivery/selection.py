"""The next positions of a subscription in other orders than that of commits.

A queue whose messages are not delivered in commit order has a selection for each subscription:
where each message is (`whereabouts`), and what is available, by rank. It is derived state, made
from the messages' header columns when somebody takes and never journaled: a restart makes it anew.
What may become of a message is said by `delivery_table` alone; here is when it does.

- SL1: of what is available the lowest rank is taken, and within a rank the lowest position: what a
  rollback returns is back at its place.
- SL2: where a position is, its byte says alone. What stands in an index beside (ready, by its time,
  in its sequence, shown by its group) may be elsewhere by then: it is passed over when its turn
  comes. `unknown` is what is to be looked at below `known`: all that is UNSEEN, and of a queue
  whose messages are grouped what was in flight, or came later, before that.
- SL3: what is available takes some 10 bytes a message by priority, 60 by numbers, 120 by texts,
  and some 40 more where it was returned; what is in flight some 150. All of them are counted
  (`memory_bytes`). What was read and still stands somewhere is dropped before it is twice as much
  as all the rest.
- `expired` is what is EXPIRED, for the maintenance to move or drop it; `unwanted` is what is
  UNWANTED, for it to count as read.
- What is of a group stands ready as `groups` shows it.
- Of what is taken in the queue's order its rank is kept, with which it comes back. Nothing is kept
  of what is taken by its position, or before it is due: it is looked at again.
- In an order by sequences, what `sequences` has let through stands ready, with the rank that that
  gives. What has waited long enough is let through once all that is there was looked at.
- SL9: moments (`deliver_at`, `expires_at`) come by the wall clock. What lasts so many seconds from
  the commit on (the queue's `ttl` and `max_ttl`, the wait of a sequence) is counted by the
  monotonic clock from when it is learned, less what its commit's time then says has passed: a
  clock that is set, back or forward, neither prolongs nor shortens what is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from quire.definitions.order import BUILT_IN, COMMIT, by_sequence
from quire.intervals import IntervalSet
from quire.libraries import np
from quire.limits import LANE_SLACK, NEVER_US, POSITION_BITS, POSITIONS, TAKEN_BYTES, TIMED_BYTES

from .delivery_counts import DeliveryCounts
from .delivery_table import TRANSITIONS, DeliveryState, Event
from .ordered_groups import Groups
from .pace_keeping import GroupPaces
from .position_states import PositionStates, those_of
from .ready_positions import Lanes, Line, Ranks, Standing, code_of, held_between, int_bytes, push
from .sequences import Sequences

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Times: TypeAlias = "NDArray[np.int64] | None"
_PositionRuns = Iterable[tuple[int, int]]

UNSEEN, WAITING, SCHEDULED, AVAILABLE, IN_FLIGHT, LATE, REJECTED, SPENT, EXPIRED, UNWANTED, READ = [
    state.number for state in DeliveryState
]
_STATES: Final = tuple(DeliveryState)
_IN_HAND: Final = those_of(IN_FLIGHT, LATE)
_HELD: Final = those_of(IN_FLIGHT, LATE, REJECTED, SPENT, EXPIRED)
_COMING: Final = those_of(SCHEDULED, WAITING)
_REJECTED: Final = those_of(REJECTED)
_FREE: Final = those_of(UNSEEN, WAITING, SCHEDULED, AVAILABLE, EXPIRED, UNWANTED)
_TAKEN: Final = TRANSITIONS[Event.TAKE][IN_FLIGHT]
_PICKED: Final = TRANSITIONS[Event.PICK][IN_FLIGHT]
_PASSED: Final = TRANSITIONS[Event.READ][READ]


class SelectionHeaders(NamedTuple):
    """The header columns of successive messages, as far as their queue's properties need them."""

    ranks: Ranks  # in an order by sequences their links (see `sequences`)
    due: _Times = None  # 0: at once
    expires: _Times = None
    groups: _Times = None  # the number of the group; 0: none
    times: _Times = None  # of the commit
    lives: _Times = None  # microseconds from then on, at most; `NEVER_US`: as `expires` says
    unwanted: NDArray[np.bool_] | None = None  # what the subscription does not ask for


class Selection:
    """The order by ranks, times, groups and sequences. Covered by the queue's lock."""

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
        "sequences",
        "unknown",
        "unwanted",
        "where",
    )

    def __init__(
        self,
        returned: IntervalSet,
        known: int,
        order: object = COMMIT,
        *,
        held: Mapping[DeliveryState, _PositionRuns] | None = None,
        is_grouped: bool = False,
        paces: GroupPaces | None = None,
        read: Mapping[int, int] | None = None,
    ) -> None:
        """`returned`: what is available below `known`; what is behind that is looked at later.

        `held`: what else is not read. `order`: the queue's. `paces`: see `Groups`. `read`: see
        `Sequences`.
        """
        self.where = PositionStates()
        self.where.fill(returned, DeliveryState.UNSEEN, known)
        away = IntervalSet()
        for state, runs in ({} if held is None else held).items():
            self.where.fill(runs, state, known)
            for start, end in () if state is DeliveryState.SPENT else runs:
                away.add(start, end)
        has_few_ranks = order in BUILT_IN and paces is None
        self._standing: Standing = Lanes() if has_few_ranks else Line()
        self.groups: Groups | None = None
        if is_grouped:
            self.groups = Groups(away, self._standing, self._is_available, paces)
        self.sequences: Sequences | None = None
        if isinstance(order, dict) and by_sequence(order):
            self.sequences = Sequences(order["wait"], order["most"], read or {})
        for start, end in away if is_grouped else ():
            returned.add(start, end)
        self.unknown = returned
        self._out: dict[int, int] = {}  # the ranks of what is taken
        # A heap: when, position, rank, group.
        self._scheduled: list[tuple[int, int, int, int]] = []
        self._expiring: list[tuple[int, int]] = []  # a heap: when, position
        self._aging: list[tuple[int, int]] = []  # the same, by the monotonic clock (SL9)
        self._passed = 0  # messages that were read, which may stand in any of these still
        self._most = LANE_SLACK  # of them, or of what has its time, until those that are read go
        self.expired = IntervalSet()
        self.unwanted = IntervalSet()

    @property
    def known(self) -> int:
        """All below it was looked at, but for what is unknown."""
        return self.where.end

    def _is_available(self, position: int) -> bool:
        return self.where.of(position) == AVAILABLE

    # What is not known yet

    def has_next(self, end: int, taker: object = None) -> bool:
        """Return True if there may be a position below `end` to take, for all or for this taker."""
        if self._standing.first() >= 0 or self.is_behind(end):
            return True
        return taker is not None and self.groups is not None and self.groups.first(taker) >= 0

    def is_behind(self, end: int) -> bool:
        """Return True if there are positions below `end` whose messages have to be looked at."""
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
        self, start: int, found: SelectionHeaders, done: IntervalSet, now_us: int, clock_us: int
    ) -> None:
        """Learn the headers of the messages from a position on, which `next_unknown` returned.

        `clock_us`: the monotonic clock's (SL9).
        """
        ranks, due, _, groups, times, _, _ = found
        end = start + len(ranks)
        self.where.reach(end, done)
        states = self.where.states(start, end)
        new = states == UNSEEN
        positions = np.arange(start, end, dtype=np.int64)
        zeros = np.zeros(len(ranks), np.int64)
        groups = zeros if groups is None else groups
        ages = zeros if times is None else np.maximum(now_us - times, 0)
        states[new] = AVAILABLE if self.sequences is None else WAITING
        if due is not None:
            states[new & (due > now_us)] = SCHEDULED
        self._set_aside(states, new, positions, found, ages, now_us, clock_us)
        self.where.look(start, states)
        if due is not None:
            some = new & (states == SCHEDULED)
            push(self._scheduled, list(_rows(some, due, positions, ranks, groups)))
        if self.groups is not None and self.groups.away:
            for lo, hi in list(self.groups.away.intersection(start, end)):
                for position in range(lo, hi):
                    is_later = self.where.of(position) == REJECTED
                    self.groups.find(position, int(groups[position - start]), is_later)
        if self.sequences is not None:  # what has expired has its place there, too
            since = clock_us - np.minimum(ages, self.sequences.wait_us)
            for row in _rows(new & (states != SCHEDULED), positions, ranks, groups, since):
                self._let_through(self.sequences.arrive(*row))
        else:
            ready = new & (states == AVAILABLE)
            alone = ready & (groups == 0)
            if self.groups is not None and self.groups.paces is not None:
                alone[:] = False
            self._standing.learn(positions[alone], ranks[alone])
            for row in _rows(ready & ~alone, positions, ranks, groups):
                self._make_ready(*row)
        self.unknown.remove(start, end)
        self._drop_read(done)

    def _set_aside(
        self,
        states: NDArray[np.uint8],
        new: NDArray[np.bool_],
        positions: NDArray[np.int64],
        found: SelectionHeaders,
        ages: NDArray[np.int64],
        now_us: int,
        clock_us: int,
    ) -> None:
        """Set aside the new messages that nobody gets: expired and unwanted ones."""
        lives, ends = found.lives, None
        if lives is not None:
            ends = np.where(lives == NEVER_US, lives, clock_us + lives - ages)
        for heap, moments, now in (
            (self._expiring, found.expires, now_us),
            (self._aging, ends, clock_us),
        ):
            if moments is not None:
                states[new & (moments <= now)] = EXPIRED
                some = new & (moments > now) & (moments != NEVER_US)
                push(heap, list(_rows(some, moments, positions)))
        if found.unwanted is not None:
            states[new & found.unwanted] = UNWANTED
        for held, state in ((self.expired, EXPIRED), (self.unwanted, UNWANTED)):
            for run in _runs(positions[new & (states == state)]):
                held.add(*run)

    def note_number(self, sender: int, number: int) -> bool:
        """All of a sender below this number is read; whether anything became available by that."""
        return self.sequences is not None and self._let_through(
            self.sequences.note_number(sender, number)
        )

    def _let_through(self, rows: Iterable[tuple[int, int, int]]) -> bool:
        """Make messages of sequences available that waited; return True if there are any."""
        is_any = False
        for position, rank, group in rows:
            if self.where.of(position) == WAITING:  # else it has its place there, and no other
                is_any = True
                self._make_ready(position, rank, group)
                self.where.move(position, position + 1, TRANSITIONS[Event.DUE][AVAILABLE])
        return is_any

    def _make_ready(self, position: int, rank: int, group: int) -> None:
        """It is ready to be taken, as soon as its group lets it."""
        if self.groups is None:
            self._standing.add(code_of(position, rank))
        else:
            self.groups.arrive(code_of(position, rank), group)

    def _drop_read(self, done: IntervalSet) -> None:
        """Forget what is read, wherever it stands, if there may be much of it (SL3)."""
        heaps: list[list[Any]] = [self._scheduled, self._expiring, self._aging]
        if max(self._passed, sum(map(len, heaps))) <= self._most:
            return
        if self.groups is not None:
            self.groups.drop(done)
        self._standing.drop(done)
        for heap in heaps:  # what was looked at twice stands there twice
            heap[:] = {row for row in heap if self.where.of(row[1]) != READ}
            heapify(heap)
        self._passed = 0
        held = sum(map(len, heaps)) + len(self._standing)
        held += 0 if self.groups is None else self.groups.waiting
        self._most = LANE_SLACK + 2 * held

    # Time

    def advance(self, now_us: int, clock_us: int, end: int) -> bool:
        """Make due messages available and set expired ones aside; True if any became available.

        `clock_us`: the monotonic clock's (SL9). `end`: of the queue.
        """
        is_any, sequences = self.groups is not None and self.groups.go_on(), self.sequences
        while self._scheduled and self._scheduled[0][0] <= now_us:
            _, position, rank, group = heappop(self._scheduled)
            if self.where.of(position) != SCHEDULED:
                continue
            is_any = True
            if sequences is not None:
                self.where.move(position, position + 1, TRANSITIONS[Event.DUE][WAITING])
                self._let_through(sequences.arrive(position, rank, group, clock_us))
            else:
                self._make_ready(position, rank, group)
                self.where.move(position, position + 1, TRANSITIONS[Event.DUE][AVAILABLE])
        if sequences is not None and not self.is_behind(end):  # else it may be there
            is_any |= self._let_through(sequences.overdue(clock_us))
        for heap, now in ((self._expiring, now_us), (self._aging, clock_us)):
            unseen: list[tuple[int, int]] = []  # what is looked at again has its time all the same
            while heap and heap[0][0] <= now:
                row = heappop(heap)
                if not self._expire(row[1]):
                    unseen.append(row)
            push(heap, unseen)
        return is_any

    def _expire(self, position: int) -> bool:
        """Its time is over; False: it is to be looked at first."""
        state = self.where.of(position)
        if state == IN_FLIGHT:
            self.where.move(position, position + 1, TRANSITIONS[Event.EXPIRE][LATE])
        elif state in (WAITING, SCHEDULED, AVAILABLE, REJECTED):
            self.expired.add(position, position + 1)
            self.where.move(position, position + 1, TRANSITIONS[Event.EXPIRE][EXPIRED])
        else:  # it is over
            return state != UNSEEN
        self._out.pop(position, None)
        if state == REJECTED and self.groups is not None:
            self.groups.let_go(position)
        return True

    def next_scheduled(self, most: int) -> list[int]:
        """The positions of what is due next, in that order, up to `most` of them."""
        of = self.where.of
        rows = {row for row in self._scheduled if of(row[1]) == SCHEDULED}
        return [row[1] for row in nsmallest(most, rows)]

    def is_scheduled(self, position: int) -> bool:
        """Return True if the message is known not to be due yet."""
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
        self.where.move(position, position + 1, _TAKEN)
        return True

    def is_ready(self, position: int) -> bool:
        """Return True if the message is known to be available; its group may be taken."""
        return position < self.known and self.where.of(position) == AVAILABLE

    def is_unseen(self, position: int) -> bool:
        """Return True if the message has to be looked at: it is neither taken nor set aside."""
        return position >= self.known or self.where.of(position) == UNSEEN

    def take_chosen(self, position: int, number: int, taker: object) -> bool:
        """Take what is ready though another may be next; False: others have its group.

        With `unknown` messages its group may be in flight: then it is to be asked again.
        """
        groups = self.groups
        if groups is not None and not number and groups.paces is None:
            groups = None
        if groups is not None and (self.unknown or not groups.hold(position, number, taker)):
            return False
        self._keep_rank(position)
        self.where.move(position, position + 1, _PICKED)
        return True

    def _keep_rank(self, position: int) -> None:
        """Note the rank of an available message in a sequence, which no header tells."""
        if self.sequences is not None and self.where.of(position) == AVAILABLE:
            self._out[position] = self.sequences.rank_of(position)

    def due_in(self, now_us: int, clock_us: int) -> float:
        """Seconds until the next message that comes later is due; infinite: there is none."""
        due_us = self._scheduled[0][0] - now_us if self._scheduled else math.inf
        waits_until = None if self.sequences is None else self.sequences.next_due_us
        return min(due_us, math.inf if waits_until is None else waits_until - clock_us) / 1e6

    @property
    def rests_until_us(self) -> int | None:
        """Return when a group may go on that is at the limit of its rate; None: no group waits."""
        return None if self.groups is None else self.groups.next_due_us

    @property
    def coming(self) -> int:
        """How many messages are not due yet, or wait for others before them."""
        is_any = self._scheduled or self.sequences is not None
        return self.where.count(_COMING) if is_any else 0

    def missing(self, start: int, end: int) -> tuple[int, int | None]:
        """Return where the next gap is in [start, end), and the number missing at `start`."""
        gaps = {} if self.sequences is None else self.sequences.gaps
        if start in gaps:
            return start + 1, gaps[start]
        return min(held_between(gaps, start, end), default=end), None

    @property
    def missed(self) -> int:
        """How many messages were let through though something before them was missing."""
        return 0 if self.sequences is None else self.sequences.missed

    # For who asks why a message is not delivered

    def state_of(self, position: int) -> DeliveryState:
        """Return the state of a position, as the table of delivery names it."""
        return _STATES[self.where.of(position) if position < self.known else UNSEEN]

    def peek(self, end: int) -> int | None:
        """Return the position that everybody would take next; None: there is none."""
        if self.groups is not None:
            code = self.groups.first(None)
            return None if code < 0 else code & POSITIONS
        while (code := self._standing.first()) >= 0:
            if self.where.of(code & POSITIONS) == AVAILABLE:
                return code & POSITIONS
            self._standing.pop()  # it is elsewhere by now (SL2)
        return None

    def first_of(self, state: DeliveryState, pages: int) -> int | None:
        """Return the first position in a state, of so many pages of them; None: there is none.

        Of what is not due yet the one that is due first, as far as it stands near the heap's top.
        """
        if state is DeliveryState.SCHEDULED:
            near = [row for row in self._scheduled[:pages] if self.where.of(row[1]) == SCHEDULED]
            if near:
                return min(near)[1]
        return self.where.first(state, pages)

    # Taking and giving back

    def take(
        self, limit: int, attempts: DeliveryCounts, taker: object = None, end: int = POSITIONS
    ) -> tuple[int, int] | None:
        """The next run of at most `limit` positions that were delivered equally often (SL1).

        They are in flight now; None: there are none. `taker`: which transaction takes them. `end`:
        of the queue, below which all is that was looked at.
        """
        standing, groups, of, out = self._standing, self.groups, self.where.of, self._out
        if groups is not None and self.unknown:
            return None  # it may be of a group before what is known of it
        start = end = stop = -1
        while start < 0 or end < stop:
            code = standing.first() if groups is None else groups.first(taker)
            position = code & POSITIONS
            if code < 0 or (start >= 0 and position != end):
                break
            if groups is None:
                standing.pop()
                if of(position) != AVAILABLE:  # it is elsewhere by now (SL2)
                    continue
            if start < 0:
                start = end = position
                stop = attempts.equal(start, start + limit)
            out[position] = code >> POSITION_BITS
            end += 1
            if groups is not None:  # whose next one is shown by that
                groups.take(position, taker)
                self.where.move(position, end, _TAKEN)
        if groups is None and start >= 0:
            self.where.move(start, end, _TAKEN)
        return None if start < 0 else (start, end)

    def give_back(self, start: int, end: int, event: Event = Event.GIVE_BACK) -> None:
        """[start, end) is available again, by that; from `known` on it is already (SL2)."""
        groups = self.groups
        for position in range(start, min(end, self.known)):
            rank, code = self._out.get(position), -1
            if self.where.of(position) == LATE:
                back = EXPIRED
                self.expired.add(position, position + 1)
            elif rank is None:
                back = UNSEEN
                self.unknown.add(position, position + 1)
            else:
                back, code = AVAILABLE, code_of(position, rank)
            if groups is not None:
                groups.let_go(position, code)
                groups.away.remove(position, position + 1)
            elif rank is not None:
                self._standing.add(code)
            self.where.move(position, position + 1, TRANSITIONS[event][back])
            self._out.pop(position, None)

    def in_hand(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that transactions have in flight."""
        return self.where.runs(start, end, _IN_HAND)

    def late(self, start: int, end: int) -> tuple[int, bool]:
        """Return the end of a run from `start`, in flight, and True if it has expired."""
        states = self.where.states(start, end)
        others = np.flatnonzero(states != states[0])
        return start + int(others[0]) if len(others) else end, bool(states[0] == LATE)

    def wait_for(self, start: int, end: int) -> None:
        """[start, end), in flight until now, comes later: so do its groups."""
        end = min(end, self.known)  # recovery looks at nothing
        self.where.move(start, end, TRANSITIONS[Event.DELAY][REJECTED])
        if self.groups is not None:
            for position in held_between(self.groups.held, start, end):
                self.groups.wait_for(position)

    def rejected_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that come later."""
        return self.where.runs(start, end, _REJECTED)

    def spend(self, start: int, end: int, event: Event) -> None:
        """[start, end), in flight until now, or coming later, is spent: its groups go on."""
        self.where.move(start, min(end, self.known), TRANSITIONS[event][SPENT])
        self._forget_range(start, end)

    def take_gone(self, start: int, end: int, *, is_expired: bool) -> None:
        """[start, end), which has expired or is spent, is in flight now."""
        self.where.move(start, end, TRANSITIONS[Event.GO][LATE if is_expired else IN_FLIGHT])

    def unwanted_runs(self, most: int, runs: int) -> list[tuple[int, int]]:
        """The first of what is not asked for, in so many runs, to count as read."""
        found: list[tuple[int, int]] = []
        for start, end in islice(self.unwanted, runs):
            if most:
                found.append((start, min(end, start + most)))
                most -= found[-1][1] - start
        return found

    def forget(self, start: int, end: int) -> bool:
        """[start, end) is read; whether anything else became available by that."""
        self.where.move(start, end, _PASSED)
        if self.expired:
            self.expired.remove(start, end)
        if self.unwanted:
            self.unwanted.remove(start, end)
        if self.sequences is not None:
            self.sequences.forget(start, end)
        self._passed += end - start - len(self._out)
        is_any = self._forget_range(start, end)
        self._passed += len(self._out)
        return is_any

    def _forget_range(self, start: int, end: int) -> bool:
        """Nothing is kept of [start, end); whether anything else became available by that."""
        for position in held_between(self._out, start, end):
            del self._out[position]
        groups = self.groups
        if groups is None:
            return False
        groups.away.remove(start, end)
        return sum([groups.let_go(at) for at in held_between(groups.held, start, end)]) > 0

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
        self.unwanted.remove(start, end)
        if self.sequences is not None and self.groups is None:  # else its group is to be looked at
            for position in range(start, end):
                self._keep_rank(position)
        self.where.move(start, end, _PICKED)

    def available(self) -> IntervalSet:
        """All that nobody holds below `known`."""
        return IntervalSet.from_list(self.where.runs(0, self.known, _FREE))

    @property
    def memory_bytes(self) -> int:
        """Return the bytes that the selection takes (SL3)."""
        timed = len(self._scheduled) + len(self._expiring) + len(self._aging)
        taken_bytes = TAKEN_BYTES + int_bytes(list(islice(self._out.values(), 64)))
        return (
            self.where.memory_bytes
            + TIMED_BYTES * timed
            + self._standing.memory_bytes
            + taken_bytes * len(self._out)
            + (0 if self.groups is None else self.groups.memory_bytes)
            + (0 if self.sequences is None else self.sequences.memory_bytes)
        )


def _runs(positions: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ascending positions as runs."""
    if len(positions):
        ends = np.flatnonzero(np.diff(positions) > 1)
        starts = positions[np.concatenate(([0], ends + 1))]
        stops = positions[np.concatenate((ends, [len(positions) - 1]))] + 1
        yield from zip(starts.tolist(), stops.tolist(), strict=True)


def _rows(some: NDArray[np.bool_], *columns: Ranks) -> Iterator[Any]:
    """Yield the rows of the columns where `some` is True."""
    return zip(*(column[some].tolist() for column in columns), strict=True)
