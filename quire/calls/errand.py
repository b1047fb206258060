"""Calls that a thread makes for somebody who does not wait for ever: a task, or a time-out.

Whoever waits for another process within such a call looks for its errand here.

- ER1: `give_up` releases whoever waits, by what it gave to `begin`, and lets nobody wait any more.
- ER2: after `end` nothing that was given to `begin` is called: it may be in other hands.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from quire.env.interpreter import Lock

R = TypeVar("R")


class Errand:
    """A call, or several in turn, of one thread."""

    def __init__(self, until: float = math.inf) -> None:
        """`until`: when the caller's time is over, on the clock of `time.monotonic`."""
        self.until = until
        self.withdrawn = False
        self._lock = Lock()
        self._release: Callable[[], None] | None = None

    def do(self, call: Callable[[], R]) -> R:
        """Make the call in this thread."""
        thread = threading.get_ident()
        before = doing.get(thread)
        doing[thread] = self
        try:
            return call()
        finally:
            if before is None:
                del doing[thread]
            else:
                doing[thread] = before

    def begin(self, release: Callable[[], None]) -> bool:
        """Let the current wait be released until `end`. Return False if the call is withdrawn."""
        with self._lock:
            if self.withdrawn:
                return False
            self._release = release
            return True

    def end(self) -> None:
        """Nobody waits (ER2)."""
        with self._lock:
            self._release = None

    def give_up(self) -> None:
        """Nobody needs the call any more; by any thread (ER1)."""
        with self._lock:
            self.withdrawn = True
            if self._release is not None:
                self._release()


# By thread. Where there is none, to look costs next to nothing.
doing: Final[dict[int, Errand]] = {}


def current() -> Errand | None:
    """Return the errand of this thread."""
    return doing.get(threading.get_ident()) if doing else None
