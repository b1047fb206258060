"""The loop over a source's messages, for `async for`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Generic, Self, TypeVar, cast

from quire.batches.delivered_messages import Messages
from quire.calls.documented import documented_by
from quire.interface.consumer import ConsumedMessages, Consumer, ConsumerOptions, not_open, take
from quire.interface.transaction import Transaction
from quire.messages.message import Message

from .transaction import AsyncTransaction, roll_back
from .waiting_lines import Lines

T = TypeVar("T")


@documented_by(Consumer)
class AsyncConsumer(Generic[T]):
    """`Consumer` for asyncio. Made by `AsyncStore.consume`, and used in an `async with` block.

    A loop that waits takes no thread. One whose task is cancelled has its message there again.
    """

    _transaction: AsyncTransaction | None = None

    def __init__(
        self,
        lines: Lines,
        wrap: Callable[[Transaction], AsyncTransaction],
        options: ConsumerOptions,
    ) -> None:
        self._lines = lines
        self._wrap = wrap
        self._options = options
        self._ended = False

    def __repr__(self) -> str:
        return f"<AsyncConsumer of {self._options.source}>"

    @property
    def transaction(self) -> AsyncTransaction:
        """The open transaction that has got what was yielded last: what is put in it goes along.

        To roll it back has the message delivered again. Raises TransactionClosed if there is none.
        """
        if self._transaction is None:
            raise not_open()
        return self._transaction

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._options.ack != "block":
            await self.acknowledge()
        found = None if self._ended else await self._take()
        if found is None:
            self._ended = True
            raise StopAsyncIteration
        return cast(T, found)

    async def _deliver(self, found: T) -> T:
        """Commit what was yielded last, and return it (see `AsyncTransaction._deliver`)."""
        whole = await self.transaction._deliver(found)
        self._transaction = None
        return whole

    async def acknowledge(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await transaction.__aexit__(None, None, None)

    async def close(self) -> None:
        await self._close(None)

    async def _close(self, kind: type[BaseException] | None) -> None:
        self._ended = True
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await roll_back(transaction, kind)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if kind is None and self._options.ack == "block":
                await self.acknowledge()
        finally:
            await self._close(kind)

    async def _take(self) -> Message | Messages | None:
        options = self._options
        seconds = options.timeout
        if self._transaction is not None:  # the block's
            if self._transaction.state == "open":
                return await self._get(self._transaction, seconds)
            await self.acknowledge()
        if options.where is not None:
            look = partial(take, self._lines.store, options)
            taken = await self._lines.look_for(look, seconds, _give_back)
        elif seconds:
            taken = await self._lines.take(options.source, seconds, self._look, lambda: False)
        else:
            taken = await self._look()
        if taken is None:
            return None
        self._transaction = self._wrap(taken.transaction)
        return taken.found

    async def _get(
        self, transaction: AsyncTransaction, seconds: float
    ) -> Message | Messages | None:
        options = self._options
        source, where = options.source, options.where
        if options.single:
            return await transaction.get(source, seconds, where=where)
        return (
            await transaction.get_many(source, options.max_messages, seconds, where=where) or None
        )

    async def _look(self, until: float = math.inf) -> ConsumedMessages | None:
        look = partial(take, self._lines.store, self._options)
        return await self._lines.pool.run(look, _give_back, until=until)


def _give_back(taken: ConsumedMessages | None) -> None:
    if taken is not None:
        taken.transaction.unget()  # nobody has seen it: it does not count as delivered
        taken.transaction.rollback()
