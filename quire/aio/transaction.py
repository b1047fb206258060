"""A transaction whose methods are coroutines."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterable, Callable, Sized
from contextlib import nullcontext, suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from quire.arguments import Bytes, check_max_messages, check_sources, check_timeout, check_wait
from quire.batches.delivered_messages import Messages
from quire.calls.documented import documented_by
from quire.calls.uncopied import not_copied
from quire.errors import LockTimeout, QueueFull, QuireError
from quire.interface.integration import TransactionIntegration
from quire.interface.lookup import MessageKey, Where, first_of, where_of
from quire.interface.transaction import Transaction
from quire.libraries import pa
from quire.limits import CHOSEN_WAIT_SECONDS
from quire.messages.message import Message
from quire.messages.message_id import MessageId
from quire.messages.payload_writer import Source
from quire.messages.put_options import MessageOptions
from quire.messages.streamed_message import StreamedMessage
from quire.moments import Duration
from quire.selectors.template import Template

from .coroutines import awaited, awaited_put, described_as, found
from .payloads import AsyncPayloadWriter, kept
from .pool import deliver
from .waiting_lines import Lines

R = TypeVar("R")
Several = TypeVar("Several", bound=Sized)


@documented_by(Transaction)
class AsyncTransaction:
    """`Transaction` for asyncio. Made by `AsyncStore.transaction`; its calls are made in turn.

    As an `async with` block it commits at the end, and rolls back on an exception, and when it is
    cancelled. Get, get_many and get_arrow that wait take no thread; what one that is cancelled was
    about to take is there for others.

    In a joined store a transaction that waits before it has done anything is not begun at the owner
    until there is something to get, and needs no connection meanwhile. One that is aborted there
    while it waits, or open for longer than the owner's options say, is told so when something comes
    to the source, or by its next call.
    """

    __reduce_ex__ = not_copied

    def __init__(
        self,
        inner: Transaction,
        lines: Lines,
        lifetime: float | None,
    ) -> None:
        self._inner = inner
        self._lines = lines
        self._pool = lines.pool
        self._loop = asyncio.get_running_loop()
        self._deadline = None if lifetime is None else self._loop.time() + lifetime
        self._turn = asyncio.Lock()
        self._sources: set[str] = set()  # of which it has got something

    def __repr__(self) -> str:
        return f"<AsyncTransaction {self.id}, {self.state}>"

    @property
    def id(self) -> int:
        """Its number. That of a joined store's is the client's own, not the owner's."""
        return self._inner.id

    @property
    def state(self) -> str:
        """ "open", "prepared", "committed", "rolled back" or "in doubt"."""
        return self._inner.state

    @property
    def integration(self) -> AsyncTransactionIntegration:
        """The further puts and reads of connectors: blocks, files, positions of many sources."""
        return AsyncTransactionIntegration(self)

    put = awaited_put(Transaction.put)
    put_many = awaited_put(Transaction.put_many)

    @described_as(Transaction.put_stream)
    async def put_stream(
        self,
        queue: str,
        source: Source | AsyncIterable[Bytes],
        *,
        size: int | None = None,
        timeout: Duration | None = None,
        **options: Unpack[MessageOptions],
    ) -> MessageId:
        writer = await self.put_writer(queue, size=size, timeout=timeout, **options)
        async with writer:
            await writer.write_all(source)
        return writer.message_id

    @described_as(Transaction.put_writer)
    async def put_writer(
        self,
        queue: str,
        *,
        size: int | None = None,
        timeout: Duration | None = None,
        **options: Unpack[MessageOptions],
    ) -> AsyncPayloadWriter:
        writer = await self._call(
            lambda inner: inner.put_writer(queue, size=size, timeout=timeout, **options)
        )
        return AsyncPayloadWriter(writer, self._step)

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
        return await self._get(source, timeout, lambda inner: inner.get(source))

    async def get_many(
        self,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: Where | None = None,
    ) -> Messages:
        limit = check_max_messages(max_messages)
        if where is not None:
            return await self._find(
                timeout,
                lambda inner, seconds: inner.get_many(source, limit, seconds, where=where),
                takes=True,
                may_come=None
                if isinstance(where, str | Template)
                else partial(_is_there, source, where),
            )
        nothing = Messages(check_sources(source).partition("/")[0])
        return await self._several(
            source, timeout, lambda inner: inner.get_many(source, limit), nothing
        )

    async def get_arrow(
        self, source: str, max_messages: int = 65536, timeout: Duration | None = 0.0
    ) -> pa.RecordBatch:
        limit = check_max_messages(max_messages)
        nothing = Messages(check_sources(source).partition("/")[0]).to_arrow()
        return await self._several(
            source, timeout, lambda inner: inner.get_arrow(source, limit), nothing
        )

    read_many = found(Transaction.read_many)
    read = found(Transaction.read)
    describe = found(Transaction.describe)
    attributes = found(Transaction.attributes)
    count = found(Transaction.count)
    exists = found(Transaction.exists)
    remove = found(Transaction.remove, takes=True)

    async def get_delayed(
        self, source: str, message_id: int, *, to_change: bool = False
    ) -> Message | None:
        return await self._call(
            lambda inner: inner.get_delayed(source, message_id, to_change=to_change),
            self._give_back,
        )

    browse = awaited(Transaction.browse)
    move = awaited_put(Transaction.move)
    unget = awaited(Transaction.unget)
    reject = awaited(Transaction.reject)
    extend = awaited(Transaction.extend)
    read_to = awaited(Transaction.read_to)
    seek = awaited(Transaction.seek)
    enter = awaited(Transaction.enter)
    get_value = awaited(Transaction.get_value)
    set_value = awaited(Transaction.set_value)

    async def commit(self, timeout: Duration | None = None) -> None:
        await self._end(lambda inner, seconds: inner.commit(seconds), timeout)

    async def _deliver(self, found: R) -> R:
        """Commit, and return what was got: for a call that gets in a transaction of its own.

        What a caller gets is committed as read, and what is committed the caller gets: one that is
        cancelled before the commit was begun has taken nothing, and it does not count as delivered;
        one that is cancelled later gets it all the same (PO1).
        """

        def commit(inner: Transaction, seconds: float | None) -> R:
            inner.commit(seconds)
            return whole

        try:
            whole = found
            if isinstance(found, StreamedMessage | Messages):
                whole = await self._pool.run(partial(kept, found))
            return await self._end(commit, None, deliver)
        except asyncio.CancelledError:
            if self.state == "open":
                with suppress(QuireError):  # whatever it is, it was not committed
                    await self._call(_roll_back_unseen, surely=True, hurry=True)
            raise

    async def rollback(self) -> None:
        await roll_back(self, None)

    async def prepare(self, xid: str, timeout: Duration | None = None) -> None:
        await self._end(lambda inner, seconds: inner.prepare(xid, seconds), timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None and self.state == "open":
            try:
                await self.commit()
            except BaseException as failure:
                await roll_back(self, type(failure))
                raise
            return
        if kind is None and self.state == "committed":
            return
        # It is rolled back, or tells who has done that; what is prepared is left to its decision.
        await self._call(
            lambda inner: inner.__exit__(kind, error, None),
            surely=True,
            hurry=_is_cancelled(kind),
        )

    async def _get(
        self, source: str, timeout: Duration | None, take: Callable[[Transaction], R | None]
    ) -> R | None:
        async def look(until: float = math.inf) -> R | None:
            found = await self._call(take, self._give_back, until=until)
            if found is not None:
                self._sources.add(source)
            return found

        seconds = check_wait(timeout)
        if not seconds or self.state != "open":
            return await look()
        holder = self if check_sources(source) in self._sources else None
        return await self._lines.take(source, seconds, look, self._is_over, holder)

    async def _several(
        self,
        source: str,
        timeout: Duration | None,
        take: Callable[[Transaction], Several],
        nothing: Several,
    ) -> Several:
        """Return what is taken; where nothing is there, what tells the columns of it."""

        def look(inner: Transaction) -> Several | None:
            nonlocal nothing
            taken = take(inner)
            if len(taken):
                return taken
            nothing = taken
            return None

        found = await self._get(source, timeout, look)
        return nothing if found is None else found

    async def _find(
        self,
        timeout: Duration | None,
        look: Callable[[Transaction, float], R],
        *,
        takes: bool = False,
        may_come: Callable[[Transaction], bool] | None = None,
    ) -> R:
        """Return the result of a look by condition, which waits by itself, a while at a time.

        `takes`: it takes what it finds; False from it is final. `may_come`: asked where nothing is
        found, whether it is worth while to wait; None: it is.
        """
        undo = self._give_back if takes else None
        end = self._loop.time() + check_wait(timeout)
        seconds = 0.0
        while True:
            try:
                async with self._pool.waiting if seconds else nullcontext():
                    found = await self._call(partial(_look, look, seconds), undo)
                if found or (takes and found is False) or self._loop.time() >= end:
                    return found
                if may_come is not None and not await self._call(may_come):
                    return found
            except LockTimeout:
                if self._loop.time() >= end:
                    raise
            seconds = min(max(end - self._loop.time(), 0.0), CHOSEN_WAIT_SECONDS)

    def _give_back(self, taken: object) -> None:
        if taken:
            self._inner.unget()

    def _is_over(self) -> bool:
        """Return True if a get will raise, as far as is known here."""
        late = self._deadline is not None and self._loop.time() > self._deadline
        return late or self.state != "open"

    async def _end(
        self,
        end: Callable[[Transaction, float | None], R],
        timeout: Duration | None,
        undo: Callable[[R], object] | None = None,
    ) -> R:
        """Commit or prepare; one that waits for room leaves threads for those who make it."""
        seconds = None if timeout is None else check_timeout(timeout)
        try:
            return await self._call(lambda inner: end(inner, 0.0), undo)
        except QueueFull:
            if seconds == 0.0:
                raise
            async with self._pool.waiting:
                return await self._call(lambda inner: end(inner, seconds), undo)

    async def _step(
        self, call: Callable[[], R], *, surely: bool = False, in_thread: bool = False
    ) -> R:
        """A step of a put, which may wait for room: it leaves threads for those who make it."""
        if surely:
            return await self._call(lambda _: call(), surely=True)
        async with self._pool.putting:
            return await self._call(lambda _: call(), in_thread=in_thread)

    async def _call(
        self,
        call: Callable[[Any], R],
        undo: Callable[[R], object] | None = None,
        *,
        surely: bool = False,
        until: float = math.inf,
        hurry: bool = False,
        in_thread: bool = False,
    ) -> R:
        async with self._turn:
            return await self._pool.run(
                partial(call, self._inner),
                undo,
                surely=surely,
                until=until,
                hurry=hurry,
                in_thread=in_thread,
            )


@documented_by(TransactionIntegration)
class AsyncTransactionIntegration:
    """`TransactionIntegration` for asyncio; its calls are made in turn with the transaction's."""

    def __init__(self, transaction: AsyncTransaction) -> None:
        self._transaction = transaction
        self._pool = transaction._pool

    put_block = awaited_put(TransactionIntegration.put_block)
    put_blocks = awaited_put(TransactionIntegration.put_blocks)
    adopt = awaited_put(TransactionIntegration.adopt)
    read_to_many = awaited(TransactionIntegration.read_to_many)

    async def _call(self, call: Callable[[Any], R], *, in_thread: bool = False) -> R:
        return await self._transaction._call(
            lambda inner: call(inner.integration), in_thread=in_thread
        )


async def roll_back(transaction: AsyncTransaction, why: type[BaseException] | None) -> None:
    """For what was raised: who is cancelled does not wait for a stopped owner."""
    hurry = _is_cancelled(why)
    await transaction._call(lambda inner: inner.rollback(), surely=True, hurry=hurry)


def _roll_back_unseen(inner: Transaction) -> None:
    """Roll back; what was got last does not count as delivered, as nobody has seen it."""
    inner.unget()
    inner.rollback()


def _is_there(source: str, where: Where, inner: Transaction) -> bool:
    """Return True if a message that is wanted by its id may still be got."""
    return inner.exists(source, where=where)


def _look(look: Callable[[Transaction, float], R], seconds: float, inner: Transaction) -> R:
    return look(inner, seconds)


def _is_cancelled(kind: type[BaseException] | None) -> bool:
    return kind is not None and issubclass(kind, asyncio.CancelledError)
