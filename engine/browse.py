"""Looking at messages without taking them."""

from __future__ import annotations

from quire.errors import InvalidArgument, QueueNotFound
from quire.message import Delivered, Messages

from .context import Context
from .names import split_source
from .state import State


def browse(
    context: Context, state: State, source: str, start: int | None, max_messages: int
) -> Messages:
    """Committed messages from a position on, in order; see `Store.browse`."""
    if type(max_messages) is not int or max_messages < 1:
        raise InvalidArgument(f"max_messages {max_messages!r}: give an int of 1 or more")
    if start is not None and (type(start) is not int or start < 0):
        raise InvalidArgument(f"start {start!r}: give a position from 0 on")
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
            parts += context.delivery.fetch(queue, pointer, 1)
        stop = pointers[-1].end_position
        max_messages -= stop - position
        position = stop
    return Messages(queue_name, parts)
