"""Calls for one thing, made of those for many: alike whether the store is owned or joined."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, Unpack, overload

import pyarrow as pa

from quire.arguments import (
    Acknowledge,
    NewQueue,
    QueueKind,
    check_flag,
    check_key,
    check_name,
    check_queue,
    check_request_ids,
    check_source,
    check_switch,
    check_timeout,
    count_of,
)
from quire.block import with_payloads
from quire.documented import documented_by
from quire.errors import (
    AlreadyCommitted,
    InvalidArgument,
    OutcomeUnknown,
    QueueExists,
    QueueNotFound,
)
from quire.limits import DEFAULT_CAPACITY_BYTES, DEFAULT_LEASE_SECONDS
from quire.message import SETTABLE, Message, Messages
from quire.message_id import MessageId, PutId
from quire.moments import Duration, Moment, check_moment
from quire.payload_writer import PayloadWriter, Source, check_size, pieces_of
from quire.properties import DEFAULT, Properties, QueueOptions, check_properties
from quire.put_options import MessageOptions
from quire.row_schema import first_difference
from quire.starts import Start
from quire.streamed import StreamedMessage

from .consumer import Asked, Consumer
from .moving import Moving, move, put_again
from .redriving import Redrives, redrive
from .store import Store
from .transaction import Payloads, Transaction

if TYPE_CHECKING:
    from quire.info import Lease, QueueInfo, SubscriptionInfo


@documented_by(Store)
class SingleCalls:
    """For a class that has the other methods of `Store`."""

    def __repr__(self: Store) -> str:
        return f"<{type(self).__name__} {self.path}, {self.role}>"

    def create_queue(
        self: Store,
        name: str,
        kind: QueueKind = "topic",
        capacity: int = DEFAULT_CAPACITY_BYTES,
        max_messages: int | None = None,
        data_file: int | None = None,
        exist_ok: bool = False,
        **options: Unpack[QueueOptions],
    ) -> QueueInfo:
        check_queue(name, kind, capacity, max_messages)
        properties = Properties(**check_properties(options)) if options else DEFAULT
        queue = NewQueue(name, kind, capacity, max_messages, data_file, properties)
        if not check_flag("exist_ok", exist_ok):
            return self.create_queues([queue.to_dict()])[0]
        unknown = 0
        while True:
            try:
                return self.create_queues([queue.to_dict()])[0]
            except QueueExists:
                pass
            except OutcomeUnknown:
                unknown += 1
                if unknown > 1:
                    raise
            with suppress(QueueNotFound):  # it was dropped in between
                return _as_asked(self.queue(name), queue, list(options))

    def queue(self: Store, name: str) -> QueueInfo:
        return self.queues([check_name(name, "queue")])[0]

    def disable(self: Store, puts: bool = False, gets: bool = False) -> None:
        self.switch(**_switched(puts, gets, False))

    def enable(self: Store, puts: bool = False, gets: bool = False) -> None:
        self.switch(**_switched(puts, gets, True))

    def subscribe(
        self: Store,
        queue: str,
        subscription: str,
        start: Start = "earliest",
        exclusive: bool = False,
        durable: bool = True,
    ) -> SubscriptionInfo:
        starts = {check_name(queue, "queue"): start}
        return self.subscribe_many(subscription, starts, exclusive, durable)[0]

    def put_many(
        self: Store,
        queue: str,
        payloads: Payloads,
        *,
        timeout: float | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> list[int]:
        if request_ids is not None:
            return _put_once(self, queue, payloads, timeout, request_ids)
        with self.transaction() as txn:
            ids = txn.put_many(queue, payloads, timeout=timeout)
        if not ids:
            return []
        first, expires_by = int(ids[0]), ids[0].expires_by
        numbers = range(first, first + len(ids))
        if expires_by is None:
            return list(numbers)
        return [PutId.of(number, expires_by) for number in numbers]

    def put_stream(
        self: Store,
        queue: str,
        source: Source,
        *,
        size: int | None = None,
        timeout: Duration | None = None,
        durable: bool = True,
        **options: Unpack[MessageOptions],
    ) -> int:
        with self.transaction(durable=durable) as txn:
            message_id = txn.put_stream(queue, source, size=size, timeout=timeout, **options)
        return PutId.of(int(message_id), message_id.expires_by)

    def get(self: Store, source: str, timeout: float | None = 0.0) -> Message | None:
        with self.transaction(_lifetime(timeout)) as txn:
            message = txn.get(source, timeout)
            return message.whole() if isinstance(message, StreamedMessage) else message

    def get_many(
        self: Store, source: str, max_messages: int = 1000, timeout: float | None = 0.0
    ) -> Messages:
        with self.transaction(_lifetime(timeout)) as txn:
            return with_payloads(txn.get_many(source, max_messages, timeout))

    @overload
    def consume(
        self: Store,
        source: str,
        max_messages: Literal[1] = 1,
        timeout: float | None = None,
        ack: Acknowledge = "auto",
    ) -> Consumer[Message]: ...

    @overload
    def consume(
        self: Store,
        source: str,
        max_messages: int,
        timeout: float | None = None,
        ack: Acknowledge = "auto",
    ) -> Consumer[Any]: ...

    def consume(
        self: Store,
        source: str,
        max_messages: int = 1,
        timeout: float | None = None,
        ack: Acknowledge = "auto",
    ) -> Consumer[Any]:
        return Consumer(self, Asked.of(source, max_messages, timeout, ack))

    def cancel(self: Store, source: str, message_id: int) -> bool:
        with self.transaction() as txn:
            return txn.get_scheduled(source, message_id, to_change=True) is not None

    def reschedule(
        self: Rescheduling,
        queue: str,
        message_id: int,
        *,
        deliver_at: Moment | None = None,
        delay: Duration | None = None,
    ) -> int | None:
        with self.transaction() as txn:
            source = check_name(queue, "queue")
            message = txn.get_scheduled(source, message_id, to_change=True)
            if message is None:
                return None
            fields = {name: getattr(message, name) for name in SETTABLE}
            fields |= {"attributes": dict(message.attributes)}
            due = None if deliver_at is None else check_moment("deliver_at", deliver_at)
            fields |= {"deliver_at": due, "delay": delay}
            made = put_again(txn, queue, message, fields)
        return int(made)

    def redrive(
        self: Redrives,
        queue: str,
        where: Callable[[Message], bool] | None = None,
        max_messages: int | None = None,
        to: str | None = None,
    ) -> int:
        return redrive(self, queue, where, max_messages, to)

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


def _put_once(
    store: Store, queue: str, payloads: Payloads, timeout: float | None, request_ids: Sequence[str]
) -> list[int]:
    if isinstance(payloads, Iterator):
        payloads = list(payloads)
    request_ids = check_request_ids(request_ids, count_of(payloads))
    while True:
        with suppress(AlreadyCommitted):  # others put with some of them, which are known now
            with store.transaction() as txn:
                ids = txn.put_many(queue, payloads, timeout=timeout, request_ids=request_ids)
            return [PutId.of(int(one), one.expires_by) for one in ids]


def _switched(puts: bool, gets: bool, to: bool) -> dict[str, bool]:
    given = {"puts": check_switch("puts", puts), "gets": check_switch("gets", gets)}
    return {name: to for name, value in given.items() if value or not any(given.values())}


def _lifetime(timeout: float | None) -> float | None:
    """Of a transaction that waits so many seconds: that is not cut short by the store's option."""
    return None if timeout == 0.0 else math.inf


