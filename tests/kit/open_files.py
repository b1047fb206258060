"""The files that this process has open, by their names."""

from __future__ import annotations

import os
import time
from collections import Counter

from tests.kit.waiting import SECONDS


def open_files() -> Counter[str]:
    """Return how often each file is open; sockets, pipes and the like by their kind."""
    names: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # of the listing itself
        names[name.partition(":[")[0]] += 1
    return names


def left_open(before: Counter[str], apart_from: str) -> Counter[str]:
    """Return what is open and was not before, once that is nothing or for too long.

    `apart_from`: a directory in which a store opens and closes files when it needs to.
    """
    deadline = time.monotonic() + SECONDS
    while True:
        left = open_files() - before
        left = Counter({k: n for k, n in left.items() if not k.startswith(f"{apart_from}/")})
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)
