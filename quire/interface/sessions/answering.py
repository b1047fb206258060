"""Answering requests: the reply's put, and a handler that puts what a function returns.

What becomes of a request is decided by `reply` and `end`, for threads and for tasks.

- AN1: the reply is put and committed by the transaction that has got the request. So a request is
  executed and answered, or it is there again.
- AN2: a function that raises RequestFailed has ended its request: what it did is rolled back, and
  another transaction removes the request and answers it by that error. Nobody else gets it between
  the two: it comes again only where the second one did not come about. Any other exception is a
  failure as that of any handler: the request comes again, and what becomes of it, a dead letter at
  last, is reported to who has asked for that.
- AN3: for a reply that its queue does not take no request is executed again. Where the put or the
  commit tells that, the transaction is open still, and what the function has put is in it: the
  reply goes, with all of that, as a dead letter of the request's queue, which `redrive` puts back
  when the cause is mended. Without such a queue, or where that takes none either, the reply is
  dropped, and the log tells it: nobody is stuck behind a client that takes no replies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from quire.batches.moved_messages import QUEUE, TIME
from quire.env import OsEnv
from quire.errors import (
    InvalidArgument,
    QueueDisabled,
    QueueFull,
    QueueNotFound,
    QuireError,
    RequestFailed,
)
from quire.interface.handlers import name_of
from quire.interface.transaction import Payload, Transaction, TransactionSource
from quire.loggers import logger
from quire.messages.message import Message, check_message
from quire.messages.message_id import MessageId
from quire.messages.message_types import (
    ERROR,
    EXCEPTION,
    EXPIRY,
    REASON,
    REPLY,
    REPORTS,
    TYPE,
    reason_of,
    reply_by,
    requested_reports,
)
from quire.reports.info import QueueInfo

from .limits import FAILED_REQUEST_SECONDS
from .requesting import SHARED_REPLIES

_log: Final = logger("quire.workers")
_ENV: Final = OsEnv()
_REFUSALS: Final = (QueueNotFound, QueueDisabled, QueueFull, InvalidArgument)
_BYTES: Final = (bytes, bytearray, memoryview)

Made_co = TypeVar("Made_co", covariant=True)
Answering = Callable[[Any, Any], Any]


class PutsOne(Protocol[Made_co]):
    """A transaction, of a store or for asyncio."""

    @property
    def put(self) -> Callable[..., Made_co]:
        """Puts one message."""


class TakesReply(Transaction, Protocol):
    """A transaction that takes a reply."""

    def withdraw_refused(self, put: MessageId) -> bool:
        """Take back the last put, if it is this one and its queue has refused it; False: it is not.

        Where a put itself raises what refuses it, there is nothing to be taken back.
        """


class AnswerStore(TransactionSource[Any], Protocol):
    """A store, as far as one who answers has to do with it; its transactions take replies."""

    def queue(self, name: str) -> QueueInfo:
        """One queue."""


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
        own[REASON] = own[ERROR] = error
    by = reply_by(request.attributes)
    if by is not None:
        options.setdefault("expires_at", by)
    elif request.reply_to != SHARED_REPLIES:  # there nobody asks what became of a reply
        own[REPORTS] = requested_reports([EXCEPTION, EXPIRY])
        options.setdefault("reply_to", request.reply_to)
    return txn.put(
        request.reply_to,
        payload,
        correlation_id=request.correlation_id,
        attributes={**(attributes or {}), **own},
        **options,
    )


def answering(store: AnswerStore, source: str, function: Answering) -> Callable[[Any, Any], None]:
    """A handler that puts what the function returns for a request as its reply."""

    def handle(request: Message, txn: TakesReply) -> None:
        try:
            payload = function(request, txn)
        except RequestFailed as error:
            end(store, source, request, txn, error)
        else:
            reply(store, txn, request, payload)

    handle.__qualname__ = name_of(function)
    return handle


def reply(store: AnswerStore, txn: TakesReply, request: Message, payload: Payload | None) -> None:
    """Put what a function has returned as the reply, and commit (AN1, AN3).

    A request that asks for no reply is left to be committed with its get.
    """
    if request.reply_to is not None:
        _reply(store, txn, request, b"" if payload is None else payload)


def end(
    store: AnswerStore, source: str, request: Message, txn: Transaction, error: RequestFailed
) -> None:
    """End a request of the source that the transaction has got, by that error (AN2)."""
    reason = reason_of(error)
    txn.reject(request, reason, FAILED_REQUEST_SECONDS)
    txn.rollback()
    _, slash, subscription = source.partition("/")
    with store.transaction() as own:
        is_there = own.remove(request.queue + slash + subscription, request.id)
        if is_there and request.reply_to is not None:  # else it is a dead letter by now
            _reply(store, own, request, b"", reason)


def _reply(
    store: AnswerStore,
    txn: TakesReply,
    request: Message,
    payload: Payload,
    error: str | None = None,
) -> None:
    refused = _committed_with(txn, lambda: put_reply(txn, request, payload, error=error))
    if refused is None:
        return
    if isinstance(refused, InvalidArgument) and not isinstance(payload, _BYTES):
        raise refused  # the function has returned it
    letters = store.queue(request.queue).dead_letter
    if letters is not None:
        own = _of_dead_letter(request, error, refused)
        if _committed_with(txn, lambda: txn.put(letters, payload, **own)) is None:
            _log.warning(
                "the reply to message %d of %s is a dead letter in %s: %s",
                request.id, request.queue, letters, refused,
            )  # fmt: skip
            return
    txn.commit()
    _log.warning("message %d of %s is not answered: %s", request.id, request.queue, refused)


def _committed_with(txn: TakesReply, put: Callable[[], MessageId]) -> QuireError | None:
    """Put one more message and commit; what its queue refuses it by: then the rest is open.

    A joined store's put does not tell of that, its commit does.
    """
    made: MessageId | None = None
    try:
        made = put()
        txn.commit()
    except _REFUSALS as refused:
        if made is not None and not txn.withdraw_refused(made):
            raise
        return refused
    return None


def _of_dead_letter(request: Message, error: str | None, refused: QuireError) -> dict[str, Any]:
    """Return the options of a refused reply as a dead letter, beside its payload."""
    own = {
        TYPE: REPLY,
        QUEUE: request.reply_to or "",
        REASON: reason_of(refused),
        TIME: str(_ENV.now_us()),
    }
    if error is not None:
        own[ERROR] = error
    return {"correlation_id": request.correlation_id, "attributes": own}
