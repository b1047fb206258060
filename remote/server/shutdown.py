"""The end of a served store: by a signal, or by a client with the right to it.

- EO1: both are one mechanism. No more transactions are begun, those that are open may end within a
  grace, and the store is closed. The grace of a signal is the server's own, that of a call the
  client's; of several the shortest counts.
- EO2: a signal that comes in the grace of another one, or of a call, ends it at once.
"""

from __future__ import annotations

import math
import time

from .signals import SignalFlag


class Shutdown:
    """The coming end of a served store. Thread-safe."""

    def __init__(self, end: SignalFlag, grace: float) -> None:
        """`end`: set by signals. `grace`: seconds, of these."""
        self._end = end
        self._grace = grace
        self._until = math.inf
        self._signals = 0  # that have come before the grace
        self._is_called = False

    def request(self, grace: float) -> None:
        """Ask for the end: a client's call, which waits for nothing."""
        self._until = min(self._until, time.monotonic() + grace)
        self._is_called = True
        self._end.set()

    def begin(self) -> float:
        """Begin the grace; how many seconds it has."""
        self._signals = self._end.signals
        if not self._is_called or self._signals:
            self._until = min(self._until, time.monotonic() + self._grace)
        return max(0.0, self._until - time.monotonic())

    def is_over(self) -> bool:
        """Return True if the grace has ended."""
        return self._end.signals > self._signals or time.monotonic() >= self._until
