"""Processor time of a program and all that works for it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

__all__ = ["processor_seconds"]


def processor_seconds(path: Path | None = None) -> float:
    """Return the processor time of this process and all that have come of it, also of those that
    have ended.

    With a path, the owner of the store there counts too.
    """
    ours = psutil.Process()
    counted = {ours, *ours.children(recursive=True)}
    for process in psutil.process_iter() if path is not None else ():
        with suppress(psutil.NoSuchProcess):  # it has just ended
            if str(path) in " ".join(process.cmdline()):
                counted |= {process, *process.children(recursive=True)}
    total = 0.0
    for process in counted:
        with suppress(psutil.NoSuchProcess):  # its parent has its time
            times = process.cpu_times()
            total += times.user + times.system
            if process != ours:
                total += times.children_user + times.children_system
    return total
