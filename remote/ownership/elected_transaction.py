"""A transaction that was begun at an owner, and what becomes of it when that owner ends.

The table of `request_outcomes` says what its calls do; here what they look up is looked up.

- ET1: an open transaction is never moved to another owner: what it has got was given back, and may
  be in other hands. A prepared one is every owner's.
- ET2: a commit counts as done only if the ledger holds all of its entries now and held none of them
  before it was sent, which is looked up then. Two that commit the same entries at the same moment
  are taken for one.
- A prepare counts as done only if its xid is listed, prepared since it was sent.
- A `with` block that ends after the transaction was lost raises that error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from types import MappingProxyType, TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
)

from quire.arguments import check_key, check_version
from quire.batches.delivered_messages import Messages
from quire.batches.moved_messages import Moving
from quire.calls.call_table import Subject
from quire.calls.documented import documented_by
from quire.errors import (
    AlreadyCommitted,
    ConnectionLost,
    OutcomeUnknown,
    QuireError,
    StoreClosed,
    StoreFailed,
    TransactionClosed,
    TransactionNotFound,
)
from quire.interface.integration import Integration, TransactionIntegration
from quire.interface.lookup import MessageKey, Where
from quire.interface.namespaces import Prepared
from quire.interface.store_objects import TransactionCalls
from quire.interface.transaction import Payload, Streaming, Transaction
from quire.messages.message import Message
from quire.messages.message_id import MessageId
from quire.messages.payload_writer import Sink
from quire.messages.put_options import PutOptions
from quire.moments import Duration
from quire.remote.client.remote_store import RemoteStore
from quire.remote.client.remote_transaction import RemoteTransaction
from quire.remote.client.request_outcomes import UNANSWERED, Request, RequestAction
from quire.reports.info import PreparedInfo, TransactionState

NOBODY: Final = (
    "the owner of the store has closed it, and nobody has taken over in time; nothing of this "
    "operation took effect: try again later"
)
_LOOKS: Final = (RequestAction.LOOK_UP, RequestAction.LOOK_FOR)
_ENDED: Final = (ConnectionLost, StoreClosed, TransactionClosed)  # also at the calls after that
P = ParamSpec("P")
R = TypeVar("R")
_AGAIN: Final = (
    "the owner of the store has ended, and with it this transaction: nothing of it took effect; "
    "begin it again with store.transaction()"
)


class Succession(Protocol):
    """The store whose transaction it is, as far as that is concerned."""

    def action_for(self, request: Request, store: RemoteStore, error: QuireError) -> RequestAction:
        """Return the action for a request that was lost with this error, once it can be done."""

    @property
    def prepared(self) -> Prepared:
        """The prepared transactions, which any owner decides."""

    @property
    def integration(self) -> Integration:
        """For the ledger."""


def forward(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], R]:
    """A method of the inner transaction, which the end of its owner ends."""
    name = method.__name__

    @wraps(method)
    def make(self: Passing, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            found: R = getattr(self._inner, name)(*args, **kwargs)
        except _ENDED as error:
            self._end(error)
        return found

    return make


class Passing(Protocol):
    """An object with forwarded methods."""

    @property
    def _inner(self) -> Any: ...

    def _end(self, error: QuireError) -> NoReturn: ...


@documented_by(TransactionIntegration)
class ElectedTransactionIntegration(Subject):
    """The `integration` of an `ElectedTransaction`."""

    __slots__ = ()
    _of: ElectedTransaction

    put_block = forward(TransactionIntegration.put_block)
    put_blocks = forward(TransactionIntegration.put_blocks)
    adopt = forward(TransactionIntegration.adopt)
    read_to_many = forward(TransactionIntegration.read_to_many)

    @property
    def _inner(self) -> TransactionIntegration:
        return self._of._inner.integration

    def _end(self, error: QuireError) -> NoReturn:
        self._of._end(error)


@documented_by(Transaction)
class ElectedTransaction(TransactionCalls):
    """A transaction that ends with its owner, and says so. Made by `ElectedStore`."""

    _integration = ElectedTransactionIntegration
    _outcome: TransactionState | None = None  # where the inner one cannot know it
    _lost: ConnectionLost | None = None
    _entries: Mapping[str, int] = MappingProxyType({})
    _xid: str | None = None  # once it is prepared

    def __init__(
        self, store: Succession, joined: RemoteStore, transaction: RemoteTransaction
    ) -> None:
        self._store = store
        self._joined = joined
        self._inner = transaction

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._outcome is None and self._inner.is_open:
            if kind is not None:
                self.rollback()
                return
            try:
                self.commit()
            except BaseException:
                self.rollback()
                raise
        elif kind is None:
            if self._lost is not None:
                raise ConnectionLost(str(self._lost))
            if self._outcome is None:
                self._inner.__exit__(None, None, None)  # aborted, or over its time

    @property
    def id(self) -> int:
        return self._inner.id

    @property
    def state(self) -> str:
        return self._inner.state if self._outcome is None else self._outcome.value

    # Putting

    def put(self, queue: str, payload: Payload, **options: Unpack[PutOptions]) -> MessageId:
        try:
            return self._inner.put(queue, payload, **options)
        except _ENDED as error:
            self._end(error)

    put_many = forward(Transaction.put_many)
    withdraw_refused = forward(TransactionCalls.withdraw_refused)
    put_moved = forward(Moving.put_moved)
    put_moved_many = forward(Moving.put_moved_many)

    def begin_stream(
        self,
        queue: str,
        fields: Mapping[str, Any],
        size: int | None,
        timeout: float | None,
        *,
        is_moved: bool = False,
    ) -> Sink:
        try:
            sink = self._inner.begin_stream(queue, fields, size, timeout, is_moved=is_moved)
            return _ElectedSink(sink, self._end)
        except _ENDED as error:
            self._end(error)

    # Getting

    def get(
        self,
        source: str,
        timeout: Duration | None = 0.0,
        *,
        id: MessageKey | None = None,
        where: Where | None = None,
    ) -> Message | None:
        try:
            return self._inner.get(source, timeout, id=id, where=where)
        except _ENDED as error:
            self._end(error)

    # Each of these three passes its arguments one by one: after a call with *args CPython may raise
    # an interrupt, and what was got would be lost with what the call returned.

    def get_many(
        self,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: Where | None = None,
    ) -> Messages:
        try:
            return self._inner.get_many(source, max_messages, timeout, where=where)
        except _ENDED as error:
            self._end(error)

    def get_delayed(
        self, source: str, message_id: int, *, to_change: bool = False
    ) -> Message | None:
        try:
            return self._inner.get_delayed(source, message_id, to_change=to_change)
        except _ENDED as error:
            self._end(error)

    def remove(self, source: str, id: MessageKey, timeout: Duration | None = 0.0) -> bool:
        try:
            return self._inner.remove(source, id, timeout)
        except _ENDED as error:
            self._end(error)

    read_many = forward(Transaction.read_many)
    browse = forward(Transaction.browse)
    describe = forward(Transaction.describe)
    count = forward(Transaction.count)
    unget = forward(Transaction.unget)
    reject = forward(Transaction.reject)
    mark_moved = forward(Streaming.mark_moved)
    unmark_moved = forward(Streaming.unmark_moved)
    extend = forward(Transaction.extend)
    seek = forward(Transaction.seek)

    def enter(self, key: str, version: int) -> None:
        entry = check_key(key), check_version(version)
        try:
            self._inner.enter(*entry)
        except _ENDED as error:
            self._end(error)
        self._entries = {**self._entries, entry[0]: entry[1]}

    get_value = forward(Transaction.get_value)
    set_value = forward(Transaction.set_value)

    # Ending

    def commit(self, timeout: Duration | None = None) -> None:
        if self._xid is not None:
            self._decide(self._xid, commit=True)
            return
        before: dict[str, int] = {}
        try:
            if self._entries and self._inner.is_open:
                before = self._joined.integration.ledger_many(list(self._entries))
            self._inner.commit(timeout)
        except _ENDED as error:
            self._end(error, Request.COMMIT_WITH_ENTRIES if self._entries else Request.COMMIT)
        except (OutcomeUnknown, StoreFailed) as error:
            if self._inner.state != TransactionState.IN_DOUBT.value:
                raise  # its owner knows the state
            self._check_new(before)
            request = Request.COMMIT_WITH_ENTRIES if self._entries else Request.COMMIT
            action = self._store.action_for(request, self._joined, error)
            if action not in _LOOKS:
                raise
            self._find_out(error, action)

    def rollback(self) -> None:
        if self._xid is not None:
            self._decide(self._xid, commit=False)
            return
        try:
            self._inner.rollback()
        except UNANSWERED as error:
            action = self._store.action_for(Request.ROLLBACK, self._joined, error)
            if action is not RequestAction.RETURN:
                raise

    def prepare(self, xid: str, timeout: Duration | None = None) -> None:
        since_us = time.time_ns() // 1000
        self._xid = self._xid or xid  # first: an interrupt may come when it is prepared
        try:
            self._inner.prepare(xid, timeout)
        except _ENDED as error:
            self._end(error, Request.PREPARE)
        except OutcomeUnknown as error:
            action = self._store.action_for(Request.PREPARE, self._joined, error)
            if action not in _LOOKS:
                raise
            found = self._listed(xid, error)
            if found is None and action is RequestAction.LOOK_UP:
                self._lose(error)
            if found is None or found.prepared_us < since_us:  # of somebody else, it seems
                raise
            self._outcome = TransactionState.PREPARED
        finally:
            if self.state != TransactionState.PREPARED.value:
                self._xid = None

    # When the owner has ended

    def _end(self, error: QuireError, request: Request = Request.STEP) -> NoReturn:
        """Raise the error of a request that took no effect, which ends the transaction."""
        if self._lost is not None:
            raise self._lost.with_traceback(None) from None
        if isinstance(error, TransactionClosed):
            raise error
        action = self._store.action_for(request, self._joined, error)
        if action is not RequestAction.CONNECTION_LOST:
            raise error  # it is not the owner that has ended
        self._lose(error)

    def _lose(self, error: QuireError) -> NoReturn:
        """Nothing of the transaction took effect, at this call and at each one after it (ET1)."""
        with suppress(*UNANSWERED):  # whatever the owner answers, its end does it
            self._inner.rollback()
        self._outcome = TransactionState.ROLLED_BACK
        self._lost = (
            error if isinstance(error, ConnectionLost) and error.late else ConnectionLost(_AGAIN)
        )
        raise self._lost from None

    def _check_new(self, before: Mapping[str, int]) -> None:
        """Raise AlreadyCommitted if the ledger held an entry before the commit was sent."""
        for key, version in self._entries.items():
            if before.get(key, -1) >= version:
                self._outcome = TransactionState.ROLLED_BACK
                raise AlreadyCommitted(
                    f"the ledger holds {key!r} with version {before[key]} already: the "
                    "transaction's effect is there, and it is rolled back"
                ) from None

    def _find_out(self, error: QuireError, action: RequestAction) -> None:
        """Find out if a commit has been done (ET2)."""
        try:
            now = self._store.integration.ledger_many(list(self._entries))
        except QuireError:
            raise error from None
        if all(now.get(key) == version for key, version in self._entries.items()):
            self._outcome = TransactionState.COMMITTED
            return
        undone = any(now.get(key, -1) < version for key, version in self._entries.items())
        if undone and action is RequestAction.LOOK_UP:
            self._lose(error)
        raise error

    def _listed(self, xid: str, error: QuireError) -> PreparedInfo | None:
        """Ask the owner there is now for the xid. Raises the error if it cannot be asked."""
        try:
            return next((info for info in self._store.prepared.list() if info.xid == xid), None)
        except QuireError:
            raise error from None

    def _decide(self, xid: str, *, commit: bool) -> None:
        """Decide at the owner where it was prepared, or at the next."""
        decided = False
        if self._outcome is None:
            try:
                (self._inner.commit if commit else self._inner.rollback)()
                return
            except UNANSWERED as error:
                action = self._store.action_for(Request.OWN_DECISION, self._joined, error)
                if action is RequestAction.LOOK_UP:
                    decided = self._listed(xid, error) is None
                elif action is RequestAction.CONNECTION_LOST and isinstance(error, StoreClosed):
                    raise ConnectionLost(NOBODY) from None
                elif action is not RequestAction.REPEAT:
                    raise
        if not decided:
            prepared = self._store.prepared
            try:
                (prepared.commit if commit else prepared.rollback)(xid)
            except TransactionNotFound:
                raise TransactionClosed(
                    f"the prepared transaction {xid!r} was decided already, by somebody else"
                ) from None
        self._outcome = TransactionState.COMMITTED if commit else TransactionState.ROLLED_BACK


class _ElectedSink:
    """A message that is put as a stream at the owner, whose end ends it."""

    def __init__(self, inner: Sink, end: Callable[[QuireError], NoReturn]) -> None:
        self._inner = inner
        self._end = end

    whole = forward(Sink.whole)
    chunk = forward(Sink.chunk)
    finish = forward(Sink.finish)

    def abandon(self) -> None:
        with suppress(*_ENDED):  # what is lost is abandoned
            self._inner.abandon()


if TYPE_CHECKING:
    _elected: type[Transaction] = ElectedTransaction
