"""Looking at messages without taking them."""

from __future__ import annotations

from quire.errors import InvalidArgument
from quire.message import Delivered, Messages

from .manager import Manager
from .names import split_source
from .state import State


def browse(
    manager: Manager, state: State, source: str, start: int | None, max_messages: int
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
    with queue.lock:
        done = queue.released if hidden is None else hidden.done
        runs = []
        position = 0 if start is None else start
        while position < queue.end_position and max_messages:
            position = done.first_gap(position)
            if position >= queue.end_position:
                break
            stop = next(done.gaps(position, min(position + max_messages, queue.end_position)))[1]
            runs.append(queue.pointers(position, stop))
            max_messages -= stop - position
            position = stop
    for pointers in runs:
        for pointer in pointers:
            parts += manager.fetch(queue, pointer, 1)
    return Messages(queue_name, parts)
