"""Taking messages by what they are: by id or by a condition, and waiting for them.

- FM1: who asks by id for a message that another transaction has waits for that one to end, up to
  the time-out, and no longer than until it is read. A circle of those who wait is refused (WA1).
- FM2: nobody waits for a message that its own transaction has. What it keeps (KP1) it takes by id.
- What is taken so is in flight as what is taken by its position: given back it is looked at
  again, and stands at its place. Its ordered group is the taker's, as with any delivery.
- FM3: what the choice holds for is taken before the selection has looked at it, where its own
  header says all: who waits for one message need not have all that came put in order first. A
  group, a sequence, limits, counted deliveries and a queue's `ttl` are more than that.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.reading.fetcher import DeliveryRequest, DeliveryRuns, Fetcher, moving
from quire.engine.reading.indexing import is_timely
from quire.env import Env
from quire.errors import LockTimeout, TransactionError

from .candidates import Candidate, Finder, Passed
from .waits import AwaitedMessage, MessageWaits

if TYPE_CHECKING:
    from .choice import Choice
    from .kept_messages import KeptMessages

Found = list[Candidate]
R = TypeVar("R")


class Purpose(Enum):
    """The purpose for which a transaction takes messages."""

    DELIVER = "their taker handles them: a delivery, of their ordered groups, too"
    KEEP = "others are not to get them for a while"
    REMOVE = "nobody is to get them: their groups do not count, nor when they are due"


class Asking(NamedTuple):
    """A request for messages: its transaction, its condition and its purpose."""

    request: DeliveryRequest
    choice: Choice
    transaction_id: int
    kept: KeptMessages  # what that transaction keeps from others
    most: int
    purpose: Purpose = Purpose.DELIVER
    by_header: bool = False  # also what is not looked at yet (FM3)


class ChoiceOutcome(NamedTuple):
    """The known reason why nothing was taken."""

    is_gone: bool = False  # the one message that was asked for will never come
    held: int | None = None  # its position, where another transaction has it


class MessageLookup:
    """Takes messages by id or by condition, and waits for them. Thread-safe."""

    def __init__(self, env: Env, delivery: Fetcher, finder: Finder, waits: MessageWaits) -> None:
        self._env = env
        self._delivery = delivery
        self.finder = finder
        self._waits = waits

    def take(self, asking: Asking, timeout: float) -> DeliveryRuns:
        """The first messages for which the choice holds, now in flight; none: there are none.

        Waits up to `timeout` seconds for one. Raises LockTimeout, Deadlock (FM1); TransactionError
        to the taker that is to move the subscription, and where it has got the message (FM2).
        """
        request = asking.request
        queue, subscription, runs = request.queue, request.subscription, request.runs
        if subscription.seeker is request.taker:
            raise moving(queue, subscription)
        deadline = self._env.monotonic() + timeout
        passed = Passed() if timeout and asking.choice.condition is not None else None
        while True:
            with queue.lock:
                seen = queue.changes()
                by_header = _is_known_by_header(queue, subscription)
            if by_header:
                self._delivery.advance(queue, subscription)
                self._take_available(asking._replace(by_header=True), passed)
                if runs:
                    return runs
            due = self._delivery.look(queue, subscription)
            is_gone, held = self._take_available(asking, passed)
            if held is not None and self._holder(subscription, held) == asking.transaction_id:
                return self._of_kept(asking, held)
            left = deadline - self._env.monotonic()
            if runs or is_gone or not request.wanted():
                return runs
            if left <= 0 and held is not None:
                raise self._locked(queue, subscription, held)
            if left <= 0 and not _has_unseen(subscription):
                return []
            if left > 0:
                with queue.lock:
                    due = min(due, subscription.start_due_in())
                self._wait(asking, held, seen, min(left, due))

    def _take_available(self, asking: Asking, passed: Passed | None) -> ChoiceOutcome:
        """Take what may be taken now."""
        queue, subscription = asking.request.queue, asking.request.subscription
        taker, runs = asking.request.taker, asking.request.runs
        by_id = asking.choice.message_id is not None

        def free(positions: list[int]) -> list[int]:
            return _free(queue, subscription, positions, by_header=asking.by_header)

        def may_have(group: int) -> bool:
            with queue.lock:
                return by_id or _may_have(subscription, group, taker)

        while True:
            found = self.finder.candidates(
                queue, subscription, asking.choice, asking.most, list if by_id else free, passed,
                may_have,
            )  # fmt: skip
            held = None
            with queue.lock:
                queue.check_there(subscription)
                if not subscription.is_guarded or subscription.admits(taker):
                    for each in found:
                        self._take(asking, each)
                if by_id and not runs:  # before who has it gives it back
                    held = self._in_flight_position(subscription, found)
            if runs:
                if asking.purpose is Purpose.DELIVER:
                    self._delivery.hand_out(asking.request)
                return ChoiceOutcome()
            if by_id or asking.by_header:
                return ChoiceOutcome(not found, held)
            with queue.lock:
                if not found or any(subscription.may_choose(each.position) for each in found):
                    return ChoiceOutcome()  # the subscription, or a group, is not to be had yet
            # others were faster

    def _take(self, asking: Asking, found: Candidate) -> None:
        request, position = asking.request, found.position
        queue, subscription = request.queue, request.subscription
        if asking.purpose is Purpose.REMOVE:
            subscription.come_now(position)
            if subscription.held_in(position, position + 1):
                return
            is_taken = bool(subscription.take_part(position, position + 1))
        elif asking.by_header and subscription.order.is_unseen(position):
            if not (
                _is_known_by_header(queue, subscription)  # it may have been altered
                and is_timely(found.part, self._env.now_us())
            ):
                return
            is_taken = bool(subscription.take_part(position, position + 1))
        else:
            is_taken = subscription.take_chosen(position, found.group, request.taker)
        if is_taken:
            request.runs += ((position, position + 1, subscription.deliveries(position)),)

    def _of_kept(self, asking: Asking, position: int) -> DeliveryRuns:
        """Take a message that its own transaction keeps (KP1). Raises TransactionError."""
        request = asking.request
        if not asking.kept.keeps(request.subscription, position):
            raise _held_by_itself(request.queue, asking)
        asking.kept.take(request.subscription, position)
        with request.queue.lock:
            deliveries = request.subscription.deliveries(position)
            request.runs += ((position, position + 1, deliveries),)
        if asking.purpose is Purpose.DELIVER:
            self._delivery.hand_out(request)
        return request.runs

    def _in_flight_position(self, subscription: Subscription, found: list[Candidate]) -> int | None:
        """The position of the one message that is there, but not to be had, if it is in flight."""
        for each in found:
            if subscription.is_in_flight(each.position):
                return each.position
        return None

    def _wait(self, asking: Asking, held: int | None, seen: int, seconds: float) -> None:
        """Until the queue changes; for what another one has until that one ends, too."""
        queue, subscription = asking.request.queue, asking.request.subscription
        what = f"message {asking.choice.message_id} of queue {queue.name!r}"
        block = nullcontext() if held is None else self._waits.wait(
            asking.transaction_id, AwaitedMessage(subscription, held), what
        )  # fmt: skip
        with block, queue.lock:
            subscription.await_end(1)
            try:
                self._wait_for_change(asking.request, seen, seconds)
            finally:
                subscription.await_end(-1)

    def _wait_for_change(self, request: DeliveryRequest, seen: int, seconds: float) -> None:
        """Under the queue's lock: until it changes, or nobody wants to wait any more."""
        queue = request.queue
        queue.wait(seconds, lambda: queue.changes() != seen or not request.wanted())

    def _locked(self, queue: Queue, subscription: Subscription, position: int) -> LockTimeout:
        holder = self._holder(subscription, position)
        # None is listed where one is prepared, and while a taker has not noted it yet.
        who = "another transaction" if holder is None else f"transaction {holder}"
        return LockTimeout(
            f"the message at position {position} of queue {queue.name!r} is in flight in {who}: "
            "ask again once that has ended, or wait longer with timeout= "
            "(store.admin.transactions() lists those that are open, store.prepared.list() those "
            "that are prepared)"
        )

    def _holder(self, subscription: Subscription, position: int) -> int | None:
        return self._waits.holder(AwaitedMessage(subscription, position))

    def find(self, request: DeliveryRequest, choice: Choice, most: int, timeout: float) -> Found:
        """Up to `most` committed messages for which it holds, whoever has them; nothing is taken.

        Waits up to `timeout` seconds for the first.
        """

        def look() -> Found:
            return self.finder.candidates(request.queue, request.subscription, choice, most, list)

        return self._look(request, look, timeout)

    def count(self, request: DeliveryRequest, choice: Choice, timeout: float) -> int:
        """For how many committed messages it holds. Waits up to `timeout` seconds for one."""
        count = partial(self.finder.count, request.queue, request.subscription, choice)
        return self._look(request, count, timeout)

    def _look(self, request: DeliveryRequest, look: Callable[[], R], timeout: float) -> R:
        queue, subscription = request.queue, request.subscription
        deadline = self._env.monotonic() + timeout
        while True:
            with queue.lock:
                queue.check_there(subscription)
                seen = queue.changes()
            found = look()
            left = deadline - self._env.monotonic()
            if found or left <= 0 or not request.wanted():
                return found
            with queue.lock:
                self._wait_for_change(request, seen, left)


