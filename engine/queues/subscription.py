"""A subscription: one consumer group's durable position in a queue.

- Every position below the cursor is in exactly one of three states: read (durable, in `done`), in
  flight (given to an open transaction), or returned (its transaction rolled back).
- U2: what is returned is delivered before what is new: a rollback makes messages available again
  at their place in the order.
- U5: where the queue has `max_deliveries`, deliveries count when they are noted in the journal, and
  what has had so many is `spent`: hidden, until it is moved to another queue. What was rejected
  with a delay is in `later`, hidden until it is due.
- `order` says what is next and knows where each position is: that of commits (`commit_order`), or
  a selection, where the queue has another one.
- U6: of an exclusive subscription one transaction at a time has messages in flight. Of one that a
  transaction is to move nobody takes anything, from the seek until that transaction ends, and none
  but that transaction's are in flight: so once it is moved, none are.
- U7: where what has failed is to come later, or the queue has `retry`, the record of the failure
  carries the count and the time, as it was drawn; so both survive the process. A failure anywhere
  else is counted in memory (`delivery_counts`). Within a process the wait is counted by the
  monotonic clock (SL9). What stands in `later` may be elsewhere by then, as with a selection's
  indexes (SL2).
- What was read is known by the journal alone; the cursor, what is in flight and what was returned
  are gone with the process, and every position not in `done` is delivered again, but for what
  prepared transactions have got: that stays in flight; and for what comes later (U7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from quire.definitions.order import COMMIT
from quire.definitions.properties import Properties
from quire.engine.delivery.commit_order import CommitOrder, pop_equal
from quire.engine.delivery.delivery_counts import DeliveryCounts
from quire.engine.delivery.delivery_table import DeliveryState, Event
from quire.engine.delivery.failed_positions import Policy, failures_of
from quire.engine.delivery.pace_keeping import SubscriptionPace, paced
from quire.engine.delivery.ready_positions import held_between
from quire.engine.delivery.selection import Selection
from quire.engine.delivery.steady_clock import clock_us
from quire.engine.state.durable_state import DurableSubscription
from quire.engine.state.sections.failures import Failure
from quire.env import Env
from quire.env.interpreter import Lock
from quire.intervals import IntervalSet
from quire.libraries.late_modules import stand_in
from quire.limits import REASONS_KEPT

from .read_structure import ReadStructure

if TYPE_CHECKING:
    from quire.selectors import condition as conditions
    from quire.selectors.condition import MessageCondition
else:
    conditions = stand_in("quire.selectors.condition")  # with the first selector

NONE: Final = -1  # there is no next message
BY_RULE: Final = -2  # which one is next is to be looked up: it is not simply the next one


class Subscription:
    """A consumer group's durable position in a queue. Covered by the queue's lock."""

    __slots__ = (
        "_env", "_is_grouped", "_missed", "_numbers", "_ranked_by", "_recorded", "_rule",
        "attempts", "awaited", "commit_order", "delivered", "done", "durable", "exclusive",
        "holder", "indexing", "is_guarded", "is_plain", "later", "most", "name", "on_return",
        "order", "pace", "queue_id", "read_structure", "reasons", "removed", "retry", "seeker",
        "spent", "subscription_id", "wanted", "where",
    )  # fmt: skip

    def __init__(
        self, queue_id: int, durable: DurableSubscription, structure: ReadStructure, env: Env
    ) -> None:
        self._env, self.queue_id, self.name = env, queue_id, durable.name
        self.subscription_id = durable.subscription_id
        self.done, self._recorded, self._numbers = durable.done, durable.attempts, durable.numbers
        self.attempts = DeliveryCounts(durable.attempts)
        self.spent = IntervalSet()
        self.commit_order = CommitOrder(self.done, self.spent)
        self.order: CommitOrder | Selection = self.commit_order
        self.delivered = 0
        self.awaited = 0  # how many wait for what others have of it
        self.removed = False
        self.on_return: Callable[[int, int], None] | None = None  # told what is available again
        self.read_structure = structure
        self._rule: tuple[object, ...] = ()  # what its selection was made by
        self._is_grouped = False
        self.pace: SubscriptionPace | None = None  # limits of what is in flight and starts
        self._ranked_by: object = COMMIT
        self._missed = 0  # what selections of before let through though something was missing
        self.most = 0  # deliveries of a message; 0: any number, and they are counted by rollbacks
        self.later: list[tuple[int, int, int]] = []  # a heap: when [start, end) is due
        self.retry: Mapping[str, Any] | None = None  # how long what has failed is hidden
        self.reasons: dict[int, str] = {}  # why what is spent was rejected at last
        self.exclusive, self.durable, self.where = durable.exclusive, durable.durable, durable.where
        self.wanted: MessageCondition | None = None  # what it asks for; None: everything
        self.holder: object = None  # who took of it last, where it is exclusive (U6)
        self.seeker: object = None  # who is to move it (U6)
        self.is_guarded = self.exclusive  # not everybody may take of it
        self.is_plain = not self.exclusive  # none of these: what is next is simply the next one
        self.indexing = Lock()  # of who fills the selection; the queue's lock is inside

    @property
    def delayed(self) -> int:
        """How many messages come later."""
        rejected = (part for _, *row in self.later for part in self.order.rejected_in(*row))
        return sum(hi - lo for lo, hi in rejected) + self.order.coming

    @property
    def gaps(self) -> int:
        """How many messages were handed out though something of their sequence was missing."""
        return self._missed + self.order.missed

    @property
    def position(self) -> int:
        """Everything below it is read."""
        return self.done.first_gap(0)

    # Rules, and who may take (U6)

    def obey(self, properties: Properties, *, is_volatile: bool = False) -> None:
        """From now on: what is available has a selection or none, deliveries are counted or not."""
        rule = properties.selected_by
        if self.where is not None:  # of an older queue's block its columns may be others by now
            self.wanted = conditions.condition(
                self.where, properties.schema, is_volatile=is_volatile
            )
            rule = *rule, self.where, properties.schema
        if rule != self._rule:  # what is known was looked at by another one
            self._select(False)
            self._rule, self._is_grouped = rule, properties.grouped
            self._ranked_by = properties.order
        self.pace = paced(self.pace, properties, self._env)
        self._select(bool(rule))
        self.most = properties.max_deliveries or 0
        self.retry = properties.retry
        self._tell_plain()
        for run in self.spent.to_list():
            for start, end in self.attempts.runs(*run):
                if not self.is_spent(start):
                    self.spent.remove(start, end)
                    self._put_back(start, end, Event.ALTER)
        for position in [p for p in self.reasons if not self.is_spent(p)]:
            del self.reasons[position]

    def start_due_in(self) -> float:
        """Seconds until rates let more start; infinite: they do, or something else does not."""
        if self.pace is None:
            return math.inf
        return self.pace.due_in(self.delivered, self.order.rests_until_us)

    def _may_start(self) -> bool:
        return self.pace is None or self.pace.room(self.delivered, 1) > 0

    def _tell_plain(self) -> None:
        has_rules = self.is_selected or self.most or self.pace is not None
        counted = self.attempts.memory.starts
        self.is_plain = not (has_rules or self.later or self.is_guarded or self.awaited or counted)

    @property
    def is_selected(self) -> bool:
        """Return True if a selection says what is next, and not the order of commits."""
        return self.order is not self.commit_order

    def _select(self, is_selected: bool) -> None:
        plain, order = self.commit_order, self.order
        if is_selected and order is plain:
            self.order = Selection(
                plain.returned,
                plain.cursor,
                self._ranked_by,
                held={
                    DeliveryState.IN_FLIGHT: plain.in_flight(),
                    DeliveryState.REJECTED: plain.rejected,
                    DeliveryState.SPENT: self.spent,
                },
                is_grouped=self._is_grouped,
                paces=None if self.pace is None else self.pace.groups,
                read=self._numbers,
            )
            plain.refill(IntervalSet(), plain.cursor, ())
        elif isinstance(order, Selection) and not is_selected:
            self._cut_later(order.rejected_in)
            plain.refill(order.available(), order.known, order.rejected_in(0, order.known))
            self._missed += order.missed
            self.order = plain

    def admits(self, taker: object) -> bool:
        """Return True if the taker may take of a guarded one now (U6), and make it the holder."""
        if self.seeker is not None or (self.delivered and self.holder is not taker):
            return False
        self.holder = taker
        return True

    def guard(self, seeker: object) -> None:
        """From now on it is to be moved by this one; None: by nobody any more."""
        self.seeker = seeker
        self.is_guarded = self.exclusive or seeker is not None
        self._tell_plain()

    def await_end(self, more: int) -> None:
        """So many more wait for what others have of it, and are told when that is read."""
        self.awaited += more
        self._tell_plain()

    def moved(self) -> None:
        """It is at another place, and nothing is in flight (U6)."""
        self.delivered = 0
        self.reasons.clear()
        self.attempts.moved(self.done)
        self.read_structure.reset()
        self.resume([])

    def resume(
        self, in_flight: list[tuple[int, int]], spent: Iterable[tuple[int, int]] = ()
    ) -> None:
        """Recovery is done: [start, end) of each are in flight, what else is unread is available.

        `spent`: what is, as far as it is unread, and nobody has it.
        """
        is_selected = self.is_selected
        self.later.clear()  # what was given back while the journal was read
        self.spent.clear()
        away, rejected = IntervalSet.from_list(in_flight), []
        for start, end, due_us in self.attempts.hidden(self._env.now_us()):  # (U7)
            for lo, hi in list(away.gaps(start, end)):
                heappush(self.later, (self._due(due_us), lo, hi))
                rejected.append((lo, hi))
                away.add(lo, hi)
        for start, end in spent:
            for lo, hi in list(away.gaps(start, end)):
                for first, last in self.done.gaps(lo, hi):
                    self.spent.add(first, last)
                    away.add(first, last)
        self.order = self.commit_order
        self.commit_order.resume(away, rejected)
        self._select(is_selected)
        self._tell_plain()

    # What may be taken

    def has_next(self, end: int, taker: object = None) -> bool:
        """Return True if there is a position below `end` to take, for all or for this taker."""
        if self.is_guarded:
            is_held = self.delivered and (taker is None or self.holder is not taker)
            if is_held or self.seeker is not None:
                return False
        if not self._may_start():
            return False
        return self.order.has_next(end, taker)

    def may_have_own(self) -> bool:
        """Return True if who has messages of it may take some that others may not."""
        return self.is_guarded or self.order.groups is not None

    def is_behind(self, end: int) -> bool:
        """Return True if messages below `end` are looked at before one is taken (SL2)."""
        return self.order.is_behind(end)

    def take_one(self, end: int) -> int:
        """The next position below `end`, now in flight; or NONE, BY_RULE.

        An interrupt finds it taken or not: by `take` one may come in between.
        """
        order = self.commit_order
        if order.returned.total or self._recorded.starts or not self.is_plain:
            return BY_RULE
        start = order.cursor
        if self.done.reaches(start):
            start = self.done.first_gap(start)
        if start >= end:
            return NONE
        order.cursor = start + 1
        self.delivered += 1
        return start

    def take(self, limit: int, end: int, taker: object, taken: list[tuple[int, int, int]]) -> bool:
        """Add the next run of at most `limit` positions below `end`, now in flight, to `taken`.

        Its third number is 0. `taker`: which transaction takes them. False: there are none.
        """
        if self.pace is not None:
            limit = self.pace.room(self.delivered, limit)
            if not limit:
                return False
        run = self.order.take(limit, self.attempts, taker, end)
        if run is None:
            return False
        self.delivered += run[1] - run[0]
        taken += ((*run, 0),)  # no call in between: it is taken and known, or neither
        if self.pace is not None:
            self.pace.start(run[1] - run[0])
        return True

    def take_scheduled(self, position: int, group: int, taker: object) -> tuple[int, int] | None:
        """The position, now in flight, if it is not due yet.

        `group`: the number of its group, which the taker gets, too; None takes none.
        """
        if taker is not None and not self._may_start():
            return None
        if not self.order.take_scheduled(position, group, taker):
            return None
        self.delivered += 1
        if taker is not None and self.pace is not None:
            self.pace.start(1)
        return position, position + 1

    def deliveries(self, position: int) -> int:
        """How often the position is delivered now, this time included."""
        return self.attempts.of(position) + 1

    def failed_run(self, start: int, end: int) -> tuple[int, int]:
        """Return the end of the run from `start` that has failed equally often, and how often."""
        return self.attempts.equal(start, end), self.attempts.failures(start)

    # What nobody gets any more

    def is_spent(self, position: int) -> bool:
        """Return True if the message was delivered as often as the subscription's limit lets it."""
        return bool(self.most) and self.attempts.of(position) >= self.most

    def note_reason(self, start: int, end: int, reason: str) -> None:
        """Note why these positions failed, where they are spent by that and not read past."""
        for position in range(start, end if self.most else start):
            if len(self.reasons) >= REASONS_KEPT:
                return
            if self.is_spent(position) and not self.done.contains(position):
                self.reasons[position] = reason

    def set_aside(self, start: int, end: int) -> None:
        """[start, end) was just taken, and is spent."""
        self._put_back(start, end, Event.GIVE_BACK)
        self.delivered -= end - start

    @property
    def expired(self) -> IntervalSet:
        """The messages that nobody gets any more, as their time is over."""
        return self.order.expired

    def take_gone(self, limit: int) -> tuple[int, int, bool] | None:
        """The first run of what has expired (True) or is spent, now in flight, to move or drop.

        All of it was delivered equally often. If it is given back, it is so again. What has expired
        comes first: where it is dropped, it waits for no other queue, as what is spent may.
        """
        if self.seeker is not None:
            return None
        gone = self.expired or self.spent
        is_expired = gone is not self.spent
        run = pop_equal(gone, limit, self.attempts)
        if run is None:
            return None
        self.order.take_gone(*run, is_expired=is_expired)
        self.delivered += run[1] - run[0]
        return *run, is_expired

    @property
    def has_gone(self) -> bool:
        """Return True if any message is spent or expired."""
        return bool(self.spent) or bool(self.expired)

    @property
    def has_unwanted(self) -> bool:
        """Return True if it has messages that it does not want, to be passed by."""
        return bool(self.order.unwanted)

    # What is taken by its position

    def take_waiting(
        self,
        taken: list[tuple[int, int]],
        most: int,
        runs: int,
        end: int,
        among: Iterable[tuple[int, int]] | None = None,
    ) -> None:
        """Add up to so many positions below `end`, in so many runs, that nobody holds.

        They are in flight now. `among`: all that nobody holds of these ascending runs instead.

        Also what would come later, is spent or has expired. What is known of the order is forgotten
        for that, and made anew when somebody gets.
        """
        is_selected = self.is_selected
        self._select(False)
        before, order = len(taken), self.commit_order
        try:
            order.take_waiting(taken, most, runs, end, among, self.attempts)
        finally:
            self.delivered += sum(hi - lo for lo, hi in taken[before:])
            self._cut_later(order.rejected_in)
            self._select(is_selected)
            self._tell_plain()

    def held_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that are not read, and that somebody holds or that wait."""
        return self.order.held_in(start, end) if start < end else []

    def may_pick(self, position: int) -> bool:
        """Return True if nobody has the message, and it is not one that comes later."""
        return not self.order.is_scheduled(position) and not self.held_in(position, position + 1)

    def is_in_flight(self, position: int) -> bool:
        """Return True if a transaction has the message, and it is not read."""
        return bool(self.order.in_hand(position, position + 1))

    def may_choose(self, position: int) -> bool:
        """Return True if the message could be delivered now, be it the next one or not."""
        return self.order.is_ready(position)

    def take_chosen(self, position: int, group: int, taker: object) -> bool:
        """Take it, and its group (0: it has none); False: it cannot be delivered now."""
        if not self.may_choose(position) or not self._may_start():
            return False
        if not self.order.take_chosen(position, group, taker):
            return False
        self.delivered += 1
        if not self.is_spent(position):
            if self.pace is not None:
                self.pace.start(1)
            return True
        self.set_aside(position, position + 1)  # counted before the store was opened
        return False

    def take_part(self, start: int, end: int) -> list[tuple[int, int]]:
        """Take what is not read of [start, end), of which nobody holds anything; in flight now."""
        runs = list(self.done.gaps(start, end))
        for lo, hi in runs:
            self.order.pick(lo, hi, self.done)
        self.delivered += sum(hi - lo for lo, hi in runs)
        return runs

    def unread_below(self, position: int) -> list[tuple[int, int]]:
        """The positions below the given one that are not read."""
        return self.unread_from(0, position)

    def unread_from(self, start: int, end: int) -> list[tuple[int, int]]:
        """The positions of [start, end) that are not read."""
        return list(self.done.gaps(start, end)) if start < end else []

    # Read, and given back

    def forget(self, start: int, end: int) -> bool:
        """[start, end) is read, whether it was in flight or available.

        Whether anything else became available by that.
        """
        is_any = self.order.forget(start, end)
        if self.spent:
            self.spent.remove(start, end)
        if self.reasons:
            for position in held_between(self.reasons, start, end):
                del self.reasons[position]
        if self.attempts.memory.starts:
            self.attempts.read(start, end)
            self._tell_plain()
        return is_any

    def give_back(self, start: int, end: int, *, counted: bool, noted: bool = False) -> None:
        """[start, end) was in flight and is available again (U2), as far as it is not read.

        `counted`: it had reached its reader, so its next delivery is one more, if that is not
        noted already (U5). `noted`: that it failed is, too, and when it comes again (U7).
        """
        is_one = end - start == 1 and not self.done.contains(start)
        for lo, hi in ((start, end),) if is_one else list(self.done.gaps(start, end)):
            if counted and noted:
                self._fail(lo, hi)
                continue
            if counted:
                self.is_plain = False
                self.attempts.fail(lo, hi, noted=bool(self.most))
            self._put_back(lo, hi, Event.GIVE_BACK)
        self.delivered -= end - start  # last: what is interrupted before can be repeated

    def go_on_giving_back(self, start: int, end: int) -> None:
        """Giving back [start, end) was interrupted: all of it is available now."""
        rows = [(start < row[2] and row[1] < end, row) for row in self.later]
        self.later = [(0 if is_own else due, lo, hi) for is_own, (due, lo, hi) in rows]
        heapify(self.later)
        self.bring_back(0)
        for lo, hi in self.order.in_hand(start, end):
            for first, last in list(self.done.gaps(lo, hi)):
                self._put_back(first, last, Event.GIVE_BACK)
        self.delivered -= end - start

    def _put_back(self, start: int, end: int, event: Event) -> None:
        """[start, end), unread, is available by that, or spent."""
        for lo, hi in self.attempts.runs(start, end) if self.most else ((start, end),):
            if self.is_spent(lo):
                self.order.spend(lo, hi, event)
                self.spent.add(lo, hi)
            else:
                self.order.give_back(lo, hi, event)
                if self.on_return is not None:
                    self.on_return(lo, hi)

    # Retries (U7)

    def failing(self, start: int, end: int, policy: Policy) -> list[Failure]:
        """Return the failures to note for [start, end), which was in flight and has failed."""
        return failures_of(self, self._env, start, end, policy)

    def _fail(self, start: int, end: int) -> None:
        """[start, end), unread, has failed, and is hidden for as long as that is noted."""
        for lo, hi in self.attempts.runs(start, end):
            due_us = self.attempts.due_us(lo)
            if not due_us or self.is_spent(lo):
                self._put_back(lo, hi, Event.GIVE_BACK)
                continue
            self.is_plain = False
            heappush(self.later, (self._due(due_us), lo, hi))  # first: it is looked for there
            self.order.wait_for(lo, hi)

    def _due(self, due_us: int) -> int:
        """By the clock that nobody sets (SL9)."""
        return clock_us(self._env) + due_us - self._env.now_us()

    def _cut_later(self, parts: Callable[[int, int], Iterable[tuple[int, int]]]) -> None:
        """Only these parts of the rows come later still."""
        self.later = [(due, *part) for due, *row in self.later for part in parts(*row)]
        heapify(self.later)

    def come_now(self, position: int) -> None:
        """It is available if it came later."""
        for row in [row for row in self.later if row[1] <= position < row[2]]:
            self.later.remove(row)
            parts = ((row[1], position), (position + 1, row[2]))
            self.later += ((row[0], lo, hi) for lo, hi in parts if lo < hi)
            heapify(self.later)
            for lo, hi in list(self.order.rejected_in(position, position + 1)):
                self._put_back(lo, hi, Event.COME)

    def bring_back(self, now_us: int) -> bool:
        """Make due messages available again; return True if there are any."""
        is_any = False
        while self.later and self.later[0][0] <= now_us:
            _, start, end = heappop(self.later)
            for lo, hi in list(self.order.rejected_in(start, end)):
                self._put_back(lo, hi, Event.COME)
                is_any = True
        self._tell_plain()
        return is_any
