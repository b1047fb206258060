"""Processor seconds of tests: what they take on any machine, however busy it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil


def seconds_spent(of_descendants: bool) -> float:
    """Return those of this process and of its children that have ended; of the living ones, too."""
    spent = sum(os.times()[:4])
    if of_descendants:
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                spent += sum(process.cpu_times()[:4])
    return spent


@contextmanager
def written(path: Path, test: str, *, of_descendants: bool) -> Iterator[None]:
    """Append a line to the file: the seconds that are spent meanwhile, and the test."""
    before = seconds_spent(of_descendants)
    try:
        yield
    finally:
        # Children that have ended are their parent's then; one that another ends may be lost.
        spent = max(0.0, seconds_spent(of_descendants) - before)
        with path.open("a") as file:
            file.write(f"{spent:.2f}\t{test}\n")
