"""Which queues a read is about: those that are named, or those that a pattern finds by now.

- A pattern has to match a queue's whole name. A stream's pattern finds topics, since only they have
  subscriptions, without those that cannot be read by position (input_queue.py, YV1); that of a
  batch read finds all queues. Volatile ones it does not find.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from quire.errors import QueueNotFound
from quire.reports.info import QueueInfo
from quire.spark_graphs import position_range
from quire.spark_graphs.options import ReadOptions

from .input_queue import has_order_of_positions

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
    return [queue for queue in found if queue.kind == "topic" and has_order_of_positions(queue)]


def first_queues(store: Store, options: ReadOptions, *, streaming: bool) -> list[QueueInfo]:
    """Those that a read begins with: one at least, since a pattern without any is mostly an error.

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
