"""The queues that a write goes to: that they are there, and that they can ever hold the write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from quire.errors import QueueFull, QueueNotFound
from quire.limits import COMMIT_BYTES, OPEN_BYTES

from . import connection, position_range
from .fragment import Fragment

if TYPE_CHECKING:
    from quire.store import Store


def check(path: str, queues: Iterable[str]) -> None:
    """Refuse a write before any of it is done. Raises QueueNotFound with what to do."""
    connection.call(path, lambda store: [position_range.info(store, queue) for queue in queues])


def check_capacities(store: Store, fragments: Sequence[Fragment]) -> None:
    """Raise QueueFull if a queue could not hold what goes to it even if it were empty."""
    for queue in dict.fromkeys(fragment.queue for fragment in fragments):
        _check_capacity(store, queue, fragments)


def _check_capacity(store: Store, queue: str, fragments: Sequence[Fragment]) -> None:
    parts = [fragment for fragment in fragments if fragment.queue == queue]
    messages = sum(part.messages for part in parts)
    size = sum(part.charge_bytes for part in parts)
    try:
        info = store.queue(queue)
    except QueueNotFound:
        return  # the next attempt says so
    limits = []
    if info.max_messages is not None and messages > info.max_messages:
        limits.append(f"{info.max_messages} messages at most")
    if size + OPEN_BYTES + COMMIT_BYTES > info.capacity_bytes:
        limits.append(f"{info.capacity_bytes} bytes at most")
    if limits:
        error = QueueFull(
            f"queue '{queue}' can never hold this batch of {messages} messages and {size} bytes: "
            f"it holds {' and '.join(limits)}, and a batch is one transaction. Write smaller "
            "batches (of a stream: limit its sources by maxMessagesPerTrigger or "
            "maxBytesPerTrigger and start it with a new checkpoint, since a planned batch keeps "
            "its size), or make the queue with more room"
        )
        error.queue = queue
        raise error
