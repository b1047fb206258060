"""One request and its reply, without a session: who waits for it is there, or it is no matter.

- The reply is known by a number that is drawn for the request, so any number of clients share
  a reply queue. That is there before the request is, and takes replies. A reply that nobody waits
  for any more expires there: a minute after its client's time-out; without one, or where the server
  says no time, a day after it came.
- An owner that is lost while the reply is waited for is no matter: the reply is looked for at
  the next one. What was taken counts, though nobody answers whether that was committed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from quire.arguments import Bytes, check_name, check_wait
from quire.env import OsEnv
from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    OutcomeUnknown,
    QueueExists,
    QueueNotFound,
    RequestFailed,
    RequestTimeout,
)
from quire.interface.transaction import Transaction, TransactionSource
from quire.limits import OWNERS_LOST
from quire.messages.message import Message
from quire.messages.message_fields import Fields, check_payload, with_moments
from quire.messages.message_types import (
    EXCEPTION,
    EXPIRY,
    REPLY_BY,
    REPORTS,
    REQUEST,
    TYPE,
    check_ends_only,
    requested_reports,
)
from quire.moments import Duration
from quire.reports.info import QueueInfo
from quire.reports.requests import RequestState
from quire.selectors.template import Template

from .limits import LATE_REPLY_SECONDS, UNCLAIMED_REPLY_SECONDS
from .reply import outcome_of

SHARED_REPLIES: Final = "quire.replies"
"""The queue for replies where none is named."""
REPLIES_OPTIONS: Final[Mapping[str, Any]] = {
    "indexed": ["correlation_id"],
    "timed": True,
    "ttl": UNCLAIMED_REPLY_SECONDS,
}
have_replies: Final[WeakKeyDictionary[Any, set[str]]] = WeakKeyDictionary()
"""The queues for replies that store objects have seen, by store object."""
_ENV: Final = OsEnv()


class RequestingStore(TransactionSource[Transaction], Protocol):
    """A store, as far as one who asks has to do with it."""

    def queue(self, name: str) -> QueueInfo:
        """One queue."""

    @property
    def create_queue(self) -> Callable[..., object]:
        """Makes a queue."""

    @property
    def put(self) -> Callable[..., object]:
        """Puts one message, in a transaction of its own."""


class PendingRequest(NamedTuple):
    """A request that is to be put, and what its reply looks like."""

    queue: str
    replies: str
    options: dict[str, Any]
    wanted: Template
    until: float  # of the clock of `time.monotonic`

    def is_known(self, store: object) -> bool:
        """Return True if the store object has seen the queue for its reply."""
        return self.replies in have_replies.get(store, ())

    def know(self, store: object) -> None:
        """From now on it is."""
        have_replies.setdefault(store, set()).add(self.replies)

    def forget(self, store: object) -> None:
        """Somebody has dropped it."""
        have_replies.get(store, set()).discard(self.replies)

    @classmethod
    def of(
        cls, queue: object, timeout: object, replies: object, options: Mapping[str, Any]
    ) -> PendingRequest:
        """Raises InvalidArgument."""
        name = check_name(queue, "queue")
        where = SHARED_REPLIES if replies is None else check_name(replies, "queue")
        for own in ("correlation_id", "reply_to", "request_id"):
            if own in options:
                raise InvalidArgument(f"option {own!r} of a request: leave it out, it has its own")
        seconds = check_wait(timeout)
        drawn = f"{_ENV.random_u64():016x}{_ENV.random_u64():016x}"
        Fields.of(**with_moments(options, _ENV.now_us))  # what the put would refuse
        attributes = dict(options.get("attributes") or {})
        check_ends_only(attributes)
        attributes.setdefault(TYPE, REQUEST)
        attributes[REPORTS] = requested_reports([EXCEPTION, EXPIRY])
        if timeout is not None and replies is None:
            by = _ENV.now_us() + int((seconds + LATE_REPLY_SECONDS) * 1e6)
            attributes[REPLY_BY] = str(by)
        arguments = {
            **options,
            "attributes": attributes,
            "correlation_id": drawn,
            "reply_to": where,
        }
        until = _ENV.monotonic() + seconds
        return cls(name, where, arguments, Template(correlation_id=drawn), until)

    def left(self) -> float:
        """How many seconds its reply is waited for still."""
        return max(0.0, self.until - _ENV.monotonic())

    def timed_out(self) -> RequestTimeout:
        """Return the error to raise where no reply came."""
        return RequestTimeout(
            f"no reply to a request to {self.queue!r} came in time: see whether somebody answers "
            "there, or wait longer"
        )


def check_request(info: QueueInfo, payload: object) -> None:
    """Raise InvalidArgument for a payload that the queue cannot take.

    It comes before the queue for replies is made: a request that is refused makes nothing.
    """
    if info.schema is None and info.codec is None:
        check_payload(payload)


def check_replies(info: QueueInfo) -> None:
    """A queue that is to take replies, each for one client. Raises InvalidArgument."""
    if info.kind != "work" or info.schema is not None:
        raise InvalidArgument(
            f"replies {info.name!r}: give a work queue without a schema: replies are bytes, each "
            "for one client"
        )


def payload_of(reply: Message) -> Message:
    """The reply. Raises RequestFailed where it says that there is none."""
    state, reason = outcome_of(reply.attributes)
    if state != RequestState.ANSWERED:
        raise RequestFailed(
            f"the request has {state}: {reason or 'nobody says why'}; begin another one, if it is "
            "to be done still"
        )
    return reply


class Replying:
    """A wait for the reply to a request that is put."""

    def __init__(self, store: RequestingStore, pending: PendingRequest) -> None:
        self._store = store
        self._pending = pending
        self._lost = 0  # owners

    def take(self, seconds: float) -> Message | None:
        """The reply, taken; None: it did not come within so many seconds."""
        until = _ENV.monotonic() + seconds
        while True:
            found: Message | None = None
            left = max(0.0, until - _ENV.monotonic())
            try:
                with self._store.transaction(math.inf, durable=False) as txn:
                    found = txn.get(self._pending.replies, left, where=self._pending.wanted)
            except QueueNotFound:
                self._pending.forget(self._store)
                raise
            except (ConnectionLost, OutcomeUnknown) as error:
                self._lost += 1
                if found is None:
                    if self._lost > OWNERS_LOST or error.late:
                        raise
                    continue
            return found


def request(
    store: RequestingStore,
    queue: str,
    payload: Bytes,
    timeout: Duration | None,
    replies: str | None,
    options: Mapping[str, Any],
) -> Message:
    """See `Store.request`."""
    pending = PendingRequest.of(queue, timeout, replies, options)
    if not pending.is_known(store):
        check_request(store.queue(pending.queue), payload)
        if pending.replies == SHARED_REPLIES:
            with suppress(QueueExists):  # somebody has made it another one
                store.create_queue(SHARED_REPLIES, exist_ok=True, **REPLIES_OPTIONS)
        check_replies(store.queue(pending.replies))
        pending.know(store)
    store.put(pending.queue, payload, **pending.options)
    found = Replying(store, pending).take(pending.left())
    if found is None:
        raise pending.timed_out()
    return payload_of(found)