def _held_by_itself(queue: Queue, asking: Asking) -> TransactionError:
    """For one who would wait for its own end (FM2)."""
    return TransactionError(
        f"this transaction ({asking.transaction_id}) has got message {asking.choice.message_id} of "
        f"queue {queue.name!r} itself: use what it has got, or give it back by unget or reject"
    )


def _is_known_by_header(queue: Queue, subscription: Subscription) -> bool:
    """Return True if messages are unseen, and headers alone say when they are due (FM3)."""
    order = subscription.order
    if not order.is_behind(queue.end_position):
        return False
    has_rules = subscription.most or subscription.pace is not None or order.groups is not None
    if has_rules or order.sequences is not None:
        return False
    return queue.config.properties.default_ttl is None


def _free(
    queue: Queue, subscription: Subscription, positions: list[int], *, by_header: bool
) -> list[int]:
    """Those of them that may be taken now, as far as that is known."""
    with queue.lock:
        return [
            each
            for each in positions
            if subscription.may_choose(each) or (by_header and subscription.order.is_unseen(each))
        ]


def _may_have(subscription: Subscription, group: int, taker: object) -> bool:
    """Return True if no other taker has the group."""
    groups = subscription.order.groups
    return groups is None or groups.may_have(group, taker)


def _has_unseen(subscription: Subscription) -> bool:
    """Return True if a message was given back that has to be looked at again."""
    return bool(subscription.order.unknown)
