"""Waiting for what comes true after a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

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


def is_running(process_id: int) -> bool:
    """Return True if there is such a process, zombies aside."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_end(process_id: int) -> bool:
    """Return True if the process ends soon."""
    deadline = time.monotonic() + SECONDS
    while is_running(process_id):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
