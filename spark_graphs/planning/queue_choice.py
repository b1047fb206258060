"""The queues of a read: those that are named, or those that a pattern finds by now.

- A pattern has to match a queue's whole name. A stream's pattern finds topics, since only they have
  subscriptions, without those that cannot be read by position (YV1); that of a batch read finds all
  queues. Volatile ones it does not find.
YV1. Messages are read in the order of their positions, which is that of their commits. A queue that
    has another order, or holds messages back until a time, is refused, with the reason; so is one
    from which messages go that nobody has read, as a range that is planned has to be there whole. A
    batch read that begins by a word or a time only looks at what is there, and may look at any
    queue.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from quire.definitions.order import COMMIT, PRIORITY
from quire.errors import InvalidArgument, QueueNotFound
from quire.reports.info import QueueInfo
from quire.spark_graphs import position_range
from quire.spark_graphs.options import ReadOptions

if TYPE_CHECKING:
    from quire.interface.store import Store


def queues_read(store: Store, options: ReadOptions, *, streaming: bool) -> list[QueueInfo]:
    """The queues as they are now. Raises QueueNotFound for one that is named and not there."""
    if options.pattern is None:
        named = position_range.infos(store, options.queues, streaming=streaming)
        return list(named.values())
    matches = re.compile(options.pattern).fullmatch
    found = [queue for queue in store.queues() if matches(queue.name) and not queue.volatile]
    if not streaming:
        return found
    return [queue for queue in found if queue.kind == "topic" and not _obstacle(queue)]


def first_queues(store: Store, options: ReadOptions, *, streaming: bool) -> list[QueueInfo]:
    """Return those that a read begins with: one at least, as a pattern without any is an error.

    Raises QueueNotFound with what to do.
    """
    found = queues_read(store, options, streaming=streaming)
    if not found:
        kind = "topic" if streaming else "queue"
        raise QueueNotFound(
            f"no {kind} of the store {store.path} has a name that matches {options.pattern!r} (the "
            f"whole name has to match): correct the option 'subscribePattern', or create a {kind} "
            "first"
        )
    return found


def check_order_of_positions(queue: QueueInfo) -> None:
    """Raise InvalidArgument unless positions are the queue's order, and nothing goes unread."""
    obstacle = _obstacle(queue)
    if obstacle:
        raise InvalidArgument(f"queue '{queue.name}' {obstacle}. {_ADVICE}")


def _obstacle(queue: QueueInfo) -> str:
    """Return why the queue cannot be read by position; "" if it can (YV1)."""
    by_position = "Spark reads by position: messages would come"
    if queue.order == PRIORITY:
        return (
            f"has priorities, and {by_position} in the order of their commits, whatever their "
            "priority"
        )
    if queue.order != COMMIT:
        return f"has the order {queue.order!r}, and {by_position} in the order of their commits"
    if queue.timed:
        return f"is timed, and {by_position} before they are due, and after they have expired"
    if queue.keep_latest is not None:
        return (
            f"keeps the latest message of each {queue.keep_latest!r}, and Spark reads by position: "
            "what it is about to read would go meanwhile"
        )
    return ""


_ADVICE = (
    "Let a consumer get them and put them to another queue for Spark, or look at what is there by "
    "a batch read from earliest or from a time"
)
