"""Emptying a queue: what waits in it is read by the store itself.

- What another transaction holds stays its own: what waits is taken as by a get, and counts as read
  by a commit. So nobody gets it meanwhile, and a rollback of others brings nothing back.
- A commit takes at most `PURGED_AT_ONCE` messages (and `PURGED_RUNS` of positions), as others wait
  while it is applied. So a small queue goes in one commit. Of a large one a part is gone if the
  process ends in between; what is gone stays gone.
- What comes after the call began stays.
- A purge of a whole topic also removes messages that it keeps after all have read them.
- Where it is said which messages are to go, they are looked for as for those who look, a commit's
  at a time: so no more than their runs are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from quire.engine.commits.definitions import Definitions
from quire.engine.lookup.choice import ALL, Choice
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.transactions.context import Context
from quire.errors import InvalidArgument
from quire.intervals import IntervalSet
from quire.limits import PURGED_AT_ONCE

from .own_transaction import (
    MessageRuns,
    own_transaction,
    pass_by,
    pass_over,
    run_parts,
    take_waiting,
)


def purge(
    context: Context,
    definitions: Definitions,
    queue: Queue,
    subscription: Subscription | None,
    choice: Choice,
) -> int:
    """Remove what waits for the subscription, or for all of the queue's; return how many messages.

    Of it that for which the choice holds. Raises QueueInUse where a transaction moves a
    subscription, InvalidArgument where one is needed to choose.
    """
    end = queue.end_position
    if subscription is None and not queue.subscriptions:
        if choice == ALL:
            return _release(definitions, queue, end)
        raise InvalidArgument(
            f"queue {queue.name!r} has no subscription, so only all of it can be purged: leave "
            "where out, or subscribe first"
        )
    readers = queue.readers() if subscription is None else [subscription]
    gone = IntervalSet()
    if choice == ALL:
        while taken := _take(context, queue, readers, end):
            _note(gone, taken)
    else:
        for reader in readers:
            for some in run_parts(context.chooser.finder.runs(queue, reader, choice, end)):
                _note(gone, _take(context, queue, [reader], end, some))
    keeper = queue.keeper
    if subscription is None and keeper is not None:
        with queue.lock:
            kept = IntervalSet.from_list(keeper.unread_below(end))
        passed = (
            pass_by(context, "purge", queue, keeper, end)
            if choice == ALL
            else _pass_some(context, queue, keeper, choice, end)
        )
        for start, stop in passed:
            with queue.lock:
                released = list(queue.released.intersection(start, stop))
            for run in released:
                _note(gone, list(kept.intersection(*run)))
    return gone.total


def _take(
    context: Context,
    queue: Queue,
    readers: list[Subscription],
    end: int,
    among: MessageRuns | None = None,
) -> MessageRuns:
    """Take as much as one commit takes; nothing: there is no more."""
    taken: MessageRuns = []
    with own_transaction(context, "purge") as txn:
        for each in readers:
            left = PURGED_AT_ONCE - sum(hi - lo for lo, hi in taken)
            taken += txn.getting(take_waiting, queue, each, left, end, among)
        txn.commit()
    return taken


def _pass_some(
    context: Context, queue: Queue, keeper: Subscription, choice: Choice, end: int
) -> Iterator[tuple[int, int]]:
    """Let go of what all have read: the parts that are not kept any more for that."""
    for some in run_parts(context.chooser.finder.runs(queue, keeper, choice, end)):
        with own_transaction(context, "purge") as txn:
            pass_over(txn, queue, keeper, some)
            txn.commit()
        yield from some


def _note(gone: IntervalSet, runs: MessageRuns) -> None:
    for lo, hi in runs:
        gone.add(lo, hi)


def _release(definitions: Definitions, queue: Queue, end: int) -> int:
    """Release the messages of a topic that nobody has subscribed to."""
    count = 0
    start = queue.released.first_gap(0)
    while start < end:
        stop = min(end, start + PURGED_AT_ONCE)
        count += definitions.release(queue, start, stop)
        start = stop
    return count
