"""Waits of threads that no signal's handler leaves locked, and the threads that wait.

Those of `threading` (`Event`, `Condition`, `Semaphore`, `Queue`) are written in Python around a
lock: a handler that raises right after that lock was taken leaves it taken, and whoever sets or
waits next does so for ever. A finaliser or a handler that sets one of them waits for its own
thread, where that was just waiting.

- WK1: a wake-up is one lock of the interpreter, of which nobody is the holder: open, it is set.
  `set`, `clear` and the end of `wait` are one step each, which is made or is not, whatever is
  raised before or after it. None but `wait` ever waits: finalisers, handlers, callbacks and
  children of a fork may set one. It may end a wait without a cause: who waits looks what there is.
- WK2: who is interrupted right after a wait may have taken what was set: so one thread waits for a
  wake-up. Where several do there is a `Condition`, which has one for each of them.
- WK3: a block of `with` on a `Condition` takes and gives back its lock as one on that lock does
  (GI3). In the main thread it is waited for within a call, or by `wait_until`: handlers run in the
  wait alone, and the lock is there again after it, whatever they raise.
- WK4: a thread that is started here runs. A handler that raises in `Thread.start` would leave the
  lock taken by which the new thread says that it has begun.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from quire.env import OsEnv
from quire.limits import FOREVER_SECONDS

from .signal_safety import defer_signals, waiting

_ENV: Final = OsEnv()


class WakeUp:
    """Wakes the one thread that waits for it, or that waits next (WK1, WK2)."""

    __slots__ = ("_gate",)

    def __init__(self) -> None:
        self._gate = threading.Lock()  # open: it is set
        self._gate.acquire()

    def set(self) -> None:
        """End the wait that is under way, or else the next one. By any thread, anywhere."""
        try:
            self._gate.release()
        except RuntimeError:  # it is set already
            return

    def is_set(self) -> bool:
        """Return True if the next wait would end at once."""
        return not self._gate.locked()

    def clear(self) -> None:
        """Forget what was set."""
        self._gate.acquire(blocking=False)

    def wait(self, timeout: float = math.inf) -> bool:
        """Wait for so many seconds at most; return True if it was set, which it is not any more."""
        if timeout >= FOREVER_SECONDS:
            return self._gate.acquire()
        return self._gate.acquire(timeout=max(0.0, timeout))


assert FOREVER_SECONDS <= threading.TIMEOUT_MAX


class Condition:
    """A lock, and the threads that wait for a change of what it covers (WK3)."""

    __slots__ = ("__enter__", "__exit__", "_lock", "_waiters")

    if TYPE_CHECKING:

        def __enter__(self) -> bool: ...
        def __exit__(self, *error: object) -> None: ...

    make_wake_up: ClassVar = WakeUp

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._waiters: deque[WakeUp] = deque()
        own: Any = self
        own.__enter__, own.__exit__ = lock.__enter__, lock.__exit__

    def wait(self, timeout: float = math.inf) -> bool:
        """Wait without the lock, which the caller has; False: the time is over."""
        waiter = self.make_wake_up()
        self._waiters.append(waiter)
        self._lock.release()
        woken = False
        try:
            woken = waiting(waiter.wait, timeout)
        finally:
            self._lock.acquire()
            if not woken and waiter in self._waiters:
                self._waiters.remove(waiter)
        return woken

    def wait_for(self, ready: Callable[[], bool], timeout: float = math.inf) -> bool:
        """Wait as `wait` does until `ready`; False: the time is over, and it is not."""
        until = _ENV.monotonic() + timeout
        while not ready():
            left = until - _ENV.monotonic()
            if left <= 0:
                return False
            self.wait(left)
        return True

    def wait_until(self, ready: Callable[[], bool], timeout: float = math.inf) -> bool:
        """Take the lock, and `wait_for`: for callers that are in no call."""
        return defer_signals(self._wait_until, ready, timeout)

    def _wait_until(self, ready: Callable[[], bool], timeout: float) -> bool:
        with self:
            return self.wait_for(ready, timeout)

    def notify_all(self) -> None:
        """Wake all who wait. The caller has the lock."""
        while self._waiters:
            self._waiters.popleft().set()


class Thread(threading.Thread):
    """A daemon thread, whose start no handler interrupts (WK4)."""

    def __init__(
        self, target: Callable[..., object], args: tuple[object, ...] = (), name: str | None = None
    ) -> None:
        super().__init__(target=target, args=args, name=name, daemon=True)

    def start(self) -> None:
        """Start it, once."""
        defer_signals(super().start)
