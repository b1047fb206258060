"""Coroutines that handle messages, each in tasks of its own, until they are told to end.

What becomes of a message, and when one that has failed comes again, is as with threads: WR7 to WR9
of `quire.workers`.

- AW1: a stop, SIGTERM, or the cancellation of who runs them lets the tasks take nothing more. What
  is in work has so many seconds to be finished; then its task is cancelled, which rolls it back:
  its message is there again. A second signal or cancellation ends that time.
- AW2: when `run` ends, by whatever, its tasks have ended; but for those whose handler goes on
  though it was cancelled, for as many seconds again: these are left behind, and logged.
- AW3: who waits for a message is cancelled at once, and has taken none.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

from quire.arguments import check_timeout
from quire.callbacks import check_takes
from quire.definitions.retry import Retry
from quire.definitions.source_pattern import is_pattern
from quire.env import OsEnv
from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    QuireError,
    RequestFailed,
    StoreClosed,
    StoreFailed,
)
from quire.interface.handlers import (
    ENDS,
    NOT_THE_MESSAGE,
    RETRY,
    HandlerRun,
    HandlerTask,
    WorkerInfo,
    check_readable,
    check_workers_retry,
    info_of,
    is_of_no_use,
    name_of,
    reason_of,
)
from quire.interface.sessions.answering import end, reply
from quire.limits import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    WORKERS_GRACE_SECONDS,
)
from quire.messages.message import Message
from quire.selectors.template import SelectorOrTemplate

from .consumer import AsyncConsumer
from .store import AsyncStore
from .transaction import AsyncTransaction

AsyncHandler = Callable[[Any, AsyncTransaction], Awaitable[object]]
H = TypeVar("H", bound=AsyncHandler)
T = TypeVar("T")

_log = logging.getLogger("quire.workers")
_ENV: Final = OsEnv()
_NOBODYS: Final = (signal.SIG_DFL, signal.SIG_IGN)  # what a signal that nobody has taken does
_GIVE: Final = "give a coroutine function (async def); for others there is quire.Workers"


class AsyncWorkers:
    """Coroutines that handle messages, in tasks, with a transaction for each message.

        workers = quire.aio.AsyncWorkers(store)

        @workers.on("orders", concurrency=100)
        async def handle(order, txn):
            await txn.put("bills", order.payload)

        await workers.run()

    What `quire.Workers` says holds here, of tasks instead of threads: a transaction commits when
    its handler returns, and is rolled back if it raises; `grace` and `retry` are as there.
    """

    def __init__(
        self, store: AsyncStore, *, grace: float = WORKERS_GRACE_SECONDS, retry: Retry = RETRY
    ) -> None:
        if not isinstance(store, AsyncStore):
            raise InvalidArgument(f"store {store!r:.100}: give a store of quire.aio.open")
        self._store = store
        self._grace = check_timeout(grace)
        self._retry = check_workers_retry(retry)
        self._tasks: list[HandlerTask] = []
        self._workers: list[_TaskWorker] = []
        self._end: asyncio.Event | None = None
        self._stopped = False

    def __repr__(self) -> str:
        how = "not running" if self._end is None else f"{len(self._workers)} tasks"
        return f"<AsyncWorkers of {', '.join(t.source for t in self._tasks) or 'nothing'}, {how}>"

    def on(
        self,
        source: str,
        *,
        concurrency: int = 1,
        max_messages: int = 1,
        where: SelectorOrTemplate | None = None,
    ) -> Callable[[H], H]:
        """A decorator: the coroutine function is called as `handle(message, txn)` for each message.

        As `Workers.on`; `concurrency` is how many tasks call it. Raises InvalidArgument.
        """
        task_of = HandlerTask.of(source, concurrency, max_messages, where)

        def register(handler: H) -> H:
            _check_coroutine_function("handler", handler)
            self._tasks.append(task_of(handler))
            return handler

        return register

    def answer(self, source: str, *, concurrency: int = 1) -> Callable[[H], H]:
        """A decorator: what the coroutine function returns for a request is put as its reply.

        As `Workers.answer`; `concurrency` is how many tasks call it. Raises InvalidArgument.
        """

        def register(function: H) -> H:
            _check_coroutine_function("function", function)
            self.on(source, concurrency=concurrency)(_answering(self._store, source, function))
            return function

        return register

    async def run(self) -> None:
        """Handle messages until SIGTERM, `stop` or a cancellation, then finish what is in work.

        In the main thread it takes SIGTERM as long as it runs, where nobody else has a handler for
        it: a web server that runs it is to call `stop`. SIGINT cancels the task of `asyncio.run`,
        and so this. A cancellation is raised once all has ended. Raises what
        `Workers.run` raises, in the same cases.
        """
        if self._end is not None or not self._tasks:
            raise InvalidArgument("workers run once at a time, and with a handler: see on")
        for task in self._tasks:
            if not is_pattern(task.source):  # the queues of a pattern may come later
                check_readable(task.source, await self._store.queue(task.source.partition("/")[0]))
            if task.where is not None:  # raises for a wrong selector
                await self._store.browse(task.source, max_messages=1, where=task.where)
        self._end = end = asyncio.Event()
        self._workers = [
            _TaskWorker(self._store, task, end, self._retry)
            for task in self._tasks
            for _ in range(task.concurrency)
        ]
        if self._stopped:
            end.set()
        hurry = asyncio.Event()  # a second signal
        try:
            with _sigterm(end, hurry):
                for worker in self._workers:
                    worker.start()
                try:
                    await end.wait()
                finally:
                    end.set()
                    await self._finish(hurry)
        finally:
            self._end, self._stopped = None, False
        for worker in self._workers:
            if worker.run.ended_by is not None:
                raise worker.run.ended_by

    def stop(self) -> None:
        """Let `run` finish what is in work, and return; before it, it returns at once.

        For tasks of the same event loop, a handler too: nothing waits here.
        """
        self._stopped = True
        if self._end is not None:
            self._end.set()

    @property
    def failures(self) -> int:
        """How often a message was not handled and is there again, since `run` began."""
        return sum(worker.run.failures for worker in self._workers)

    def status(self) -> list[WorkerInfo]:
        """Return each handler's progress since `run` began, in the order of their adding."""
        runs = [worker.run for worker in self._workers]
        return [info_of(task, runs, self._running(task)) for task in self._tasks]

    def _running(self, task: HandlerTask) -> int:
        own = [worker.task for worker in self._workers if worker.run.task is task]
        return sum(each is not None and not each.done() for each in own)

    async def _finish(self, hurry: asyncio.Event) -> None:
        """AW1 and AW2. A cancellation meanwhile is raised at the end."""
        tasks = [worker.task for worker in self._workers if worker.task is not None]
        for worker in self._workers:
            worker.end_wait()
        hurrying = asyncio.ensure_future(hurry.wait())
        cancelled: asyncio.CancelledError | None = None
        try:
            cancelled = await _ended(tasks, self._grace, hurrying)
            late = [task for task in tasks if not task.done()]
            for task in late:
                task.cancel()
            cancelled = await _ended(late, max(self._grace, 1.0)) or cancelled
        finally:
            hurrying.cancel()
        for worker in self._workers:
            if worker.task is not None and not worker.task.done():
                _log.warning("%s goes on though it was cancelled: left behind", worker.run.label)
        if cancelled is not None:
            raise cancelled


