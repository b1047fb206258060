"""One stream at the owner's side: what its client asks for, and the transaction that is open in it.

SS1. Whatever comes, the answer is a result or an error; nothing a client sends ends the owner.
SS2. A request that names a transaction reaches that one or none.
SS3. When the session ends, its open transaction is rolled back; also when messages that it took
    cannot be delivered, so that no commit counts them as read. What is prepared is not the
    session's any more (see `undecided`).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeVar

from quire.arguments import (
    check_ends,
    check_key,
    check_large,
    check_lifetime,
    check_max_messages,
    check_name,
    check_owner,
    check_source,
    check_timeout,
    check_version,
    check_xid,
)
from quire.errors import (
    ConnectionLost,
    QueueFull,
    QuireError,
    RemoteError,
    StoreClosed,
    TransactionClosed,
)
from quire.info import TransactionState
from quire.ltds import check_foreign
from quire.store import Store
from quire.transaction import Transaction

from .calls import answer_call
from .delivery import Answer, message_answer, messages_answers
from .failures import describe_error
from .limits import WAIT_SECONDS
from .placing import Placing
from .protocol import Decision, Frame, Header, decode_frame, encode_frame, field
from .undecided import Undecided

_DECISIONS: Final = {decision.value: decision for decision in Decision}
Found = TypeVar("Found")


class ServedStore(Store, Protocol):
    """A store that can be served to clients."""

    @property
    def commit_timeout(self) -> float:
        """Seconds that a commit waits for room in its queues, unless its client says otherwise."""


class Session:
    """Answers the requests of one stream, in one thread."""

    def __init__(
        self,
        store: ServedStore,
        epoch: str,
        undecided: Undecided,
        client: str,
        is_gone: Callable[[], bool],
        is_closing: Callable[[], bool],
    ) -> None:
        self._store = store
        self._undecided = undecided
        self._client = client
        self._epoch = epoch
        self._is_gone = is_gone
        self._is_closing = is_closing
        self._transaction: Transaction | None = None
        self._number = 0
        self._delivering = False  # messages are taken, and on their way to the client
        self._placing = Placing()
        self._operations: dict[str, Callable[[Transaction, Frame], Iterator[Answer]]] = {
            "send": self._send,
            "get": self._get,
            "get_many": self._get_many,
            "read_to": self._read_to,
            "commit": self._commit,
            "prepare": self._prepare,
            "rollback": self._rollback,
        }

    def answers(self, data: memoryview) -> Iterator[bytes]:
        """The frames that answer a request (SS1)."""
        self._delivering = False
        try:
            frame = decode_frame(data)
            for header, bodies in self._dispatch(frame):
                yield encode_frame({**header, "state": self._state()}, bodies)
        except GeneratorExit:
            raise
        except Exception as error:  # noqa: BLE001 it is told to the client (SS1)
            if self._delivering or not isinstance(error, QuireError):
                self.close()  # what was taken did not arrive, or nobody knows what happened
            yield encode_frame({**describe_error(error), "state": self._state()})

    def close(self) -> None:
        """Roll back what is open (SS3)."""
        transaction = self._leave()
        if transaction is not None and _state(transaction) is not TransactionState.PREPARED:
            with contextlib.suppress(QuireError):
                transaction.rollback()

    def _leave(self) -> Transaction | None:
        """The stream's transaction, which is its no more."""
        transaction, self._transaction = self._transaction, None
        self._placing = Placing()
        return transaction

    def _dispatch(self, frame: Frame) -> Iterator[Answer]:
        if self._is_closing():
            raise StoreClosed("the owner has closed the store: open it again")
        op = field(frame.header, "op", str)
        if op in _DECISIONS:
            return self._undecided.answer(_DECISIONS[op], frame.header)
        operation = self._operations.get(op)
        if operation is None:
            return answer_call(self._store, op, frame.header)
        return operation(self._transaction_of(frame.header), frame)

    def _state(self) -> str | None:
        """The transaction's state for the client; None when there is none any more."""
        if self._transaction is None:
            return None
        state = _state(self._transaction)
        if state is not TransactionState.OPEN:
            self.close()
        return state.value

    def _transaction_of(self, header: Header) -> Transaction:
        """The transaction that a request names, begun if it is a new one (SS2)."""
        if field(header, "epoch", str) != self._epoch:
            raise ConnectionLost("the store was opened again since: open it here again too")
        number = field(header, "txn", int)
        if number == self._number and self._transaction is not None:
            return self._transaction
        if number <= self._number:
            raise TransactionClosed(f"transaction {number} of this stream has ended")
        if self._transaction is not None:
            raise RemoteError(f"transaction {self._number} of this stream has not ended")
        transaction = self._store.transaction(
            _lifetime(header),
            check_large(header.get("large", False)),
            check_owner(header.get("owner")) or self._client,
        )
        self._number = number
        self._transaction = transaction
        return transaction

    def _take_puts(self, transaction: Transaction, frame: Frame) -> None:
        puts = [_read_put(entry) for entry in field(frame.header, "puts", list)]
        blocks = sum(ltds_id is None for _, ltds_id in puts)
        if blocks != len(frame.bodies):
            raise RemoteError(f"{blocks} puts name blocks, and {len(frame.bodies)} blocks came")
        bodies = iter(frame.bodies)
        try:
            for queue, ltds_id in puts:
                if ltds_id is None:
                    self._placing.put_block(transaction, queue, next(bodies))
                else:
                    self._placing.adopt(transaction, queue, ltds_id)
        except BaseException:
            self.close()  # some of them may be in: the client cannot tell which
            raise

    def _send(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        self._take_puts(transaction, frame)
        yield {}, ()

    def _get(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        source = check_source(frame.header.get("source"))
        message = self._wait(
            _seconds(frame, 0), lambda seconds: transaction.get(source, timeout=seconds)
        )
        self._delivering = True
        yield message_answer(message)

    def _get_many(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        source = check_source(frame.header.get("source"))
        count = check_max_messages(frame.header.get("max_messages"))
        messages = self._wait(
            _seconds(frame, 0),
            lambda seconds: transaction.get_many(source, count, timeout=seconds),
        )
        self._delivering = True
        yield from messages_answers(messages)

    def _read_to(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        transaction.read_to_many(check_ends(frame.header.get("positions")))
        yield {}, ()

    def _take_rest(self, transaction: Transaction, frame: Frame) -> None:
        """What comes with the request that ends a transaction."""
        self._take_puts(transaction, frame)
        for entry in field(frame.header, "records", list):
            if not isinstance(entry, list) or len(entry) != 2:
                raise RemoteError("a ledger entry is a key and a version")
            transaction.record(check_key(entry[0]), check_version(entry[1]))

    def _prepare(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        seconds = _seconds(frame, self._store.commit_timeout)
        xid = check_xid(frame.header.get("xid"))
        self._take_rest(transaction, frame)
        self._when_there_is_room(seconds, lambda seconds: transaction.prepare(xid, timeout=seconds))
        number = self._undecided.add(xid, transaction, self._placing)
        self._leave()
        yield {"number": number}, ()

    def _commit(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        seconds = _seconds(frame, self._store.commit_timeout)
        self._take_rest(transaction, frame)
        self._when_there_is_room(seconds, lambda seconds: transaction.commit(timeout=seconds))
        placed = self._placing.answer()
        self._leave()
        yield {"placed": placed}, ()

    def _when_there_is_room(self, seconds: float, end: Callable[[float], None]) -> None:
        """Commit or prepare; while a queue has no room, wait for it, as long as the client does."""
        full: list[QueueFull] = []

        def attempt(seconds: float) -> bool:
            try:
                end(seconds)
            except QueueFull as error:
                full[:] = [error]
                return False
            return True

        if not self._wait(seconds, attempt):
            raise full[0]

    def _rollback(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        self._leave()
        transaction.rollback()
        yield {}, ()

    def _wait(self, timeout: float, get: Callable[[float], Found]) -> Found:
        """What `get` finds within so many seconds, while the client is there to want it."""
        deadline = time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            found = get(min(left, WAIT_SECONDS))
            if found or not left:
                return found
            if self._is_gone():
                raise ConnectionLost("the client is gone")
            if self._is_closing():
                raise StoreClosed("the owner has closed the store: open it again")


def _seconds(frame: Frame, default: float) -> float:
    """How long a request may wait."""
    timeout = frame.header.get("wait")
    return default if timeout is None else check_timeout(timeout)


def _lifetime(header: Header) -> float | None:
    """How long the transaction may stay open; None: as the store's options say."""
    if "timeout" not in header:
        return None
    return math.inf if header["timeout"] is None else check_lifetime(header["timeout"])


def _read_put(entry: object) -> tuple[str, int | None]:
    """A queue, and the id of the file that is put; None: a block is."""
    if not isinstance(entry, list) or len(entry) != 2:
        raise RemoteError("a put is a queue, and the id of a file or null")
    queue, ltds_id = entry
    return check_name(queue, "queue"), None if ltds_id is None else check_foreign(ltds_id)


def _state(transaction: Transaction) -> TransactionState:
    return TransactionState(transaction.state)
