"""Loops and calls of asyncio that take messages in transactions of their own, and are cancelled."""

from __future__ import annotations

import asyncio

import pytest

from quire.aio import AsyncStore
from tests.aio.test_waiting import in_line, opened


async def collect(store: AsyncStore, found: list[bytes]) -> None:
    """Handle what comes."""
    async with store.consume("work") as messages:
        async for message in messages:
            found.append(message.payload)  # noqa: PERF401 -- one by one, as it may be cancelled


@pytest.mark.parametrize("kind", ["get", "get_many", "consume"])
def test_one_that_waits_has_taken_nothing(store_path: str, role: str, kind: str) -> None:
    """When it is cancelled; the next in line gets the message."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            if kind == "consume":
                waiting = asyncio.create_task(collect(store, []))
            else:
                waiting = asyncio.create_task(getattr(store, kind)("work", timeout=60.0))
            await in_line(store, "work", 1)
            second = asyncio.create_task(store.get("work", timeout=60.0))
            await in_line(store, "work", 2)
            waiting.cancel()
            await store.put("work", b"x")
            message = await second
            assert message is not None
            assert (message.payload, message.delivery_count) == (b"x", 1)
            assert waiting.cancelled()

    asyncio.run(main())


def test_a_loop_that_is_cancelled_in_its_body(store_path: str, role: str) -> None:
    """Has its message there again; those before it are done with."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            await store.put_many("work", [b"1", b"2"])
            reached = asyncio.Event()

            async def handle() -> None:
                async with store.consume("work") as messages:
                    async for message in messages:
                        if message.payload == b"2":
                            reached.set()
                            await asyncio.Event().wait()

            task = asyncio.create_task(handle())
            await reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await store.get_many("work")).payloads() == [b"2"]
            assert await store.admin.transactions() == []

    asyncio.run(main())


def test_many_loops_wait_without_threads(store_path: str, role: str) -> None:
    """A hundred of them, each of which gets its message."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            found: list[bytes] = []
            async with asyncio.TaskGroup() as tasks:
                loops = [tasks.create_task(collect(store, found)) for _ in range(100)]
                await in_line(store, "work", 100)
                payloads = [b"%d" % n for n in range(200)]
                await store.put_many("work", payloads)
                while (await store.queue("work")).messages:
                    await asyncio.sleep(0.01)
                for loop in loops:
                    loop.cancel()
            assert sorted(found) == sorted(payloads)

    asyncio.run(main())


def test_a_loop_needs_its_block(store_path: str) -> None:
    """Or to be awaited, and closed: nothing else could end its transaction in an event loop."""

    async def main() -> None:
        async with opened(store_path, "owner") as store:
            await store.create_queue("work", kind="work")
            await store.put("work", b"1")
            with pytest.raises(TypeError):
                async for _ in store.consume("work"):  # type: ignore[attr-defined]
                    pass
            messages = await store.consume("work")
            assert repr(messages) == "<AsyncConsumer of work>"
            assert (await anext(messages)).payload == b"1"
            await messages.close()
            assert (await store.get_many("work")).payloads() == [b"1"]

    asyncio.run(main())
