"""The loop over what a listener is told, for `async for`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Self

from quire.arguments import check_wait
from quire.calls.documented import documented_by
from quire.interface.listening import Course, Listener
from quire.limits import LISTENER_POLL_SECONDS
from quire.moments import Duration
from quire.reports.info import Notice

from .waiting_lines import Lines


@documented_by(Listener)
class AsyncListener:
    """`Listener` for asyncio. One that waits takes no thread."""

    def __init__(self, lines: Lines, course: Course, calls: Listener | None) -> None:
        """`calls`: the one that calls back, if it is to."""
        self._lines = lines
        self._course = course
        self._calls = calls
        self._closed = False
        self._untold: Notice | None = None  # as its task was cancelled
        self._waiting: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<AsyncListener of {self.source}, {'closed' if self.closed else 'open'}>"

    @property
    def source(self) -> str:
        return self._course.request.source

    @property
    def name(self) -> str | None:
        return self._course.request.name

    @property
    def closed(self) -> bool:
        return self._closed or (self._calls is not None and self._calls.closed)

    @property
    def error(self) -> BaseException | None:
        return None if self._calls is None else self._calls.error

    async def get(self, timeout: Duration | None = None) -> Notice | None:
        if self._calls is not None:
            return self._calls.get(timeout)  # which says why not
        loop = asyncio.get_running_loop()
        seconds = check_wait(timeout)
        until = loop.time() + seconds
        while not self._closed:
            found = await self._look()
            left = until - loop.time()
            if found is not None or left <= 0:
                return found
            self._waiting = loop.create_future()
            await self._lines.wait(
                self._course.awaited, min(left, LISTENER_POLL_SECONDS), self._waiting
            )
        return None

    async def _look(self) -> Notice | None:
        """Return the next notice, which is kept where the calling task is cancelled."""
        found, self._untold = self._untold, None
        if found is not None:
            return found
        look = partial(self._course.look, self._lines.store)
        return await self._lines.pool.run(look, self._keep)

    def _keep(self, found: Notice | None) -> None:
        self._untold = found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notice:
        found = await self.get()
        if found is None:
            raise StopAsyncIteration
        return found

    async def close(self) -> None:
        self._closed = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
        if self._calls is not None:
            await self._lines.pool.run(self._calls.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
