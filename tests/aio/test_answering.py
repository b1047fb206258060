"""Requests that tasks answer, and tasks that wait for replies."""

from __future__ import annotations

import asyncio

import quire
import quire.aio
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
