"""Ranges of positions: what of them is still in the store, pinned for as long as tasks read it.

YR1. A range that is not there as a whole is never read as if it were: it raises PositionLost,
    unless the reader has asked for what of it is there (with `failOnDataLoss=false`, or in a batch
    read by the word earliest or a time). That is found and pinned in one step, so that no consumer
    comes between.
YR2. A range is one of the queue that it was planned for. If that was dropped and another made with
    its name, the range is not there: nothing of the other queue is read for it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from quire.errors import InvalidArgument, PositionLost, QueueNotFound
from quire.reports.info import Lease, QueueInfo

from . import by_time
from .by_time import ByTime
from .limits import LEASE_SECONDS, LEASE_TRIES
from .options import EARLIEST, LATEST, Starts

if TYPE_CHECKING:
    from quire.interface.store import Store

_log = logging.getLogger("quire.spark_graphs")

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


def infos(
    store: Store, queues: Collection[str], *, streaming: bool = False
) -> dict[str, QueueInfo]:
    """The queues as they are now, in one call.

    Raises QueueNotFound with what to do, InvalidArgument for a volatile one.
    """
    try:
        found = {queue.name: queue for queue in store.queues(list(queues))}
    except QueueNotFound:
        there = {each.name for each in store.queues()}
        gone = [queue for queue in queues if queue not in there]
        if not gone:
            raise
        raise missing(store, gone[0], streaming=streaming) from None
    for queue in found.values():
        if queue.volatile:
            raise volatile(queue.name)
    return found


def volatile(queue: str) -> InvalidArgument:
    return InvalidArgument(
        f"queue '{queue}' is volatile: its messages are in the memory of the store's owner, where "
        "Spark's tasks cannot read them, and what a query has written would be gone when the owner "
        "ends, while its checkpoint says that it is there. Use a persistent queue"
    )


def are_in(ranges: Mapping[str, tuple[int, int]], found: Mapping[str, QueueInfo]) -> bool:
    """Return True if the queues had the ranges when seen; what went since, a lease tells."""
    return found.keys() >= ranges.keys() and all(
        end <= found[name].end_position for name, (_, end) in ranges.items()
    )


def is_same(queue: QueueInfo, created_us: int | None) -> bool:
    """Return True if it is the queue that was made then; where that is not known it is."""
    return created_us is None or queue.created_us == created_us


def missing(store: Store, queue: str, *, streaming: bool = False) -> QueueNotFound:
    """Return the error for a queue that is not there, with the call that makes it.

    `streaming`: a stream was to read it, which only topics are read by.
    """
    kind = ', kind="topic"' if streaming else ""
    return QueueNotFound(
        f"the store {store.path} has no {'topic' if streaming else 'queue'} '{queue}'; create it "
        f"first: quire.open({store.path!r}).create_queue({queue!r}{kind})"
    )


def start_of(store: Store, queue: QueueInfo, starts: Starts) -> int:
    """Return what an option says: EARLIEST, LATEST, or a position; of a time, that of now.

    Raises InvalidArgument where the queue has no message as new as that (by_time.py, YJ3).
    """
    if isinstance(starts, ByTime):
        return by_time.position(store, queue, starts)
    return starts if isinstance(starts, int) else starts[queue.name]


def resolve(store: Store, queue: QueueInfo, starts: Starts) -> int:
    """The position that an option's earliest, latest, number or time means in it as it is."""
    start = start_of(store, queue, starts)
    return {EARLIEST: queue.first_position, LATEST: queue.end_position}.get(start, start)


def is_position(queue: str, starts: Starts) -> bool:
    """Return True if an option gives a position of the queue, and no word or time."""
    if isinstance(starts, (int, ByTime)):
        return False
    return starts[queue] not in (EARLIEST, LATEST)


def lease(
    store: Store,
    ranges: Mapping[str, tuple[int, int]],
    *,
    whole: bool,
    created_us: Mapping[str, int],
    advice: str = STREAM_ADVICE,
    found: Mapping[str, QueueInfo] | None = None,
) -> list[Lease]:
    """The pinned places of the ranges, as one lease; without those in which nothing is (YR1).

    Args:
        whole: raise PositionLost if part of a range is gone; else that part is left out.
        created_us: when the queues were made that the ranges are of (YR2), where this is known.
        advice: what to say to who has lost messages.
        found: the queues as they have just been seen; looked at anew if that has changed since.
    """
    queue = ""
    for tries_left in reversed(range(LEASE_TRIES)):
        found = found or infos(store, ranges)
        requests = []
        for queue, (begin, end) in ranges.items():
            there = _leasable(found[queue], begin, end, created_us.get(queue), whole, advice)
            if there is not None:
                requests.append((queue, *there))
        if not requests:
            return []
        try:
            taken = store.integration.lease_many(requests, seconds=LEASE_SECONDS, gaps=not whole)
        except PositionLost as error:
            if not tries_left:
                raise PositionLost(f"{error}; {advice}") from None
            found = None
            continue
        # A lease goes by the name: each has to be of the queue that was looked at.
        changed = [each for each in taken if not is_same(found[each.queue], each.created_us)]
        if not changed:
            return taken
        store.integration.end_lease(taken[0].lease_id)
        queue, found = changed[0].queue, None
    raise made_again(queue)


def _leasable(
    queue: QueueInfo, begin: int, end: int, created_us: int | None, whole: bool, advice: str
) -> tuple[int, int] | None:
    """The range to lease, if there may be anything in it (YR1, YR2)."""
    first, last = queue.first_position, queue.end_position
    if not is_same(queue, created_us):
        if whole:
            raise made_again(queue.name)
        return None
    if whole and (begin > end or end > last or (begin < end and begin < first)):
        raise lost(queue, begin, end, advice)
    begin = begin if begin <= end else first  # a range that runs backwards has lost its start
    return (begin, end) if begin < end else None


def made_again(queue: str) -> PositionLost:
    return PositionLost(
        f"queue '{queue}' was dropped and made again: messages that this query has not read may be "
        "gone, and its positions are not those of the new queue. Start the query with a new "
        "checkpoint, or set the option failOnDataLoss to false to begin anew with the first "
        "message that the new queue keeps"
    )


def gone(queue: str) -> PositionLost:
    return PositionLost(
        f"queue '{queue}', which this query has read by its pattern, is not there any more, or "
        "cannot be streamed any more, as it has priorities or times now: "
        "messages that the query has not read may be gone. Start it with a new checkpoint, or set "
        "the option failOnDataLoss to false to go on without the queue"
    )


def warn_gone(queue: str) -> None:
    """Log that a query goes on without a queue of its pattern, as `failOnDataLoss=false` says."""
    _log.warning(
        "queue '%s', which this query has read by its pattern, is not there any more, or cannot be "
        "streamed any more: messages that the query has not read may be gone, and it goes on "
        "without the queue, as the option failOnDataLoss says",
        queue,
    )


def lost(queue: QueueInfo, begin: int, end: int, advice: str) -> PositionLost:
    what = f"messages {begin} to {end} are asked for"
    if begin > end:
        what = (
            f"the range runs backwards, from {begin} to {end}: the query has come further than the "
            "store, as if that was restored as of an earlier point or put back from a copy"
        )
    return PositionLost(
        f"queue '{queue.name}': {what}, and the store has {queue.first_position} to "
        f"{queue.end_position}; {advice}"
    )
