"""Transactions that the store begins by itself: to move messages, to remove them, to put some.

They wait for no room, and tell nobody of a delivery. What the functions here take is delivered to
nobody either, and is given back as if it had not been taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quire.batches import delivered_messages
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.transactions.context import Context
from quire.engine.transactions.reads import TransactionReads
from quire.engine.transactions.transaction import EmbeddedTransaction
from quire.errors import QueueInUse
from quire.limits import EXPIRED_AT_ONCE, LET_GO_AT_ONCE, PURGED_AT_ONCE, PURGED_RUNS
from quire.messages.message import Message

MessageRuns = list[tuple[int, int]]  # of positions

TOO_OFTEN = "delivered too often"
EXPIRED = "expired"


def own_transaction(context: Context, owner: str) -> EmbeddedTransaction:
    """Begin one."""
    transaction = EmbeddedTransaction(context, None, False, owner)
    transaction.put_timeout = 0.0
    transaction.is_own = True
    return transaction


def pass_over(
    txn: EmbeddedTransaction, queue: Queue, subscription: Subscription, runs: MessageRuns
) -> None:
    """Count what is not read of these positions as read with the commit."""
    passes = [(queue, subscription, start, end) for start, end in runs]
    txn.getting(lambda reads: reads.further().skipped.extend(passes))


def pass_by(
    context: Context, owner: str, queue: Queue, keeper: Subscription, target: int
) -> Iterator[tuple[int, int]]:
    """Move what keeps a topic's messages up to the position: the parts that it has passed."""
    position = keeper.position
    while position < target and not (queue.dropped or keeper.removed):
        stop = min(position + LET_GO_AT_ONCE, target)
        with own_transaction(context, owner) as txn:
            pass_over(txn, queue, keeper, [(0, stop)])
            txn.commit()
        yield position, stop
        position = stop


def run_parts(
    runs: Iterable[tuple[int, int]], messages: int = PURGED_AT_ONCE
) -> Iterator[MessageRuns]:
    """Yield the runs, so many messages at a time as one commit takes."""
    some: MessageRuns = []
    left = messages
    for start, end in runs:
        while start < end:
            stop = min(end, start + left)
            some.append((start, stop))
            left -= stop - start
            start = stop
            if not left or len(some) == PURGED_RUNS:
                yield some
                some, left = [], messages
    if some:
        yield some


# By `EmbeddedTransaction.getting`


def pass_unwanted(
    reads: TransactionReads, queue: Queue, subscription: Subscription, most: int
) -> int:
    """Count as read what the subscription does not ask for: how many, at most so many.

    It is taken by nobody, so an exclusive subscription is not somebody's by that.
    """
    with queue.lock:
        is_moving = subscription.seeker is not None
        runs = [] if is_moving else subscription.order.unwanted_runs(most, PURGED_RUNS)
    skipped = [(queue, subscription, start, end) for start, end in runs]
    reads.further().skipped += skipped
    return sum(end - start for start, end in runs)


def take_gone(
    reads: TransactionReads, queue: Queue, subscription: Subscription, most: int
) -> tuple[int, list[tuple[Message, str]]]:
    """Take what is spent or expired: how many, and those that are to be kept.

    Of these `most` at once, and with each, why nobody else gets it any more.
    """
    reads.further().is_counted = False
    keeps_expired = queue.config.properties.keep_expired
    with queue.lock:
        is_dropped = bool(subscription.expired) and not keeps_expired
        run = None if is_dropped else subscription.take_gone(most)
        if run is not None:
            reads.note(queue, subscription, *run[:2])
    if is_dropped:
        return _take_expired(reads, queue, subscription), []
    if run is None:
        return 0, []
    start, end, is_expired = run
    with queue.lock:
        deliveries = subscription.deliveries(start)
        why = [subscription.reasons.get(position, TOO_OFTEN) for position in range(start, end)]
    parts = reads.context.delivery.deliver(queue, subscription, [(start, end, deliveries)])
    messages = list(delivered_messages.Messages(queue.name, parts))
    if is_expired:
        why = [EXPIRED] * len(messages)
    elif len(messages) != len(why):  # some were read past meanwhile: which is not known
        why = [TOO_OFTEN] * len(messages)
    return end - start, list(zip(messages, why, strict=True))


def _take_expired(reads: TransactionReads, queue: Queue, subscription: Subscription) -> int:
    """Take what has expired and is not kept: how many."""
    left = EXPIRED_AT_ONCE
    for _ in range(PURGED_RUNS):
        with queue.lock:
            run = subscription.take_gone(left) if left and subscription.expired else None
            if run is None:
                break
            start, end, _ = run
            reads.note(queue, subscription, start, end)
        left -= end - start
    return EXPIRED_AT_ONCE - left


def take_waiting(
    reads: TransactionReads,
    queue: Queue,
    subscription: Subscription,
    most: int,
    end: int,
    among: MessageRuns | None = None,
) -> MessageRuns:
    """Take what waits below `end`, up to so many messages, and deliver nothing of it.

    `among`: all that waits of these runs instead.
    """
    reads.further().is_counted = False
    runs: MessageRuns = []
    with queue.lock:
        if subscription.seeker is not None:
            raise QueueInUse(f"a transaction moves {queue.name}/{subscription.name}: end it first")
        if not (queue.dropped or subscription.removed):
            left = max(0, PURGED_RUNS - len(reads.taken))
            try:
                subscription.take_waiting(runs, most, left, end, among)
            finally:
                for run in runs:
                    reads.note(queue, subscription, *run)
    return runs


def take_oldest(
    reads: TransactionReads, queue: Queue, subscriptions: list[Subscription], runs: MessageRuns
) -> MessageRuns:
    """Take what is not read of these positions, for all subscriptions.

    But runs of which somebody holds a part. Those that it has taken.
    """
    reads.further().is_counted = False
    found: MessageRuns = []
    with queue.lock:
        for start, end in runs:
            if queue.dropped or any(
                each.removed or each.seeker is not None or each.held_in(start, end)
                for each in subscriptions
            ):
                continue
            for each in subscriptions:
                take_part(reads, queue, each, start, end)
            found.append((start, end))
    return found


def take_part(
    reads: TransactionReads, queue: Queue, subscription: Subscription, start: int, end: int
) -> None:
    """Take what is not read of [start, end), of which nobody holds anything; under the lock."""
    for run in subscription.take_part(start, end):
        reads.note(queue, subscription, *run)


def take_chosen(
    reads: TransactionReads, queue: Queue, subscription: Subscription, positions: list[int]
) -> list[int]:
    """Take these ascending positions, wherever they stand in the order; those it has taken.

    Not what others hold, what comes later, and what is gone.
    """
    reads.further().is_counted = False
    found: list[int] = []
    with queue.lock:
        queue.check_there(subscription)
        if not subscription.is_guarded or subscription.admits(reads):
            for position in positions:
                if subscription.may_pick(position):
                    for run in subscription.take_part(position, position + 1):
                        reads.note(queue, subscription, *run)
                        found.append(position)
    return found
