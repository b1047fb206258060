"""The clock that nobody sets, as whatever lasts so many seconds is counted by it (SL9)."""

from __future__ import annotations

from quire.env import Env


def clock_us(env: Env) -> int:
    """In whole microseconds, so that sums of times are exact."""
    return round(env.monotonic() * 1e6)
