"""The events of a run: a file of JSON lines per process, which outlives its writer's SIGKILL."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from msgspec import Struct

__all__ = ["Timeline", "TimelineEvent", "happened", "read"]


class TimelineEvent(Struct, frozen=True):
    """Something that `who` did at `at` (seconds since 1970)."""

    at: float
    who: str
    what: str
    details: dict[str, Any]


class Timeline:
    """Events of one process. Each reaches the kernel in one write, so that a kill tears none."""

    def __init__(self, folder: Path, who: str) -> None:
        self._who = who
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(folder / f"{who}.events", flags, 0o644)

    def add(self, what: str, **details: Any) -> None:
        """Note that `what` happens now."""
        event = {"at": time.time(), "who": self._who, "what": what, "details": details}
        os.write(self._file, json.dumps(event).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read(folder: Path) -> list[TimelineEvent]:
    """The events of all processes in the order of time."""
    lines = (line for path in folder.glob("*.events") for line in path.open())
    return sorted((TimelineEvent(**json.loads(line)) for line in lines), key=lambda event: event.at)


def happened(folder: Path, what: str) -> bool:
    """Return True if any process has noted this."""
    return any(event.what == what for event in read(folder))
