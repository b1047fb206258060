"""A store as one user has it: each call is checked by its row before it is made.

GS1. Who serves a user has this object, and neither the store nor a transaction of it. It has no
    call that is not checked: what it does not define is not there.
GS2. A call is checked by the rights of that moment, so a change of them holds for the next call, of
    open transactions and waiting gets too. A transaction whose rights have changed since it began
    has all that it did checked again at its commit, so it takes no effect that is not allowed.
GS3. Errors and results name nothing that the user may not see (CK3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Protocol, Self

from quire.arguments import Bytes
from quire.block.format import Column
from quire.calls.call_table import CallRow, Subject, by_row
from quire.errors import (
    NotAllowed,
    QueueExists,
    QueueInUse,
    QueueNotFound,
    QuireError,
    ScheduleNotFound,
)
from quire.interface.integration import TransactionIntegration
from quire.interface.redriving import Redrives
from quire.interface.store import Store
from quire.interface.store_objects import StoreObject, TransactionCalls
from quire.interface.transaction import Streaming, Transaction
from quire.libraries import pa
from quire.messages.message_id import MessageId, MessageIds, PutId
from quire.messages.payload_reader import Stream
from quire.moments import Duration
from quire.remote.wire.named_calls import REQUESTS, HoldingStore
from quire.remote.wire.protocol import AWAIT, STEP
from quire.rows.open_block import check_block

from .call_check import CallCheck, needs_of
from .granted_rights import Need
from .shown_results import SHOWN, WHOLE_STORE, UserInForce, owner_of_transaction
from .users_document import Right
from .verified_senders import batch_as_user, block_as_user, check_sender

# Errors whose words name others.
_TELLING: Final = (QueueNotFound, QueueExists, QueueInUse, ScheduleNotFound)
_ALIAS: Final = " is an alias of "
_PREPARE: Final = REQUESTS[STEP, "prepare"]


class DecidesPrepared(Protocol):
    """Decides prepared transactions, and knows those of its clients."""

    def add(self, xid: str, transaction: Any, placing: Any) -> int: ...

    def answer(self, decision: Any, header: Any) -> Iterator[Any]: ...


@contextmanager
def _hiding(user: UserInForce) -> Iterator[None]:
    """Have errors name nothing that the user may not see (GS3)."""
    try:
        yield
    except _TELLING as error:
        raise _hidden(user, error) from None


def _hidden(user: UserInForce, error: QuireError) -> QuireError:
    if user.rights.allows(WHOLE_STORE):
        return error
    if isinstance(error, QueueInUse):
        return QueueInUse(
            "the queue is in use: by a transaction, an alias, a schedule or a session, or as the"
            " dead_letter of another one; a user with admin on the store is told by which"
        )
    if isinstance(error, QueueExists):
        name, is_alias, _ = str(error).partition(_ALIAS)
        return QueueExists(f"{name} is an alias: use another name") if is_alias else error
    if isinstance(error, ScheduleNotFound):
        return ScheduleNotFound("there is no such schedule: store.cron.list() has those there are")
    return QueueNotFound("there is no such queue that this user has a right on: it was just there")


class GuardedStore(StoreObject):
    """A store for one user (GS1)."""

    role = "owner"

    def __init__(self, store: Any, user: UserInForce) -> None:
        """`store`: a `ServedStore`."""
        self._store = store
        self._user = user
        self.path = store.path

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._user.name}>"

    def _check(self) -> CallCheck:
        return CallCheck(self._user.rights, self)

    def make(self, row: CallRow, arguments: Mapping[str, Any]) -> Any:
        """Make a call, if it is allowed; return what of its result the user may see."""
        return self._made(row, arguments)

    def _made(self, row: CallRow, arguments: Mapping[str, Any]) -> Any:
        check = self._check()
        checked = check.check_call(row, arguments)
        outcome = "done"
        try:
            with _hiding(self._user):
                found = getattr(row.target(self._store), row.name)(**checked)
        except Exception as error:
            outcome = type(error).__name__
            raise
        finally:
            if row.facts.changes and row.facts.needs:
                self._user.note_call(row.op, check.allowed, outcome)
        shows = row.facts.shows
        return SHOWN[shows](self._user, checked, found) if shows else found

    # Names, for the check

    def own_name(self, name: str) -> str | None:
        """See `StoredNames`."""
        found: str | None = self._store.own_name(name)
        return found

    def queue_of_schedule(self, name: str) -> str | None:
        """See `StoredNames`."""
        found: dict[str, str] = {each.name: each.queue for each in self._store.cron.list()}
        return found.get(name)

    def has_begun(self, transaction_id: object) -> bool:
        """See `StoredNames`."""
        found = self.admin.transactions()
        return any(info.id == transaction_id for info in found)

    def has_verified_sender(self, name: str | None) -> bool:
        """See `StoredNames`."""
        found: bool = self._store.has_verified_sender(name)
        return found

    def checked_sender(self, queue: str, sender: object) -> str:
        """See `StoredNames`."""
        return check_sender(self._user.name, queue, sender)

    def note_refusal(self, need: Need) -> None:
        """See `StoredNames`."""
        self._user.note_refusal(need)

    # What the server needs beside rows

    @property
    def failed(self) -> bool:
        found: bool = self._store.failed
        return found

    @property
    def commit_timeout(self) -> float:
        """As `ServedStore`."""
        found: float = self._store.commit_timeout
        return found

    @property
    def fixed_options(self) -> dict[str, int]:
        """As `ServedStore`."""
        found: dict[str, int] = self._store.fixed_options
        return found

    @property
    def store_id(self) -> int:
        """As `CallTarget`."""
        found: int = self._store.integration.store_id
        return found

    def put(self, queue: str, payload: Any, *, durable: bool = True, **options: Any) -> int:
        """Put a message alone, waiting for room."""
        transaction = self.transaction(durable=durable)
        with transaction:
            found = transaction.put(queue, payload, **options)
        return int(found)

    def put_now(self, queue: str, payload: bytes) -> int:
        """Put a message alone."""
        check = self._check()
        own = check.put(queue)
        if check.sends_as_user(own):
            return self._put_as_user(own, payload)
        try:
            found: int = self._store.put_now(own, payload)
        except _TELLING as error:
            raise _hidden(self._user, error) from None
        return found

    def _put_as_user(self, queue: str, payload: bytes) -> int:
        with self.transaction() as transaction:
            transaction.put_timeout = 0.0
            message_id = transaction.put(queue, payload)
            transaction.commit(0.0)
        return PutId.of(int(message_id), message_id.expires_by)

    def transaction(
        self,
        timeout: Duration | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> GuardedTransaction:
        words = owner_of_transaction(self._user, owner)
        begun = self._store.transaction(timeout, large, words, durable)
        return GuardedTransaction(begun, self._user, self._check())

    def follow(self, source: str) -> object:
        """As `ServedStore`."""
        own = self._check().source(Right.GET, source)
        with _hiding(self._user):
            return self._store.follow(own)

    def await_source(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        """As `CallTarget`."""
        row = REQUESTS[AWAIT, ""]
        checked = self._check().check_call(row, {"source": source})
        with _hiding(self._user):
            found: Callable[[], None]
            found = self._store.integration.when_ready(checked["source"], callback)
        return found

    def chunk(self, stream: Stream, number: int) -> Bytes:
        """As `Chunks`: the id of its file is 64 random bits, which only the message tells."""
        found: Bytes = self._store.chunk(stream, number)
        return found

    def decisions(self, decides: DecidesPrepared) -> DecidesPrepared:
        """Return what decides prepared transactions for this user."""
        return _GuardedDecisions(decides, self._check, self._user)

    # Rows

    alter_queue = by_row(Store.alter_queue)
    drop_queue = by_row(Store.drop_queue)
    queues = by_row(Store.queues)
    unsubscribe = by_row(Store.unsubscribe)
    subscriptions = by_row(Store.subscriptions)
    sync = by_row(Store.sync)
    browse = by_row(Store.browse)
    status = by_row(Store.status)
    subscribe_for = by_row(HoldingStore.subscribe_for)
    claim_for = by_row(HoldingStore.claim_for)
    put_back = by_row(Redrives.put_back)

    def close(self) -> None:
        """Do nothing: the store is not the user's to close."""


