"""A session whose methods are coroutines, and a request without one."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Protocol, TypeVar, Unpack

from quire.arguments import check_wait
from quire.calls.documented import documented_by
from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    OutcomeUnknown,
    QueueExists,
    QueueNotFound,
    ReplyNotFound,
    SessionFenced,
    StateConflict,
    TransactionAborted,
)
from quire.interface.sessions.reply import Reply
from quire.interface.sessions.requesting import (
    REPLIES_OPTIONS,
    SHARED_REPLIES,
    PendingRequest,
    Replying,
    check_replies,
    check_request,
    payload_of,
)
from quire.interface.sessions.session import Session
from quire.interface.sessions.session_record import check_number
from quire.interface.transaction import Payload, Transaction, TransactionSource
from quire.limits import CHOSEN_WAIT_SECONDS, OWNERS_LOST
from quire.messages.message import Message
from quire.messages.put_options import MessageOptions
from quire.moments import Duration
from quire.reports.info import QueueInfo

from .coroutines import Beginning, awaited
from .pool import deliver
from .transaction import AsyncTransaction, roll_back
from .waiting_lines import Lines

R = TypeVar("R")


class AsyncAsks(TransactionSource[Beginning[AsyncTransaction]], Protocol):
    """A store, as far as one who asks has to do with it."""

    @property
    def queue(self) -> Callable[[str], Coroutine[Any, Any, QueueInfo]]:
        """One queue."""

    @property
    def create_queue(self) -> Callable[..., Coroutine[Any, Any, object]]:
        """Makes a queue."""

    @property
    def put(self) -> Callable[..., Coroutine[Any, Any, object]]:
        """Puts one message, in a transaction of its own."""

    _lines: Lines


@documented_by(Session)
class AsyncSession:
    """`Session` for asyncio. One that waits for a reply takes no thread."""

    def __init__(self, store: AsyncAsks, inner: Session) -> None:
        self._store = store
        self._inner = inner
        self._pool = store._lines.pool

    def __repr__(self) -> str:
        return f"<Async{repr(self._inner)[1:]}"

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def epoch(self) -> int:
        return self._inner.epoch

    @property
    def replies(self) -> str:
        return self._inner.replies

    def transaction(self, timeout: Duration | None = None) -> Beginning[AsyncTransaction]:
        return self._store.transaction(timeout, owner=self._inner._label())

    async def begin(
        self,
        queue: str,
        payload: Payload,
        *,
        txn: AsyncTransaction | None = None,
        **options: Unpack[MessageOptions],
    ) -> int:
        return await self._within(
            txn, lambda inner: self._inner.begin(queue, payload, txn=inner, **options)
        )

    async def submit(self, number: int, *, txn: AsyncTransaction | None = None) -> bool:
        return await self._within(txn, lambda inner: self._inner.submit(number, txn=inner))

    async def put(
        self,
        queue: str,
        payload: Payload,
        *,
        txn: AsyncTransaction | None = None,
        **options: Unpack[MessageOptions],
    ) -> int:
        return await self._within(
            txn, lambda inner: self._inner.put(queue, payload, txn=inner, **options)
        )

    async def withdraw(self, number: int, *, txn: AsyncTransaction | None = None) -> bool:
        return await self._within(txn, lambda inner: self._inner.withdraw(number, txn=inner))

    async def take(
        self, number: int, timeout: Duration | None = 0.0, *, txn: AsyncTransaction | None = None
    ) -> Reply | None:
        label = self._inner._label()
        seconds = check_wait(timeout)
        check_number(number)
        if txn is not None:
            return await self._take(_checked(txn), number, seconds)
        loop = asyncio.get_running_loop()
        until, lost = loop.time() + seconds, 0
        seen: Reply | None = None
        lifetime = math.inf if seconds else None
        while True:
            try:
                async with self._store.transaction(lifetime, owner=label) as own:
                    left = max(0.0, until - loop.time())
                    found = await self._take(own, number, left)
                    if found is not None:
                        seen = found
                        await own._deliver(found)
            except ReplyNotFound:
                if seen is None:
                    raise
                return seen  # as nobody answered whether it was taken: it was
            except SessionFenced:
                raise
            except (StateConflict, TransactionAborted):
                await self.info()  # which says whether another opening has done that
            except (ConnectionLost, OutcomeUnknown) as error:
                lost += 1
                if lost > OWNERS_LOST or error.late:
                    raise
            else:
                return seen

    async def _take(self, txn: AsyncTransaction, number: int, seconds: float) -> Reply | None:
        record = self._inner._record
        await txn._call(lambda inner: record.awaited(inner, number))
        message = await txn.get(self.replies, seconds, where=record.wanted(number))
        if message is None:
            return None
        self._inner._ended += 1
        try:
            return await txn._call(lambda inner: record.took(inner, number, message))
        except BaseException as error:
            await roll_back(txn, type(error))  # nobody gets the reply (KSC2)
            raise

    async def result(self, number: int, timeout: Duration | None = 0.0) -> Reply | None:
        result = partial(self._inner.result, number)
        return await self._store._lines.look_for(result, check_wait(timeout))

    forget = awaited(Session.forget)
    resolve = awaited(Session.resolve)
    lookup = awaited(Session.lookup)
    unfinished = awaited(Session.unfinished)
    info = awaited(Session.info)
    remove = awaited(Session.remove)

    async def _within(
        self, txn: AsyncTransaction | None, call: Callable[[Transaction | None], R]
    ) -> R:
        if txn is None:
            return await self._pool.run(partial(call, None))
        return await _checked(txn)._call(call)

    async def _call(self, call: Callable[[Any], R], *, in_thread: bool = False) -> R:
        return await self._pool.run(partial(call, self._inner), in_thread=in_thread)


def _checked(txn: AsyncTransaction) -> AsyncTransaction:
    """Raise InvalidArgument for what is no transaction of asyncio."""
    if not isinstance(txn, AsyncTransaction):
        raise InvalidArgument(f"txn {txn!r:.100}: give an open transaction of the store, or None")
    return txn


async def request(
    store: AsyncAsks,
    queue: str,
    payload: Payload,
    timeout: Duration | None,
    replies: str | None,
    options: Mapping[str, Any],
) -> Message:
    """See `Store.request`."""
    pending = PendingRequest.of(queue, timeout, replies, options)
    if not pending.is_known(store):
        check_request(await store.queue(pending.queue), payload)
        if pending.replies == SHARED_REPLIES:
            with suppress(QueueExists):  # somebody has made it another one
                await store.create_queue(SHARED_REPLIES, exist_ok=True, **REPLIES_OPTIONS)
        check_replies(await store.queue(pending.replies))
        pending.know(store)
    await store.put(pending.queue, payload, **pending.options)
    found = await _reply(store, pending)
    if found is None:
        raise pending.timed_out()
    return payload_of(found)


async def _reply(store: AsyncAsks, pending: PendingRequest) -> Message | None:
    """The reply, taken by a call that waits for it, a while at a time."""
    replying = Replying(store._lines.store, pending)
    while True:
        seconds = min(pending.left(), CHOSEN_WAIT_SECONDS)
        try:
            async with store._lines.pool.waiting if seconds else nullcontext():
                found = await store._lines.pool.run(
                    partial(replying.take, seconds), deliver, until=pending.until
                )
        except QueueNotFound:
            pending.forget(store)
            raise
        if found is not None or not pending.left():
            return found
