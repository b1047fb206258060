"""A transaction that was begun at an owner, and what becomes of it when that owner ends.

| when the owner ends | the transaction |
|---|---|
| while it is open | is rolled back: ConnectionLost, at every call; begin it again |
| during its commit, with ledger entries | committed if the ledger says so, else ConnectionLost |
| during its commit, without | in doubt: OutcomeUnknown |
| as its commit fails on the disk | the same two, but StoreFailed where it is in doubt |
| during its prepare | prepared if it is listed, else ConnectionLost |
| once it is prepared | stays prepared: `commit` and `rollback` decide it at the next owner |

- ET1: no request is sent twice, but for decisions. An open transaction is never moved to another
  owner: what it has got was given back, and may be in other hands.
- ET2: a commit counts as done only if the ledger holds all of its entries now and held none of them
  before it was sent, which is looked up then. It counts as not done only if the owner that it was
  sent to is gone, so that nothing of it is under way. In any other case it is in doubt. Two that
  commit the same entries at the same moment are taken for one.
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
from quire.reports.info import PreparedInfo, TransactionState

_LOST: Final = (ConnectionLost, StoreClosed)
_ENDED: Final = (*_LOST, TransactionClosed)  # also at the calls after that
P = ParamSpec("P")
R = TypeVar("R")
_AGAIN: Final = (
    "the owner of the store has ended, and with it this transaction: nothing of it took effect; "
    "begin it again with store.transaction()"
)


class Succession(Protocol):
    """The store whose transaction it is, as far as that is concerned."""

    @property
    def usable(self) -> bool:
        """True if it is open, in the process that opened it."""

    def has_owner_of(self, store: RemoteStore) -> bool:
        """Return True if the owner is still the one that this joined store has, or had."""

    def ask_no_more(self, lost: RemoteStore, error: Exception) -> None:
        """An owner that refuses is closing."""

    def next_owner(self, lost: RemoteStore, error: Exception) -> None:
        """Wait until there is another one. Raises the error if there is none in time."""

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
            self._end(error)
        except (OutcomeUnknown, StoreFailed) as error:
            if not self._entries or self._inner.state != TransactionState.IN_DOUBT.value:
                raise  # the owner has told
            self._find_out(error, before)

    def rollback(self) -> None:
        if self._xid is not None:
            self._decide(self._xid, commit=False)
            return
        try:
            self._inner.rollback()
        except _LOST:
            if not self._store.usable:
                raise

    def prepare(self, xid: str, timeout: Duration | None = None) -> None:
        since_us = time.time_ns() // 1000
        try:
            self._inner.prepare(xid, timeout)
        except _ENDED as error:
            self._end(error)
        except OutcomeUnknown as error:
            found = self._listed(xid, error)
            if found is None and not self._store.has_owner_of(self._joined):
                self._end(error)
            if found is None or found.prepared_us < since_us:  # of somebody else, it seems
                raise
            self._outcome = TransactionState.PREPARED
        self._xid = xid

    # When the owner has ended

    def _end(self, error: QuireError) -> NoReturn:
        """Nothing of the transaction took effect; the error that says so (ET1)."""
        if self._lost is not None:
            raise self._lost.with_traceback(None) from None
        if isinstance(error, TransactionClosed) or not self._store.usable:
            raise error  # it is not the owner that has ended
        self._store.ask_no_more(self._joined, error)
        self.rollback()
        self._outcome = TransactionState.ROLLED_BACK
        self._lost = (
            error if isinstance(error, ConnectionLost) and error.late else ConnectionLost(_AGAIN)
        )
        raise self._lost from None

    def _find_out(self, error: OutcomeUnknown | StoreFailed, before: Mapping[str, int]) -> None:
        """Find out if a commit has been done (ET2)."""
        for key, version in self._entries.items():
            if before.get(key, -1) >= version:
                self._outcome = TransactionState.ROLLED_BACK
                raise AlreadyCommitted(
                    f"the ledger holds {key!r} with version {before[key]} already: the "
                    "transaction's effect is there, and it is rolled back"
                ) from None
        try:
            self._store.next_owner(self._joined, error)
            now = self._store.integration.ledger_many(list(self._entries))
        except QuireError:
            raise error from None
        if all(now.get(key) == version for key, version in self._entries.items()):
            self._outcome = TransactionState.COMMITTED
            return
        undone = any(now.get(key, -1) < version for key, version in self._entries.items())
        if undone and not self._store.has_owner_of(self._joined):
            self._end(error)
        raise error

    def _listed(self, xid: str, error: OutcomeUnknown) -> PreparedInfo | None:
        """Ask the next owner for the xid. Raises the error if it cannot be asked."""
        try:
            self._store.next_owner(self._joined, error)
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
            except _LOST:
                if not self._store.usable:
                    raise
            except OutcomeUnknown as error:
                decided = self._listed(xid, error) is None
                if self._store.has_owner_of(self._joined):
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
