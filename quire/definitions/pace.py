"""The pace of a queue: how many messages it hands out at a time and a second."""

from __future__ import annotations

from typing import Final, NamedTuple, cast

from quire.errors import InvalidArgument

from .limits import MAX_RATE, SLOWEST_RATE

NO_LIMITS: Final = (None, None, None, None)
"""The limits of a queue, and of its groups, that has none."""


class QueuePace(NamedTuple):
    """Limits of a queue, or of one group of its messages; None: there is no such limit."""

    max_in_flight: int | None = None
    rate: float | None = None  # messages a second

    @property
    def max_starts(self) -> int:
        """The number of messages that may start within `span_us`."""
        return max(1, int(self.rate or 1))

    @property
    def span_us(self) -> int:
        """A second; or the time of one start, where that is longer."""
        return round(max(1e6, 1e6 / (self.rate or 1)))


def check_rate(name: str, value: object) -> float | None:
    """Return the rate as a float. Raises InvalidArgument."""
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    rate = cast(float, value) if is_number else 0.0
    if not SLOWEST_RATE <= rate <= MAX_RATE or (rate > 1 and rate != int(rate)):
        raise InvalidArgument(
            f"{name} {value!r:.100}: give messages a second, a whole number up to {MAX_RATE}, or "
            "less than 1 where they are rarer (1 / 60: one a minute; one a day at least), or None"
        )
    return float(rate)