class _GuardedDecisions:
    """Decisions of prepared transactions, for one user."""

    def __init__(
        self, decides: DecidesPrepared, check: Callable[[], CallCheck], user: UserInForce
    ) -> None:
        self._decides = decides
        self._check = check
        self._user = user

    def add(self, xid: str, transaction: Any, placing: Any) -> int:
        return self._decides.add(xid, transaction, placing)

    def answer(self, decision: Any, header: Any) -> Iterator[Any]:
        check = self._check()
        check.check_call(_PREPARE, {})
        self._user.note_call(f"prepared.{decision.value}", check.allowed, "begun")
        return self._decides.answer(decision, header)


class GuardedTransaction(TransactionCalls):
    """A transaction of one user (GS1)."""

    __slots__ = ("_began", "_call_check", "_transaction", "_user")

    def __init__(self, transaction: Any, user: UserInForce, check: CallCheck) -> None:
        """`transaction`: a `ServedTransaction`."""
        self._transaction = transaction
        self._user = user
        self._began = check.rights
        self._call_check = check

    def _check(self) -> CallCheck:
        """Return the check by the rights of this moment (GS2)."""
        check = self._call_check
        check.rights = self._user.rights
        return check

    def make(self, row: CallRow, arguments: Mapping[str, Any]) -> Any:
        """Make a step, if it is allowed."""
        checked = self._check().check_call(row, arguments)
        with _hiding(self._user):
            return getattr(row.target(self._transaction), row.name)(**checked)

    # Rows

    get = by_row(Transaction.get)
    get_many = by_row(Transaction.get_many)
    read_many = by_row(Transaction.read_many)
    browse = by_row(Transaction.browse)
    describe = by_row(Transaction.describe)
    count = by_row(Transaction.count)
    remove = by_row(Transaction.remove)
    get_delayed = by_row(Transaction.get_delayed)
    unget = by_row(Transaction.unget)
    reject = by_row(Transaction.reject)
    seek = by_row(Transaction.seek)
    get_value = by_row(Transaction.get_value)
    extend = by_row(Transaction.extend)
    mark_moved = by_row(Streaming.mark_moved)
    unmark_moved = by_row(Streaming.unmark_moved)

    # Puts

    def put(self, queue: str, payload: Any, **options: Any) -> MessageId:
        check = self._check()
        own = check.put(queue)
        if "reply_to" in options:
            check.reply_queue(Right.GET, options["reply_to"])
        if check.sends_as_user(own):
            options["sender"] = check_sender(self._user.name, own, options.get("sender"))
        try:
            found: MessageId = self._transaction.put(own, payload, **options)
        except _TELLING as error:
            raise _hidden(self._user, error) from None
        return found

    def put_many(
        self, queue: str, payloads: Any, *, timeout: Any = None, request_ids: Any = None
    ) -> MessageIds:
        """Put what the server has decoded: a batch of columns."""
        check = self._check()
        own = check.put(queue)
        for name in payloads.column("reply_to").unique().to_pylist():
            check.reply_queue(Right.GET, name)
        if check.sends_as_user(own):
            payloads = batch_as_user(self._user.name, own, payloads)
        with _hiding(self._user):
            found: MessageIds = self._transaction.put_many(
                own, payloads, timeout=timeout, request_ids=request_ids
            )
        return found

    def put_moved(self, queue: str, content: Any, fields: Mapping[str, Any]) -> MessageId:
        """Put a message that is moved: whoever sends it says so, and may have written it."""
        check = self._check()
        own = check.put(queue)
        check.reply_queue(Right.GET, fields.get("reply_to"))
        fields = self._as_user(own, fields, is_moved=True)
        with _hiding(self._user):
            found: MessageId = self._transaction.put_moved(own, content, fields)
        return found

    def put_block(self, queue: str, data: Bytes) -> MessageIds:
        """Put a block."""
        own, batch = self._checked_block(queue, data, is_moved=False)
        with _hiding(self._user):
            found: MessageIds
            if batch is None:
                found = self._transaction.integration.put_block(own, data)
            else:
                found = self._transaction.put_many(own, batch)
        return found

    def put_moved_block(self, queue: str, data: Bytes) -> MessageIds:
        """Put a block of messages that are moved."""
        own, batch = self._checked_block(queue, data, is_moved=True)
        with _hiding(self._user):
            found: MessageIds
            if batch is None:
                found = self._transaction.put_moved_block(own, data)
            else:
                found = self._transaction.put_moved_many(own, batch)
        return found

    def _checked_block(
        self, queue: str, data: Bytes, *, is_moved: bool
    ) -> tuple[str, pa.RecordBatch | None]:
        """Return the queue's own name, and what is to be put in the place of the block, if so."""
        check = self._check()
        own = check.put(queue)
        block = check_block(data)
        if block.columns & Column.REPLY_TO:
            found = block.headers.strings[Column.REPLY_TO]
            for name in {found.get(row) for row in range(block.count)}:
                check.reply_queue(Right.GET, name)
        if not check.sends_as_user(own, is_moved=is_moved):
            return own, None
        return own, block_as_user(self._user.name, own, block, is_moved=is_moved)

    def _as_user(
        self, queue: str, fields: Mapping[str, Any], *, is_moved: bool
    ) -> Mapping[str, Any]:
        """Return the fields of a message, with the user as its sender if that is to be so."""
        if not self._call_check.sends_as_user(queue, is_moved=is_moved):
            return fields
        return {**fields, "sender": check_sender(self._user.name, queue, fields.get("sender"))}

    def adopt(self, queue: str, ltds_id: int) -> MessageIds:
        """Put a file: who may not write the store's directory has none."""
        check = self._check()
        check.need(*WHOLE_STORE)
        own = check.put(queue)
        if check.sends_as_user(own):
            raise NotAllowed(
                f"the senders of queue {own!r} are verified: put the messages, in place of a file"
            )
        found: MessageIds = self._transaction.integration.adopt(own, ltds_id)
        return found

    def begin_stream(
        self,
        queue: str,
        fields: Mapping[str, Any],
        size: int | None,
        timeout: float | None,
        *,
        is_moved: bool = False,
    ) -> Any:
        """Begin to put a message of any size."""
        check = self._check()
        own = check.put(queue)
        check.reply_queue(Right.GET, fields.get("reply_to"))
        fields = self._as_user(own, fields, is_moved=is_moved)
        with _hiding(self._user):
            return self._transaction.begin_stream(own, fields, size, timeout, is_moved=is_moved)

    def enter(self, key: str, version: int) -> None:
        self._check().state(Right.PUT, key)
        self._transaction.enter(key, version)

    def set_value(self, name: str, key: str, value: Bytes | None) -> None:
        self._check().state(Right.PUT, name, key)
        self._transaction.set_value(name, key, value)

    # Its end

    def _check_all(self) -> None:
        """See that what it did is allowed still, if the rights have changed (GS2)."""
        if self._user.rights is not self._began:
            self._call_check.check_again(self._user.rights)

    def commit(self, timeout: Duration | None = None) -> None:
        self._check_all()
        try:
            self._transaction.commit(timeout)
        except _TELLING as error:
            raise _hidden(self._user, error) from None

    def prepare(self, xid: str, timeout: Duration | None = None) -> None:
        self._check().check_call(_PREPARE, {})
        self._check_all()
        with _hiding(self._user):
            self._transaction.prepare(xid, timeout)

    def rollback(self) -> None:
        self._transaction.rollback()

    def __enter__(self) -> Self:
        self._transaction.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._transaction.__exit__(kind, error, traceback)

    # What the server needs

    @property
    def id(self) -> int:
        found: int = self._transaction.id
        return found

    @property
    def state(self) -> str:
        found: str = self._transaction.state
        return found

    @property
    def put_timeout(self) -> float | None:
        """As `ServedPuts`."""
        found: float | None = self._transaction.put_timeout
        return found

    @put_timeout.setter
    def put_timeout(self, seconds: float | None) -> None:
        self._transaction.put_timeout = seconds

    def end_by(self, kind: type[QuireError], text: str, *, wait: bool) -> bool:
        """As `ServedTransaction`."""
        found: bool = self._transaction.end_by(kind, text, wait=wait)
        return found

    def when_ended(self, callback: Callable[[], None]) -> bool:
        """As `AwaitingTransaction`."""
        found: bool = self._transaction.when_ended(callback)
        return found

    def forget_end(self) -> None:
        """As `AwaitingTransaction`."""
        self._transaction.forget_end()

    def own_taker(self, source: str) -> object | None:
        """As `AwaitingTransaction`."""
        found: object | None = self._transaction.own_taker(source)
        return found


class GuardedIntegration(Subject):
    """`GuardedTransaction.integration`."""

    __slots__ = ()
    _of: GuardedTransaction
    read_to_many = by_row(TransactionIntegration.read_to_many, "integration")

    def put_block(self, queue: str, data: Bytes) -> MessageIds:
        """Put a block."""
        return self._of.put_block(queue, data)

    def adopt(self, queue: str, ltds_id: int) -> MessageIds:
        """Put a file."""
        return self._of.adopt(queue, ltds_id)


GuardedTransaction._integration = GuardedIntegration
for _row in REQUESTS.values():  # CK1
    needs_of(_row)
