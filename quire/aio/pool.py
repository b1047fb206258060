"""How a store object's calls are made for tasks: in threads, where this process owns the store.

- A call that is cancelled before a thread has begun it is never made. One that was begun is waited
  for, whatever is cancelled: nothing goes on behind its caller's back.
- A cancelled call does not wait for a store's owner that does not answer: it is given up after
  `CANCEL_SECONDS`, and ends then.
- PO1: a result that must not be lost (`undo=deliver`) is returned though its caller was cancelled
  once the call had begun. The task is cancelled again where it waits next, unless whoever cancelled
  it has withdrawn that (as `asyncio.timeout` does) or the task has ended.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from quire.calls.errand import Errand
from quire.errors import QuireError, StoreFailed
from quire.limits import AIO_PUTS, AIO_THREADS, CANCEL_SECONDS
from quire.reports.topic_readers import BEHALF, ProgramLine, line_of_program

R = TypeVar("R")
Permits = AbstractAsyncContextManager[Any]


def deliver(result: object) -> None:
    """For `undo`: the result is returned to a caller that was cancelled, too (PO1)."""


class Calls(Protocol):
    """Makes a store object's calls for tasks of one event loop."""

    when_failed: Callable[[], None]
    """Called when a call has met a failed store."""

    @property
    def putting(self) -> Permits:
        """For puts, which may wait for room."""

    @property
    def waiting(self) -> Permits:
        """For calls that wait for what is asked for by what it is."""

    async def run(
        self,
        call: Callable[[], R],
        undo: Callable[[R], object] | None = None,
        *,
        surely: bool = False,
        until: float = math.inf,
        hurry: bool = False,
        in_thread: bool = False,
    ) -> R:
        """Make the call, and return or raise its result.

        If its caller is cancelled and it has succeeded, `undo` is called with what it returned,
        as nobody gets that; with `deliver` the caller gets it (PO1). `surely`: it is made even if
        that caller is cancelled before. `until`: as of an `Errand`. `hurry`: the caller is
        cancelled already. `in_thread`: it waits for others than the store.
        """

    def close(self) -> None:
        """The store object is closed. Calls that were asked for are made still."""


class Pool:
    """The threads that make a store object's calls. For one event loop."""

    def __init__(self) -> None:
        self._threads = _threads()
        self.putting: Permits = asyncio.Semaphore(AIO_PUTS)
        self.waiting: Permits = asyncio.Semaphore(AIO_THREADS // 2)
        self.when_failed: Callable[[], None] = lambda: None

    async def run(
        self,
        call: Callable[[], R],
        undo: Callable[[R], object] | None = None,
        *,
        surely: bool = False,
        until: float = math.inf,
        hurry: bool = False,
        in_thread: bool = True,
    ) -> R:
        """As `Calls.run`, in a thread."""
        errand = Errand(until)
        task = asyncio.current_task()
        cancels_before = task.cancelling() if task is not None else 0
        try:
            job = self._threads.submit(errand.do, partial(called, call, line_of_program()))
        except RuntimeError:  # after `close`: it says so at once, and lets go of what it has
            return call()
        ended = asyncio.wrap_future(job)
        cancelled: asyncio.CancelledError | None = None
        while not ended.done():
            waits = (hurry or cancelled is not None) and not errand.withdrawn
            try:
                await asyncio.wait([ended], timeout=CANCEL_SECONDS if waits else None)
            except asyncio.CancelledError as error:
                if not surely and job.cancel():
                    raise
                cancelled = error
                continue
            if waits and not ended.done():
                errand.give_up()
                if job.cancel():  # no thread is free for it, and it waits for nobody now
                    with suppress(asyncio.CancelledError):
                        await ended
                    ended = asyncio.get_running_loop().create_future()
                    try:
                        ended.set_result(errand.do(call))
                    except Exception as error:  # noqa: BLE001 - raised below
                        ended.set_exception(error)
        return await settle(self, ended, undo, cancelled, cancels_before)

    def rest(self) -> None:
        """End the threads that are there; others begin with the next call."""
        self.close()
        self._threads = _threads()

    def close(self) -> None:
        """The store object is closed. Calls that were asked for are made still."""
        self._threads.shutdown(wait=False)


async def settle(
    calls: Calls,
    ended: asyncio.Future[R],
    undo: Callable[[R], object] | None,
    cancelled: asyncio.CancelledError | None,
    cancels_before: int,
) -> R:
    """Return or raise the result of a call that has ended; `cancelled`: its caller was meanwhile.

    `cancels_before`: how often it was cancelled when the call began.
    """
    failure = ended.exception()
    if isinstance(failure, StoreFailed):
        calls.when_failed()
    if cancelled is None:
        return ended.result()
    if undo is deliver and failure is None and ended.result():
        task = asyncio.current_task()
        assert task is not None  # else nobody could have cancelled it
        asyncio.get_running_loop().call_soon(_cancel_again, task, cancels_before)
        return ended.result()
    if failure is None and undo is not None:
        with suppress(QuireError):  # the transaction is rolled back: it is undone
            await calls.run(partial(undo, ended.result()), surely=True, hurry=True)
    raise cancelled from failure


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AIO_THREADS, "quire-aio")


def called(call: Callable[[], R], line: ProgramLine | None) -> R:
    """Return the call's result; what it warns of names the task's line."""
    BEHALF.line = line
    try:
        return call()
    finally:
        BEHALF.line = None


def _cancel_again(task: asyncio.Task[object], cancels_before: int) -> None:
    """Cancel a task whose cancellation came too late, unless it was withdrawn (PO1)."""
    if not task.done() and task.cancelling() > cancels_before:
        task.uncancel()  # so that it counts as the same one
        task.cancel()
