"""A store whose methods are coroutines, and how it is opened."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Callable
from functools import partial
from typing import Any, Literal, Self, TypeVar, Unpack, overload

from quire import opening
from quire.arguments import (
    Acknowledge,
    Bytes,
    check_lifetime,
    check_max_messages,
    check_sources,
    check_wait,
)
from quire.batches.delivered_messages import Messages
from quire.calls.documented import documented_by
from quire.calls.uncopied import not_copied
from quire.errors import StoreClosed
from quire.interface.consumer import ConsumerOptions
from quire.interface.lookup import MessageKey, Where, first_of, where_of
from quire.interface.store import Store, lifetime_of
from quire.interface.transaction import Transaction
from quire.libraries.late_imports import load
from quire.messages.message import Message
from quire.messages.message_id import PutId
from quire.messages.payload_writer import Source
from quire.messages.put_options import MessageOptions
from quire.moments import Duration
from quire.selectors.template import SelectorOrTemplate

from .consumer import AsyncConsumer
from .coroutines import Beginning, awaited, awaited_put
from .namespaces import (
    AsyncAdmin,
    AsyncCron,
    AsyncDelayed,
    AsyncIntegration,
    AsyncListeners,
    AsyncPrepared,
    AsyncStates,
)
from .pool import Calls, Pool
from .session import AsyncSession, request
from .transaction import AsyncTransaction
from .waiting_lines import Lines

R = TypeVar("R")
T = TypeVar("T")


@documented_by(Store)
class AsyncStore:
    """`Store` for asyncio. Made by `quire.aio.open`, and used in the event loop where it was made.

    As an `async with` block it is closed at the end.
    """

    __reduce_ex__ = not_copied

    def __init__(self, inner: Store, pool: Calls) -> None:
        self._inner = inner
        self._pool = pool
        self._lines = Lines(inner, pool)
        self._closed = False
        self._failed_owner: int | None = None  # of a joined store, as far as calls have met it
        pool.when_failed = self._note_failed

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
    def failed(self) -> bool:
        if self.role == "owner":
            return self._inner.failed
        return self._failed_owner is not None and self._failed_owner == self._owner()

    def _owner(self) -> int | None:
        """The process that owns a joined store."""
        found: int | None = getattr(self._inner, "owner_process_id", None)
        return found

    def _note_failed(self) -> None:
        self._failed_owner = self._owner()

    @property
    def admin(self) -> AsyncAdmin:
        return AsyncAdmin(self._inner.admin, self._lines)

    @property
    def cron(self) -> AsyncCron:
        return AsyncCron(self._inner.cron, self._lines)

    @property
    def delayed(self) -> AsyncDelayed:
        return AsyncDelayed(self._inner.delayed, self._lines)

    @property
    def states(self) -> AsyncStates:
        return AsyncStates(self._inner.states, self._lines)

    @property
    def prepared(self) -> AsyncPrepared:
        return AsyncPrepared(self._inner.prepared, self._lines)

    @property
    def listeners(self) -> AsyncListeners:
        return AsyncListeners(self._inner.listeners, self._lines)

    @property
    def integration(self) -> AsyncIntegration:
        return AsyncIntegration(self._inner.integration, self._lines)

    create_queue = awaited(Store.create_queue)
    alter_queue = awaited(Store.alter_queue)
    drop_queue = awaited(Store.drop_queue)
    queues = awaited(Store.queues)
    queue = awaited(Store.queue)
    subscribe = awaited(Store.subscribe)
    unsubscribe = awaited(Store.unsubscribe)
    subscriptions = awaited(Store.subscriptions)

    def transaction(
        self,
        timeout: Duration | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> Beginning[AsyncTransaction]:
        return Beginning(partial(self._begin, timeout, large, owner, durable))

    async def _begin(
        self, timeout: Duration | None, large: bool, owner: str | None, durable: bool
    ) -> AsyncTransaction:
        seconds = check_lifetime(timeout)
        begin = partial(self._inner.transaction, seconds, large, owner, durable)
        if self.role == "owner":  # who waits for nobody
            inner = begin()
        else:
            inner = await self._pool.run(begin, lambda inner: inner.rollback())
        return self._wrap(inner, seconds)

    def _wrap(self, inner: Transaction, timeout: float | None = None) -> AsyncTransaction:
        return AsyncTransaction(inner, self._lines, timeout)

    sync = awaited(Store.sync)
    put = awaited_put(Store.put)
    put_many = awaited_put(Store.put_many)

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

    async def get(
        self,
        source: str,
        timeout: Duration | None = 0.0,
        *,
        id: MessageKey | None = None,
        where: Where | None = None,
    ) -> Message | None:
        if id is not None or where is not None:
            return first_of(await self.get_many(source, 1, timeout, where=where_of(id, where)))
        options = ConsumerOptions(check_sources(source), 1, True, check_wait(timeout), "auto")
        found: Message | None = await self._get(self._consumer(options))
        return found

    async def get_many(
        self,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: Where | None = None,
    ) -> Messages:
        if where is not None:
            async with self.transaction(lifetime_of(timeout)) as txn:
                messages = await txn.get_many(source, max_messages, timeout, where=where)
                return await txn._deliver(messages)
        number = check_max_messages(max_messages)
        options = ConsumerOptions(check_sources(source), number, False, check_wait(timeout), "auto")
        found: Messages | None = await self._get(self._consumer(options))
        return Messages(source.partition("/")[0]) if found is None else found

    async def _get(self, consumer: AsyncConsumer[T]) -> T | None:
        async with consumer:
            found = await anext(consumer, None)
            return None if found is None else await consumer._deliver(found)

    @overload
    def consume(  # type: ignore[overload-overlap]
        self,
        source: str,
        max_messages: Literal[1] = 1,
        timeout: Duration | None = None,
        ack: Acknowledge = "auto",
        *,
        where: SelectorOrTemplate | None = None,
    ) -> Beginning[AsyncConsumer[Message]]: ...

    @overload
    def consume(
        self,
        source: str,
        max_messages: int,
        timeout: Duration | None = None,
        ack: Acknowledge = "auto",
        *,
        where: SelectorOrTemplate | None = None,
    ) -> Beginning[AsyncConsumer[Messages]]: ...

    def consume(
        self,
        source: str,
        max_messages: int = 1,
        timeout: Duration | None = None,
        ack: Acknowledge = "auto",
        *,
        where: SelectorOrTemplate | None = None,
    ) -> Beginning[AsyncConsumer[Any]]:
        options = ConsumerOptions.of(source, max_messages, timeout, ack, where)

        async def begin() -> AsyncConsumer[Any]:
            return self._consumer(options)

        return Beginning(begin)

    def _consumer(self, options: ConsumerOptions) -> AsyncConsumer[Any]:
        return AsyncConsumer(self._lines, self._wrap, options)

    async def session(
        self, name: str, replies: str | None = None, *, watch: bool = False
    ) -> AsyncSession:
        opened = partial(self._inner.session, name, replies, watch=watch)
        return AsyncSession(self, await self._pool.run(opened))

    async def request(
        self,
        queue: str,
        payload: Bytes,
        timeout: Duration | None = None,
        *,
        replies: str | None = None,
        **options: Unpack[MessageOptions],
    ) -> Message:
        return await request(self, queue, payload, timeout, replies, options)

    browse = awaited(Store.browse)
    status = awaited(Store.status)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self._pool.run(self._inner.close, surely=True, in_thread=True)
        finally:
            self._pool.close()

    async def __aenter__(self) -> Self:
        if self._closed:
            raise StoreClosed("this store object was closed: open the store again")
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _call(self, call: Callable[[Any], R], *, in_thread: bool = False) -> R:
        return await self._pool.run(partial(call, self._inner), in_thread=in_thread)


def open(path: str | os.PathLike[str], **options: Any) -> Beginning[AsyncStore]:
    """Open the store at `path`, or at a URL, as `quire.open` does, with the same options; await it.

    Or use it as `async with quire.aio.open(path) as store`. Raises what `quire.open` raises.
    """
    return Beginning(partial(_open, path, options))


async def _open(path: str | os.PathLike[str], options: dict[str, Any]) -> AsyncStore:
    pool = Pool()
    try:
        inner, make_calls = await pool.run(
            partial(_open_inner, path, options), lambda opened: opened[0].close()
        )
    except BaseException:
        pool.close()
        raise
    return AsyncStore(inner, pool if make_calls is None else make_calls(inner, pool))


def _open_inner(
    path: str | os.PathLike[str], options: dict[str, Any]
) -> tuple[Store, Callable[[Store, Pool], Calls] | None]:
    """Open the store; return also what makes its calls, if that is no pool."""
    inner = opening.open(path, **options)
    if inner.role == "owner":
        return inner, None
    try:
        return inner, load("quire.aio.greenlet_calls").GreenletCalls
    except BaseException:
        inner.close()
        raise
