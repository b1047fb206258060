"""A transaction in a store that another process owns.

Puts wait at the client and travel with the commit, which is one round trip; when much waits, it is
sent ahead into the transaction at the owner. So, unlike in an embedded store, an error of a put
that only the owner can see (QueueFull) may come with a later put or with the commit, and then ends
the transaction: nothing of it took effect. Nor does the owner know a transaction that has only put
a little: it is not in `transactions` before its first get or its commit.

| state | how |
|---|---|
| open | from the beginning |
| prepared | `prepare` returned: it belongs to the owner, the connection's end does nothing to it |
| committed | `commit` returned |
| rolled back | by `rollback`, a failed commit, its timeout, `abort`, or loss of the connection |
| in doubt | the owner died during the commit (OutcomeUnknown), or its disk failed (StoreFailed) |

A commit or prepare that raised for a reason that can go away (DiskFull) leaves it open.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from quire.arguments import check_xid
from quire.engine.message_id import MessageId, MessageIds
from quire.errors import (
    InvalidArgument,
    OutcomeUnknown,
    QuireError,
    TransactionAborted,
    TransactionClosed,
    TransactionTimeout,
)
from quire.limits import MAX_LEDGER_KEY_BYTES
from quire.message import Message, Messages

from .channel import Channel, StreamEnded
from .deciding import COMMIT, ROLLBACK, decide, outcome_unknown
from .delivery import read_message, read_messages
from .protocol import Bytes, Frame, field
from .put_buffer import PutBuffer

if TYPE_CHECKING:
    from .client import RemoteStore

_FROM_OUTSIDE: Final = TransactionTimeout, TransactionAborted

A = TypeVar("A")
R = TypeVar("R")


class RemoteTransaction:
    """The same methods as `quire.engine.Transaction`; see there. Made by `RemoteStore`."""

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
        self.state = "open"
        self._store = store
        self._connection = store.connection
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._large = large
        self._owner = owner
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._name: dict[str, Any] = {}
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
        if self.state == "prepared":
            return
        if kind is not None:
            self.rollback()
        elif self.state == "open" or self._cause is not None:
            try:
                self.commit()
            except BaseException:
                self.rollback()
                raise

    def __repr__(self) -> str:
        return f"<RemoteTransaction {self.id}, {self.state}>"

    def put(self, queue: str, payload: Bytes, **fields: Any) -> MessageId:
        """Put one message."""
        with self._lock:
            self._check_open()
            self._store.check_queue(queue)
            message_id = self._puts.put(queue, payload, fields)
            self._send_if_full()
            return message_id

    def put_many(self, queue: str, payloads: Any) -> MessageIds:
        """Put a list of bytes, an Arrow array, or a batch with header columns."""
        with self._lock:
            self._check_open()
            self._store.check_queue(queue)
            ids = self._puts.put_many(queue, payloads)
            self._send_if_full()
            return ids

    def put_block(self, queue: str, data: Bytes) -> MessageIds:
        """Put the messages of an encoded block."""
        with self._lock:
            self._check_open()
            answer = self._request("put_block", {"queue": queue}, [data])
            return self._puts.add_taken(queue, field(answer[-1].header, "count", int))

    def adopt(self, queue: str, ltds_id: int) -> MessageIds:
        """Put the messages of a file that was written into the store's `ltds` directory."""
        with self._lock:
            self._check_open()
            answer = self._request("adopt", {"queue": queue, "ltds_id": ltds_id})
            return self._puts.add_taken(queue, field(answer[-1].header, "count", int))

    def get(self, source: str, timeout: float = 0.0) -> Message | None:
        """Take the next message; None if none comes within `timeout` seconds."""
        arguments = {"source": source, "wait": check_seconds(timeout)}
        with self._lock:
            self._check_open()
            answer = self._request("get", arguments, may_block=timeout > 0)
            return self._delivered(read_message, answer[-1])

    def get_many(self, source: str, max_messages: int = 1000, timeout: float = 0.0) -> Messages:
        """Take up to `max_messages`; waits up to `timeout` seconds for the first."""
        arguments = {
            "source": source,
            "max_messages": max_messages,
            "wait": check_seconds(timeout),
        }
        with self._lock:
            self._check_open()
            answer = self._request("get_many", arguments, may_block=timeout > 0)
            return self._delivered(read_messages, answer)

    def get_arrow(
        self, source: str, max_messages: int = 65536, timeout: float = 0.0
    ) -> pa.RecordBatch:
        """The same as one batch, which has no rows if nothing came."""
        return self.get_many(source, max_messages, timeout).to_arrow()

    def read_to(self, source: str, position: int) -> None:
        """Mark everything below the position as read at the commit."""
        with self._lock:
            self._check_open()
            self._request("read_to", {"source": source, "position": position})

    def record(self, key: str, version: int) -> None:
        """Enter a version into the ledger; the commit raises AlreadyCommitted if it is there."""
        if not isinstance(key, str) or not 0 < len(key.encode()) <= MAX_LEDGER_KEY_BYTES:
            raise InvalidArgument(
                f"ledger key {key!r}: give a string of 1 to {MAX_LEDGER_KEY_BYTES} bytes"
            )
        if not isinstance(version, int) or not 0 <= version < 1 << 63:
            raise InvalidArgument(f"ledger version {version!r}: give an int from 0 to 2**63 - 1")
        with self._lock:
            self._check_open()
            self._records.append((key, version))

    def prepare(self, xid: str, timeout: float | None = None) -> None:
        """Make everything durable and leave it undecided, in one round trip.

        `timeout`: as for `commit`. Raises OutcomeUnknown if the owner dies before it answers:
        `recover` of the store, opened again, lists the xid or does not.
        """
        check_xid(xid)
        wait = None if timeout is None else check_seconds(timeout)
        with self._lock:
            self._check_open()
            answer = self._ended_by(
                {"op": "prepare", "xid": xid, "wait": wait},
                lambda error: outcome_unknown("prepare", xid, error),
                may_block=bool(wait),
            )
            self._prepared = xid, field(answer[-1].header, "number", int)
            self.state = "prepared"
            self._store.prepared[self._prepared[1]] = self

    def decided(self, result: dict[str, Any]) -> None:
        """What the owner tells of the transaction once it is decided."""
        self._puts.set_ids(field(result, "first_ids", dict))
        self.state = field(result, "state", str)

    def _decide(self, op: str) -> bool:
        """Whether this has committed it, and not somebody else before."""
        xid, number = self._prepared
        result = decide(self._connection, op, xid, number)
        self.decided(result)
        return result.get("committed") is True

    def commit(self, timeout: float | None = None) -> None:
        """Make everything durable and visible, in one round trip.

        `timeout`: seconds to wait when a queue has no room for the commit's record; by default the
        owner's `commit_timeout`. Raises OutcomeUnknown if the owner dies before it answers.
        """
        wait = None if timeout is None else check_seconds(timeout)
        with self._lock:
            if self.state == "prepared":
                if not self._decide(COMMIT):
                    self._check_open()  # it is not
                return
            self._check_open()
            if self._channel is None and self._puts.is_empty and not self._records:
                self.state = "committed"
                return
            answer = self._ended_by(
                {"op": "commit", "wait": wait}, _commit_unknown, may_block=bool(wait)
            )
            self.state = "committed"
            self._puts.set_ids(field(answer[-1].header, "first_ids", dict))

    def rollback(self) -> None:
        """Undo everything; what was got is available again. Nothing happens if it has ended."""
        with self._lock:
            if self.state == "prepared":
                self._decide(ROLLBACK)
            elif self.state == "open":
                self._roll_back()

    def _ended_by(
        self,
        request: dict[str, Any],
        unknown: Callable[[StreamEnded], QuireError],
        *,
        may_block: bool = False,
    ) -> list[Frame]:
        """Send the request that ends the transaction here, unless it is refused."""
        self.state = "in doubt"  # unless the owner answers
        try:
            return self._last_request(request, may_block)
        except StreamEnded as error:
            raise self._lost_at_the_end(error, unknown) from None
        except QuireError as error:
            self._take_state(error)
            raise
        finally:
            if self.state != "open":
                self._leave()

    def _last_request(self, request: dict[str, Any], may_block: bool) -> list[Frame]:
        channel = self._enter()
        queues: list[str] = []
        bodies: list[Bytes] = []
        for more in self._puts.requests():  # one, or a little more than one
            queues += more[0]
            bodies += more[1]
        request = {**self._name, **request, "puts": queues, "records": self._records}
        return channel.request(request, bodies, may_block=may_block)

    def _request(
        self,
        op: str,
        arguments: dict[str, Any],
        bodies: Sequence[Bytes] = (),
        *,
        may_block: bool = False,
    ) -> list[Frame]:
        """Ask for something in the transaction at the owner, after the puts that came before it."""
        if not self._puts.is_empty and op in ("put_block", "adopt"):
            self._send_ahead()
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
        for queues, bodies in self._puts.requests():
            self._request_puts(queues, bodies)

    def _request_puts(self, queues: list[str], bodies: list[Bytes]) -> None:
        try:
            self._request("send", {"puts": queues}, bodies)
        except QuireError:
            if self.state == "open":
                self._roll_back()
            raise

    def _enter(self) -> Channel:
        """The channel that carries the transaction, from the first request to its end."""
        if self._channel is None:
            self._channel = self._connection.borrow()
            self._channel.transaction_state = "open"
            timeout = self._timeout
            if self._deadline is not None:
                timeout = max(0.001, self._deadline - time.monotonic())
            self._name = {
                "txn": self._channel.next_transaction(),
                "epoch": self._connection.epoch,
                "timeout": timeout,
                "large": self._large,
                "owner": self._owner,
            }
        return self._channel

    def _leave(self) -> None:
        channel, self._channel = self._channel, None
        self._puts.clear()
        if channel is not None:
            if channel.transaction_state == "open":
                channel.close()  # which rolls it back at the owner
            self._connection.give_back(channel)

    def _end(self, state: str = "rolled back") -> None:
        self.state = state
        self._leave()

    def _take_state(self, error: QuireError) -> None:
        """The transaction's state after an error: what the owner says, if it knows it."""
        self._cause = error if isinstance(error, _FROM_OUTSIDE) else None
        state = None if self._channel is None else self._channel.transaction_state
        if state == "open":
            self.state = state
        else:
            self._end(state or "rolled back")

    def _lost_at_the_end(
        self, error: StreamEnded, unknown: Callable[[StreamEnded], QuireError]
    ) -> QuireError:
        lost = self._connection.lose(str(error))
        if error.sent:
            return unknown(error)
        self.state = "rolled back"
        return lost

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
        if self.state == "open":
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
        if self.state == "prepared":
            raise TransactionClosed(
                f"the transaction is prepared as {self._prepared[0]!r}: only commit() and "
                "rollback() can follow"
            )
        if self.state != "open":
            raise TransactionClosed(
                f"the transaction is {self.state}: begin a new one with store.transaction()"
            )


def _commit_unknown(error: StreamEnded) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the owner of the store died during a commit ({error}): open the store again and"
        " look whether it took effect"
    )


def check_seconds(value: float) -> float:
    """The value itself, or InvalidArgument if it is no time to wait."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InvalidArgument(f"timeout is {value!r}: give seconds, 0 or more")
    return value
