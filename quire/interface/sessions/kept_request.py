"""A request as its session keeps it: a value of a state, a line of JSON and the payload behind it.

The payload is there until the request is put: from then on the queue has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from quire.errors import StoreCorrupt
from quire.reports.requests import RequestInfo, RequestState

BEGUN: Final = RequestState.NOT_PUT
PUT: Final = RequestState.PENDING
OPEN_STATES: Final = frozenset({BEGUN, PUT})
"""What is kept of a request that has not ended; any other is its end."""


class KeptRequest(NamedTuple):
    """See the module."""

    state: RequestState
    queue: str
    options: Mapping[str, Any]  # of its put
    begun_us: int
    ended_us: int | None = None
    reason: str | None = None
    payload: bytes | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes of it."""
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
        told = {
            "state": self.state.value,
            "queue": self.queue,
            "options": dict(self.options),
            "begun_us": self.begun_us,
            "ended_us": self.ended_us,
            "reason": self.reason,
        }
        line = json.dumps({name: one for name, one in told.items() if one not in (None, {})})
        return line.encode() + (b"" if self.payload is None else b"\n" + self.payload)

    @classmethod
    def of(cls, value: bytes, where: str) -> KeptRequest:
        """Raises StoreCorrupt."""
        line, mark, payload = value.partition(b"\n")
        try:
            told = json.loads(line)
            return cls(
                RequestState(told["state"]),
                told["queue"],
                told.get("options", {}),
                told["begun_us"],
                told.get("ended_us"),
                told.get("reason"),
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
