"""Emptying a queue: what waits in it is read by the store itself.

- PG1: what another transaction holds stays its own: what waits is taken as by a get, and counts as
  read by a commit. So nobody gets it meanwhile, and a rollback of others brings nothing back.
- PG2: a commit takes at most `PURGED_AT_ONCE` messages (and `PURGED_RUNS` of positions), as others
  wait while it is applied. So a small queue goes in one commit. Of a large one a part is gone if
  the process ends in between; what is gone stays gone.
- PG3: what comes after the call began stays.
- PG4: of the whole queue, also what a topic keeps though all have read it goes.
"""

from __future__ import annotations

from quire.engine.commits.definitions import Definitions
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.transactions.context import Context
from quire.intervals import IntervalSet
from quire.limits import LET_GO_AT_ONCE, PURGED_AT_ONCE

from .own_transaction import OwnTransaction


def purge(
    context: Context, definitions: Definitions, queue: Queue, subscription: Subscription | None
) -> int:
    """All that waits for the subscription, or for all of the queue's; how many messages.

    Raises QueueInUse where a transaction moves a subscription.
    """
    end = queue.end_position
    if subscription is None and not queue.subscriptions:
        return _release(definitions, queue, end)
    gone = IntervalSet()
    while _take(context, queue, subscription, end, gone):
        pass
    keeper = queue.keeper
    if subscription is None and keeper is not None:
        _let_go(context, queue, keeper, end, gone)
    return gone.total


def _take(
    context: Context,
    queue: Queue,
    subscription: Subscription | None,
    end: int,
    gone: IntervalSet,
) -> bool:
    """One commit; whether there was anything."""
    some = queue.readers() if subscription is None else [subscription]
    left = PURGED_AT_ONCE
    taken: list[tuple[int, int]] = []
    with OwnTransaction(context, "purge") as txn:
        for each in some:
            runs = txn.take_waiting(queue, each, left, end)
            left -= sum(hi - lo for lo, hi in runs)
            taken += runs
        txn.commit()
    for lo, hi in taken:
        gone.add(lo, hi)
    return bool(taken)


def _let_go(
    context: Context, queue: Queue, keeper: Subscription, end: int, gone: IntervalSet
) -> None:
    """What all have read and the topic keeps."""
    position = keeper.position
    while position < end and not (queue.dropped or keeper.removed):
        stop = min(position + LET_GO_AT_ONCE, end)
        with OwnTransaction(context, "purge") as txn:
            txn.pass_to(queue, keeper, stop)
            txn.commit()
        with queue.lock:
            released = list(queue.released.intersection(position, stop))
        for lo, hi in released:
            gone.add(lo, hi)
        position = stop


def _release(definitions: Definitions, queue: Queue, end: int) -> int:
    """Of a topic that nobody has subscribed to."""
    count = 0
    start = queue.released.first_gap(0)
    while start < end:
        stop = min(end, start + PURGED_AT_ONCE)
        count += definitions.release(queue, start, stop)
        start = stop
    return count
