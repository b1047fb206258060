"""A queue has no room for what a transaction does: what it says is done then, or it is waited."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from quire.arguments import check_timeout
from quire.calls.uninterrupted import nested
from quire.definitions.existing_queue import check_waits
from quire.definitions.properties import WAIT
from quire.engine.queues.queue import Queue
from quire.errors import QueueFull
from quire.limits import ROOM_TRIES
from quire.moments import Duration

from .context import Context

R = TypeVar("R")


def with_room(
    context: Context,
    full: QueueFull,
    action: Callable[[], R],
    seconds: float,
    wait: Callable[[Queue, QueueFull, float], None],
) -> R:
    """Do what was refused again, so often as there may be room for it by then.

    `wait` waits for a queue so many seconds at most; it raises what it has waited for in vain.
    """
    deadline = context.env.monotonic() + seconds
    tries = 0
    while True:
        queue = context.state.names.get(full.queue or "")
        tries += 1
        if queue is None or tries > ROOM_TRIES or not nested(context.make_room, queue, full):
            left = deadline - context.env.monotonic()
            if left <= 0 or full.queue is None:
                raise full
            if queue is not None:  # else it has another name since, which the next error tells
                wait(queue, full, left)
        try:
            return action()
        except QueueFull as again:
            full = again


def patience(context: Context, full: QueueFull, seconds: float) -> float:
    """How long a put waits: so long, where its queue says so. Raises what nothing helps."""
    queue = context.state.names.get(full.queue or "")
    if not full.has_remedy or queue is None:
        raise full
    waits = queue.config.properties.overflow == WAIT and queue.space.may_admit(full)
    return seconds if waits else 0.0


def put_patience(context: Context, queue: str, timeout: Duration) -> float:
    """Seconds that a put says it waits for room, where the queue has puts wait.

    Raises InvalidArgument, QueueNotFound.
    """
    seconds = check_timeout(timeout)
    if seconds:
        config = context.state.queue(queue).config
        check_waits(config.name, config.properties.overflow, seconds)
    return seconds
