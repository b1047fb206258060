"""Asking a process of the demo to finish: its standard input ends.

That also happens when the demo itself dies, so that nothing is left running.
"""

from __future__ import annotations

import os
import threading

__all__ = ["Finish"]


class Finish:
    """A flag that is set when the end was asked for."""

    def __init__(self) -> None:
        self._event = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        # Not through sys.stdin, whose lock would be held when the interpreter ends.
        while os.read(0, 1):
            pass
        self._event.set()

    @property
    def requested(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until it is asked for, at most so long; whether it was."""
        return self._event.wait(seconds)
