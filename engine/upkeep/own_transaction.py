"""A transaction that the store begins by itself: to move messages, to remove them, to put some."""

from __future__ import annotations

from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.transactions.context import Context
from quire.engine.transactions.transaction import EmbeddedTransaction
from quire.message import Message

Runs = list[tuple[int, int]]  # of positions


class OwnTransaction(EmbeddedTransaction):
    """See the module. It waits for no room; and it takes what no user gets, as `Gets` says."""

    __slots__ = ()

    def __init__(self, context: Context, owner: str) -> None:
        super().__init__(context, None, False, owner)
        self.put_timeout = 0.0

    def commit(self, timeout: float | None = 0.0) -> None:
        super().commit(timeout)

    def take_gone(
        self, queue: Queue, subscription: Subscription, most: int
    ) -> tuple[int, list[tuple[Message, str]]]:
        """Take messages that nobody else gets any more (see `Gets.gone`)."""
        return self.getting(lambda gets: gets.gone(queue, subscription, most))

    def take_waiting(self, queue: Queue, subscription: Subscription, most: int, end: int) -> Runs:
        """Take what waits and deliver nothing of it (see `Gets.waiting`)."""
        return self.getting(lambda gets: gets.waiting(queue, subscription, most, end))

    def take_oldest(self, queue: Queue, subscriptions: list[Subscription], runs: Runs) -> Runs:
        """Take these, as far as nobody holds them, and deliver nothing (see `Gets.oldest`)."""
        return self.getting(lambda gets: gets.oldest(queue, subscriptions, runs))

    def take_chosen(
        self, queue: Queue, subscription: Subscription, positions: list[int]
    ) -> list[int]:
        """Take these, as far as they are there to get, and deliver nothing (see `Gets.chosen`)."""
        return self.getting(lambda gets: gets.chosen(queue, subscription, positions))

    def pass_to(self, queue: Queue, subscription: Subscription, position: int) -> None:
        """The same as `read_to` for a subscription that has no name."""
        self.getting(lambda gets: gets.passes.append((queue, subscription, position)))
