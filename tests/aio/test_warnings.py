"""What is warned of in a thread names the line of the task that has called."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import quire
import quire.aio
from quire.aio import AsyncStore
from quire.errors import NobodyReads
from tests.aio.test_waiting import opened


async def _put(store: AsyncStore) -> int:
    await store.put("t", b"x")
    return _line_before()


async def _put_in_a_transaction(store: AsyncStore) -> int:
    async with store.transaction() as txn:
        await txn.put("t", b"x", sender="me")
        return _line_before()


async def _put_as_a_stream(store: AsyncStore) -> int:
    await store.put_stream("t", [b"x" * 100])
    return _line_before()


def _line_before() -> int:
    """The line before that of the caller."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno - 1


@pytest.mark.parametrize("put", [_put, _put_in_a_transaction, _put_as_a_stream])
def test_a_topic_that_nobody_reads_names_the_line_that_puts(
    tmp_path: Path, role: str, put: Callable[[AsyncStore], Awaitable[int]]
) -> None:
    """It is the task's line, none of Quire's, of asyncio's or of the thread's."""

    async def run() -> None:
        async with opened(str(tmp_path), role) as store:
            await store.create_queue("t", kind="topic")
            with pytest.warns(NobodyReads) as warned:
                line = await put(store)
            assert [(each.filename, each.lineno) for each in warned] == [(__file__, line)]

    asyncio.run(run())


def test_a_put_that_is_a_task_itself_names_the_line_that_runs_the_loop() -> None:
    """No line of the program is on the task's stack, so the loop's counts."""

    async def run() -> None:
        async with quire.aio.open(":memory:") as store:
            await store.create_queue("t", kind="topic")
            await asyncio.create_task(store.put("t", b"x"))

    with pytest.warns(NobodyReads) as warned:
        asyncio.run(run())
    assert [each.filename for each in warned] == [__file__]
