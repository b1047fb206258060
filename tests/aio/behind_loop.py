"""The asyncio API called from threads, so that the tests of the other one run over it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import quire.aio

R = TypeVar("R")


class BehindLoop:
    """A store or a transaction in an event loop that runs in another thread."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name == "failed":
            return self._run(value())
        if not inspect.iscoroutinefunction(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._run(value(*args, **kwargs))

        return call

    def transaction(self, *args: Any, **kwargs: Any) -> BehindLoop:
        """Begin one."""

        async def begin() -> Any:
            return await self._inner.transaction(*args, **kwargs)

        return BehindLoop(self._run(begin()), self._loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._run(self._inner.__aexit__(kind, error, traceback))

    def _run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


@contextmanager
def behind_loop(path: str, **options: Any) -> Iterator[Any]:
    """The store at the path, opened for asyncio."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def opened() -> quire.aio.AsyncStore:
        return await quire.aio.open(path, **options)

    try:
        with BehindLoop(asyncio.run_coroutine_threadsafe(opened(), loop).result(), loop) as store:
            yield store
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