def _as_asked(found: QueueInfo, asked: NewQueue, options: list[str]) -> QueueInfo:
    """The queue that is there already, if it is what is asked for. Raises QueueExists.

    `options`: the properties that were asked for; others may have been altered since it was made.
    """
    there = {
        "kind": found.kind,
        "capacity": found.capacity_bytes,
        "max_messages": found.max_messages,
        "data_file": None if asked.data_file is None else found.data_file,
        **{name: getattr(found, name) for name in ("type", *options)},
    }
    wanted = {**asked._asdict(), **asked.properties._asdict()}
    differing = [
        f"{name} is {there[name]!r}, not {wanted[name]!r}"
        if name != "schema"
        else f"schema: {first_difference(there[name], wanted[name])}"
        for name in there
        if there[name] != wanted[name]
    ]
    if differing:
        raise QueueExists(
            f"queue {found.name!r} is there already, and not as asked for: {'; '.join(differing)}; "
            "ask for what is there, or use another name"
        )
    return found


class Streaming(Transaction, Moving, Protocol):
    """A transaction as those calls need it."""


class Rescheduling(Store, Protocol):
    """A store as `reschedule` needs it."""

    def transaction(
        self,
        timeout: float | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> Streaming: ...


@documented_by(Transaction)
class TransactionCalls:
    """For a class that has the other methods of `Transaction`."""

    __slots__ = ()

    def __repr__(self: Transaction) -> str:
        return f"<{type(self).__name__} {self.id}, {self.state}>"

    def get_arrow(
        self: Transaction, source: str, max_messages: int = 65536, timeout: float | None = 0.0
    ) -> pa.RecordBatch:
        return self.get_many(source, max_messages, timeout).to_arrow()

    def put_writer(
        self: Streaming,
        queue: str,
        *,
        size: int | None = None,
        timeout: Duration | None = None,
        **options: Unpack[MessageOptions],
    ) -> PayloadWriter:
        fields: dict[str, Any] = dict(options)
        if fields.pop("request_id", None) is not None:
            raise InvalidArgument(
                "a message that is put as a stream has no request_id: leave it out"
            )
        length = check_size(size)
        wait = None if timeout is None else check_timeout(timeout)
        sink = self.begin_stream(check_name(queue, "queue"), fields, length, wait)
        return PayloadWriter(sink, length)

    def put_stream(
        self: Streaming,
        queue: str,
        source: Source,
        *,
        size: int | None = None,
        timeout: Duration | None = None,
        **options: Unpack[MessageOptions],
    ) -> MessageId:
        with self.put_writer(queue, size=size, timeout=timeout, **options) as writer:
            for piece in pieces_of(source):
                writer.write(piece)
        return writer.message_id

    def move(
        self: Streaming, source: str | Iterable[Message], queue: str, max_messages: int = 1000
    ) -> int:
        return move(self, source, queue, max_messages)

    def read_to(self: Transaction, source: str, position: int) -> None:
        self.read_to_many({check_source(source): position})

    def __enter__(self) -> Self:
        return self
