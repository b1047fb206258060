"""The outcome of a request: a reply, or the news that there will be none."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from quire.batches.moved_messages import QUEUE
from quire.errors import RequestFailed
from quire.messages.message import Message
from quire.messages.message_types import ERROR, EXPIRY, REASON, REPORT, REPORTED, type_of
from quire.reports.requests import RequestState


class Reply(Struct, frozen=True):
    """The outcome of one request. `payload` and `decode` raise RequestFailed if it failed."""

    number: int  # of the request
    state: RequestState  # ANSWERED, FAILED or EXPIRED
    message: Message | None  # the reply or the report; None: it was taken before
    reason: str | None = None  # why it failed

    @property
    def payload(self) -> bytes:
        """The payload of the reply. Raises RequestFailed."""
        return self._answer().payload

    @property
    def error(self) -> RequestFailed | None:
        """The error that its request has failed with; None: it has not failed."""
        if self.state == RequestState.ANSWERED:
            return None
        return RequestFailed(
            f"request {self.number} has {self.state}: {self.reason or 'nobody says why'}; begin "
            "another one, if it is to be done still",
        )

    def decode(self, codec: str | None = None) -> Any:
        """The value of the reply, as `Message.decode`. Raises RequestFailed, and what that does."""
        return self._answer().decode(codec)

    def _answer(self) -> Message:
        error = self.error
        if error is not None:
            raise error
        assert self.message is not None
        return self.message

    @classmethod
    def of(cls, number: int, message: Message) -> Reply:
        """Return the outcome of the request that a message in the reply queue brings."""
        state, reason = outcome_of(message.attributes)
        return cls(number, state, message, reason)


def outcome_of(attributes: Any) -> tuple[RequestState, str | None]:
    """Return the outcome that a message with such attributes brings, and why a request failed."""
    reason: str | None = attributes.get(REASON)
    if type_of(attributes) == REPORTED:
        if attributes.get(REPORT) == EXPIRY:
            return RequestState.EXPIRED, reason or "it was not delivered in time"
        return RequestState.FAILED, reason
    # What has been a dead letter has the reason of that, too.
    error = attributes.get(ERROR, None if QUEUE in attributes else reason)
    return (RequestState.ANSWERED, None) if error is None else (RequestState.FAILED, error)
