"""Requests as their session keeps them, in values of its state.

While a request goes on it is a value of its own: a line of JSON, and behind it the payload until
the request is put, as from then on the queue has it. Many that have ended are one value.

- KE1: the change of one that goes on costs no other's. All states of a store have room for some
  100,000 values together. So what has ended is moved, so many at a time (FINISHED_AT_ONCE), into
  one of a few values that are used in turn: the oldest gives way.
- KE2: a move is one transaction, which also notes the highest number that gave way. So a request is
  in one place, or it was forgotten.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from quire.errors import StoreCorrupt
from quire.reports.requests import RequestInfo, RequestState

from .limits import ENDED_REASON_CHARACTERS, FINISHED_AT_ONCE, FINISHED_KEPT

BEGUN: Final = RequestState.NOT_PUT
PUT: Final = RequestState.PENDING
OPEN_STATES: Final = frozenset({BEGUN, PUT})
"""The states of a request that has not ended; any other is its end."""
ENDED_PREFIX: Final = "ended."
"""The beginning of the keys of values that hold many."""


class KeptRequest(NamedTuple):
    """One request."""

    state: RequestState
    queue: str
    options: Mapping[str, Any]  # of its put
    begun_us: int
    ended_us: int | None = None
    reason: str | None = None
    payload: bytes | None = None

    @property
    def has_ended(self) -> bool:
        """Return True if the request has ended."""
        return self.state not in OPEN_STATES

    @property
    def how_it_ended(self) -> str:
        """Words for that, with the reason."""
        words = {
            RequestState.TAKEN: "was answered, and its reply was taken",
            RequestState.WITHDRAWN: "was withdrawn",
        }
        return words.get(self.state, f"has {self.state}") + (
            f" ({self.reason})" * bool(self.reason)
        )

    def value(self) -> bytes:
        """As it is kept."""
        fields = {
            "state": self.state.value,
            "queue": self.queue,
            "options": dict(self.options),
            "begun_us": self.begun_us,
            "ended_us": self.ended_us,
            "reason": self.reason,
        }
        line = json.dumps({name: one for name, one in fields.items() if one not in (None, {})})
        return line.encode() + (b"" if self.payload is None else b"\n" + self.payload)

    @classmethod
    def of(cls, value: bytes, where: str) -> KeptRequest:
        """Raises StoreCorrupt."""
        line, mark, payload = value.partition(b"\n")
        try:
            fields = json.loads(line)
            return cls(
                RequestState(fields["state"]),
                fields["queue"],
                fields.get("options", {}),
                fields["begun_us"],
                fields.get("ended_us"),
                fields.get("reason"),
                payload if mark else None,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreCorrupt(
                f"{where}: what is kept of it is not readable ({error!r}): forget it, or remove "
                "the session"
            ) from error

    def put(self) -> KeptRequest:
        """The same, in its queue."""
        return self._replace(state=PUT, options={}, payload=None)

    def ended(self, state: RequestState, at_us: int, reason: str | None = None) -> KeptRequest:
        """The same, at its end."""
        return self._replace(state=state, options={}, ended_us=at_us, reason=reason, payload=None)

    def info(self, number: int, state: RequestState | None = None) -> RequestInfo:
        """For users, as it is, or as is seen elsewhere."""
        return RequestInfo(
            number,
            self.state if state is None else state,
            self.queue,
            self.begun_us,
            self.ended_us,
            self.reason,
            self.has_ended,
            self.payload,
        )


def ended_places() -> list[str]:
    """Return the keys of all values that hold many."""
    return [f"{ENDED_PREFIX}{number}" for number in range(-(-FINISHED_KEPT // FINISHED_AT_ONCE))]


def pack_ended(requests: Mapping[int, KeptRequest]) -> bytes:
    """Return requests that have ended as one value: of a reason its beginning, and no payload."""
    fields = [
        (number, one.state.value, one.queue, one.begun_us, one.ended_us,
         one.reason and one.reason[:ENDED_REASON_CHARACTERS])
        for number, one in requests.items()
    ]  # fmt: skip
    return zlib.compress(json.dumps(fields, separators=(",", ":")).encode(), 1)


def unpack_ended(value: bytes | None, session: str) -> dict[int, KeptRequest]:
    """Return the requests of one such value, by number; None: none. Raises StoreCorrupt."""
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
