"""Requests that tasks answer, and tasks that wait for replies."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import quire
import quire.aio
from quire.aio import AsyncStore, AsyncTransaction, AsyncWorkers
from quire.aio.pool import Pool
from quire.errors import InvalidArgument, RequestFailed
from tests.aio.test_async_workers import beside, until
from tests.aio.test_waiting import opened
from tests.kit.waiting import SECONDS


def test_tasks_ask_and_a_task_answers() -> None:
    """The reply is put in the transaction of the loop that has got the request."""

    async def answer(store: quire.aio.AsyncStore, count: int) -> None:
        async with store.consume("asked") as requests:
            async for request in requests:
                await quire.put_reply(requests.transaction, request, request.payload * 2)
                await requests.acknowledge()
                count -= 1
                if not count:
                    break

    async def run() -> list[bytes]:
        async with quire.aio.open(":memory:") as store:
            await store.create_queue("asked")
            answering = asyncio.create_task(answer(store, 5))
            asked = [store.request("asked", b"%d" % n, SECONDS) for n in range(5)]
            replies = await asyncio.gather(*asked)
            await answering
            assert (await store.queue("quire.replies")).messages == 0
            return [reply.payload for reply in replies]

    assert asyncio.run(run()) == [b"00", b"11", b"22", b"33", b"44"]


def test_a_task_that_waits_for_a_reply_can_be_cancelled() -> None:
    """It has taken nothing: the reply is there for the next one."""

    async def run() -> None:
        async with quire.aio.open(":memory:") as store:
            await store.create_queue("asked")
            session = await store.session("till")
            number = await session.put("asked", b"x")
            waiting = asyncio.create_task(session.take(number, SECONDS))
            await asyncio.sleep(0.05)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            async with store.transaction() as txn:
                request = await txn.get("asked")
                assert request is not None
                await quire.put_reply(txn, request, b"done")
            assert await session.resolve(number) == quire.RequestState.ANSWERED
            reply = await session.take(number, SECONDS)
            assert reply is not None
            assert reply.payload == b"done"

    asyncio.run(run())


def test_who_waits_for_a_reply_asks_for_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call in a thread looks, the next one waits: none asks whether waiting is of any use."""
    calls: list[object] = []
    run_call = Pool.run

    async def counted(pool: Pool, call: Any, *arguments: Any, **options: Any) -> Any:
        calls.append(call)
        return await run_call(pool, call, *arguments, **options)

    async def run() -> None:
        async with quire.aio.open(":memory:") as store:
            await store.create_queue("replies", indexed=["correlation_id"])
            async with store.transaction() as txn:
                await txn.get("replies")
                monkeypatch.setattr(Pool, "run", counted)
                wanted = quire.Template(correlation_id="mine")
                assert await txn.get("replies", 0.05, where=wanted) is None
                assert len(calls) == 2
                assert await txn.exists("replies", 0.05, where=wanted) is False

    asyncio.run(run())


# A function that answers for AsyncWorkers --------------------------------------------------------
# What it has in common with one of `Workers`: `tests/behaviour/test_requests_and_replies.py`.


async def failing(request: Any, txn: AsyncTransaction) -> bytes:
    """A function that refuses each request for good."""
    raise RequestFailed("no such fruit")


