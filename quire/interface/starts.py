"""The start of a subscription in a queue, or the target of its move, as callers give it.

A checked start is "earliest", "latest", a position (int), "time:MICROSECONDS" or "id:NUMBER": as
text or number it is the same everywhere, also on its way to the owner.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, cast

from quire.arguments import check_name, is_int, split_source
from quire.errors import InvalidArgument, TransactionError
from quire.limits import NEVER_US
from quire.messages.message import Message
from quire.messages.message_id import MessageId
from quire.moments import Moment, check_moment

Time = Moment
Start = Literal["earliest", "latest"] | str | int | Moment | Message | MessageId
"""The start of a subscription: a word, a position (int), a time (datetime with a time zone, or
float seconds since 1970), or a message, its `MessageId` or "id:NUMBER"."""

"""The start of a subscription: the first message that is kept, the next one that comes, a
position, a time, or a message."""

_BY_TIME: Final = "time:"
_BY_ID: Final = "id:"
_CHECKED: Final = r"earliest|latest|(time|id):([0-9]{1,19})"


def check_start(start: object) -> str | int:
    """Return the start of a subscription in its checked form."""
    if is_int(start):
        if start >= 0:
            return start
    elif isinstance(start, str):
        found = re.fullmatch(_CHECKED, start)
        if found is not None and int(found[2] or 0) <= NEVER_US:
            return start
    elif isinstance(start, (float, datetime)):
        return f"{_BY_TIME}{check_moment('start', start)}"
    elif isinstance(start, (Message, MessageId)):
        return f"{_BY_ID}{_id_of(start)}"
    raise InvalidArgument(
        f'start {start!r:.100}: give "earliest", "latest", a position (int), a time (datetime with '
        'a time zone, or float seconds since the epoch), or a message, its MessageId or "id:NUMBER"'
    )


def check_starts(subscription: object, starts: object) -> dict[tuple[str, str], str | int]:
    """Queues, each with a subscription and where it begins.

    `starts`: by queue; or where `subscription` is None, by "queue/subscription".
    """
    if not isinstance(starts, Mapping):
        raise InvalidArgument(f"starts {starts!r:.100}: give a mapping of queue to start")
    if subscription is not None:
        name = check_name(subscription, "subscription")
        return {
            (check_name(queue, "queue"), name): check_start(start)
            for queue, start in starts.items()
        }
    found = {}
    for source, start in starts.items():
        queue, own = split_source(source)
        if own is None:
            raise InvalidArgument(f'starts {source!r:.100}: give "queue/subscription", or one name')
        found[queue, own] = check_start(start)
    return found


def checked_starts(subscription: object, starts: object) -> dict[str, str | int]:
    """The starts in their checked form, by what was given for them."""
    checked = check_starts(subscription, starts)
    return dict(zip(cast(Mapping[str, object], starts), checked.values(), strict=True))


def check_time(time: object) -> int:
    """A point in time, as microseconds since the epoch."""
    return check_moment("time", time)


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
