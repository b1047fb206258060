"""What somebody waits for without a thread, as one text: by it a joined store tells its owner.

"orders"        something may be got from the source, which may be a pattern
"orders@7"      messages were put to the queue from position 7 on
"news/paper!7"  more than 7 messages have left the subscription
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from quire.arguments import check_source, check_sources
from quire.errors import InvalidArgument

PUT: Final = "put"
REMOVAL: Final = "removal"
_MARKS: Final = {"@": PUT, "!": REMOVAL}
_FORM: Final = r"(?P<source>[^@!]*)(?:(?P<mark>[@!])(?P<past>\d{1,19}))?"


class Awaited(NamedTuple):
    """See the module."""

    source: str
    on: str | None = None  # PUT or REMOVAL; None: something to get
    past: int = 0  # a position, or the number of a removal

    def __str__(self) -> str:
        mark = next((mark for mark, on in _MARKS.items() if on == self.on), None)
        return self.source if mark is None else f"{self.source}{mark}{self.past}"

    @classmethod
    def of(cls, text: object) -> Awaited:
        """Raises InvalidArgument for what is none."""
        found = re.fullmatch(_FORM, text) if isinstance(text, str) else None
        if found is None or found["mark"] is None:
            return cls(check_sources(text))
        past = int(found["past"])
        if past >= 1 << 63:
            raise InvalidArgument(f"what is awaited, {text!r:.100}: give a number below 2**63")
        return cls(check_source(found["source"]), _MARKS[found["mark"]], past)
