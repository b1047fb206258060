"""Processor time of a program and all that works for it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["processor_seconds"]


def processor_seconds(path: Path) -> float:
    """Of this process, all that have come of it, and the owner of the store at the path."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    ours = {os.getpid()}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue  # it has just ended
        number = int(entry.name)
        parents[number] = int(fields[1])
        used[number] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        if str(path).encode() in command:
            ours.add(number)
    while more := {number for number, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(used.get(number, 0.0) for number in ours)