def test_a_request_fails_once_wherever_it_came_from(store_path: str, role: str) -> None:
    """By a pattern, and from a subscription of a topic: its answer takes it from there."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            for name in ("sums.a", "told"):
                await store.create_queue(name, kind="work")
            await store.create_queue("news", kind="topic")
            await store.subscribe("news", "desk")
            workers = AsyncWorkers(store)
            executed: Counter[str] = Counter()

            @workers.answer("sums.*", concurrency=2)
            @workers.answer("news/desk", concurrency=2)
            async def answer(request: Any, txn: AsyncTransaction) -> bytes:
                executed[request.correlation_id] += 1
                return await failing(request, txn)

            for number, queue in enumerate(("sums.a", "sums.a", "news")):
                await store.put(queue, b"x", reply_to="told", correlation_id=str(number))
            async with beside(workers), asyncio.timeout(SECONDS):
                told = [await store.get("told", SECONDS) for _ in range(3)]
                assert {each.attributes["quire.reason"] for each in told if each} == {
                    "no such fruit"
                }
                await until(lambda: sum(info.handled for info in workers.status()) == 3)
            assert executed == {"0": 1, "1": 1, "2": 1}
            assert workers.failures == 0
            for source in ("sums.a", "news/desk"):
                assert not await store.browse(source)

    asyncio.run(main())


def test_a_request_whose_reply_queue_is_gone_is_done_with(
    store_path: str, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for the reply: else it would be executed for ever."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            workers = AsyncWorkers(store)

            async def fine(request: Any, txn: AsyncTransaction) -> None: ...

            for name, function in (("good", fine), ("bad", failing)):
                await store.create_queue(name, kind="work")
                await store.put(name, b"x", reply_to="log", correlation_id="1")
                workers.answer(name)(function)
            async with beside(workers):
                await until(lambda: [info.handled for info in workers.status()] == [1, 1])
            assert not await store.browse("good")
            assert not await store.browse("bad")
            assert workers.failures == 0
            assert [info.handler for info in workers.status()][1] == "failing"

    asyncio.run(main())
    assert caplog.text.count("is not answered: there is no queue 'log'") == 2


def test_a_request_whose_task_is_cancelled_is_there_again(store_path: str, role: str) -> None:
    """Unanswered, with nothing of what its function did."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            for name in ("asked", "told", "log"):
                await store.create_queue(name, kind="work")
            workers = AsyncWorkers(store, grace=0.01)
            begun = asyncio.Event()

            @workers.answer("asked")
            async def answer(request: Any, txn: AsyncTransaction) -> bytes:
                await txn.put("log", b"x")
                begun.set()
                await asyncio.Event().wait()
                return b"never"

            await store.put("asked", b"x", reply_to="told", correlation_id="1")
            async with beside(workers):
                await begun.wait()
            found = [len(await store.browse(name)) for name in ("asked", "told", "log")]
            assert found == [1, 0, 0]

    asyncio.run(main())


def test_what_answers_nothing_is_refused() -> None:
    """When it is given: a plain function, and what `on` refuses."""

    async def main(store: AsyncStore) -> None:
        workers = AsyncWorkers(store)
        with pytest.raises(InvalidArgument, match=r"function .*async def"):
            workers.answer("asked")(lambda request, txn: b"")  # type: ignore[type-var]
        with pytest.raises(InvalidArgument, match="concurrency"):
            workers.answer("asked", concurrency=0)(failing)
        with pytest.raises(InvalidArgument, match="with a handler"):
            await workers.run()

    async def run() -> None:
        async with quire.aio.open(":memory:") as store:
            await main(store)

    asyncio.run(run())


def test_a_request_takes_few_calls_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """One to put it and one for its reply; one to get it, to answer it and to commit that."""
    calls: Counter[str] = Counter()
    run_call = Pool.run

    async def counted(self: Pool, *args: Any, **options: Any) -> Any:
        calls["all"] += 1
        return await run_call(self, *args, **options)

    monkeypatch.setattr(Pool, "run", counted)

    async def run() -> None:
        async with quire.aio.open(":memory:") as store:
            await store.create_queue("asked")
            workers = AsyncWorkers(store)

            @workers.answer("asked")
            async def answer(request: quire.Message, txn: AsyncTransaction) -> bytes:
                return request.payload

            running = asyncio.create_task(workers.run())
            assert (await store.request("asked", b"x", SECONDS)).payload == b"x"
            calls.clear()
            for _ in range(20):
                await store.request("asked", b"x", SECONDS)
            workers.stop()
            await running

    asyncio.run(run())
    assert calls["all"] < 7 * 20  # 5 for each, and some where a reply is late


def test_a_take_that_is_cancelled_is_whole() -> None:
    """At each turn of the loop: a reply that nobody got is not taken, though others commit it."""

    async def take(turns: int) -> bool:
        """Whether it was still cancelled after so many turns."""
        async with quire.aio.open(":memory:") as store:
            await store.create_queue("asked")
            session = await store.session("till")
            number = await session.put("asked", b"x")
            async with store.transaction() as txn:
                request = await txn.get("asked")
                assert request is not None
                await quire.put_reply(txn, request, b"y")
            txn = await store.transaction()
            taking = asyncio.create_task(session.take(number, txn=txn))
            for _ in range(turns):
                await asyncio.sleep(0.0002)
            taking.cancel()
            [taken] = await asyncio.gather(taking, return_exceptions=True)
            is_cancelled = isinstance(taken, asyncio.CancelledError)
            if txn.state == "open":
                await txn.commit()
            state = await session.resolve(number)
            waiting = (await store.queue(session.replies)).messages
            assert (state, waiting) == (("answered", 1) if is_cancelled else ("taken", 0))
            return is_cancelled

    turns = 0
    while asyncio.run(take(turns)):
        turns += 1
    assert turns