def _check_coroutine_function(what: str, function: AsyncHandler) -> None:
    """Raises InvalidArgument for any other."""
    if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - of an object that can be called
    ):
        raise InvalidArgument(f"{what} {function!r:.100}: {_GIVE}")
    check_takes(what, function, 2, _GIVE)


def _answering(store: AsyncStore, source: str, function: AsyncHandler) -> AsyncHandler:
    """A handler that puts what the function returns for a request as its reply."""

    async def handle(request: Message, txn: AsyncTransaction) -> None:
        own: Any = txn._inner
        try:
            payload: Any = await function(request, txn)
        except RequestFailed as error:
            await txn._step(partial(end, store._inner, source, request, own, error))
        else:
            await txn._step(partial(reply, store._inner, own, request, payload))

    handle.__qualname__ = name_of(function)
    return handle


async def _ended(
    tasks: list[asyncio.Task[None]], seconds: float, hurrying: asyncio.Future[Any] | None = None
) -> asyncio.CancelledError | None:
    """Wait until all have ended, for so long, or until somebody hurries; who else has cancelled."""
    until = _ENV.monotonic() + seconds
    more = [] if hurrying is None else [hurrying]
    while any(not task.done() for task in tasks):
        left = until - _ENV.monotonic()
        if left <= 0 or any(each.done() for each in more):
            break
        waiting = [task for task in tasks if not task.done()]
        try:
            await asyncio.wait([*waiting, *more], timeout=left, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError as error:
            return error
    return None


@contextmanager
def _sigterm(end: asyncio.Event, hurry: asyncio.Event) -> Iterator[None]:
    """In the main thread, SIGTERM ends them for the length of a block; not if others have it."""
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or before not in _NOBODYS:
        yield
        return
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        (hurry if end.is_set() else end).set()

    loop.add_signal_handler(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)


class _TaskWorker:
    """A task of a handler."""

    def __init__(
        self, store: AsyncStore, task: HandlerTask, end: asyncio.Event, retry: Retry
    ) -> None:
        self.run = HandlerRun(task, retry)
        self.task: asyncio.Task[None] | None = None
        self._store = store
        self._end = end
        self._waits = False  # for a message, or for the end of a pause

    def start(self) -> None:
        """In a task of its own."""
        self.task = asyncio.create_task(self._run(), name=f"quire-worker-{self.run.task.source}")

    def end_wait(self) -> None:
        """It is to end, and handles nothing now (AW3)."""
        if self._waits and self.task is not None:
            self.task.cancel()

    async def _waiting(self, what: Awaitable[T]) -> T:
        self._waits = True
        try:
            return await what
        finally:
            self._waits = False

    async def _run(self) -> None:
        try:
            run, pause = self.run, FIRST_PAUSE_SECONDS
            while not self._end.is_set():
                before = run.handled
                has_failed = await self._handle_until_a_failure()
                if run.handled > before or run.is_later:
                    pause = FIRST_PAUSE_SECONDS
                if has_failed and not run.is_later and not self._end.is_set():
                    await self._waiting(asyncio.sleep(pause))
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        except (StoreClosed, StoreFailed, ConnectionLost, *ENDS) as error:
            self.run.ended_by = error
        finally:
            self._end.set()  # the others are not to go on without it

    async def _handle_until_a_failure(self) -> bool:
        """Handle messages; return True after a failure, False to stop or to take other numbers."""
        run = self.run
        found: Any = None
        try:
            async with self._store._consumer(run.options()) as messages:
                while not self._end.is_set():
                    found = None
                    found = await self._waiting(anext(messages))
                    try:
                        await self._handle(found, messages)
                    except Exception as error:
                        await self._give_back(found, messages.transaction, error)
                        raise
                    if run.note_handled(found):
                        break
        except StoreClosed:
            raise
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # logged, and the message is there again
            run.note_failure(error, found)
            if isinstance(error, ENDS) or is_of_no_use(self._store._inner, error):
                raise
            return True
        return False

    async def _handle(self, found: Any, messages: AsyncConsumer[Any]) -> None:
        task = asyncio.current_task()
        try:
            await self.run.task.handler(found, messages.transaction)
        except asyncio.CancelledError as error:
            if task is not None and task.cancelling():
                raise
            raise RuntimeError("the handler was cancelled, by none who ends the workers") from error
        await messages.acknowledge()

    async def _give_back(self, found: Any, transaction: AsyncTransaction, error: Exception) -> None:
        """Reject messages whose handler has failed (WR7 to WR9); the rest is rolled back."""
        if isinstance(error, NOT_THE_MESSAGE) or transaction.state != "open":
            return
        messages: list[Message] = [found] if isinstance(found, Message) else list(found)
        with suppress(QuireError):  # then it is there again at once
            info = await self._store.queue(self.run.task.source.partition("/")[0])
            if self.run.rejects(messages, info) and not await self._is_exclusive():
                for message in messages:
                    await transaction.reject(message, reason_of(error), self.run.delay)
                self.run.note_rejected(messages, info)

    async def _is_exclusive(self) -> bool:
        queue, slash, _ = self.run.task.source.partition("/")
        return bool(slash) and self.run.reads_exclusively(await self._store.subscriptions(queue))
