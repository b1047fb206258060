"""A store that another process owns: the methods of `quire.engine.Store`, over a connection.

Thread-safe. Each open transaction that has reached the owner has a stream of its own, so that one
which waits for a message holds up no other.
"""

from __future__ import annotations

import _thread
import itertools
import sys
import warnings
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final

from quire.engine.info import (
    Lease,
    PreparedInfo,
    QueueInfo,
    QueueRecord,
    Report,
    SubscriptionInfo,
    TransactionInfo,
)
from quire.engine.names import check_xid
from quire.errors import InvalidArgument, QueueNotFound
from quire.message import Messages

from .connection import Connection
from .deciding import COMMIT, ROLLBACK, decide
from .delivery import read_messages
from .protocol import Bytes, Frame
from .remote_transaction import RemoteTransaction, check_seconds
from .results import (
    read_lease,
    read_prepared,
    read_queue,
    read_records,
    read_report,
    read_subscription,
    read_transaction,
)

_LONG: Final = frozenset({"browse", "checkpoint", "verify"})  # worth being interruptible


class RemoteStore:
    """A joined store. `close` rolls back what this object has open, and leaves the owner alone."""

    role: Final = "joined"

    def __init__(self, url: str, *, epoch: str | None = None) -> None:
        """Connect to the owner that listens at `url`. Raises ConnectionLost if nobody does."""
        self.connection: Final = Connection(url, epoch=epoch)
        self.url: Final = url
        self.path: Final = self.connection.path
        self.store_id: Final = self.connection.store_id
        self.owner_process_id: Final = self.connection.owner_process_id
        self._numbers = itertools.count(1)
        self._known_queues: set[str] = set()
        # Those of this object that are prepared, by the number that the owner gave them.
        self.prepared: Final[weakref.WeakValueDictionary[int, RemoteTransaction]] = (
            weakref.WeakValueDictionary()
        )

    def __del__(self) -> None:
        connection = getattr(self, "connection", None)
        if connection is None or not connection.usable or sys.is_finalizing():
            return
        # In a thread of its own, and one that needs no lock to start: this one may hold any.
        _thread.start_new_thread(connection.close, ())
        warnings.warn(
            f"the store {self.url} was dropped while it was joined: the connection is ended; use "
            "it in a with block, or close it",
            ResourceWarning,
            source=self,
            stacklevel=2,
        )

    def __enter__(self) -> RemoteStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteStore {self.path}, owned by process {self.owner_process_id}>"

    # Queues and subscriptions

    def create_queue(
        self,
        name: str,
        kind: str = "topic",
        capacity: int | None = None,
        max_messages: int | None = None,
        data_file: int | None = None,
    ) -> QueueInfo:
        """See `quire.engine.Store`, as for all methods here."""
        arguments: dict[str, Any] = {"name": name, "kind": kind, "max_messages": max_messages}
        if capacity is not None:
            arguments["capacity"] = capacity
        if data_file is not None:
            arguments["data_file"] = data_file
        return read_queue(self._call("create_queue", **arguments))

    def queues(self) -> list[QueueInfo]:
        return [read_queue(value) for value in self._call("queues")]

    def queue(self, name: str) -> QueueInfo:
        return read_queue(self._call("queue", name=name))

    def drop_queue(self, name: str) -> None:
        self._known_queues.discard(name)
        self._call("drop_queue", name=name)

    def records(self, name: str, start: int = 0, limit: int = 10_000) -> list[QueueRecord]:
        return read_records(self._call("records", name=name, start=start, limit=limit))

    def subscribe(
        self, queue: str, subscription: str, start: str | int = "earliest"
    ) -> SubscriptionInfo:
        return read_subscription(
            self._call("subscribe", queue=queue, subscription=subscription, start=start)
        )

    def unsubscribe(self, queue: str, subscription: str) -> None:
        self._call("unsubscribe", queue=queue, subscription=subscription)

    def subscriptions(self, queue: str) -> list[SubscriptionInfo]:
        return [read_subscription(value) for value in self._call("subscriptions", queue=queue)]

    # Messages

    def transaction(
        self, timeout: float | None = None, large: bool = False, owner: str | None = None
    ) -> RemoteTransaction:
        """See `quire.engine.Store`. `owner`: by default this process, by its number."""
        if timeout is not None and check_seconds(timeout) == 0:
            raise InvalidArgument("timeout is 0: give seconds above 0, or None")
        if owner is not None and not isinstance(owner, str):
            raise InvalidArgument(f"owner {owner!r}: give a name, or None")
        self.connection.check()
        return RemoteTransaction(
            self, next(self._numbers), timeout=timeout, large=bool(large), owner=owner
        )

    def transactions(self) -> list[TransactionInfo]:
        """Those that have reached the owner, whosever they are; the ids are the owner's."""
        return [read_transaction(value) for value in self._call("transactions")]

    def transaction_info(self, transaction_id: int) -> TransactionInfo:
        return read_transaction(self._call("transaction_info", transaction_id=transaction_id))

    def abort(self, transaction_id: int) -> None:
        self._call("abort", transaction_id=transaction_id)

    def recover(self) -> list[PreparedInfo]:
        return [read_prepared(value) for value in self._call("recover")]

    def commit_prepared(self, xid: str) -> None:
        """See `quire.engine.Store`. Raises OutcomeUnknown if the owner dies before it answers."""
        self._decide(COMMIT, xid)

    def rollback_prepared(self, xid: str) -> None:
        self._decide(ROLLBACK, xid)

    def _decide(self, op: str, xid: str) -> None:
        result = decide(self.connection, op, check_xid(xid))
        transaction = self.prepared.get(result.get("number") or 0)
        if transaction is not None:
            transaction.decided(result)

    def put(self, queue: str, payload: Bytes, **fields: Any) -> int:
        if isinstance(queue, str):  # else the transaction refuses it
            self._known_queues.add(queue)  # the commit, which follows at once, finds out
        try:
            with self.transaction() as txn:
                message_id = txn.put(queue, payload, **fields)
        except QueueNotFound:
            self.forget_queues()
            raise
        return int(message_id)

    def browse(self, source: str, start: int | None = None, max_messages: int = 1000) -> Messages:
        return read_messages(
            self._frames("browse", {"source": source, "start": start, "max_messages": max_messages})
        )

    def check_queue(self, name: str) -> None:
        """Raise QueueNotFound unless the queue is there, or was when it was asked for last."""
        if not isinstance(name, str):
            raise InvalidArgument(f"a queue's name is a str, not {type(name).__name__}")
        if name not in self._known_queues:
            self.queue(name)
            self._known_queues.add(name)

    def forget_queues(self) -> None:
        """A commit met a queue that is gone."""
        self._known_queues.clear()

    # Positions, leases, the ledger

    def ledger(self, key: str) -> int | None:
        value: int | None = self._call("ledger", key=key)
        return value

    def positions(self, name: str) -> tuple[int, int]:
        first, end = self._call("positions", name=name)
        return first, end

    def lease(self, queue: str, start: int, end: int, seconds: float = 600.0) -> Lease:
        return read_lease(self._call("lease", queue=queue, start=start, end=end, seconds=seconds))

    def release(self, lease_id: int) -> None:
        self._call("release", lease_id=lease_id)

    def renew(self, lease_id: int, seconds: float = 600.0) -> None:
        self._call("renew", lease_id=lease_id, seconds=seconds)

    # The store as a whole

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self._call("status")
        return status

    def checkpoint(self) -> None:
        self._call("checkpoint")

    def verify(self) -> Report:
        return read_report(self._call("verify"))

    def close(self) -> None:
        """End the connection; open transactions are rolled back. Twice is once."""
        self.connection.close()

    def _call(self, op: str, **arguments: Any) -> Any:
        return self._frames(op, arguments)[-1].header.get("result")

    def _frames(self, op: str, arguments: Mapping[str, Any]) -> list[Frame]:
        try:
            with self.connection.channel() as channel:
                return channel.request(
                    {"op": op, "arguments": dict(arguments)}, may_block=op in _LONG
                )
        except QueueNotFound:
            self.forget_queues()
            raise
