"""Where in a queue a subscription begins, or is moved to: what callers give for it.

A checked start is "earliest", "latest", a position (int), "time:MICROSECONDS" or "id:NUMBER": as
text or number it is the same everywhere, also on its way to the owner.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

from quire.arguments import check_name, is_int
from quire.errors import InvalidArgument, TransactionError
from quire.limits import NEVER_US
from quire.message import Message
from quire.message_id import MessageId

Time = datetime | float
Start = Literal["earliest", "latest"] | str | int | float | datetime | Message | MessageId

_BY_TIME: Final = "time:"
_BY_ID: Final = "id:"
_CHECKED: Final = re.compile(r"earliest|latest|(time|id):([0-9]{1,19})")


def check_start(start: object) -> str | int:
    """Where a subscription begins, in its checked form."""
    if is_int(start):
        if start >= 0:
            return start
    elif isinstance(start, str):
        found = _CHECKED.fullmatch(start)
        if found is not None and int(found[2] or 0) <= NEVER_US:
            return start
    elif isinstance(start, (float, datetime)):
        return f"{_BY_TIME}{check_time(start)}"
    elif isinstance(start, (Message, MessageId)):
        return f"{_BY_ID}{_id_of(start)}"
    raise InvalidArgument(
        f'start {start!r:.100}: give "earliest", "latest", a position (int), a time (datetime with '
        'a time zone, or float seconds since the epoch), or a message, its MessageId or "id:NUMBER"'
    )


def check_starts(starts: object) -> dict[str, str | int]:
    """Queues, each with where a subscription begins in it."""
    if not isinstance(starts, Mapping):
        raise InvalidArgument(f"starts {starts!r:.100}: give a mapping of queue to start")
    return {check_name(queue, "queue"): check_start(start) for queue, start in starts.items()}


def check_time(time: object) -> int:
    """A point in time, as microseconds since the epoch."""
    try:
        if isinstance(time, datetime) and time.tzinfo is not None:
            time = time.timestamp()
        if isinstance(time, (int, float)) and not isinstance(time, bool):
            time_us = round(time * 1_000_000)
            if 0 <= time_us <= NEVER_US:
                return time_us
    except (ValueError, OverflowError):  # not a number, infinite, or before the year 1
        pass
    raise InvalidArgument(
        f"time {time!r:.100}: give a datetime with a time zone, or seconds since the epoch"
    )


def _id_of(message: Any) -> int:
    if isinstance(message, Message):
        return message.id
    try:
        return int(message)
    except TransactionError as error:
        raise InvalidArgument(f"start {message!r}: {error}") from None


def time_of(start: str | int) -> int | None:
    """The microseconds of a checked start by time; None: it is another one."""
    is_time = isinstance(start, str) and start.startswith(_BY_TIME)
    return int(str(start).removeprefix(_BY_TIME)) if is_time else None


def id_of(start: str | int) -> int | None:
    """The number of a checked start by message id; None: it is another one."""
    is_id = isinstance(start, str) and start.startswith(_BY_ID)
    return int(str(start).removeprefix(_BY_ID)) if is_id else None
