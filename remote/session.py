"""One stream at the owner's side: what its client asks for, and the transaction that is open in it.

S1. Whatever comes, the answer is a result or an error; nothing a client sends ends the owner.
S2. A request that names a transaction reaches that one or none.
S3. When the session ends, its open transaction is rolled back; also when messages that it took
    cannot be delivered, so that no commit counts them as read. What is prepared is not the
    session's any more (see `undecided`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    QueueFull,
    QuireError,
    RemoteError,
    StoreClosed,
    TransactionClosed,
)

from .calls import answer_call
from .delivery import Answer, message_answer, messages_answers
from .failures import describe_error
from .protocol import Frame, decode_frame, encode_frame, field
from .undecided import DECISIONS, Undecided

WAIT_SECONDS: Final = 0.25  # between two looks whether the client of a waiting request is there


class Session:
    """Answers the requests of one stream, in one thread."""

    def __init__(
        self,
        store: Any,
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
        self._transaction: Any = None
        self._number = 0
        self._delivering = False  # messages are taken, and on their way to the client
        self._ids: dict[str, Any] = {}  # by queue, of what was put there first
        self._operations: dict[str, Callable[[Any, Frame], Iterator[Answer]]] = {
            "send": self._send,
            "put_block": self._put_block,
            "adopt": self._adopt,
            "get": self._get,
            "get_many": self._get_many,
            "read_to": self._read_to,
            "commit": self._commit,
            "prepare": self._prepare,
            "rollback": self._rollback,
        }

    def answers(self, data: memoryview) -> Iterator[bytes]:
        """The frames that answer a request (S1)."""
        self._delivering = False
        try:
            frame = decode_frame(data)
            for header, bodies in self._dispatch(frame):
                yield encode_frame({**header, "state": self._state()}, bodies)
        except GeneratorExit:
            raise
        except Exception as error:  # noqa: BLE001 it is told to the client (S1)
            if self._delivering or not isinstance(error, QuireError):
                self.close()  # what was taken did not arrive, or nobody knows what happened
            yield encode_frame({**describe_error(error), "state": self._state()})

    def close(self) -> None:
        """Roll back what is open (S3)."""
        transaction, self._transaction = self._transaction, None
        self._ids = {}
        if transaction is not None and transaction.state != "prepared":
            with contextlib.suppress(QuireError):
                transaction.rollback()

    def _dispatch(self, frame: Frame) -> Iterator[Answer]:
        if self._is_closing():
            raise StoreClosed("the owner has closed the store: open it again")
        op = field(frame.header, "op", str)
        if op in DECISIONS:
            return self._undecided.answer(op, frame.header)
        operation = self._operations.get(op)
        if operation is None:
            return answer_call(self._store, op, frame.header)
        return operation(self._transaction_of(frame.header), frame)

    def _state(self) -> str | None:
        """The transaction's state for the client; None when there is none any more."""
        if self._transaction is None:
            return None
        state: str = self._transaction.state
        if state != "open":
            self.close()
        return state

    def _transaction_of(self, header: dict[str, Any]) -> Any:
        """The transaction that a request names, begun if it is a new one (S2)."""
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
            timeout=header.get("timeout"),
            large=header.get("large") is True,
            owner=self._client if header.get("owner") is None else header["owner"],
        )
        self._number = number
        self._transaction = transaction
        return transaction

    def _take_puts(self, transaction: Any, frame: Frame) -> None:
        queues = field(frame.header, "puts", list)
        if len(queues) != len(frame.bodies):
            raise RemoteError(f"{len(queues)} queues are named for {len(frame.bodies)} blocks")
        try:
            for queue, body in zip(queues, frame.bodies, strict=True):
                self._ids.setdefault(queue, transaction.put_block(queue, body))
        except BaseException:
            self.close()  # some of them may be in: the client cannot tell which
            raise

    def _send(self, transaction: Any, frame: Frame) -> Iterator[Answer]:
        self._take_puts(transaction, frame)
        yield {}, ()

    def _put_block(self, transaction: Any, frame: Frame) -> Iterator[Answer]:
        if len(frame.bodies) != 1:
            raise RemoteError("put_block takes one block")
        queue = field(frame.header, "queue", str)
        ids = transaction.put_block(queue, frame.bodies[0])
        self._ids.setdefault(queue, ids)
        yield {"count": len(ids)}, ()

    def _adopt(self, transaction: Any, frame: Frame) -> Iterator[Answer]:
        queue = field(frame.header, "queue", str)
        ids = transaction.adopt(queue, frame.header.get("ltds_id"))
        self._ids.setdefault(queue, ids)
        yield {"count": len(ids)}, ()

    def _get(self, transaction: Any, frame: Frame) -> Iterator[Answer]:
        source = frame.header.get("source")
        message = self._wait(
            _seconds(frame, 0), lambda seconds: transaction.get(source, timeout=seconds)
        )
        self._delivering = True
        yield message_answer(message)

    def _get_many(self, transaction: Any, frame: Frame) -> Iterator[Answer]:
        source, count = frame.header.get("source"), frame.header.get("max_messages")
        messages = self._wait(
            _seconds(frame, 0),
            lambda seconds: transaction.get_many(source, count, timeout=seconds),
        )
        self._delivering = True
        yield from messages_answers(messages)

    def _read_to(self, transaction: Any, frame: Frame) -> Iterator[Answer]:
        transaction.read_to(frame.header.get("source"), frame.header.get("position"))
        yield {}, ()

    def _take_rest(self, transaction: Any, frame: Frame) -> None:
        """What comes with the request that ends a transaction."""
        self._take_puts(transaction, frame)
        for entry in field(frame.header, "records", list):
            if not isinstance(entry, list) or len(entry) != 2:
                raise RemoteError("a ledger entry is a key and a version")
            transaction.record(entry[0], entry[1])

    def _prepare(self, transaction: Any, frame: Frame) -> Iterator[Answer]:
        seconds = _seconds(frame, self._store.commit_timeout)
        self._take_rest(transaction, frame)
        xid = field(frame.header, "xid", str)
        self._when_there_is_room(seconds, lambda seconds: transaction.prepare(xid, timeout=seconds))
        number = self._undecided.add(xid, transaction, self._ids)
        self._transaction, self._ids = None, {}
        yield {"number": number}, ()

    def _commit(self, transaction: Any, frame: Frame) -> Iterator[Answer]:
        seconds = _seconds(frame, self._store.commit_timeout)
        self._take_rest(transaction, frame)
        self._when_there_is_room(seconds, lambda seconds: transaction.commit(timeout=seconds))
        first_ids = {queue: int(ids[0]) for queue, ids in self._ids.items()}
        self._transaction, self._ids = None, {}
        yield {"first_ids": first_ids}, ()

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

    def _rollback(self, transaction: Any, frame: Frame) -> Iterator[Answer]:
        self._transaction, self._ids = None, {}
        transaction.rollback()
        yield {}, ()

    def _wait(self, timeout: float, get: Callable[[float], Any]) -> Any:
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
    if timeout is None:
        return default
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout < 0:
        raise InvalidArgument(f"timeout is {timeout!r}: give seconds, 0 or more")
    return timeout
