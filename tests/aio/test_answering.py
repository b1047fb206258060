"""Requests that tasks answer, and tasks that wait for replies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import quire
import quire.aio
from quire.aio.pool import Pool
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
