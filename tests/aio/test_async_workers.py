"""Workers for asyncio: handlers in tasks, with a transaction for each message, and a clean end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from quire.aio import AsyncStore, AsyncTransaction, AsyncWorkers
from quire.errors import InvalidArgument, InvalidSelector, QueueNotFound, StoreClosed
from tests.aio.test_waiting import opened

Test = Callable[[AsyncStore], Awaitable[None]]


@asynccontextmanager
async def beside(workers: AsyncWorkers) -> AsyncIterator[asyncio.Task[None]]:
    """They run in a task of their own, and are stopped at the end."""
    task = asyncio.create_task(workers.run())
    try:
        yield task
    finally:
        workers.stop()
        with suppress(asyncio.CancelledError):
            await task
    assert not [t for t in asyncio.all_tasks() if t.get_name().startswith("quire-worker")]


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for it."""
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.005)


async def payloads(store: AsyncStore, queue: str) -> list[bytes]:
    """What waits there."""
    return sorted((await store.browse(queue)).payloads())


@pytest.fixture
def run(tmp_path: Any, role: str) -> Callable[[Test], None]:
    """A test of a store with two queues."""

    def run(test: Test) -> None:
        async def main() -> None:
            async with opened(str(tmp_path / "store"), role) as store:
                for name in ("work", "done"):
                    await store.create_queue(name)
                await test(store)

        asyncio.run(main())

    return run


def test_each_message_is_handled_in_a_transaction(run: Callable[[Test], None]) -> None:
    """By several tasks at a time; what the handler puts is committed with it."""

    async def test(store: AsyncStore) -> None:
        workers = AsyncWorkers(store)
        together = asyncio.Barrier(3)

        @workers.on("work", concurrency=3)
        async def handle(message: Any, txn: AsyncTransaction) -> None:
            await together.wait()
            await txn.put("done", message.payload)

        await store.put_many("work", [b"%d" % n for n in range(9)])
        async with beside(workers):
            await until(lambda: workers.status()[0].handled == 9)
            assert workers.status()[0].running == 3
        assert await payloads(store, "done") == [b"%d" % n for n in range(9)]
        assert await payloads(store, "work") == []

    run(test)


def test_a_handler_of_a_selector_and_one_of_a_pattern(run: Callable[[Test], None]) -> None:
    """The one gets what its selector holds for, the other of all queues that match."""

    async def test(store: AsyncStore) -> None:
        for name in ("orders.a", "orders.b"):
            await store.create_queue(name, kind="work")
            await store.put(name, name.encode())
        for number in (1, 2, 3):
            await store.put("work", b"%d" % number, attributes={"n": str(number)})
        handled: list[bytes] = []
        workers = AsyncWorkers(store)

        @workers.on("work", where="n >= 2")
        @workers.on("orders.*")
        async def handle(message: Any, txn: AsyncTransaction) -> None:
            handled.append(bytes(message.payload))

        async with beside(workers):
            await until(lambda: len(handled) == 4)
        assert sorted(handled) == [b"2", b"3", b"orders.a", b"orders.b"]
        assert await payloads(store, "work") == [b"1"]
        workers = AsyncWorkers(store)
        workers.on("work", where="n >=")(handle)
        with pytest.raises(InvalidSelector):
            await workers.run()

    run(test)


def test_what_has_failed_comes_again_later(run: Callable[[Test], None]) -> None:
    """Others go on meanwhile; a failure is told, with what it was."""

    async def test(store: AsyncStore) -> None:
        workers = AsyncWorkers(store, retry={"delay": 0.05})
        seen: list[bytes] = []

        @workers.on("work")
        async def handle(message: Any, txn: AsyncTransaction) -> None:
            seen.append(message.payload)
            await txn.put("done", message.payload)
            if message.payload == b"0" and message.delivery_count < 3:
                raise ValueError("not yet")

        await store.put_many("work", [b"0", b"1"])
        async with beside(workers):
            await until(lambda: workers.status()[0].handled == 2)
        assert Counter(seen) == {b"0": 3, b"1": 1}
        assert seen.index(b"1") < 3
        assert workers.failures == 2
        assert workers.status()[0].last_error == "ValueError: not yet"
        assert await payloads(store, "done") == [b"0", b"1"]

    run(test)


def test_a_batch_that_has_failed_comes_one_by_one(run: Callable[[Test], None]) -> None:
    """So one of it that always fails stops none of the others."""

    async def test(store: AsyncStore) -> None:
        await store.create_queue("dead")
        await store.alter_queue("work", max_deliveries=3, dead_letter="dead")
        workers = AsyncWorkers(store, retry={"delay": 0.01})

        @workers.on("work", max_messages=10)
        async def handle(messages: Any, txn: AsyncTransaction) -> None:
            if b"3" in messages.payloads():
                raise ValueError("always")
            await txn.put_many("done", messages.payloads())

        await store.put_many("work", [b"%d" % n for n in range(6)])
        async with beside(workers), asyncio.timeout(60):
            letter = await store.get("dead", timeout=60)
            assert letter is not None
            assert letter.payload == b"3"
            while len(await payloads(store, "done")) < 5:
                await asyncio.sleep(0.01)

    run(test)


