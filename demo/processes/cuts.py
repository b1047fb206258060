"""The cutting of flights into transactions: a pure function of their number and the seed.

A publisher that starts again computes the same cuts, and goes on at the one that the store's
ledger names.
"""

from __future__ import annotations

import random
from typing import NamedTuple

__all__ = ["Cut", "plan"]

MONTHS = 12
LARGEST = 2_000  # flights in an ordinary transaction; 1 is the least
LARGE_BEGINS_AT = 0.4  # of all flights


class Cut(NamedTuple):
    """The flights [start, stop) go into one transaction."""

    start: int
    stop: int
    large: bool


def plan(flights: int, seed: int) -> list[Cut]:
    """Transactions of 1 to 2,000 flights, and a large one of a month's worth near the middle."""
    draw = random.Random(seed)
    large = Cut(int(flights * LARGE_BEGINS_AT), 0, True)
    large = large._replace(stop=large.start + max(1, flights // MONTHS))
    cuts: list[Cut] = []
    at = 0
    while at < flights:
        if at == large.start:
            cuts.append(large)
        else:
            size = round(LARGEST ** draw.random())
            end = large.start if at < large.start else flights
            cuts.append(Cut(at, min(at + size, end), False))
        at = cuts[-1].stop
    return cuts
