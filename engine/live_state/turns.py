"""Gets from all queues that a pattern names, in turn.

- TN1: who takes looks first at the queue that was got from the longest time ago, by this pattern;
  so as long as a queue has something, each of the others is got from once at most before it. The
  turns are the owner's, and begin anew when there are too many patterns, or another owner.
- TN2: a queue that is made later is named from then on, and whoever waits is told of it. One that
  is stopped, or was dropped, is passed over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from quire.calls.signal_safety import waiting
from quire.calls.wake_up import WakeUp
from quire.definitions.source_pattern import SourcePattern
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.reading.fetcher import DeliveryRequest, Fetcher
from quire.engine.state.durable_state import WORK
from quire.env import Env
from quire.env.interpreter import Lock
from quire.errors import QueueDisabled, QueueNotFound, SubscriptionNotFound
from quire.limits import INTERVAL_SECONDS, PATTERNS_KEPT

from .engine_state import EngineState

PatternMember = tuple[Queue, Subscription]
MakeRequest = Callable[[Queue, Subscription], DeliveryRequest]


class _PatternMembers:
    """The queues of a pattern, whose turn is next first."""

    def __init__(self, pattern: SourcePattern) -> None:
        self.pattern = pattern
        self.members: OrderedDict[int, PatternMember] = OrderedDict()
        self.definitions = -1  # so many had been made when it was looked which there are


class Turns:
    """Gets from all queues that a pattern names, in turn. Thread-safe."""

    def __init__(self, env: Env, state: EngineState, delivery: Fetcher) -> None:
        self._env = env
        self._state = state
        self._delivery = delivery
        self._lock = Lock()
        self._turns: dict[str, _PatternMembers] = {}  # by source

    def take(
        self,
        source: str,
        request: MakeRequest,
        wanted: Callable[[], bool],
        limit: int,
        timeout: float,
    ) -> DeliveryRequest | None:
        """The next messages of one of them, up to `limit`; waits up to `timeout` seconds for some.

        The request that has taken them; None: there are none. Raises InvalidArgument for what is no
        pattern, TransactionError to a taker that is to move one of the subscriptions.
        """
        deadline = self._env.monotonic() + timeout if timeout > 0 else 0.0
        while True:
            asking = self._take(source, request, limit)
            left = deadline - self._env.monotonic() if timeout > 0 else 0.0
            if asking is not None or left <= 0 or not wanted():
                return asking
            ready = WakeUp()
            withdraw = self.when_ready(source, ready.set)
            if withdraw is not None:
                try:  # what is due later, or why it is not wanted, is seen after a while
                    waiting(ready.wait, min(left, INTERVAL_SECONDS))
                finally:
                    withdraw()

    def when_ready(
        self, source: str, callback: Callable[[], None], taker: object = None
    ) -> Callable[[], None] | None:
        """As `Queue.when_ready`, for all of them."""
        telling = _OneNotification(callback)
        telling.withdraws.append(self._state.when_defined(telling.tell))
        for queue, subscription in self._members(source):
            withdraw = queue.when(partial(_has_any, queue, subscription, taker), telling.tell)
            if withdraw is None:
                telling.withdraw()
                return None
            telling.withdraws.append(withdraw)
        if telling.is_over:
            telling.withdraw()
        return telling.withdraw

    def await_due(self, source: str) -> bool:
        """As `Fetcher.await_due`, for all of them."""
        due = [self._delivery.await_due(queue, each) for queue, each in self._members(source)]
        return any(due)

    def may_have_own(self, source: str) -> bool:
        """As `Subscription.may_have_own`, for any of them."""
        return any(subscription.may_have_own() for _, subscription in self._members(source))

    def _take(self, source: str, request: MakeRequest, limit: int) -> DeliveryRequest | None:
        asking = None
        for queue, subscription in self._members(source):
            if subscription.is_plain:
                with queue.lock:
                    if not _has_any(queue, subscription):
                        continue
            asking = request(queue, subscription)
            try:
                runs = self._delivery.take(asking, limit, 0.0)
            except (QueueNotFound, SubscriptionNotFound, QueueDisabled):  # TN2
                continue
            if runs:
                with self._lock:
                    turn = self._turns.get(source)
                    if turn is not None and queue.queue_id in turn.members:
                        turn.members.move_to_end(queue.queue_id)
                return asking
        return None

    def _members(self, source: str) -> list[PatternMember]:
        """Those that there are now, whose turn is next first."""
        with self._lock:
            turn = self._turns.get(source)
            if turn is None:
                if len(self._turns) >= PATTERNS_KEPT:
                    self._turns.clear()
                turn = self._turns[source] = _PatternMembers(SourcePattern.of(source))
            definitions = self._state.definitions  # first: more may be made meanwhile
            if turn.definitions != definitions:
                now = self._named(turn.pattern)
                for queue_id in [each for each in turn.members if each not in now]:
                    del turn.members[queue_id]
                turn.members.update(now)  # new ones last
                turn.definitions = definitions
            return list(turn.members.values())

    def _named(self, pattern: SourcePattern) -> dict[int, PatternMember]:
        found: dict[int, PatternMember] = {}
        for queue in self._state.by_name():
            if (queue.config.kind == WORK) != (pattern.subscription is None):
                continue
            if pattern.matches(queue.name):
                subscription = queue.named.get(pattern.subscription or "")
                if subscription is not None:
                    found[queue.queue_id] = queue, subscription
        return found


def _has_any(queue: Queue, subscription: Subscription, taker: object = None) -> bool:
    """Under the queue's lock."""
    return not queue.is_shut and subscription.has_next(queue.end_position, taker)


class _OneNotification:
    """Tells once, and withdraws then what else would tell. Without a lock, under any."""

    __slots__ = ("_callbacks", "withdraws")

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callbacks = [callback]
        self.withdraws: list[Callable[[], None]] = []

    @property
    def is_over(self) -> bool:
        """Return True if its callbacks were called."""
        return not self._callbacks

    def tell(self) -> None:
        """Called at a change of any of them."""
        try:
            callback = self._callbacks.pop()
        except IndexError:  # another one was first
            return
        self.withdraw()
        callback()

    def withdraw(self) -> None:
        """Withdraw it from all queues where it has been registered so far."""
        while self.withdraws:
            try:
                withdraw = self.withdraws.pop()
            except IndexError:  # another thread does it, too
                return
            withdraw()
