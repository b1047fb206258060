"""Tasks that wait for messages: no threads, in turn, and none forgotten."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import quire
import quire.aio
from quire.aio import AsyncStore
from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    QueueNotFound,
    StoreClosed,
    TransactionAborted,
    TransactionTimeout,
)
from quire.limits import AIO_THREADS
from tests.kit.children import Child
from tests.kit.waiting import SECONDS

WAITERS = 1000
SEGMENT_BYTES = 4 << 20


@asynccontextmanager
async def opened(path: str, role: str) -> AsyncIterator[AsyncStore]:
    """A store in that role; another object of this process owns it if it is joined."""
    async with quire.aio.open(path, segment_bytes=SEGMENT_BYTES) as store:
        if role == "owner":
            yield store
            return
        async with quire.aio.open(path) as joined:
            yield joined


async def take_one(store: AsyncStore, source: str, timeout: float = SECONDS) -> bytes | None:
    """One message, in a transaction of its own."""
    async with store.transaction() as txn:
        message = await txn.get(source, timeout)
        return None if message is None else message.payload


async def in_line(store: AsyncStore, source: str, count: int) -> None:
    """Wait until so many tasks wait there."""
    while True:
        lines = [line for (name, _), line in store._lines._lines.items() if name == source]
        if sum(line.waiting for line in lines) == count:
            return
        await asyncio.sleep(0.01)


@pytest.mark.cases(2)
def test_a_thousand_wait_for_one_source(store_path: str, role: str) -> None:
    """Few threads, one connection; each message to one of them, in the order in which they came."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            before = threading.active_count()
            came: list[int] = []  # a joined store begins transactions in threads, in any order

            async def wait(n: int) -> bytes | None:
                async with store.transaction() as txn:
                    came.append(n)
                    message = await txn.get("work", SECONDS)
                    return None if message is None else message.payload

            tasks = [asyncio.create_task(wait(n)) for n in range(WAITERS)]
            await in_line(store, "work", WAITERS)
            await store.put("work", b"0")
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            assert threading.active_count() <= before + AIO_THREADS + 4
            status = (await store.status())["sharing"]
            assert status["waiting"] == 0
            assert status["connections"] <= 6
            for n in range(1, WAITERS, 111):
                async with store.transaction() as txn:
                    numbers = range(n, min(n + 111, WAITERS))
                    await txn.put_many("work", [b"%d" % n for n in numbers])
            payloads = await asyncio.gather(*tasks)
            assert [payloads[n] for n in came] == [b"%d" % n for n in range(WAITERS)]
            assert (await store.queue("work")).messages == 0

    asyncio.run(main())


@pytest.mark.cases(8)
def test_a_thousand_wait_for_as_many_sources(store_path: str, role: str) -> None:
    """In a joined store, too, with few threads and connections on both sides."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            names = [f"q{n}" for n in range(WAITERS)]
            await store.admin.create_queues([{"name": name, "kind": "work"} for name in names])
            before = threading.active_count()
            tasks = [asyncio.create_task(take_one(store, name)) for name in names]
            for name in names:
                await in_line(store, name, 1)
            await asyncio.sleep(0)
            assert (await store.status())["sharing"]["connections"] <= AIO_THREADS + 3
            assert threading.active_count() <= before + 2 * AIO_THREADS + 4
            async with store.transaction() as txn:
                for name in names:
                    await txn.put(name, name.encode())
            most = 0
            while not all(task.done() for task in tasks):
                sharing = (await store.status())["sharing"]
                most = max(most, sharing["connections"])
            assert most <= 3 * AIO_THREADS
            assert await asyncio.gather(*tasks) == [name.encode() for name in names]

    asyncio.run(main())


@pytest.mark.cases(2)
def test_none_is_forgotten(store_path: str, role: str) -> None:
    """Tasks that come and go while messages come one by one, and some are given back."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            count, got = 300, Counter[bytes]()

            async def consume(n: int) -> None:
                while sum(got.values()) < count:
                    txn = await store.transaction()
                    message = await txn.get("work", timeout=0.2)
                    if message is not None and (message.id + n) % 5 == 0:
                        await txn.rollback()
                        continue
                    await txn.commit()
                    if message is not None:
                        got[message.payload] += 1

            tasks = [asyncio.create_task(consume(n)) for n in range(20)]
            for n in range(count):
                await store.put("work", b"%d" % n)
            await asyncio.wait_for(asyncio.gather(*tasks), SECONDS)
            assert got == Counter(b"%d" % n for n in range(count))

    asyncio.run(main())


