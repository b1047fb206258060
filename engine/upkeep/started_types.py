"""The code of queue types, for each queue that has one: started when it comes into use, stopped.

- Where the code is missing, or does not start, that queue alone is stopped; it keeps what it holds.
- ST2: what was started is stopped once, when the queue is dropped or the store is closed. What goes
  wrong then is logged: it must not keep the store from being closed.
"""

from __future__ import annotations

from collections.abc import Iterable

from quire.definitions.order import by_code
from quire.definitions.order_code import order_named
from quire.definitions.queue_types import BUILT_IN, QueueType, type_named
from quire.engine.queues.queue import Queue
from quire.env.interpreter import Lock
from quire.errors import InvalidArgument
from quire.loggers import logger
from quire.reports.info import QueueInfo

_log = logger("quire.queue_types")


class StartedTypes:
    """The queue types whose code was started. Thread-safe."""

    def __init__(self) -> None:
        self._started: dict[int, tuple[QueueType, QueueInfo]] = {}
        self._lock = Lock()

    def start(self, queues: Iterable[Queue]) -> None:
        """Start the code of those queues whose type has any."""
        for queue in queues:
            if queue.config.properties.type not in BUILT_IN:
                self._start(queue)

    def _start(self, queue: Queue) -> None:
        name, info = queue.config.properties.type, queue.info()
        try:
            kind = type_named(name)
            kind.start(info)
        except InvalidArgument as error:
            queue.stop(f"queue {queue.name!r} is stopped: {error}")
        except Exception as error:  # noqa: BLE001 - of somebody else's code: it stops this queue only
            queue.stop(
                f"queue {queue.name!r} is stopped: the code of its type {name!r} did not start "
                f"({error!r})"
            )
        else:
            with self._lock:
                self._started[queue.queue_id] = kind, info

    def stop(self, queue_id: int) -> None:
        """One that was dropped."""
        with self._lock:
            started = self._started.pop(queue_id, None)
        if started is not None:
            kind, info = started
            try:
                kind.stop(info)
            except Exception:  # noqa: BLE001 - of somebody else's code (ST2)
                _log.exception("the type of queue %r did not stop", info.name)

    def stop_all(self) -> None:
        """The store is being closed."""
        for queue_id in list(self._started):
            self.stop(queue_id)


def look_for_orders(queues: Iterable[Queue]) -> None:
    """Stop those whose order is of a code that is not known; let others go on that missed one."""
    for queue in queues:
        order, why = queue.config.properties.order, ""
        if isinstance(order, str) and by_code(order):
            try:
                order_named(order)
            except InvalidArgument as error:
                why = f"queue {queue.name!r} is stopped: {error}"
        queue.stop(why, missing="order")
