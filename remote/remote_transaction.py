"""A transaction in a store that another process owns.

Puts of every kind (messages, blocks, files to adopt) wait at the client and travel with the commit,
which is one round trip; when much waits, it is sent ahead into the transaction at the owner. So,
unlike in an embedded store, an error of a put that only the owner can see (QueueFull, PositionLost)
may come with a later put or with the commit, and then ends the transaction: nothing of it took
effect. Nor does the owner know a transaction that has only put
a little: it is not in `transactions` before its first get or its commit.

| state | how |
|---|---|
| open | from the beginning |
| prepared | `prepare` returned: it belongs to the owner, the connection's end does nothing to it |
| committed | `commit` returned |
| rolled back | by `rollback`, a failed commit, its timeout, `abort`, or loss of the connection |
| in doubt | the owner was lost during the commit (OutcomeUnknown), or its disk failed |

A commit or prepare that raised for a reason that can go away (DiskFull) leaves it open.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from quire.arguments import (
    Bytes,
    check_ends,
    check_key,
    check_max_messages,
    check_source,
    check_timeout,
    check_version,
    check_xid,
)
from quire.documented import documented_by
from quire.errors import (
    QuireError,
    TransactionAborted,
    TransactionClosed,
    TransactionTimeout,
)
from quire.info import TransactionState
from quire.message import Message, Messages
from quire.message_id import MessageId, MessageIds
from quire.transaction import Payloads, Transaction

from .channel import Channel, StreamEnded
from .deciding import LISTED, Decided, decide
from .delivery import read_message, read_messages
from .protocol import Decision, Frame, Header, field
from .put_buffer import PutBuffer, PutRequest

if TYPE_CHECKING:
    from .client import RemoteStore

_FROM_OUTSIDE: Final = TransactionTimeout, TransactionAborted

A = TypeVar("A")
R = TypeVar("R")


@documented_by(Transaction)
class RemoteTransaction:
    """A `quire.Transaction`. Made by `RemoteStore`."""

    def __init__(
        self,
        store: RemoteStore,
        number: int,
        *,
        timeout: float | None,
        large: bool,
        owner: str | None = None,
    ) -> None:
        self.id: Final = number
        self._state = TransactionState.OPEN
        self._store = store
        self._connection = store.connection
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._large = large
        self._owner = owner
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._name: Header = {}
        self._puts = PutBuffer()
        self._records: list[tuple[str, int]] = []
        self._cause: QuireError | None = None  # why it was rolled back, if not by its user
        self._prepared: tuple[str, int] = "", 0  # its xid, and its number at the owner

    def __enter__(self) -> RemoteTransaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._state is TransactionState.PREPARED:
            return
        if kind is not None:
            self.rollback()
        elif self._state is TransactionState.OPEN or self._cause is not None:
            try:
                self.commit()
            except BaseException:
                self.rollback()
                raise

    def __repr__(self) -> str:
        return f"<RemoteTransaction {self.id}, {self.state}>"

    @property
    def state(self) -> str:
        return self._state.value

    def put(self, queue: str, payload: Bytes, **fields: object) -> MessageId:
        with self._lock:
            self._check_open()
            self._store.check_queue(queue)
            message_id = self._puts.put(queue, payload, fields)
            self._send_if_full()
            return message_id

    def put_many(self, queue: str, payloads: Payloads) -> MessageIds:
        with self._lock:
            self._check_open()
            self._store.check_queue(queue)
            ids = self._puts.put_many(queue, payloads)
            self._send_if_full()
            return ids

    def put_block(self, queue: str, data: Bytes) -> MessageIds:
        with self._lock:
            self._check_open()
            self._store.check_queue(queue)
            ids = self._puts.put_block(queue, data)
            self._send_if_full()
            return ids

    def adopt(self, queue: str, ltds_id: int) -> MessageIds:
        with self._lock:
            self._check_open()
            self._store.check_queue(queue)
            ids = self._puts.adopt(queue, ltds_id)
            self._send_if_full()
            return ids

    def get(self, source: str, timeout: float = 0.0) -> Message | None:
        arguments = {"source": check_source(source), "wait": check_timeout(timeout)}
        with self._lock:
            self._check_open()
            answer = self._request("get", arguments, may_block=timeout > 0)
            return self._delivered(read_message, answer[-1])

    def get_many(self, source: str, max_messages: int = 1000, timeout: float = 0.0) -> Messages:
        arguments = {
            "source": check_source(source),
            "max_messages": check_max_messages(max_messages),
            "wait": check_timeout(timeout),
        }
        with self._lock:
            self._check_open()
            answer = self._request("get_many", arguments, may_block=timeout > 0)
            return self._delivered(read_messages, answer)

    def get_arrow(
        self, source: str, max_messages: int = 65536, timeout: float = 0.0
    ) -> pa.RecordBatch:
        return self.get_many(source, max_messages, timeout).to_arrow()

    def read_to(self, source: str, position: int) -> None:
        self.read_to_many({check_source(source): position})

    def read_to_many(self, positions: Mapping[str, int]) -> None:
        arguments = {"positions": check_ends(positions)}
        with self._lock:
            self._check_open()
            self._request("read_to", arguments)

    def record(self, key: str, version: int) -> None:
        entry = check_key(key), check_version(version)
        with self._lock:
            self._check_open()
            self._records.append(entry)

    def prepare(self, xid: str, timeout: float | None = None) -> None:
        check_xid(xid)
        wait = None if timeout is None else check_timeout(timeout)
        with self._lock:
            self._check_open()
            answer = self._ended_by(
                {"op": "prepare", "xid": xid, "wait": wait},
                f"prepare of {xid!r}",
                LISTED,
                may_block=bool(wait),
            )
            self._prepared = xid, field(answer[-1].header, "number", int)
            self._state = TransactionState.PREPARED
            self._store.prepared[self._prepared[1]] = self

    def decided(self, decided: Decided) -> None:
        """What the owner tells of the transaction once it is decided."""
        self._state = decided.state or TransactionState.ROLLED_BACK
        self._puts.settle(decided.placed)

    def _decide(self, decision: Decision) -> bool:
        """Whether this has committed it, and not somebody else before."""
        xid, number = self._prepared
        decided = decide(self._connection, decision, xid, number)
        self.decided(decided)
        return decided.committed

    def commit(self, timeout: float | None = None) -> None:
        wait = None if timeout is None else check_timeout(timeout)
        with self._lock:
            if self._state is TransactionState.PREPARED:
                if not self._decide(Decision.COMMIT):
                    self._check_open()  # it is not
                return
            self._check_open()
            if self._channel is None and self._puts.is_empty and not self._records:
                self._state = TransactionState.COMMITTED
                return
            answer = self._ended_by(
                {"op": "commit", "wait": wait},
                "a commit",
                "whether it took effect",
                may_block=bool(wait),
            )
            self._state = TransactionState.COMMITTED
            self._puts.settle(field(answer[-1].header, "placed", dict))

    def rollback(self) -> None:
        with self._lock:
            if self._state is TransactionState.PREPARED:
                self._decide(Decision.ROLLBACK)
            elif self._state is TransactionState.OPEN:
                self._roll_back()

    def _ended_by(
        self, request: Header, doing: str, look: str, *, may_block: bool = False
    ) -> list[Frame]:
        """Send the request that ends the transaction here, unless it is refused.

        `doing` and `look` are for OutcomeUnknown: what it is, and how its outcome is found out.
        """
        self._state = TransactionState.IN_DOUBT  # unless the owner answers
        try:
            return self._last_request(request, may_block)
        except StreamEnded as error:
            if not error.sent:
                self._state = TransactionState.ROLLED_BACK
            raise self._connection.lose_request(error, doing, look) from None
        except QuireError as error:
            self._take_state(error)
            raise
        finally:
            if self._state is not TransactionState.OPEN:
                self._leave()

    def _last_request(self, request: Header, may_block: bool) -> list[Frame]:
        channel = self._enter()
        rest = PutRequest([], [])
        for more in self._puts.requests():  # one, or a little more than one
            rest.puts.extend(more.puts)
            rest.bodies.extend(more.bodies)
        request = {**self._name, **request, "puts": rest.puts, "records": self._records}
        return channel.request(request, rest.bodies, may_block=may_block)

    def _request(
        self,
        op: str,
        arguments: Header,
        bodies: Sequence[Bytes] = (),
        *,
        may_block: bool = False,
    ) -> list[Frame]:
        """Ask for something in the transaction at the owner."""
        try:
            channel = self._enter()
            answer = channel.request(
                {**self._name, "op": op, **arguments}, bodies, may_block=may_block
            )
        except StreamEnded as error:
            self._end()
            raise self._connection.lose(str(error)) from None
        except QuireError as error:
            self._take_state(error)
            raise
        except BaseException:
            self._end()
            raise
        return answer

    def _delivered(self, read: Callable[[A], R], answer: A) -> R:
        """What an answer brings. If it cannot be read, no commit may count it as delivered."""
        try:
            return read(answer)
        except BaseException:
            self._roll_back()
            raise

    def _send_if_full(self) -> None:
        if self._puts.is_full:
            self._send_ahead()

    def _send_ahead(self) -> None:
        for request in self._puts.requests():
            try:
                self._request("send", {"puts": request.puts}, request.bodies)
            except QuireError:
                if self._state is TransactionState.OPEN:
                    self._roll_back()
                raise

    def _enter(self) -> Channel:
        """The channel that carries the transaction, from the first request to its end."""
        if self._channel is None:
            self._channel = self._connection.borrow()
            self._channel.transaction_state = TransactionState.OPEN
            self._name = {
                "txn": self._channel.next_transaction(),
                "epoch": self._connection.epoch,
                "large": self._large,
                "owner": self._owner,
            }
            if self._deadline is not None:
                left = max(0.001, self._deadline - time.monotonic())
                self._name = {**self._name, "timeout": None if left == math.inf else left}
        return self._channel

    def _leave(self) -> None:
        channel, self._channel = self._channel, None
        self._puts.clear()
        if channel is not None:
            if channel.transaction_state is TransactionState.OPEN:
                channel.close()  # which rolls it back at the owner
            self._connection.give_back(channel)

    def _end(self, state: TransactionState = TransactionState.ROLLED_BACK) -> None:
        self._state = state
        self._leave()

    def _take_state(self, error: QuireError) -> None:
        """The transaction's state after an error: what the owner says, if it knows it."""
        self._cause = error if isinstance(error, _FROM_OUTSIDE) else None
        state = None if self._channel is None else self._channel.transaction_state
        if state is TransactionState.OPEN:
            self._state = state
        else:
            self._end(state or TransactionState.ROLLED_BACK)

    def _roll_back(self) -> None:
        """At the owner too. If it is gone, the transaction is rolled back all the same."""
        channel = self._channel
        try:
            if channel is not None and not self._connection.lost and not channel.broken:
                channel.request({**self._name, "op": "rollback"})
        except StreamEnded as error:
            self._connection.lose(str(error))
        finally:
            self._end()

    def _check_open(self) -> None:
        if self._state is TransactionState.OPEN:
            try:
                self._connection.check()
            except QuireError:
                self._end()
                raise
            if self._deadline is not None and time.monotonic() > self._deadline:
                self._cause = TransactionTimeout(
                    f"transaction {self.id} was open for too long and has been rolled back: begin"
                    " anew, or give transaction(timeout=...) more seconds"
                )
                self._roll_back()
        if self._cause is not None:
            raise type(self._cause)(str(self._cause))
        if self._state is TransactionState.PREPARED:
            raise TransactionClosed(
                f"the transaction is prepared as {self._prepared[0]!r}: only commit() and "
                "rollback() can follow"
            )
        if self._state is not TransactionState.OPEN:
            raise TransactionClosed(
                f"the transaction is {self.state}: begin a new one with store.transaction()"
            )


if TYPE_CHECKING:
    _joined: type[Transaction] = RemoteTransaction
