"""Ranges of positions: what of them is still in the store, pinned for as long as tasks read it.

YR1. A range that is not there as a whole is never read as if it were: it raises PositionLost,
    unless the reader has asked for what of it is there (with `failOnDataLoss=false`, or by the
    word earliest in a batch read). That is found and pinned in one step, so that no consumer comes
    between.
YR2. A range is one of the queue that it was planned for. If that was dropped and another made with
    its name, the range is not there: nothing of the other queue is read for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.engine import Lease, QueueInfo
from quire.errors import PositionLost, QueueNotFound

from .limits import LEASE_SECONDS, LEASE_TRIES
from .options import EARLIEST, LATEST, Starts

if TYPE_CHECKING:
    from quire.store import Store


STREAM_ADVICE = (
    "messages that this query has not read are gone: taken by another reader of its subscription, "
    "or read by the query itself when its checkpoint was newer (before it was restored, or lost "
    "its last files in a power failure). Start the query with a new checkpoint, or set the option "
    "failOnDataLoss to false to go on with what is there"
)
TASK_ADVICE = "they were there when this was planned, and the lease on them has ended: run it again"
BATCH_ADVICE = (
    "consumers have taken the others, or they are not there yet. Give earliest and latest, which "
    "mean what is there, or set the option failOnDataLoss to false"
)


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


def resolve(queue: QueueInfo, starts: Starts) -> int:
    """The position that an option's earliest, latest or number means in the queue as it is."""
    start = starts if isinstance(starts, int) else starts[queue.name]
    return {EARLIEST: queue.first_position, LATEST: queue.end_position}.get(start, start)


def is_word(queue: str, starts: Starts) -> bool:
    """Whether an option says earliest or latest of the queue, and no number."""
    return (starts if isinstance(starts, int) else starts[queue]) in (EARLIEST, LATEST)


def lease(
    store: Store,
    queue: str,
    begin: int,
    end: int,
    *,
    whole: bool,
    created_us: int | None = None,
    advice: str = STREAM_ADVICE,
) -> Lease | None:
    """The pinned places of the range, or None if nothing is in it (YR1).

    Args:
        whole: raise PositionLost if part of the range is gone; else that part is left out.
        created_us: when the queue was made that the range is of (YR2); None: this is not known.
        advice: what to say to who has lost messages.
    """
    for _ in range(LEASE_TRIES):
        found = info(store, queue)
        if not is_same(found, created_us):
            if whole:
                raise made_again(queue)
            return None
        first, last = found.first_position, found.end_position
        if whole and (begin > end or end > last or (begin < end and begin < first)):
            raise lost(queue, begin, end, first, last, advice)
        begin = begin if begin <= end else first  # a range that runs backwards has lost its start
        if begin >= end:
            return None
        try:
            taken = store.lease(queue, begin, end, seconds=LEASE_SECONDS, gaps=not whole)
        except PositionLost:
            first, last = bounds(store, queue)
            raise lost(queue, begin, end, first, last, advice) from None
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


def lost(queue: str, begin: int, end: int, first: int, last: int, advice: str) -> PositionLost:
    what = (
        f"the range runs backwards, from {begin} to {end}"
        if begin > end
        else f"messages {begin} to {end} are asked for"
    )
    gaps = ", with gaps" if first <= begin and end <= last else ""
    return PositionLost(
        f"queue '{queue}': {what}, and the store has {first} to {last}{gaps}; {advice}"
    )
