"""The latest opening of a session, as the state `quire.sessions` keeps it.

- OP1: while a session is there its state is not dropped, nor the queue of its replies: the numbers
  of its requests would begin anew, and an old reply would be that of a new request. `leaving` marks
  one that is being removed, whose queue and state go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from quire.errors import StoreCorrupt

SESSIONS: Final = "quire.sessions"
"""The state that keeps who has opened which session."""
PREFIX: Final = "quire.session."
REPLIES: Final = "quire.replies."
"""The prefix of the names of a session's own state and reply queue."""


class Opening(NamedTuple):
    """The latest opening of a session."""

    epoch: int
    replies: str
    drawn: int  # when the session was made: one that was removed, and had the name, has another
    leaving: bool = False

    def value(self) -> bytes:
        """As it is kept."""
        known = self._asdict()
        if not self.leaving:
            del known["leaving"]
        return json.dumps(known).encode()

    def is_same(self, other: Opening) -> bool:
        """Return True for the same opening, be it marked as leaving or not."""
        return self[:3] == other[:3]

    @classmethod
    def of(cls, name: str, value: bytes) -> Opening:
        """Raises StoreCorrupt."""
        try:
            fields = json.loads(value)
            leaving = bool(fields.get("leaving"))
            return cls(int(fields["epoch"]), str(fields["replies"]), int(fields["drawn"]), leaving)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreCorrupt(
                f"session {name!r}: what the state {SESSIONS!r} keeps of it is not readable "
                f"({error!r}): delete that value, and open the session again"
            ) from error


def session_with_replies(values: Mapping[str, bytes], queue: str) -> str | None:
    """A session that has its replies in the queue (OP1), by the values of the state; or None."""
    return next((name for name, own in _staying(values) if own.replies == queue), None)


def session_with_state(values: Mapping[str, bytes], state: str) -> str | None:
    """A session that the state is of (OP1), by the values of the state; or None."""
    for name, _ in _staying(values):
        if state in (PREFIX + name, SESSIONS):
            return name
    return None


def _staying(values: Mapping[str, bytes]) -> Iterator[tuple[str, Opening]]:
    """The sessions that are not being removed, as far as their values are readable."""
    for name, value in values.items():
        with suppress(StoreCorrupt):
            opening = Opening.of(name, value)
            if not opening.leaving:
                yield name, opening
