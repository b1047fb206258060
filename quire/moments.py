"""Moments and spans of time, as callers give them: one rule for every call.

- MO1: a moment is a `datetime` with a time zone, a float of seconds since the epoch, or an int of
  microseconds since the epoch. An int that would be before `EARLIEST_INT_US` is refused: it is
  seconds or milliseconds, as `int(time.time())` gives them.
- MO2: a span of time is a `timedelta`, or a number of seconds.
- Inside, a moment is an int of microseconds since the epoch, and a span is a float of seconds.

No clock is read here: what is so long from now is for who knows the time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from quire.errors import InvalidArgument
from quire.limits import EARLIEST_INT_US, MAX_TIME_US

Moment: TypeAlias = datetime | float
"""A `datetime` with a time zone, float seconds since the epoch, or int microseconds since it."""

Duration: TypeAlias = timedelta | float
"""A `timedelta`, or seconds."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
_FORMS: Final = (
    "give a datetime with a time zone, float seconds since the epoch, or int microseconds since it"
)


def check_moment(name: str, value: object) -> int:
    """Microseconds since the epoch (MO1). Raises InvalidArgument."""
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise InvalidArgument(
                f"{name} {value!r:.100} has no time zone: give one, as datetime(..., tzinfo=UTC)"
            )
        time_us = (value - _EPOCH) // _US
    elif isinstance(value, float):
        if not 0 <= value <= MAX_TIME_US / 1e6:
            why = "microseconds where seconds are meant? " if value > MAX_TIME_US / 1e6 else ""
            raise InvalidArgument(f"{name} {value!r:.100}: {why}{_FORMS}, from 1970 to 9999")
        time_us = round(value * 1e6)
    elif isinstance(value, int) and not isinstance(value, bool):
        time_us = value
        if 0 < time_us < EARLIEST_INT_US:  # 0 is the same in all units
            raise InvalidArgument(
                f"{name} {value!r}: seconds where microseconds are meant? {_FORMS}"
            )
    else:
        raise InvalidArgument(f"{name} {value!r:.100}: {_FORMS}")
    if not 0 <= time_us <= MAX_TIME_US:
        raise InvalidArgument(f"{name} {value!r:.100}: {_FORMS}, from 1970 to 9999")
    return time_us


def seconds_of(value: object) -> object:
    """The seconds of a `timedelta`; all else as it is, for the check of it (MO2)."""
    return value.total_seconds() if isinstance(value, timedelta) else value
