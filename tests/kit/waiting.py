"""Waiting for what comes true after a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SECONDS = 300  # for what must come, on a slow machine too


def eventually(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """Return when it is true; fail if that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


def ends(action: Callable[[], object], seconds: float = SECONDS) -> bool:
    """Return True if another thread comes to the end of the action in time."""
    other = threading.Thread(target=action, daemon=True)
    other.start()
    other.join(seconds)
    return not other.is_alive()
