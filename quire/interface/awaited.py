"""The text of a wait without a thread, by which a joined store tells its owner.

"orders"        something may be got from the source, which may be a pattern
"orders@7"      messages were put to the queue from position 7 on
"orders@7+3"    the same, or other than 3 became available after their put
"news/paper!7"  more than 7 messages have left the subscription
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from quire.arguments import check_source, check_sources
from quire.errors import InvalidArgument
from quire.limits import MAX_GROUP, NOTICE_IDS

PUT: Final = "put"
REMOVAL: Final = "removal"
_MARKS: Final = {"@": PUT, "!": REMOVAL}
_FORM: Final = (
    r"(?P<source>[^@!]*)(?:(?P<mark>[@!])(?P<past>\d{1,19})(?:\+(?P<returns>\d{1,19}))?)?"
)


class Awaited(NamedTuple):
    """A source that is awaited without a thread: something to get, or a later put or removal."""

    source: str
    on: str | None = None  # PUT or REMOVAL; None: something to get
    past: int = 0  # a position, or the number of a removal
    returns: int | None = None  # messages that became available after their put; None: no matter

    def __str__(self) -> str:
        mark = next((mark for mark, on in _MARKS.items() if on == self.on), None)
        if mark is None:
            return self.source
        returns = "" if self.returns is None else f"+{self.returns}"
        return f"{self.source}{mark}{self.past}{returns}"

    @classmethod
    def of(cls, text: object) -> Awaited:
        """Raises InvalidArgument for what is none."""
        found = re.fullmatch(_FORM, text) if isinstance(text, str) else None
        if found is None or found["mark"] is None:
            return cls(check_sources(text))
        past = int(found["past"])
        if past >= 1 << 63:
            raise InvalidArgument(f"what is awaited, {text!r:.100}: give a number below 2**63")
        returns = None if found["returns"] is None else int(found["returns"])
        return cls(check_source(found["source"]), _MARKS[found["mark"]], past, returns)


def returns_in(mark: str) -> int | None:
    """The number of messages that had become available after their put, of a `Notice.mark`."""
    number = mark.partition(":")[2].partition(":")[0]
    return int(number) if number else None


def check_group(group: object) -> int:
    """Check the group whose messages are listened to; 0: all of them. Raises InvalidArgument."""
    if type(group) is not int or not 0 <= group <= MAX_GROUP:
        raise InvalidArgument(f"group {group!r:.100}: give an int from 0 to {MAX_GROUP}")
    return group


def check_on(on: object) -> str:
    """Check the kind of event that is listened to. Raises InvalidArgument."""
    if not isinstance(on, str) or on not in (PUT, REMOVAL):
        raise InvalidArgument(f'on {on!r:.100}: give "put" or "removal"')
    return str(on)


def check_max_ids(max_ids: object) -> int:
    """How many ids a notice has, at most. Raises InvalidArgument."""
    if type(max_ids) is not int or not 1 <= max_ids <= NOTICE_IDS:
        raise InvalidArgument(f"max_ids {max_ids!r:.100}: give an int from 1 to {NOTICE_IDS}")
    return max_ids
