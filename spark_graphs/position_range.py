"""Ranges of positions: what of them is still in the store, pinned for as long as tasks read it.

YR1. A range that is not there as a whole is never read as if it were: it raises PositionLost, or,
    with `failOnDataLoss=false`, shrinks to what is there.
YR2. A range is one of the queue that it was planned for. If that was dropped and another made with
    its name, the range is not there: nothing of the other queue is read for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.errors import PositionLost, QueueNotFound
from quire.info import Lease, QueueInfo

from .limits import LEASE_SECONDS, LEASE_TRIES
from .options import EARLIEST, LATEST, Starts

if TYPE_CHECKING:
    from quire.store import Store


def bounds(store: Store, queue: str) -> tuple[int, int]:
    """The first position kept in a queue, and the end. Raises QueueNotFound with what to do."""
    try:
        return store.positions(queue)
    except QueueNotFound:
        raise missing(store, queue) from None


def info(store: Store, queue: str) -> QueueInfo:
    """The queue as it is now. Raises QueueNotFound with what to do."""
    try:
        return store.queue(queue)
    except QueueNotFound:
        raise missing(store, queue) from None


def is_same(queue: QueueInfo, created_us: int | None) -> bool:
    """Whether it is the queue that was made then; where that is not known it is taken for it."""
    return created_us is None or queue.created_us == created_us


def missing(store: Store, queue: str) -> QueueNotFound:
    return QueueNotFound(
        f"the store {store.path} has no queue '{queue}'; create it first: "
        f"quire.open({store.path!r}).create_queue({queue!r})"
    )


def resolve(store: Store, queue: str, starts: Starts) -> int:
    """The position that an option's earliest, latest or number means now."""
    start = starts if isinstance(starts, int) else starts[queue]
    first, end = bounds(store, queue)
    return {EARLIEST: first, LATEST: end}.get(start, start)


def lease(
    store: Store,
    queue: str,
    begin: int,
    end: int,
    *,
    fail_on_data_loss: bool,
    created_us: int | None = None,
    seconds: float = LEASE_SECONDS,
) -> Lease | None:
    """The pinned places of the range, or None if nothing is in it (YR1).

    Args:
        created_us: when the queue was made that the range is of (YR2); None: this is not known.
    """
    for tries_left in reversed(range(LEASE_TRIES)):
        found = info(store, queue)
        if not is_same(found, created_us):
            if fail_on_data_loss:
                raise made_again(queue)
            return None
        first, last = found.first_position, found.end_position
        if begin == end and (begin <= last or not fail_on_data_loss):
            return None
        if not (first <= begin < end <= last):
            if fail_on_data_loss:
                raise _lost(queue, begin, end, first, last)
            begin, end = max(first, begin if begin <= end else first), min(end, last)
            if begin >= end:
                return None
        try:
            taken = store.lease(queue, begin, end, seconds=seconds)
        except PositionLost:
            if fail_on_data_loss or not tries_left:
                raise
            continue
        # A lease goes by the name: a queue that is there before and after it is the one it is of.
        if is_same(info(store, queue), found.created_us):
            return taken
        store.release(taken.lease_id)
    raise made_again(queue)


def made_again(queue: str) -> PositionLost:
    return PositionLost(
        f"queue '{queue}' was dropped and made again: messages that this query has not read may be "
        "gone, and its positions are not those of the new queue. Start the query with a new "
        "checkpoint, or set the option failOnDataLoss to false to begin anew with the first "
        "message that the new queue keeps"
    )


def gone(queue: str) -> PositionLost:
    return PositionLost(
        f"queue '{queue}', which this query has read by its pattern, is not there any more: "
        "messages that the query has not read may be gone. Start it with a new checkpoint, or set "
        "the option failOnDataLoss to false to go on without the queue"
    )


def _lost(queue: str, begin: int, end: int, first: int, last: int) -> PositionLost:
    what = (
        f"the range runs backwards, from {begin} to {end}"
        if begin > end
        else f"messages {begin} to {end} are asked for"
    )
    return PositionLost(
        f"queue '{queue}': {what}, and the store has {first} to {last}; messages that this query "
        "has not read are gone, or the queue was dropped and made again. Start the query with "
        "a new checkpoint, or set the option failOnDataLoss to false to go on with what is there"
    )
