"""The limits on what the clients of a server have in use at a time: one table of them.

UL1. A row is all that there is to a limit: its name, its unit, the value for each user and the one
    for all clients together, the words of its error, and when to try again. It holds for both: a
    request is refused where its user, or all clients, would have more than that.
UL2. Values are checked as a whole: one whose name or value is wrong is refused, with what may be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from quire.errors import InvalidArgument
from quire.remote.limits import (
    BYTES_RETRY_SECONDS,
    LIMIT_RETRY_SECONDS,
    MAX_CONNECTIONS,
    MAX_FRAME_BYTES,
    MAX_LIMIT,
    MAX_OPEN_TRANSACTIONS,
    MAX_STREAMS,
    MAX_WAITING,
    MAX_WAITING_GETS,
    MIN_LIMIT,
    MIN_REQUEST_BYTES,
    USER_BYTES,
    USER_CONNECTIONS,
    USER_IDLE_SECONDS,
    USER_PUTS_PER_SECOND,
    USER_REQUEST_BYTES,
    USER_WAITING,
    USER_WAITING_GETS,
)


class LimitUnit(Enum):
    """The unit of a limit's value."""

    COUNT = "count"
    BYTES = "bytes"
    SECONDS = "seconds"


class UseLimit(NamedTuple):
    """A limit (UL1)."""

    name: str
    of_user: float
    in_all: float
    words: str  # behind "user anna": what has reached the limit, whose value is {value}
    advice: str
    unit: LimitUnit = LimitUnit.COUNT
    retry_seconds: float | None = LIMIT_RETRY_SECONDS  # None: it is never worth while
    lowest: float = MIN_LIMIT
    place: int = 0  # in the table


def _table(*rows: UseLimit) -> tuple[UseLimit, ...]:
    return tuple(row._replace(place=place) for place, row in enumerate(rows))


USE_LIMITS: Final = _table(
    UseLimit(
        "connections",
        USER_CONNECTIONS,
        MAX_CONNECTIONS,
        "has as many connections as it may, {value}",
        "close store objects that are not in use",
    ),
    UseLimit(
        "transactions",
        MAX_STREAMS,
        MAX_OPEN_TRANSACTIONS,
        "has as many transactions open as it may, {value}",
        "end some",
    ),
    UseLimit(
        "bytes",
        USER_BYTES,
        math.inf,
        "has as many bytes of requests and answers under way as it may, {value}",
        "send less at a time, and read the answers",
        LimitUnit.BYTES,
        BYTES_RETRY_SECONDS,
        MIN_REQUEST_BYTES,
    ),
    UseLimit(
        "request_bytes",
        USER_REQUEST_BYTES,
        MAX_FRAME_BYTES,
        "has sent a request that is longer than one may be, {value} bytes",
        "use smaller payloads or batches",
        LimitUnit.BYTES,
        None,
        MIN_REQUEST_BYTES,
    ),
    UseLimit(
        "waiting_gets",
        USER_WAITING_GETS,
        MAX_WAITING_GETS,
        "has as many gets waiting as it may, {value}",
        "wait less long",
    ),
    UseLimit(
        "waiting_requests",
        USER_WAITING,
        MAX_WAITING,
        "has as many requests waiting for others as it may, {value}",
        "wait less long",
    ),
    UseLimit(
        "puts_per_second",
        USER_PUTS_PER_SECOND,
        math.inf,
        "has put as many messages a second as it may, {value}",
        "put them later",
    ),
    UseLimit(
        "idle_seconds",
        USER_IDLE_SECONDS,
        math.inf,
        "has asked nothing on a connection for as long as it may, {value} s",
        "end what is open, and close store objects that are not in use",
        LimitUnit.SECONDS,
        0.0,
    ),
    UseLimit(
        "call_seconds",
        math.inf,
        math.inf,
        "has waited in one call for as long as it may, {value} s",
        "wait less long at a time",
        LimitUnit.SECONDS,
        0.0,
    ),
)
(
    CONNECTIONS,
    TRANSACTIONS,
    BYTES,
    REQUEST_BYTES_LIMIT,
    WAITING_GETS,
    WAITING_REQUESTS,
    PUTS_PER_SECOND,
    IDLE_SECONDS,
    CALL_SECONDS,
) = USE_LIMITS
LIMIT_BY_NAME: Final[Mapping[str, UseLimit]] = {row.name: row for row in USE_LIMITS}
LimitValues = Mapping[str, float | None]  # by the names of rows; None: there is no limit


def wrong_limits(values: LimitValues) -> str | None:
    """Return what is wrong with some limits, if anything is (UL2)."""
    for name, value in values.items():
        if name not in LIMIT_BY_NAME:
            return f"there is no limit {name!r:.50}: give one of {', '.join(LIMIT_BY_NAME)}"
        is_number = type(value) in (int, float) and 0 < (value or 0) <= MAX_LIMIT
        if value is not None and not is_number:
            return f"{name}={value!r:.50}: give a number above 0, or none"
        if value is not None and value < LIMIT_BY_NAME[name].lowest:
            return f"{name}={value:g}: give at least {LIMIT_BY_NAME[name].lowest:,}, or none"
    return None


def check_limits(values: LimitValues) -> None:
    """Raises InvalidArgument for limits that are wrong (UL2)."""
    wrong = wrong_limits(values)
    if wrong is not None:
        raise InvalidArgument(wrong)


def limits_with(defaults: Sequence[float], values: LimitValues) -> tuple[float, ...]:
    """Return the value of each row: those that are given, in the place of the defaults."""
    return tuple(
        default if row.name not in values else _number(values[row.name])
        for row, default in zip(USE_LIMITS, defaults, strict=True)
    )


def most_generous(values: Sequence[LimitValues]) -> LimitValues:
    """Return for each limit that is given the highest of its values."""
    found: dict[str, float | None] = {}
    for each in values:
        for name, value in each.items():
            before = found.get(name, 0.0)
            found[name] = None if None in (before, value) else max(before or 0.0, value or 0.0)
    return found


def _number(value: float | None) -> float:
    return math.inf if value is None else value


OF_USER: Final = tuple(row.of_user for row in USE_LIMITS)
IN_ALL: Final = tuple(row.in_all for row in USE_LIMITS)
