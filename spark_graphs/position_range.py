"""Ranges of positions: what of them is still in the store, pinned for as long as tasks read it.

YR1. A range that is not there as a whole is never read as if it were: it raises PositionLost, or,
    with `failOnDataLoss=false`, shrinks to what is there.
YR2. A range is one of the queue that it was planned for. If that was dropped and another made with
    its name, the range is not there: nothing of the other queue is read for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from quire.errors import PositionLost, QueueNotFound
from quire.info import Lease, QueueInfo

from .limits import LEASE_SECONDS, LEASE_TRIES
from .options import EARLIEST, LATEST, Starts

if TYPE_CHECKING:
    from quire.store import Store


def infos(store: Store, queues: Collection[str]) -> dict[str, QueueInfo]:
    """The queues as they are now, in one call. Raises QueueNotFound with what to do."""
    try:
        return {found.name: found for found in store.queues(queues)}
    except QueueNotFound:
        there = {found.name for found in store.queues()}
        gone = [queue for queue in queues if queue not in there]
        if not gone:
            raise
        raise missing(store, gone[0]) from None


def is_same(queue: QueueInfo, created_us: int | None) -> bool:
    """Whether it is the queue that was made then; where that is not known it is taken for it."""
    return created_us is None or queue.created_us == created_us


def missing(store: Store, queue: str) -> QueueNotFound:
    return QueueNotFound(
        f"the store {store.path} has no queue '{queue}'; create it first: "
        f"quire.open({store.path!r}).create_queue({queue!r})"
    )


def resolve(queue: QueueInfo, starts: Starts) -> int:
    """The position that an option's earliest, latest or number means now."""
    start = starts if isinstance(starts, int) else starts[queue.name]
    return {EARLIEST: queue.first_position, LATEST: queue.end_position}.get(start, start)


def lease(
    store: Store,
    ranges: Mapping[str, tuple[int, int]],
    *,
    fail_on_data_loss: bool,
    created_us: Mapping[str, int],
    found: Mapping[str, QueueInfo] | None = None,
    seconds: float = LEASE_SECONDS,
) -> list[Lease]:
    """The pinned places of the ranges, as one lease; without those in which nothing is (YR1).

    Args:
        created_us: when the queues were made that the ranges are of (YR2), where this is known.
        found: the queues as they have just been seen; looked at anew if that has changed since.
    """
    queue = ""
    for tries_left in reversed(range(LEASE_TRIES)):
        found = found or infos(store, ranges)
        wanted = []
        for queue, (begin, end) in ranges.items():
            there = _there(found[queue], begin, end, created_us.get(queue), fail_on_data_loss)
            if there is not None:
                wanted.append((queue, *there))
        if not wanted:
            return []
        try:
            taken = store.lease_many(wanted, seconds=seconds)
        except PositionLost:
            if fail_on_data_loss or not tries_left:
                raise
            found = None
            continue
        # A lease goes by the name: each has to be of the queue that was looked at.
        changed = [each for each in taken if not is_same(found[each.queue], each.created_us)]
        if not changed:
            return taken
        store.release(taken[0].lease_id)
        queue, found = changed[0].queue, None
    raise made_again(queue)


def _there(
    queue: QueueInfo, begin: int, end: int, created_us: int | None, fail_on_data_loss: bool
) -> tuple[int, int] | None:
    """What of the range the queue has, if anything is in it."""
    first, last = queue.first_position, queue.end_position
    if not is_same(queue, created_us):
        if fail_on_data_loss:
            raise made_again(queue.name)
        return None
    if begin == end and (begin <= last or not fail_on_data_loss):
        return None
    if not (first <= begin < end <= last):
        if fail_on_data_loss:
            raise _lost(queue.name, begin, end, first, last)
        begin, end = max(first, begin if begin <= end else first), min(end, last)
        if begin >= end:
            return None
    return begin, end


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
