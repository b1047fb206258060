"""Answering requests: the reply's put, and a handler that puts what a function returns.

What becomes of a request is decided by `reply` and `end`, for threads and for tasks.

- AN1: the reply is put by the transaction that has got the request. So a request is executed and
  answered, or it is there again.
- AN2: a function that raises RequestFailed has ended its request: what it did is rolled back, and
  another transaction removes the request and answers it by that error. Nobody else gets it between
  the two: it comes again only where the second one did not come about. Any other exception is a
  failure as that of any handler: the request comes again, and what becomes of it, a dead letter at
  last, is reported to who has asked for that.
- AN3: where the queue for the reply is gone, nobody waits for it: the request is done with. Else it
  would be executed again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from quire.calls.handlers import name_of
from quire.errors import InvalidArgument, QueueNotFound, RequestFailed
from quire.interface.transaction import Payload, Transaction
from quire.limits import MAX_REASON_BYTES
from quire.loggers import logger
from quire.messages.message import Message, check_message
from quire.messages.message_types import (
    EXCEPTION,
    EXPIRY,
    REASON,
    REPLY,
    REPORTS,
    TYPE,
    reply_by,
    reports_asked,
)
from quire.moments import Duration

from .limits import FAILED_REQUEST_SECONDS

_log: Final = logger("quire.workers")

Made_co = TypeVar("Made_co", covariant=True)
Answering = Callable[[Any, Any], Any]


class PutsOne(Protocol[Made_co]):
    """A transaction, of a store or for asyncio."""

    @property
    def put(self) -> Callable[..., Made_co]:
        """Puts one message."""


class BeginsAnew(Protocol):
    """A store, as far as one who answers has to do with it."""

    def transaction(
        self,
        timeout: Duration | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> Transaction:
        """A new one."""


def put_reply(
    txn: PutsOne[Made_co],
    request: Message,
    payload: Payload = b"",
    *,
    error: str | None = None,
    attributes: Mapping[str, str] | None = None,
    **options: Any,
) -> Made_co:
    """Put the reply to a request that the transaction has got; what its `put` returns.

    So for asyncio it is to be awaited. `error`: the request has ended by that; who asks for the
    reply gets RequestFailed. `options`: as for a put, but for `correlation_id`. Raises
    InvalidArgument for a message that asks for no reply, and what `put` raises.
    """
    check_message(request)
    if request.reply_to is None:
        raise InvalidArgument(
            f"message {request.id} of {request.queue!r} asks for no reply: it has no reply_to; "
            "leave it unanswered"
        )
    own = {TYPE: REPLY}
    if error is not None:
        own[REASON] = error
    by = reply_by(request.attributes)
    if by is not None:
        options.setdefault("expires_at", by)
    else:
        own[REPORTS] = reports_asked([EXCEPTION, EXPIRY])
        options.setdefault("reply_to", request.reply_to)
    return txn.put(
        request.reply_to,
        payload,
        correlation_id=request.correlation_id,
        attributes={**(attributes or {}), **own},
        **options,
    )


def answering(store: BeginsAnew, source: str, function: Answering) -> Callable[[Any, Any], None]:
    """A handler that puts what the function returns for a request as its reply."""

    def handle(request: Message, txn: Transaction) -> None:
        try:
            payload = function(request, txn)
        except RequestFailed as error:
            end(store, source, request, txn, error)
        else:
            reply(txn, request, payload)

    handle.__qualname__ = name_of(function)
    return handle


def reply(txn: Transaction, request: Message, payload: Payload | None) -> None:
    """Put what a function has returned as the reply, if the request asks for one (AN1, AN3)."""
    if request.reply_to is not None:
        _reply(txn, request, b"" if payload is None else payload)


def end(
    store: BeginsAnew, source: str, request: Message, txn: Transaction, error: RequestFailed
) -> None:
    """End a request of the source that the transaction has got, by that error (AN2)."""
    reason = reason_of(error)
    txn.reject(request, reason, FAILED_REQUEST_SECONDS)
    txn.rollback()
    _, slash, subscription = source.partition("/")
    with store.transaction() as own:
        is_there = own.remove(request.queue + slash + subscription, request.id)
        if is_there and request.reply_to is not None:  # else it is a dead letter by now
            _reply(own, request, b"", reason)


def _reply(txn: Transaction, request: Message, payload: Payload, error: str | None = None) -> None:
    try:
        put_reply(txn, request, payload, error=error)
    except QueueNotFound as gone:  # AN3
        _log.warning("message %d of %s is not answered: %s", request.id, request.queue, gone)


def reason_of(error: BaseException) -> str:
    """Its words, as far as a message may carry them."""
    return str(error).encode("utf-8", "replace")[:MAX_REASON_BYTES].decode("utf-8", "ignore")
