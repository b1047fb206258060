"""Calls for one thing, made of those for many: alike whether the store is owned or joined."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

import pyarrow as pa

from quire.arguments import (
    NewQueue,
    QueueKind,
    Start,
    check_key,
    check_name,
    check_queue,
    check_source,
)
from quire.documented import documented_by
from quire.limits import DEFAULT_CAPACITY_BYTES, DEFAULT_LEASE_SECONDS
from quire.properties import DEFAULT, Properties, QueueOptions, check_properties

from .store import Store
from .transaction import Transaction

if TYPE_CHECKING:
    from quire.info import Lease, QueueInfo, SubscriptionInfo


@documented_by(Store)
class SingleCalls:
    """For a class that has the other methods of `Store`."""

    def create_queue(
        self: Store,
        name: str,
        kind: QueueKind = "topic",
        capacity: int = DEFAULT_CAPACITY_BYTES,
        max_messages: int | None = None,
        data_file: int | None = None,
        **options: Unpack[QueueOptions],
    ) -> QueueInfo:
        check_queue(name, kind, capacity, max_messages)
        properties = Properties(**check_properties(options)) if options else DEFAULT
        queue = NewQueue(name, kind, capacity, max_messages, data_file, properties)
        return self.create_queues([queue.to_dict()])[0]

    def queue(self: Store, name: str) -> QueueInfo:
        return self.queues([check_name(name, "queue")])[0]

    def subscribe(
        self: Store, queue: str, subscription: str, start: Start = "earliest"
    ) -> SubscriptionInfo:
        return self.subscribe_many(subscription, {check_name(queue, "queue"): start})[0]

    def ledger(self: Store, key: str) -> int | None:
        return self.ledger_many([check_key(key)]).get(key)

    def lease(
        self: Store,
        queue: str,
        start: int,
        end: int,
        seconds: float = DEFAULT_LEASE_SECONDS,
        gaps: bool = False,
    ) -> Lease:
        return self.lease_many([(queue, start, end)], seconds, gaps)[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self: Store,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@documented_by(Transaction)
class TransactionCalls:
    """For a class that has the other methods of `Transaction`."""

    __slots__ = ()

    def get_arrow(
        self: Transaction, source: str, max_messages: int = 65536, timeout: float = 0.0
    ) -> pa.RecordBatch:
        return self.get_many(source, max_messages, timeout).to_arrow()

    def read_to(self: Transaction, source: str, position: int) -> None:
        self.read_to_many({check_source(source): position})

    def __enter__(self) -> Self:
        return self
