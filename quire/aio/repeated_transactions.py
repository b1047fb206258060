"""Transactions for asyncio that are begun again (see `quire.repeated_transactions`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from quire.errors import InvalidArgument, QuireError
from quire.repeated_transactions import Entry, Repeats

if TYPE_CHECKING:
    from quire.moments import Duration

    from .store import AsyncStore
    from .transaction import AsyncTransaction

T = TypeVar("T")


async def run_transaction(
    store: AsyncStore,
    function: Callable[[AsyncTransaction], Awaitable[T]],
    *,
    attempts: int = 5,
    entry: Entry | None = None,
    timeout: Duration | None = None,
    durable: bool = True,
) -> T:
    """Run a coroutine function in a transaction, commit, and return its result.

    As `quire.run_transaction`, for a store of `quire.aio`.
    """
    repeats = Repeats[T](attempts, entry)
    if not callable(function):
        raise InvalidArgument(f"function {function!r:.100}: give a coroutine function")
    while True:
        repeats.begin()
        try:
            if repeats.unknown and repeats.is_entered(await store.integration.ledger(repeats.key)):
                return repeats.unknown[-1]
            async with store.transaction(timeout=timeout, durable=durable) as txn:
                if entry is not None:
                    await txn.enter(*entry)
                result = await function(txn)
                repeats.end_function(result)
        except QuireError as error:
            if repeats.has_taken_effect(error):
                return repeats.unknown[-1]
            await asyncio.sleep(repeats.pause_after(error))
        else:
            return result
