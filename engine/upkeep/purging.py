"""Emptying a queue: what waits in it is read by the store itself.

- What another transaction holds stays its own: what waits is taken as by a get, and counts as read
  by a commit. So nobody gets it meanwhile, and a rollback of others brings nothing back.
- A commit takes at most `PURGED_AT_ONCE` messages (and `PURGED_RUNS` of positions), as others wait
  while it is applied. So a small queue goes in one commit. Of a large one a part is gone if the
  process ends in between; what is gone stays gone.
- What comes after the call began stays.
- A purge of a whole topic also removes messages that it keeps after all have read them.
"""

from __future__ import annotations

from quire.engine.commits.definitions import Definitions
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.transactions.context import Context
from quire.engine.transactions.gets import Gets
from quire.intervals import IntervalSet
from quire.limits import PURGED_AT_ONCE

from .own_transaction import MessageRuns, OwnTransaction, pass_by


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
    while taken := _take(context, queue, subscription, end):
        for lo, hi in taken:
            gone.add(lo, hi)
    keeper = queue.keeper
    if subscription is None and keeper is not None:
        for start, stop in pass_by(context, "purge", queue, keeper, end):
            with queue.lock:
                released = list(queue.released.intersection(start, stop))
            for lo, hi in released:
                gone.add(lo, hi)
    return gone.total


def _take(
    context: Context, queue: Queue, subscription: Subscription | None, end: int
) -> MessageRuns:
    """What one commit takes; nothing: there is no more."""
    taken: MessageRuns = []
    with OwnTransaction(context, "purge") as txn:
        for each in queue.readers() if subscription is None else [subscription]:
            left = PURGED_AT_ONCE - sum(hi - lo for lo, hi in taken)
            taken += txn.getting(Gets.waiting, queue, each, left, end)
        txn.commit()
    return taken


def _release(definitions: Definitions, queue: Queue, end: int) -> int:
    """Of a topic that nobody has subscribed to."""
    count = 0
    start = queue.released.first_gap(0)
    while start < end:
        stop = min(end, start + PURGED_AT_ONCE)
        count += definitions.release(queue, start, stop)
        start = stop
    return count
