"""The records of a queue, in words."""

from __future__ import annotations

from quire.engine.queues.queue import Queue
from quire.reports.info import QueueRecord


def listing(queue: Queue, start: int = 0, limit: int | None = None) -> list[QueueRecord]:
    """The queue's records that no checkpoint has sealed, in queue order: so many of them."""
    with queue.lock:  # for no longer than a copy takes
        log, committed = queue.log.copy(), queue.records.tail.copy()
    stop = None if limit is None else start + limit
    return list(log.records(committed.between(0, len(committed))))[start:stop]
