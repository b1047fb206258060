"""A source as a get that waits has it: the queue that it named, whatever that is called by now."""

from __future__ import annotations

from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription


class FollowedSource:
    """A queue's subscription; its text is the name that it has now."""

    __slots__ = ("_queue", "_subscription")

    def __init__(self, queue: Queue, subscription: Subscription) -> None:
        self._queue = queue
        self._subscription = subscription

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FollowedSource) and self._subscription is other._subscription

    def __hash__(self) -> int:
        return id(self._subscription)

    def __str__(self) -> str:
        name, subscription = self._queue.name, self._subscription.name
        return f"{name}/{subscription}" if subscription else name
