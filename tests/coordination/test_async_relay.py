"""A relay in a program of asyncio: it has a thread, and joins the store that `quire.aio` opened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import quire
import quire.aio
from quire.databases import Inbox, Outbox, Relay, sqlite_database
from quire.databases.statements import Begin
from tests.kit.waiting import SECONDS

COUNT = 300
SEGMENT_BYTES = 4 << 20


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Transactions of a file of SQLite, with the tables of both."""
    begin = sqlite_database(str(tmp_path / "app.db"))
    with begin() as connection:
        Outbox().create_tables(connection)
        Inbox().create_tables(connection)
    return begin


def sell(begin: Begin, payloads: list[bytes]) -> None:
    """A transaction of the program's."""
    with begin() as connection:
        Outbox().put_many(connection, "work", payloads)


@asynccontextmanager
async def opened(path: str) -> AsyncIterator[quire.aio.AsyncStore]:
    """A store with a work queue."""
    async with quire.aio.open(path, segment_bytes=SEGMENT_BYTES) as store:
        await store.create_queue("work", kind="work", exist_ok=True)
        yield store


@asynccontextmanager
async def relaying(path: str, begin: Begin, **options: Any) -> AsyncIterator[Relay]:
    """A relay in a thread of its own, as docs/databases.md has it."""
    with quire.open(path) as same_store:
        assert same_store.role == "joined"
        relay = Relay(same_store, Outbox(), begin, **options)
        running = asyncio.create_task(asyncio.to_thread(relay.run))
        try:
            yield relay
        finally:
            relay.stop()
            await running


def test_tasks_get_what_other_threads_have_sold(store_path: str, begin: Begin) -> None:
    """While the relay runs, and in the order of the transactions; none twice, nothing waits."""
    parts = [[b"%d" % number for number in range(at, at + 10)] for at in range(0, COUNT, 10)]

    async def main() -> list[bytes]:
        found: list[bytes] = []
        async with opened(store_path) as store, relaying(store_path, begin) as relay:

            async def consume() -> None:
                while len(found) < COUNT:
                    async with store.transaction() as txn:
                        first = await txn.get("work", SECONDS)
                        assert first is not None
                        found.append(first.payload)
                        found.extend((await txn.get_many("work")).payloads())

            consuming = asyncio.create_task(consume())
            for part in parts:
                await asyncio.to_thread(sell, begin, part)
                relay.wake()
            await consuming
            assert await asyncio.to_thread(relay.step) == 0
            assert await store.get("work") is None
        return found

    assert asyncio.run(main()) == [payload for part in parts for payload in part]
    with begin() as connection:
        assert Outbox().info(connection).waiting == 0


def test_a_program_that_is_cancelled_loses_nothing(store_path: str, begin: Begin) -> None:
    """The batch in work is finished, then the stores are closed; the next relay moves the rest."""
    payloads = [b"%d" % number for number in range(COUNT)]
    sell(begin, payloads)

    async def main() -> None:
        async with opened(store_path) as store, relaying(store_path, begin, max_messages=7):
            async with store.transaction() as txn:
                assert await txn.get("work", SECONDS) is not None
                await txn.rollback()
            moving.set()
            await asyncio.sleep(SECONDS)

    async def cancel() -> None:
        program = asyncio.create_task(main())
        await moving.wait()
        program.cancel()
        with pytest.raises(asyncio.CancelledError):
            await program
        assert len(asyncio.all_tasks()) == 1  # this one

    moving = asyncio.Event()
    asyncio.run(cancel())
    with quire.open(store_path) as store:
        assert store.role == "owner"
        relay = Relay(store, Outbox(), begin)
        while relay.step():
            pass
        assert store.browse("work", max_messages=COUNT + 1).payloads() == payloads


def test_a_store_of_asyncio_is_refused_in_words(store_path: str, begin: Begin) -> None:
    """Its calls do nothing until they are awaited, and a relay awaits none."""

    async def main() -> None:
        async with opened(store_path) as store:
            with pytest.raises(quire.InvalidArgument, match=r"quire\.open, not of quire\.aio"):
                Relay(store, Outbox(), begin)  # type: ignore[arg-type]
            with pytest.raises(quire.InvalidArgument, match=r"quire\.open, not of quire\.aio"):
                Inbox().clean(store, begin, "work")  # type: ignore[arg-type]

    asyncio.run(main())
