"""Waiting for messages, without a thread: the tasks that wait for a source stand in line.

- The first of a line alone looks whether something is there, when the store says that there may be.
  What it finds it takes, and then it is the next one's turn: so a message wakes one task, and
  however many wait, nobody who came later gets it first.
- AL2: no arrival is missed: whose turn it is has the store tell of what is there already, too.
- AL4: a transaction that has messages of the source has a line of its own, since there may be some
  for it alone: the next of their groups, or of an exclusive subscription. The store may have told
  others of them, so it looks again after a while.
- Nothing is taken for a task that is cancelled, or whose time is over.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Final, TypeVar

from quire.env import OsEnv
from quire.interface.store import Store
from quire.limits import AIO_THREADS, CHOSEN_WAIT_SECONDS, FOREVER_SECONDS, INTERVAL_SECONDS

from .pool import Calls

R = TypeVar("R")

_ENV: Final = OsEnv()


class _SourceLine:
    """The line of tasks that wait for one source."""

    __slots__ = ("may_have", "turn", "waiting")

    def __init__(self, may_have: bool) -> None:
        self.turn = asyncio.Lock()  # in the order in which it was asked for
        self.waiting = 0
        self.may_have = may_have  # something; else the store is asked to tell


class Lines:
    """Those of a store object, and what its calls are made with. For one event loop."""

    def __init__(self, store: Store, pool: Calls) -> None:
        self.store = store
        self.pool = pool
        self._loop = asyncio.get_running_loop()
        self._lines: dict[tuple[str, object], _SourceLine] = {}
        # So many look at a time: others' calls, as those that end transactions, come in between.
        self._looking = asyncio.Semaphore(AIO_THREADS // 2)
        self._ready: deque[asyncio.Future[None]] = deque()
        self._called = False
        self._checks = False
        self._limits: dict[asyncio.Timeout, Callable[[], bool]] = {}

    async def take(
        self,
        source: str,
        seconds: float,
        look: Callable[[float], Awaitable[R | None]],
        is_over: Callable[[], bool],
        holder: object = None,
    ) -> R | None:
        """Return the result of `look`, once it has one; None if the time was over before.

        `look` is told until when its caller waits, on the clock of `time.monotonic`: it waits for
        no owner much longer. `is_over`: whether waiting is of no use any more: then `look` is to
        say why. `holder`: the transaction, if it has messages of the source (AL4).
        """
        until = self._loop.time() + seconds
        end = _ENV.monotonic() + seconds
        while True:
            limit = asyncio.timeout_at(until)
            try:
                async with limit:
                    return await self._stand_in_line(
                        source, partial(look, end), limit, is_over, holder
                    )
            except TimeoutError:
                if not limit.expired():  # it is the transaction's
                    raise
            if is_over():
                found = await look(end)
                if found is not None:
                    return found
            if self._loop.time() >= until:
                return None

    async def _stand_in_line(
        self,
        source: str,
        look: Callable[[], Awaitable[R | None]],
        limit: asyncio.Timeout,
        is_over: Callable[[], bool],
        holder: object,
    ) -> R:
        key = source, holder
        line = self._lines.get(key)
        if line is None:
            # To look costs a thread, and a transaction of a joined store a connection, unless it
            # has one; to be told that there is something costs neither.
            line = self._lines[key] = _SourceLine(holder is not None)
        line.waiting += 1
        self._watch(limit, is_over)
        try:
            async with line.turn:
                while True:
                    if not line.may_have:
                        await self.wait(source, None if holder is None else INTERVAL_SECONDS)
                    until = limit.when()
                    async with self._looking:
                        limit.reschedule(None)  # who takes something gets it
                        line.may_have = False
                        try:
                            found = await look()
                        except BaseException:  # it may be the others' trouble, too
                            line.may_have = True
                            raise
                    if found is not None:
                        line.may_have = True
                        return found
                    limit.reschedule(until)
        finally:
            self._limits.pop(limit, None)
            line.waiting -= 1
            if not line.waiting:
                del self._lines[key]

    async def look_for(
        self,
        look: Callable[[float], R | None],
        seconds: float,
        undo: Callable[[R | None], object] | None = None,
    ) -> R | None:
        """Return what a look finds that waits by itself, a while at a time; None: nothing came.

        Where something is asked for by what it is, nobody tells when it is there. `undo`: as for
        `Pool.run`.
        """
        end = self._loop.time() + seconds
        until = _ENV.monotonic() + seconds if seconds < FOREVER_SECONDS else math.inf
        wait = 0.0
        while True:
            async with self.pool.waiting if wait else nullcontext():
                found = await self.pool.run(partial(look, wait), undo, until=until)
            wait = min(end - self._loop.time(), CHOSEN_WAIT_SECONDS)
            if found is not None or wait <= 0:
                return found

    # When the store tells of something (AL2)

    async def wait(
        self, source: str, seconds: float | None, ready: asyncio.Future[None] | None = None
    ) -> None:
        """Until there may be something, for so many seconds, or until `ready` is set."""
        ready = self._loop.create_future() if ready is None else ready
        ask = partial(self.store.integration.when_ready, source, partial(self._tell, ready))
        if self.store.role == "owner":  # who waits for nobody
            withdraw = ask()
        else:
            withdraw = await self.pool.run(ask, lambda withdraw: withdraw())
        try:
            await asyncio.wait((ready,), timeout=seconds)
        finally:
            ready.cancel()
            withdraw()

    def _tell(self, ready: asyncio.Future[None]) -> None:
        """Called by any thread, and often for many at once."""
        self._ready.append(ready)
        if not self._called:
            self._called = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._called = False
        while self._ready:
            ready = self._ready.popleft()
            if not ready.done():
                ready.set_result(None)

    # When waiting is of no use

    def _watch(self, limit: asyncio.Timeout, is_over: Callable[[], bool]) -> None:
        self._limits[limit] = is_over
        if not self._checks:
            self._checks = True
            self._loop.call_later(INTERVAL_SECONDS, self._check)

    def _check(self) -> None:
        """From time to time, for all."""
        for limit, is_over in list(self._limits.items()):
            if limit.when() is not None and not limit.expired() and is_over():
                limit.reschedule(self._loop.time())
                del self._limits[limit]
        self._checks = bool(self._limits)
        if self._checks:
            self._loop.call_later(INTERVAL_SECONDS, self._check)
