"""Waits for a change of a queue: threads, and callbacks that need none."""

from __future__ import annotations

import threading
from collections.abc import Callable

from quire.calls.wake_up import Condition


class Arrivals:
    """Made by the first that waits. The queue's lock covers it, but for `withdraw`."""

    def __init__(self, lock: threading.Lock) -> None:
        self._changed = Condition(lock)
        self._callbacks: dict[object, Callable[[], None]] = {}
        self.changes = 0  # so many were told

    def wait_for(self, ready: Callable[[], bool], timeout: float) -> bool:
        """Wait, without holding the lock, until `ready`; False: the time is over."""
        return self._changed.wait_for(ready, timeout)

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have the callback called at the next change, once; what withdraws it, without a lock."""
        key = object()
        self._callbacks[key] = callback

        def withdraw() -> None:
            self._callbacks.pop(key, None)

        return withdraw

    def notify_all(self) -> None:
        """Something has changed: threads look again, callbacks are called."""
        self.changes += 1
        self._changed.notify_all()
        if self._callbacks:
            for key in list(self._callbacks):
                callback = self._callbacks.pop(key, None)
                if callback is not None:
                    callback()
