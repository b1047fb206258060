"""The asyncio API called from threads, so that the tests of the other one run over it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import quire.aio
from quire.aio import AsyncSession, AsyncStore
from quire.aio.namespaces import AsyncListeners, AsyncNamespace
from quire.aio.pool import Pool
from quire.aio.transaction import AsyncTransactionIntegration
from quire.errors import StoreClosed
from quire.interface.store import Store
from tests.kit.network import certificates, listening

R = TypeVar("R")


class BehindLoop:
    """A store or a transaction in an event loop that runs in another thread."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if isinstance(value, AsyncListeners):
            return ListenersBehindLoop(value, self._loop)
        if isinstance(value, AsyncNamespace | AsyncTransactionIntegration):
            return BehindLoop(value, self._loop)
        if not inspect.iscoroutinefunction(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            if isinstance(kwargs.get("txn"), BehindLoop):
                kwargs["txn"] = kwargs["txn"]._inner
            found = self._run(value(*args, **kwargs))
            return BehindLoop(found, self._loop) if isinstance(found, AsyncSession) else found

        return call

    @property
    def loop_thread(self) -> str:
        """The name of the event loop's thread."""

        async def name() -> str:
            return threading.current_thread().name

        return self._run(name())

    def transaction(self, *args: Any, **kwargs: Any) -> BehindLoop:
        """Begin one."""

        async def begin() -> Any:
            return await self._inner.transaction(*args, **kwargs)

        return BehindLoop(self._run(begin()), self._loop)

    def put_writer(self, *args: Any, **kwargs: Any) -> Any:
        """Of a transaction."""
        return BehindLoop(self._run(self._inner.put_writer(*args, **kwargs)), self._loop)

    def consume(self, *args: Any, **kwargs: Any) -> Any:
        """Its `async for`, as a plain loop."""
        asked = self._inner.consume(*args, **kwargs)

        async def begin() -> Any:
            return await asked

        return ConsumerBehindLoop(self._run(begin()), self._loop)

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


class ListenersBehindLoop(BehindLoop):
    """What a store in such a loop has as `listeners`."""

    def add(self, *args: Any, **kwargs: Any) -> Any:
        """Its `async for`, as a plain loop."""
        asked = self._inner.add(*args, **kwargs)

        async def begin() -> Any:
            return await asked

        return LoopBehindLoop(self._run(begin()), self._loop)


class LoopBehindLoop(BehindLoop):
    """What is gone through by `async for`."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            return self._run(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None


class ConsumerBehindLoop(LoopBehindLoop):
    """What `consume` of a store in such a loop gives."""

    @property
    def transaction(self) -> Any:
        """The open one."""
        return BehindLoop(self._inner.transaction, self._loop)


@contextmanager
def behind_loop(opened: Callable[[], Coroutine[Any, Any, AsyncStore]]) -> Iterator[Any]:
    """The store that a coroutine opens in an event loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        with BehindLoop(asyncio.run_coroutine_threadsafe(opened(), loop).result(), loop) as store:
            yield store
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def joined_behind_loop(path: str, **options: Any) -> Iterator[Any]:
    """The store at the path, which somebody owns, opened for asyncio."""

    async def opened() -> AsyncStore:
        return await quire.aio.open(path, **options)

    with behind_loop(opened) as store:
        yield store


@contextmanager
def tls_behind_loop(owner: Store) -> Iterator[Any]:
    """An owned store, opened by a URL for asyncio."""
    server, client = certificates()
    with (
        listening(owner, server) as entrance,
        joined_behind_loop(entrance.urls[0], tls=client) as store,
    ):
        yield store


@contextmanager
def owned_behind_loop(owner: Store) -> Iterator[Any]:
    """A store that this process owns, as `quire.aio.open` gives it. At the end it is verified."""

    async def opened() -> AsyncStore:
        return AsyncStore(owner, Pool())

    with behind_loop(opened) as store:
        yield store
        with suppress(StoreClosed):  # a test may have closed it
            report = store.admin.verify()
            assert report.ok, report.findings
