"""Looking at messages without taking them."""

from __future__ import annotations

from quire.arguments import check_first, check_max_messages, split_source
from quire.engine.queues.state import State
from quire.errors import QueueNotFound
from quire.message import Delivered, Messages

from .delivery import Delivery


def browse(
    delivery: Delivery, state: State, source: str, start: int | None, max_messages: int
) -> Messages:
    """Committed messages from a position on, in order; see `Store.browse`."""
    check_max_messages(max_messages)
    check_first(start)
    queue_name, subscription_name = split_source(source)
    queue = state.queue(queue_name)
    hidden = None if subscription_name is None else queue.subscription(subscription_name)
    parts: list[Delivered] = []
    position = 0 if start is None else start
    while max_messages:
        with queue.lock:
            if queue.dropped:
                raise QueueNotFound(f"queue {queue_name!r} was dropped")
            done = queue.released if hidden is None else hidden.done
            position = done.first_gap(position)
            if position >= queue.end_position:
                break
            stop = next(done.gaps(position, min(position + max_messages, queue.end_position)))[1]
            pointers = queue.pointers(position, stop)
        for pointer in pointers:
            parts += delivery.fetch(queue, pointer, 1)
        stop = pointers[-1].end_position
        max_messages -= stop - position
        position = stop
    return Messages(queue_name, parts)
