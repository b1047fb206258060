"""The rules of a queue for what puts ask for their messages: priority, times, ordered groups.

- OB1: what it does not obey is refused, with the option to set, and never accepted and ignored.
  That is so of what callers ask of a put; a message that is moved (a dead letter, `move`,
  `redrive`, `reschedule`, a schedule's) keeps its header, and is taken.
- OB2: a work queue of which nobody said whether times count (`timed`) obeys them from the first put
  that has one on. That makes it `timed`, by an ordinary definition, which is durable before the put
  takes effect; so a queue without times pays nothing for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from quire.block.format import FIXED_COLUMNS, Column
from quire.block.header_columns import Headers
from quire.definitions.properties import Properties, priority_of_puts
from quire.engine.state.durable_state import WORK, QueueConfig
from quire.errors import InvalidArgument, QueueFull
from quire.messages.message import GROUP_KEY
from quire.messages.message_fields import Fields

TIMED: Final = "timed"
"""The rule by which a put is refused that is tried again once the queue is timed (OB2)."""

_TIMES: Final = Column.EXPIRES_AT | Column.DELIVER_AT
_REQUESTS: Final = {
    Column.PRIORITY: ("priority", "order='priority'"),
    Column.EXPIRES_AT: ("expires_at (or ttl)", "timed=True"),
    Column.DELIVER_AT: ("deliver_at (or delay)", "timed=True"),
    Column.ATTRIBUTES: ("group_key", "grouped=True"),
}
"""The bits of what may be asked, with its name and the option that has it obeyed."""


def not_obeyed(properties: Properties) -> int:
    """The bits of what a queue with these properties does not obey."""
    return (
        (0 if priority_of_puts(properties.order, 1) else Column.PRIORITY)
        | (0 if properties.timed else _TIMES)
        | (0 if properties.grouped else Column.ATTRIBUTES)
    )


def looked_at(properties: Properties) -> int:
    """Those, and of what is needed to ask for a report of the arrival."""
    return not_obeyed(properties) | Column.REPLY_TO


def requested_bits(fields: Fields) -> int:
    """The bits of what one message asks for."""
    bits = fields.columns & (Column.PRIORITY | _TIMES)
    return bits | (Column.ATTRIBUTES if GROUP_KEY in fields.attributes else 0)


def requested_bits_of_many(headers: Headers, mask: int) -> int:
    """The bits, of those of the mask, of what any of these messages asks for."""
    bits = 0
    for column, array in headers.fixed.items():
        if column & mask and (array != FIXED_COLUMNS[column][1]).any():
            bits |= column
    if headers.attributes is not None and mask & Column.ATTRIBUTES:
        found = headers.attributes.find(GROUP_KEY.encode(), 0, len(headers.attributes.starts) - 1)
        bits |= 0 if next(iter(found), None) is None else Column.ATTRIBUTES
    return bits


def check_headers(config: QueueConfig, headers: Iterable[Headers], *, is_moved: bool) -> None:
    """Raises as `check_obeyed` where the queue does not obey what any of these messages asks."""
    mask, bits = not_obeyed(config.properties), 0
    for each in headers:
        bits |= requested_bits_of_many(each, mask)
    if bits:
        check_obeyed(config, bits, is_moved=is_moved)


def check_obeyed(config: QueueConfig, bits: int, *, is_moved: bool) -> None:
    """Raises InvalidArgument (OB1); or QueueFull, by the rule `TIMED`, where the queue is to be
    made timed first (OB2).
    """
    properties, name = config.properties, config.name
    bits &= not_obeyed(properties)
    if bits & _TIMES and properties.timed is None and config.kind == WORK:
        if is_moved or not bits & ~_TIMES:
            error = QueueFull(
                f"queue {name!r} is to obey the times of its messages from this put on, and could "
                "not be altered so just now: try again"
            )
            error.queue, error.refused, error.has_remedy = name, (TIMED, 0, 0), True
            raise error
        bits &= ~_TIMES
    if is_moved or not bits:
        return
    named = [named for bit, named in _REQUESTS.items() if bits & bit]
    what = " and ".join(each for each, _ in named)
    options = ", ".join(dict.fromkeys(option for _, option in named))
    raise InvalidArgument(
        f"queue {name!r} does not obey {what}, which would be ignored: "
        f"alter_queue({name!r}, {options}) makes it obey, or put without"
    )
