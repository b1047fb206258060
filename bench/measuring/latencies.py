"""Times in microseconds."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

__all__ = ["Latencies"]


class Latencies:
    """The times that calls took."""

    def __init__(self) -> None:
        self._seconds: list[float] = []

    def measure(self, call: Callable[[], object]) -> None:
        """Call it and note the time."""
        begin = time.perf_counter()
        call()
        self._seconds.append(time.perf_counter() - begin)

    def add(self, seconds: float) -> None:
        """Add a time that was measured elsewhere."""
        self._seconds.append(seconds)

    def quantile(self, share: float) -> float:
        """The time, in microseconds, that this share of the calls did not exceed."""
        return float(np.quantile(self._seconds, share) * 1e6)

    @property
    def total(self) -> float:
        """The sum of all times, in seconds."""
        return sum(self._seconds)
