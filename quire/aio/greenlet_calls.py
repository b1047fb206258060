"""The calls of a joined store, each in a greenlet of the event loop's thread.

The client is the one for threads. Where that waits, for its connection, for another call or for a
time (`remote/client/waits.py`), the greenlet suspends, and its task awaits a future of the loop.

- GC1: a greenlet runs within a step of its task alone, and is suspended at the step's end. So the
  loop, and all that runs there between two steps, is outside of calls: what is noted of a thread's
  call (UI7, its errand, for whose line it is) goes with the greenlet.
- GC2: nothing that is to wake a greenlet is missed: whoever waits notes that nobody has woken it,
  then says where it is to be woken, then looks at what it waits for, and suspends last.
- GC3: a task that is cancelled waits for its call, which is given up after `CANCEL_SECONDS`
  (CH5): so the promises of `pool` hold here too, PO1 among them.
- GC4: a call whose task is dropped, as that of a loop that was closed, is interrupted where it
  waits (CH1), and waits no more. So a greenlet, which the interpreter cannot find unused, has no
  reference to its task, nor to a future that has one.
- GC5: a call that meets the store that this process owns by now, and so waits for the disk, does
  that in a thread (`offload`). Calls that begin later are made by the pool.
- A function or a generator of the caller, which may wait for anything, is not run here
  (`in_thread`).
- GC6: each call lets other tasks run, that whose answer comes at once, too: as answers are looked
  for before the greenlet is suspended, a task that does nothing but call would else run alone.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from contextvars import copy_context
from functools import partial
from threading import get_ident
from typing import Any, Final, Generic, TypeVar, cast

from greenlet import GreenletExit, getcurrent, greenlet

from quire.calls.errand import Errand, doing
from quire.calls.signal_safety import suspended
from quire.calls.wake_up import Thread
from quire.limits import CANCEL_SECONDS, FOREVER_SECONDS
from quire.remote.client import waits
from quire.remote.client.joined_store import JoinedStore
from quire.remote.client.waits import ClientWakeUp, PollEvents, WaitedSocket
from quire.reports.topic_readers import BEHALF, line_of_program

from .pool import Permits, Pool, called, settle

R = TypeVar("R")

_FREE: Final[Permits] = nullcontext()


class GreenletCalls:
    """Makes a joined store's calls in greenlets; those of one that this process owns by its pool.

    For one event loop.
    """

    def __init__(self, store: JoinedStore, pool: Pool) -> None:
        self._store = store
        store.is_called_in_greenlets = True
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        pool.rest()  # it has opened the store

    @property
    def _is_owned(self) -> bool:
        return self._store.role == "owner"

    @property
    def when_failed(self) -> Callable[[], None]:
        return self._pool.when_failed

    @when_failed.setter
    def when_failed(self, action: Callable[[], None]) -> None:
        self._pool.when_failed = action

    @property
    def putting(self) -> Permits:
        return self._pool.putting if self._is_owned else _FREE

    @property
    def waiting(self) -> Permits:
        return self._pool.waiting if self._is_owned else _FREE

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
        """As `Calls.run`."""
        if in_thread or self._is_owned:
            return await self._pool.run(call, undo, surely=surely, until=until, hurry=hurry)
        task = asyncio.current_task()
        cancels_before = task.cancelling() if task is not None else 0
        made = GreenletCall(self._loop, call, Errand(until))
        if hurry:
            made.give_up_later()
        cancelled: asyncio.CancelledError | None = None
        try:
            awaited: Awaitable[None] | None = made.go_on() or asyncio.sleep(0)  # (GC6)
            while awaited is not None:
                try:
                    await awaited
                except asyncio.CancelledError as error:
                    if cancelled is None and not hurry:
                        made.give_up_later()
                    cancelled = error
                awaited = made.go_on()
        except BaseException:  # GC4
            made.interrupt()
            raise
        finally:
            made.end()
        return await settle(self, made.ended, undo, cancelled, cancels_before)

    def close(self) -> None:
        """As `Calls.close`."""
        self._pool.close()


class GreenletCall(greenlet, Generic[R]):  # type: ignore[misc]  # it has no types
    """A call in a greenlet."""

    parent: Any
    dead: bool

    def __init__(
        self, loop: asyncio.AbstractEventLoop, call: Callable[[], R], errand: Errand
    ) -> None:
        super().__init__()
        self.gr_context = copy_context()
        self.thread = get_ident()
        self.ended: asyncio.Future[R] = loop.create_future()
        self._loop = loop
        self._call = partial(called, call, line_of_program())
        self._errand = errand
        self._is_woken = False
        self._is_interrupted = False
        self._new: asyncio.Future[None] | None = None  # for the task
        self._awaited: weakref.ref[asyncio.Future[None]] | None = None  # by the task (GC4)
        self._giving_up: asyncio.TimerHandle | None = None

    # For its task

    def go_on(self) -> asyncio.Future[None] | None:
        """Go on until it waits; return the future of that, or None if it has ended."""
        if self._awaited is not None and not self._is_woken:  # its task was cancelled
            self._new = self._loop.create_future()
        elif not self.dead:
            here = getcurrent()
            if self.parent is not here:
                self.parent = here
            self.switch()
        future, self._new = self._new, None
        self._awaited = None if future is None else weakref.ref(future)
        return future

    def give_up_later(self) -> None:
        """Its caller is cancelled: it waits for an owner no longer than that allows (GC3)."""
        self._giving_up = self._loop.call_later(CANCEL_SECONDS, self._errand.give_up)

    def interrupt(self) -> None:
        """Leave the call where it is suspended, as an interrupt does (GC4)."""
        self._is_interrupted = True
        if self._awaited is not None and not self.dead and self.thread == get_ident():
            self.parent = getcurrent()
            suspended(self.throw)

    def end(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()

    # In the greenlet

    def run(self) -> None:
        try:
            self.ended.set_result(self._errand.do(self._call))
        except Exception as error:  # noqa: BLE001 - raised by `settle`
            self.ended.set_exception(error)

    def suspend(self, seconds: float = math.inf) -> None:
        """Let others run until it is woken, or for so many seconds (GC1)."""
        if self._is_interrupted:
            raise GreenletExit
        if self._is_woken:
            self._is_woken = False
            return
        loop = self._loop
        timer = (
            loop.call_later(max(seconds, 0.0), self._wake) if seconds < FOREVER_SECONDS else None
        )
        line = BEHALF.line
        self._new = loop.create_future()
        try:
            del doing[self.thread]
            BEHALF.line = None
            suspended(self.parent.switch)
        finally:
            doing[self.thread] = self._errand
            BEHALF.line = line
            self._new = None
            self._is_woken = False
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """Have it go on, by any thread."""
        here = getcurrent()
        if type(here) is GreenletCall and here.thread == self.thread:
            self._wake()  # the loop runs, and looks before it waits
            return
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._is_woken = True
        future = None if self._awaited is None else self._awaited()
        if future is not None and not future.done():
            future.set_result(None)

    def poll_for(self, poller: WaitedSocket, seconds: float) -> PollEvents:
        """As `waits.poll_for`."""
        loop, number = self._loop, poller.socket_number
        self._is_woken = False  # first (GC2)
        poller.on_wake = self.wake
        try:
            found = poller.poll.poll(0)
            if found:
                return found
            loop.add_reader(number, self._wake)
            if poller.room:
                loop.add_writer(number, self._wake)
            try:
                self.suspend(seconds)
            finally:
                if not loop.is_closed():
                    loop.remove_reader(number)
                    if poller.room:
                        loop.remove_writer(number)
            return poller.poll.poll(0)
        finally:
            poller.on_wake = None

    def wait_for(self, wake_up: ClientWakeUp, seconds: float) -> bool:
        """As `WakeUp.wait`."""
        self._is_woken = False
        wake_up.on_set = self.wake
        try:
            time = self._loop.time
            until = time() + seconds
            while not wake_up.take():
                left = until - time()
                if left <= 0:
                    return False
                self.suspend(left)
            return True
        finally:
            wake_up.on_set = None

    def offload(self, action: Callable[[], R]) -> R:
        """Do it in a thread of its own, as those of the pool may all wait for room (GC5)."""
        self._is_woken = False
        results: list[tuple[R | None, BaseException | None]] = []
        errand, line = self._errand, BEHALF.line

        def make() -> None:
            try:
                results.append((errand.do(partial(called, action, line)), None))
            except BaseException as error:  # noqa: BLE001 - raised in the greenlet
                results.append((None, error))
            self.wake()

        Thread(make, name="quire-aio-offloaded").start()
        while not results:
            self.suspend()
        result, failure = results[0]
        if failure is not None:
            raise failure
        return cast("R", result)


def _get_greenlet() -> GreenletCall[Any] | None:
    """Return the call in whose greenlet this is."""
    here = getcurrent()
    return here if type(here) is GreenletCall else None


waits.use_greenlets(_get_greenlet)
