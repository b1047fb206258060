"""The processes that a program has started, which may end at any moment."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

import psutil


def kill_descendants(
    process_id: int, is_chosen: Callable[[psutil.Process], bool] = lambda _: True
) -> list[psutil.Process]:
    """Send SIGKILL to those that are chosen, and return all. One may end before its turn comes."""
    found: list[psutil.Process] = psutil.Process(process_id).children(recursive=True)
    for process in found:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if is_chosen(process):
                process.kill()
    return found


def kill_session(process_id: int) -> list[psutil.Process]:
    """Send SIGKILL to those of the program's session, and return all: an owner has its own."""
    session = os.getsid(process_id)
    return kill_descendants(process_id, lambda process: os.getsid(process.pid) == session)


def is_java(process: psutil.Process) -> bool:
    """Return True if it is a JVM."""
    return bool(process.name() == "java")