def test_a_stop_finishes_what_is_in_work(run: Callable[[Test], None]) -> None:
    """And takes nothing more; it may come from a handler, and before they run."""

    async def test(store: AsyncStore) -> None:
        workers = AsyncWorkers(store)

        @workers.on("work", concurrency=2)
        async def handle(message: Any, txn: AsyncTransaction) -> None:
            workers.stop()
            await asyncio.sleep(0.05)
            await txn.put("done", message.payload)

        workers.stop()
        await workers.run()
        assert await payloads(store, "done") == []
        await store.put_many("work", [b"%d" % n for n in range(9)])
        await workers.run()
        done = await payloads(store, "done")
        assert 1 <= len(done) <= 2
        assert len(done) + len(await payloads(store, "work")) == 9

    run(test)


def test_a_cancellation_finishes_what_is_in_work(run: Callable[[Test], None]) -> None:
    """It is raised once that is done; who waited for a message has taken none."""

    async def test(store: AsyncStore) -> None:
        workers = AsyncWorkers(store)
        begun, go_on = asyncio.Event(), asyncio.Event()

        @workers.on("work", concurrency=5)
        async def handle(message: Any, txn: AsyncTransaction) -> None:
            begun.set()
            await go_on.wait()
            await txn.put("done", message.payload)

        await store.put("work", b"0")
        task = asyncio.create_task(workers.run())
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0.02)
        assert not task.done()
        await store.put("work", b"1")
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await payloads(store, "done") == [b"0"]
        assert (await store.get("work")).payload == b"1"  # type: ignore[union-attr]

    run(test)


@pytest.mark.parametrize("how", ["grace", "again"])
def test_what_is_not_finished_in_time_is_there_again(run: Callable[[Test], None], how: str) -> None:
    """Its handler is cancelled once the grace is over, or by a second cancellation."""

    async def test(store: AsyncStore) -> None:
        workers = AsyncWorkers(store, grace=0.05 if how == "grace" else 600.0)
        begun, ended = asyncio.Event(), asyncio.Event()

        @workers.on("work")
        async def handle(message: Any, txn: AsyncTransaction) -> None:
            await txn.put("done", message.payload)
            begun.set()
            try:
                await asyncio.sleep(600)
            finally:
                ended.set()

        await store.put("work", b"0")
        task = asyncio.create_task(workers.run())
        await begun.wait()
        task.cancel()
        if how == "again":
            await asyncio.sleep(0.02)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()
        assert await payloads(store, "done") == []
        assert (await store.get("work")).payload == b"0"  # type: ignore[union-attr]

    run(test)


def test_a_signal_ends_them(run: Callable[[Test], None]) -> None:
    """SIGTERM, as a service is told to end; and then it has its effect of before."""

    async def test(store: AsyncStore) -> None:
        workers = AsyncWorkers(store)

        @workers.on("work")
        async def handle(message: Any, txn: AsyncTransaction) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.02)
            await txn.put("done", message.payload)

        before = signal.getsignal(signal.SIGTERM)
        await store.put_many("work", [b"0", b"1"])
        await workers.run()
        assert signal.getsignal(signal.SIGTERM) == before
        assert await payloads(store, "done") == [b"0"]

    run(test)


def test_a_signal_that_the_program_has_taken_is_its_own(run: Callable[[Test], None]) -> None:
    """A web server that runs them ends by SIGTERM as it would without, and calls `stop`."""

    async def test(store: AsyncStore) -> None:
        workers = AsyncWorkers(store)

        @workers.on("work")
        async def handle(message: Any, txn: AsyncTransaction) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await txn.put("done", message.payload)

        told: list[int] = []

        def take(number: int, _: object) -> None:
            told.append(number)
            workers.stop()

        before = signal.signal(signal.SIGTERM, take)
        try:
            await store.put_many("work", [b"0", b"1"])
            await workers.run()
            assert (told, await payloads(store, "done")) == ([signal.SIGTERM], [b"0"])
        finally:
            signal.signal(signal.SIGTERM, before)

    run(test)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_what_ends_a_task_ends_all(run: Callable[[Test], None], kind: type[BaseException]) -> None:
    """A handler that raises it has its message there again, and `run` raises it."""

    async def test(store: AsyncStore) -> None:
        workers = AsyncWorkers(store)

        @workers.on("work", concurrency=3)
        async def handle(_: Any, __: AsyncTransaction) -> None:
            raise kind

        await store.put("work", b"0")
        with pytest.raises(kind):
            await workers.run()
        assert await payloads(store, "work") == [b"0"]

    run(test)


def test_a_store_that_is_closed_ends_them(run: Callable[[Test], None]) -> None:
    """They do not try for ever."""

    async def test(store: AsyncStore) -> None:
        workers = AsyncWorkers(store)

        @workers.on("work")
        async def handle(_: Any, __: AsyncTransaction) -> None:
            await store.close()

        await store.put("work", b"0")
        with pytest.raises(StoreClosed):
            await workers.run()

    run(test)


def test_what_cannot_run_is_refused(run: Callable[[Test], None]) -> None:
    """When it is given, or before anything is handled."""

    async def test(store: AsyncStore) -> None:
        workers = AsyncWorkers(store)
        with pytest.raises(InvalidArgument, match="async def"):
            workers.on("work")(lambda message, txn: None)  # type: ignore[type-var]
        with pytest.raises(InvalidArgument, match="concurrency"):
            workers.on("work", concurrency=0)
        with pytest.raises(InvalidArgument, match="with a handler"):
            await workers.run()
        with pytest.raises(InvalidArgument, match=r"quire.aio.open"):
            AsyncWorkers(store._inner)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="retry"):
            AsyncWorkers(store, retry=None)  # type: ignore[arg-type]

        @workers.on("none")
        async def handle(_: Any, __: AsyncTransaction) -> None: ...

        with pytest.raises(QueueNotFound):
            await workers.run()

    run(test)
