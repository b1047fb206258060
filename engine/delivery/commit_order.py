"""The next positions of a subscription in commit order: returned ones, then those after them.

- Of what is not read below `cursor` each position is `returned`, `rejected` (it comes later),
  spent, or in flight. What is in flight stands nowhere: it is what is left.
- Returned positions are taken before the cursor moves on (U2 of `subscription`).
- Nothing of a message is to be known for that: no header is looked at, nothing has a rank, a group
  or a time of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from quire.intervals import IntervalSet

from .delivery_counts import DeliveryCounts
from .delivery_table import DeliveryState, Event

if TYPE_CHECKING:
    from .ordered_groups import Groups
    from .sequences import Sequences

_NOTHING = IntervalSet()  # nobody changes it


class CommitOrder:
    """The order of commits, after returned positions. Covered by the queue's lock."""

    __slots__ = ("_done", "_spent", "cursor", "rejected", "returned")

    # What only a selection has.
    groups: Groups | None = None
    sequences: Sequences | None = None
    unknown = expired = unwanted = _NOTHING
    rests_until_us: int | None = None
    coming = missed = 0

    def __init__(self, done: IntervalSet, spent: IntervalSet) -> None:
        """`done`: what is read; `spent`: what was delivered as often as it may be. Both live on."""
        self._done, self._spent = done, spent
        self.cursor = done.first_gap(0)
        self.returned = IntervalSet()
        self.rejected = IntervalSet()

    def resume(self, in_flight: IntervalSet, rejected: Iterable[tuple[int, int]]) -> None:
        """From now on these are away, of which some come later; what else is unread is returned."""
        self.rejected = IntervalSet.from_list(rejected)
        self.returned = IntervalSet()
        self.cursor = self._done.first_gap(0)
        last = in_flight.last()
        if last is not None:
            self._reach(last[1])
            for start, end in in_flight:
                self.returned.remove(start, end)

    def refill(self, free: IntervalSet, end: int, rejected: Iterable[tuple[int, int]]) -> None:
        """As a selection knew it: what nobody holds below `end`, and what comes later."""
        self.returned, self.cursor = free, end
        self.rejected = IntervalSet.from_list(rejected)

    def in_flight(self) -> IntervalSet:
        """All that transactions have."""
        return IntervalSet.from_list(self.in_hand(0, self.cursor))

    def _reach(self, end: int) -> None:
        """Nothing below `end` is new any more: what is unread there is returned."""
        for start, stop in self._done.gaps(self.cursor, end) if self.cursor < end else ():
            self.returned.add(start, stop)
        self.cursor = max(self.cursor, end)

    # What may be taken

    def has_next(self, end: int, taker: object = None) -> bool:
        """Return True if there is a position below `end` to take."""
        return bool(self.returned.total) or self._done.first_gap(self.cursor) < end

    def is_behind(self, end: int) -> bool:
        """Return False: no message has to be looked at before it is taken."""
        return False

    def is_ready(self, position: int) -> bool:
        """Return True if the position can be delivered now, be it the next one or not."""
        return not self._done.contains(position) and not self.held_in(position, position + 1)

    def state_of(self, position: int) -> DeliveryState:
        """Return the state of a position, as the table of delivery names it."""
        if self._done.contains(position):
            return DeliveryState.READ
        if self._spent.contains(position):
            return DeliveryState.SPENT
        if self.rejected.contains(position):
            return DeliveryState.REJECTED
        is_free = position >= self.cursor or self.returned.contains(position)
        return DeliveryState.AVAILABLE if is_free else DeliveryState.IN_FLIGHT

    def peek(self, end: int) -> int | None:
        """Return the position below `end` that would be taken next; None: there is none."""
        first = self.returned.first()
        position = self._done.first_gap(self.cursor) if first is None else first[0]
        return position if position < end else None

    def first_of(self, state: DeliveryState, pages: int) -> int | None:
        """Return the first position that is held, in a state; None: there is none."""
        if state is not DeliveryState.IN_FLIGHT:
            held = {DeliveryState.REJECTED: self.rejected, DeliveryState.SPENT: self._spent}
            run = held.get(state, _NOTHING).first()
            return None if run is None else run[0]
        sets = (self._done, self.returned, self.rejected, self._spent)
        position = 0
        for _ in range(pages):  # to the end of whatever it is in, until it is in nothing
            before = position
            for each in sets:
                position = each.first_gap(position)
            if position == before or position >= self.cursor:
                break
        is_held = self.state_of(position) is DeliveryState.IN_FLIGHT
        return position if is_held else None

    def take(
        self, limit: int, attempts: DeliveryCounts, taker: object, end: int
    ) -> tuple[int, int] | None:
        """The next run of at most `limit` positions below `end` that were delivered equally often.

        They are in flight now; None: there are none.
        """
        if self.returned:
            return pop_equal(self.returned, limit, attempts)
        return self._take_new(limit, attempts, end)

    def _take_new(self, limit: int, attempts: DeliveryCounts, end: int) -> tuple[int, int] | None:
        start = self.cursor
        if self._done.reaches(start):
            start = self._done.first_gap(start)
        if start >= end:
            self.cursor = max(self.cursor, min(start, end))
            return None
        stop = min(start + limit, end)
        if self._done.reaches(start):
            stop = next(self._done.gaps(start, stop))[1]
        if attempts:  # counted before the store was opened
            stop = attempts.equal(start, stop)
        self.cursor = stop
        return start, stop

    def take_waiting(
        self,
        taken: list[tuple[int, int]],
        most: int,
        runs: int,
        end: int,
        among: Iterable[tuple[int, int]] | None,
        attempts: DeliveryCounts,
    ) -> None:
        """Add what nobody holds: see `Subscription.take_waiting`."""
        sets = (self.returned, self._spent, self.rejected)
        for start, stop in among or ():
            self._reach(stop)
            for held in sets:
                for lo, hi in list(held.intersection(start, stop)):
                    held.remove(lo, hi)
                    taken += ((lo, hi),)
        most = most if among is None else 0
        for held in sets:
            while most and runs and (run := held.pop_first(most, end)):
                taken += (run,)
                most, runs = most - (run[1] - run[0]), runs - 1
        while most and runs and (run := self._take_new(most, attempts, end)):
            taken += (run,)
            most, runs = most - (run[1] - run[0]), runs - 1

    def take_gone(self, start: int, end: int, *, is_expired: bool) -> None:
        """[start, end), which was spent, is in flight now: it stands nowhere else."""

    def take_chosen(self, position: int, number: int, taker: object) -> bool:
        """Take what is ready, though another may be next."""
        self.pick(position, position + 1, self._done)
        return True

    def pick(self, start: int, end: int, done: IntervalSet) -> None:
        """[start, end), none of which is held or read, is in flight now."""
        self._reach(end)
        self.returned.remove(start, end)

    # Read, and given back

    def forget(self, start: int, end: int) -> bool:
        """[start, end) is read; nothing else becomes available by that."""
        if self.returned:
            self.returned.remove(start, end)
        if self.rejected:
            self.rejected.remove(start, end)
        return False

    def give_back(self, start: int, end: int, event: Event) -> None:
        """[start, end) is available again."""
        self.rejected.remove(start, end)
        self.returned.add(start, end)

    def spend(self, start: int, end: int, event: Event) -> None:
        """[start, end), in flight until now, or coming later, is spent."""
        self.rejected.remove(start, end)

    def wait_for(self, start: int, end: int) -> None:
        """[start, end), in flight until now, comes later."""
        self.rejected.add(start, end)

    def late(self, start: int, end: int) -> tuple[int, bool]:
        """Return `end` and False: no message of [start, end) has expired while in flight."""
        return end, False

    # Where positions are

    def held_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that are in flight, come later or are set aside."""
        end = min(end, self.cursor)
        if start >= end:
            return []
        unread = self._done.gaps(start, end)
        return [part for lo, hi in unread for part in self.returned.gaps(lo, hi)]

    def in_hand(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that transactions have in flight."""
        held = self.held_in(start, end)
        for aside in (self.rejected, self._spent):
            held = [part for lo, hi in held for part in aside.gaps(lo, hi)]
        return held

    def rejected_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that come later."""
        return list(self.rejected.intersection(start, end))

    def missing(self, start: int, end: int) -> tuple[int, int | None]:
        """Return `end` and None: no number is missing before any message of [start, end)."""
        return end, None

    def unwanted_runs(self, most: int, runs: int) -> list[tuple[int, int]]:
        """Return an empty list: the subscription wants all messages."""
        return []

    # What has no time of its own, and no sender that numbers it

    def note_number(self, sender: int, number: int) -> bool:
        """Return False: no message waits for a sender's numbers."""
        return False

    def advance(self, now_us: int, clock_us: int, end: int) -> bool:
        """Return False: no message becomes available by its time."""
        return False

    def due_in(self, now_us: int, clock_us: int) -> float:
        """Seconds until the next message that comes later is due: infinite."""
        return float("inf")

    def next_scheduled(self, most: int) -> list[int]:
        """The positions of what is due next: none."""
        return []

    def is_scheduled(self, position: int) -> bool:
        """Return False: no message is due later."""
        return False

    def is_unseen(self, position: int) -> bool:
        """Return False: no message has to be looked at."""
        return False

    def take_scheduled(self, position: int, number: int, taker: object) -> bool:
        """Take it though it is not due: never."""
        return False


def pop_equal(held: IntervalSet, limit: int, attempts: DeliveryCounts) -> tuple[int, int] | None:
    """The first positions of a set that have been delivered equally often, at most so many."""
    run = held.pop_first(limit)
    if run is None:
        return None
    start, end = run
    stop = attempts.equal(start, end)
    if stop < end:
        held.add(stop, end)
    return start, stop
