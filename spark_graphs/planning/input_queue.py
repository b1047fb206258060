"""Which queues can be read by position, as streams and steps do.

YV1. Messages are read in the order of their positions, which is that of their commits. A queue that
    has another order, or holds messages back until a time, is refused, with the reason; so is one
    from which messages go that nobody has read, as a range that is planned has to be there whole. A
    batch read that begins by a word or a time only looks at what is there, and may look at any
    queue.
"""

from __future__ import annotations

from quire.definitions.order import COMMIT, PRIORITY
from quire.errors import InvalidArgument
from quire.reports.info import QueueInfo


def has_order_of_positions(queue: QueueInfo) -> bool:
    """Whether the order of the positions is the queue's order, and nothing goes unread (YV1)."""
    return queue.order == COMMIT and not queue.timed and queue.keep_latest is None


def check_order_of_positions(queue: QueueInfo) -> None:
    """Raises InvalidArgument unless it is."""
    if queue.order == PRIORITY:
        raise InvalidArgument(
            f"queue '{queue.name}' has priorities, and Spark reads by position: messages would "
            f"come in the order of their commits, whatever their priority. {_ADVICE}"
        )
    if queue.order != COMMIT:
        raise InvalidArgument(
            f"queue '{queue.name}' has the order {queue.order!r}, and Spark reads by position: "
            f"messages would come in the order of their commits. {_ADVICE}"
        )
    if queue.timed:
        raise InvalidArgument(
            f"queue '{queue.name}' is timed, and Spark reads by position: messages would come "
            f"before they are due, and after they have expired. {_ADVICE}"
        )
    if queue.keep_latest is not None:
        raise InvalidArgument(
            f"queue '{queue.name}' keeps the latest message of each {queue.keep_latest!r}, and "
            f"Spark reads by position: what it is about to read would go meanwhile. {_ADVICE}"
        )


_ADVICE = (
    "Let a consumer get them and put them to another queue for Spark, or look at what is there by "
    "a batch read from earliest or from a time"
)