def test_a_get_waits_its_time(store_path: str, role: str) -> None:
    """A get waits its time and finds nothing, in the shape of its call; the transaction goes on."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            async with store.transaction() as txn:
                start = time.monotonic()
                assert await txn.get("work", 0.2) is None
                assert time.monotonic() - start >= 0.19
                messages = await txn.get_many("work", timeout=0.01)
                assert (len(messages), messages.queue) == (0, "work")
                batch = await txn.get_arrow("work", timeout=0.01)
                assert (batch.num_rows, batch.schema.names) == (0, quire.MESSAGE_SCHEMA.names)
                await txn.put("work", b"x")
            async with store.transaction() as txn:
                batch = await txn.get_arrow("work", timeout=SECONDS)
                assert batch["payload"].to_pylist() == [b"x"]

    asyncio.run(main())


def test_close_ends_the_waiting(store_path: str, role: str) -> None:
    """All of them, with StoreClosed, and every call after that."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.admin.create_queues([{"name": name, "kind": "work"} for name in "ab"])
            tasks = [asyncio.create_task(take_one(store, source)) for source in "aab"]
            await in_line(store, "a", 2)
            await in_line(store, "b", 1)
            await asyncio.sleep(0.05)
            await store.close()
            await store.close()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(ended, StoreClosed)
            with pytest.raises(StoreClosed):
                await store.queues()
            with pytest.raises(StoreClosed):
                await store.transaction()

    asyncio.run(main())


def test_a_queue_that_is_dropped(store_path: str, role: str) -> None:
    """Those that wait there are told; those that come later, too."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            tasks = [asyncio.create_task(take_one(store, "work")) for _ in range(3)]
            await in_line(store, "work", 3)
            await asyncio.sleep(0.05)
            await store.drop_queue("work")
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(ended, QueueNotFound)
            with pytest.raises(QueueNotFound):
                await take_one(store, "work")
            with pytest.raises(InvalidArgument):
                await take_one(store, "work", -1.0)

    asyncio.run(main())


def test_a_transaction_that_is_ended_while_it_waits(store_path: str) -> None:
    """By its time-out or by an abort: it is told soon, wherever in the line it stands."""

    async def main() -> None:
        async with opened(store_path, "owner") as store:
            await store.create_queue("work", kind="work")
            first = asyncio.create_task(take_one(store, "work"))
            await in_line(store, "work", 1)
            txn = await store.transaction()
            second = asyncio.create_task(txn.get("work", SECONDS))
            await in_line(store, "work", 2)
            await store.admin.abort(txn.id)
            with pytest.raises(TransactionAborted):
                await second
            first.cancel()

    asyncio.run(main())


@pytest.mark.parametrize("comes", [True, False])
def test_a_joined_transaction_that_is_aborted_while_it_waits(store_path: str, comes: bool) -> None:
    """It is told when something comes, which is for others, or else by its next call."""

    async def main() -> None:
        async with opened(store_path, "joined") as store:
            await store.create_queue("work", kind="work")
            txn = await store.transaction()
            await txn.put("work", b"never")
            waiting = asyncio.create_task(txn.get("work", SECONDS if comes else 0.2))
            line = asyncio.create_task(in_line(store, "work", 1))
            await asyncio.wait([waiting, line], return_when=asyncio.FIRST_COMPLETED)
            line.cancel()  # its time may be over already
            while not (open_ones := await store.admin.transactions()):  # the put is on its way
                await asyncio.sleep(0.01)
            [info] = open_ones
            await store.admin.abort(info.id)
            if comes:
                await store.put("work", b"for others")
                with pytest.raises(TransactionAborted):
                    await waiting
                assert await take_one(store, "work") == b"for others"
            else:
                assert await waiting is None
            with pytest.raises(TransactionAborted):
                await txn.commit()

    asyncio.run(main())


def test_a_transaction_whose_time_is_over_while_it_waits(store_path: str, role: str) -> None:
    """It raises, long before the get's own time is over."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            with pytest.raises(TransactionTimeout):
                async with asyncio.timeout(SECONDS), store.transaction(timeout=0.2) as txn:
                    await txn.get("work", 100 * SECONDS)

    asyncio.run(main())


def test_the_owner_dies_while_tasks_wait(store_path: str) -> None:
    """They are told, as soon as it is gone; new transactions wait at the next owner."""
    owner = Child(
        "import sys, quire\n"
        "with quire.open(sys.argv[1], segment_bytes=4 << 20) as store:\n"
        "    store.create_queue('work', kind='work')\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.readline()\n",
        store_path,
    )
    try:
        assert owner.line() == "ready"

        async def main() -> None:
            async with quire.aio.open(store_path) as store:
                assert store.role == "joined"
                tasks = [asyncio.create_task(take_one(store, "work")) for _ in range(5)]
                await in_line(store, "work", 5)
                await asyncio.sleep(0.05)
                await asyncio.to_thread(owner.kill)
                for ended in await asyncio.gather(*tasks, return_exceptions=True):
                    assert isinstance(ended, ConnectionLost)
                waiting = asyncio.create_task(take_one(store, "work"))
                await in_line(store, "work", 1)
                await store.put("work", b"at the next owner")
                assert await waiting == b"at the next owner"

        asyncio.run(main())
    finally:
        owner.close()
