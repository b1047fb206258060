"""A transaction that the store begins by itself: to move messages, to remove them, to put some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.records.commit_record import Read
from quire.engine.transactions.context import Context
from quire.engine.transactions.gets import Gets
from quire.engine.transactions.puts import Puts
from quire.engine.transactions.transaction import EmbeddedTransaction
from quire.limits import LET_GO_AT_ONCE
from quire.moments import Duration

MessageRuns = list[tuple[int, int]]  # of positions


class OwnTransaction(EmbeddedTransaction):
    """A transaction of the store. It waits for no room; `getting` takes what no user gets."""

    __slots__ = ()

    def __init__(self, context: Context, owner: str) -> None:
        super().__init__(context, None, False, owner)
        self.put_timeout = 0.0

    def commit(self, timeout: Duration | None = 0.0) -> None:
        super().commit(timeout)

    def _add(self, gets: Gets) -> tuple[Sequence[Read], Puts | None]:
        """Deliver to nobody what it takes."""
        return gets.passed(), self._puts

    def schema_of(self, queue: str) -> str | None:
        """Return the schema of a typed queue as DDL."""
        return self._context.state.queue(queue).schema

    def pass_to(self, queue: Queue, subscription: Subscription, position: int) -> None:
        """Read to a position, as `read_to` does, for a subscription that has no name."""
        self.pass_over(queue, subscription, [(0, position)])

    def pass_over(self, queue: Queue, subscription: Subscription, runs: MessageRuns) -> None:
        """Count what is not read of these positions as read with the commit."""
        passes = [(queue, subscription, start, end) for start, end in runs]
        self.getting(lambda gets: gets.pass_over(passes))


def pass_by(
    context: Context, owner: str, queue: Queue, keeper: Subscription, target: int
) -> Iterator[tuple[int, int]]:
    """Move what keeps a topic's messages up to the position: the parts that it has passed."""
    position = keeper.position
    while position < target and not (queue.dropped or keeper.removed):
        stop = min(position + LET_GO_AT_ONCE, target)
        with OwnTransaction(context, owner) as txn:
            txn.pass_to(queue, keeper, stop)
            txn.commit()
        yield position, stop
        position = stop
