"""Requests that have ended, as a session keeps the last of them: many in one value of its state.

- KE1: while a request goes on it is a value of its own, whose change costs no other's. All states
  of a store have room for some 100,000 values together. So what has ended is moved, so many at a
  time (FINISHED_AT_ONCE), into one of a few values that are used in turn: the oldest gives way.
- KE2: a move is one transaction, which also notes the highest number that gave way. So a request is
  in one place, or it was forgotten.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Final

from quire.errors import StoreCorrupt
from quire.reports.requests import RequestState

from .kept_request import KeptRequest
from .limits import ENDED_REASON_CHARACTERS, FINISHED_AT_ONCE, FINISHED_KEPT

PREFIX: Final = "ended."
"""What the keys of such values begin with."""


def places() -> list[str]:
    """The keys of all of them."""
    return [f"{PREFIX}{number}" for number in range(-(-FINISHED_KEPT // FINISHED_AT_ONCE))]


def together(requests: Mapping[int, KeptRequest]) -> bytes:
    """Such requests as one value: of a reason its beginning, and no payload."""
    told = [
        (number, one.state.value, one.queue, one.begun_us, one.ended_us,
         one.reason and one.reason[:ENDED_REASON_CHARACTERS])
        for number, one in requests.items()
    ]  # fmt: skip
    return zlib.compress(json.dumps(told, separators=(",", ":")).encode(), 1)


def apart(value: bytes | None, session: str) -> dict[int, KeptRequest]:
    """The requests of one value, by number; None: none. Raises StoreCorrupt."""
    if value is None:
        return {}
    try:
        return {
            int(number): KeptRequest(
                RequestState(state), str(queue), {}, int(begun_us), ended_us, reason
            )
            for number, state, queue, begun_us, ended_us, reason in json.loads(
                zlib.decompress(value)
            )
        }
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise StoreCorrupt(
            f"session {session!r}: what is kept of requests that have ended is not readable "
            f"({error!r}): remove the session"
        ) from error
