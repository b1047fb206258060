"""A transaction as one user has it: see `guarded_store`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from quire.arguments import Bytes
from quire.block.format import Column
from quire.calls.call_table import CallRow, Subject, by_row
from quire.errors import NotAllowed, QuireError
from quire.interface.integration import TransactionIntegration
from quire.interface.store_objects import TransactionCalls
from quire.interface.transaction import Streaming, Transaction
from quire.messages.message_id import MessageId, MessageIds
from quire.moments import Duration
from quire.remote.wire.named_calls import REQUESTS
from quire.remote.wire.protocol import STEP
from quire.rows.open_block import check_block

from .call_check import CallCheck
from .checked_files import file_check
from .hidden_names import hidden, hiding
from .shown_results import UserInForce
from .users_document import Right
from .verified_senders import batch_as_user, block_as_user, check_sender

_PREPARE: Final = REQUESTS[STEP, "prepare"]


class GuardedTransaction(TransactionCalls):
    """A transaction of one user (GS1)."""

    __slots__ = ("_began", "_call_check", "_names", "_transaction", "_user")

    def __init__(self, transaction: Any, user: UserInForce, check: CallCheck) -> None:
        """`transaction`: a `ServedTransaction`."""
        self._transaction = transaction
        self._user = user
        self._began = check.rights
        self._call_check = check
        self._names = check.names

    def _check(self) -> CallCheck:
        """Return the check by the rights of this moment (GS2)."""
        check = self._call_check
        check.rights = self._user.rights
        return check

    def make(self, row: CallRow, arguments: Mapping[str, Any]) -> Any:
        """Make a step, if it is allowed."""
        checked = self._check().check_call(row, arguments)
        with hiding(self._user, self._names, arguments):
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
        except QuireError as error:
            raise hidden(self._user, self._names, error) from None
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
        with hiding(self._user, self._names):
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
        with hiding(self._user, self._names):
            found: MessageId = self._transaction.put_moved(own, content, fields)
        return found

    def put_block(self, queue: str, data: Bytes) -> MessageIds:
        """Put a block."""
        own, data = self._checked_block(queue, data, is_moved=False)
        with hiding(self._user, self._names):
            found: MessageIds = self._transaction.integration.put_block(own, data)
        return found

    def put_moved_block(self, queue: str, data: Bytes) -> MessageIds:
        """Put a block of messages that are moved."""
        own, data = self._checked_block(queue, data, is_moved=True)
        with hiding(self._user, self._names):
            found: MessageIds = self._transaction.put_moved_block(own, data)
        return found

    def _checked_block(self, queue: str, data: Bytes, *, is_moved: bool) -> tuple[str, Bytes]:
        """Return the queue's own name, and the block as it is to be put."""
        check = self._check()
        own = check.put(queue)
        block = check_block(data)
        if block.columns & Column.REPLY_TO:
            found = block.headers.strings[Column.REPLY_TO]
            for name in {found.get(row) for row in range(block.count)}:
                check.reply_queue(Right.GET, name)
        if not check.sends_as_user(own, is_moved=is_moved):
            return own, data
        return own, block_as_user(self._user.name, own, block) or data

    def _as_user(
        self, queue: str, fields: Mapping[str, Any], *, is_moved: bool
    ) -> Mapping[str, Any]:
        """Return the fields of a message, with the user as its sender if that is to be so."""
        if not self._call_check.sends_as_user(queue, is_moved=is_moved):
            return fields
        return {**fields, "sender": check_sender(self._user.name, queue, fields.get("sender"))}

    def adopt(self, queue: str, ltds_id: int) -> MessageIds:
        """Put a file: one of this user's, but for who looks after the store (CF1)."""
        check = self._check()
        own = check.put(queue)
        if check.sends_as_user(own):
            raise NotAllowed(
                f"the senders of queue {own!r} are verified: put the messages, in place of a file"
            )
        user, integration = check.writer(), self._transaction.integration
        file = None if user is None else file_check(user, partial(check.reply_queue, Right.GET))
        with hiding(self._user, self._names):
            found: MessageIds = integration.adopt_checked(own, ltds_id, file)
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
        with hiding(self._user, self._names):
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
        except QuireError as error:
            raise hidden(self._user, self._names, error) from None

    def prepare(self, xid: str, timeout: Duration | None = None) -> None:
        self._check().check_call(_PREPARE, {})
        self._check_all()
        with hiding(self._user, self._names):
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
