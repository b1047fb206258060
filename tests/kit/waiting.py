"""Waiting for what comes true after a while."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS = 300  # for what must come, on a slow machine too


def eventually(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """Return when it is true; fail if that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)
