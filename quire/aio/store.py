"""A store whose methods are coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

from quire.arguments import (
    Acknowledge,
    Bytes,
    check_lifetime,
    check_max_messages,
    check_source,
    check_wait,
)
from quire.consumer import Asked
from quire.documented import documented_by
from quire.limits import AIO_THREADS
from quire.message import Message, Messages
from quire.message_id import PutId
from quire.moments import Duration
from quire.payload_writer import Source
from quire.put_options import MessageOptions
from quire.store import Store
from quire.streamed import StreamedMessage
from quire.transaction import Transaction

from .calls import Beginning, in_thread, put_in_thread
from .consumer import AsyncConsumer
from .lines import Lines
from .payloads import kept
from .pool import Pool
from .transaction import AsyncTransaction

R = TypeVar("R")
T = TypeVar("T")


@documented_by(Store)
class AsyncStore:
    """`Store` for asyncio. Made by `quire.aio.open`, and used in the event loop where it was made.

    As an `async with` block it is closed at the end.
    """

    def __init__(self, inner: Store, pool: Pool) -> None:
        self._inner = inner
        self._pool = pool
        self._lines = Lines(inner, pool)
        self._room = asyncio.Semaphore(AIO_THREADS // 2)
        self._closed = False

    def __repr__(self) -> str:
        return f"<AsyncStore {self.path}, {self.role}>"

    @property
    def role(self) -> str:
        """ "owner" where this process owns the store, "joined" where another one does.

        It becomes "owner" where this process takes over.
        """
        return self._inner.role

    @property
    def path(self) -> str:
        """The store's directory."""
        return self._inner.path

    @property
    def store_id(self) -> int:
        """A number of 64 bits, drawn when the store was made."""
        return self._inner.store_id

    async def failed(self) -> bool:
        return await self._call(lambda inner: inner.failed)

    create_queue = in_thread(Store.create_queue)
    create_queues = in_thread(Store.create_queues)
    alter_queue = in_thread(Store.alter_queue)
    catalog = in_thread(Store.catalog)
    rename_queue = in_thread(Store.rename_queue)
    purge = in_thread(Store.purge)
    create_alias = in_thread(Store.create_alias)
    drop_alias = in_thread(Store.drop_alias)
    aliases = in_thread(Store.aliases)
    disable = in_thread(Store.disable)
    enable = in_thread(Store.enable)
    switch = in_thread(Store.switch)
    create_schedule = in_thread(Store.create_schedule)
    alter_schedule = in_thread(Store.alter_schedule)
    drop_schedule = in_thread(Store.drop_schedule)
    schedules = in_thread(Store.schedules)
    drop_queue = in_thread(Store.drop_queue)
    queues = in_thread(Store.queues)
    queue = in_thread(Store.queue)
    positions = in_thread(Store.positions)
    positions_many = in_thread(Store.positions_many)
    position_at = in_thread(Store.position_at)
    records = in_thread(Store.records)
    subscribe = in_thread(Store.subscribe)
    subscribe_many = in_thread(Store.subscribe_many)
    unsubscribe = in_thread(Store.unsubscribe)
    subscriptions = in_thread(Store.subscriptions)

    def transaction(
        self,
        timeout: float | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> Beginning[AsyncTransaction]:
        return Beginning(partial(self._begin, timeout, large, owner, durable))

    async def _begin(
        self, timeout: float | None, large: bool, owner: str | None, durable: bool
    ) -> AsyncTransaction:
        timeout = check_lifetime(timeout)
        begin = partial(self._inner.transaction, timeout, large, owner, durable)
        if self.role == "owner":  # who waits for nobody
            inner = begin()
        else:
            inner = await self._pool.run(begin, lambda inner: inner.rollback())
        return self._wrap(inner, timeout)

    def _wrap(self, inner: Transaction, timeout: float | None = None) -> AsyncTransaction:
        return AsyncTransaction(inner, self._pool, self._lines, self._room, timeout)

    sync = in_thread(Store.sync)
    transactions = in_thread(Store.transactions)
    transaction_info = in_thread(Store.transaction_info)
    abort = in_thread(Store.abort)
    recover = in_thread(Store.recover)
    commit_prepared = in_thread(Store.commit_prepared)
    rollback_prepared = in_thread(Store.rollback_prepared)
    put = put_in_thread(Store.put)
    put_many = put_in_thread(Store.put_many)

    async def put_stream(
        self,
        queue: str,
        source: Source | AsyncIterable[Bytes],
        *,
        size: int | None = None,
        timeout: Duration | None = None,
        durable: bool = True,
        **options: Unpack[MessageOptions],
    ) -> int:
        async with self.transaction(durable=durable) as txn:
            made = await txn.put_stream(queue, source, size=size, timeout=timeout, **options)
        return PutId.of(int(made), made.expires_by)

    scheduled = in_thread(Store.scheduled)
    cancel = in_thread(Store.cancel)
    reschedule = in_thread(Store.reschedule)
    redrive = in_thread(Store.redrive)

    async def get(self, source: str, timeout: float | None = 0.0) -> Message | None:
        asked = Asked(check_source(source), 1, True, check_wait(timeout), "auto")
        found: Message | None = await self._get(self._consumer(asked))
        return found

    async def get_many(
        self, source: str, max_messages: int = 1000, timeout: float | None = 0.0
    ) -> Messages:
        number = check_max_messages(max_messages)
        asked = Asked(check_source(source), number, False, check_wait(timeout), "auto")
        found: Messages | None = await self._get(self._consumer(asked))
        return Messages(source.partition("/")[0]) if found is None else found

    async def _get(self, consumer: AsyncConsumer[T]) -> T | None:
        async with consumer:
            found = await anext(consumer, None)
            if isinstance(found, StreamedMessage | Messages):
                found = await self._pool.run(partial(kept, found))
            await consumer.acknowledge()
            return found

    @overload
    def consume(
        self,
        source: str,
        max_messages: Literal[1] = 1,
        timeout: float | None = None,
        ack: Acknowledge = "auto",
    ) -> Beginning[AsyncConsumer[Message]]: ...

    @overload
    def consume(
        self,
        source: str,
        max_messages: int,
        timeout: float | None = None,
        ack: Acknowledge = "auto",
    ) -> Beginning[AsyncConsumer[Any]]: ...

    def consume(
        self,
        source: str,
        max_messages: int = 1,
        timeout: float | None = None,
        ack: Acknowledge = "auto",
    ) -> Beginning[AsyncConsumer[Any]]:
        asked = Asked.of(source, max_messages, timeout, ack)

        async def begin() -> AsyncConsumer[Any]:
            return self._consumer(asked)

        return Beginning(begin)

    def _consumer(self, asked: Asked) -> AsyncConsumer[Any]:
        return AsyncConsumer(self._inner, self._pool, self._lines, self._wrap, asked)

    browse = in_thread(Store.browse)
    ledger = in_thread(Store.ledger)
    ledger_many = in_thread(Store.ledger_many)
    get_state = in_thread(Store.get_state)
    state_items = in_thread(Store.state_items)
    state_names = in_thread(Store.state_names)
    drop_state = in_thread(Store.drop_state)
    lease = in_thread(Store.lease)
    lease_many = in_thread(Store.lease_many)
    renew = in_thread(Store.renew)
    release = in_thread(Store.release)
    checkpoint = in_thread(Store.checkpoint)
    status = in_thread(Store.status)
    verify = in_thread(Store.verify)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self._pool.run(self._inner.close, surely=True)
        finally:
            self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _call(self, call: Callable[[Any], R]) -> R:
        return await self._pool.run(partial(call, self._inner))
