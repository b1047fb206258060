"""Functions that handle messages, each in threads of its own, until the program is told to end.

- A message is handled in a transaction, which commits when its handler returns. An exception rolls
  it back, and is logged. A handler that returns a coroutine or a generator has done nothing yet:
  that is such an exception.
- WR2: a stop lets the threads take nothing more. What is in work has so many seconds to be
  finished; then its transaction is rolled back from outside, by the name that it was begun under.
- WR3: `run` returns when the threads have ended. One whose handler goes on in spite of all is left
  behind, and logged: no thread can be ended from outside. It keeps no process from ending.
- WR6: a store that this process owns and whose disk has failed takes no commit any more: then the
  threads end, and `run` raises StoreFailed. One that another process owns gets its next owner,
  but for a connection to one owner (`quire.connect`): they end with that, by ConnectionLost.
- WR7: a message whose handler has failed is given back with a delay that grows from failure to
  failure of that message (the queue's `retry`, else the workers'), and the thread goes on with the
  next one. So one that always fails stops nobody. In an ordered group the others of its group wait
  for it.
- WR8: where others must not overtake it (an order by sequence, an exclusive subscription), and
  where the failure is not the message's (there is no room for what was put, the owner is gone, the
  commit failed), it is there again at once, and the thread goes on after a pause that grows from
  failure to failure, up to a bound, and begins anew after a success.
- A handler that raises what ends a thread (SystemExit, KeyboardInterrupt) ends them all, and `run`
  raises it: to whoever started the program it does not look like an end that was asked for.
- WR9: a batch that has failed is taken again one message at a time.
- WR10: while it runs, handlers of signals that the program has run in the waits of `run` alone: one
  that raises leaves no thread at work that is not told to end, and no file of it open.
- A signal handler only sets a flag (see `quire.remote.server.signals`); the thread of `run` reads
  it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from quire.arguments import check_timeout
from quire.callbacks import check_done, check_function, check_takes
from quire.env import OsEnv
from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    QuireError,
    StoreClosed,
    StoreFailed,
)
from quire.libraries.late_imports import importing
from quire.limits import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    STOP_POLL_SECONDS,
    WORKERS_GRACE_SECONDS,
)

from .calls.errand import Errand
from .calls.signal_safety import defer_signals, waiting
from .calls.wake_up import Thread, WakeUp
from .definitions.retry import Retry
from .definitions.source_pattern import is_pattern
from .interface.consumer import Consumer
from .interface.handlers import (
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
    reason_of,
)
from .interface.sessions.answering import answering
from .interface.store import Store
from .interface.transaction import Transaction
from .messages.message import Message
from .selectors.template import SelectorOrTemplate

if TYPE_CHECKING:
    from .remote.server.signals import SignalFlag

Handler = Callable[[Any, Any], object]
H = TypeVar("H", bound=Handler)

_log = logging.getLogger("quire.workers")
_ENV: Final = OsEnv()
_GIVE: Final = (
    "give a function of a message and its transaction that has done its work when it returns; for "
    "coroutines there is quire.aio.AsyncWorkers"
)


class Workers:
    """Functions that handle messages, in threads, with a transaction for each message.

        workers = quire.Workers(store)

        @workers.on("orders", concurrency=2)
        def handle(order, txn):
            txn.put("bills", order.payload)

        workers.run()

    A transaction commits when its handler returns. If the handler raises, it is rolled back, and
    the logger `quire.workers` has the error: the message comes again later, longer each time, and
    the thread goes on with the next one. `message.delivery_count` tells how often a message came; a
    handler that gives one up puts it elsewhere and returns, or the queue does so by itself
    (`max_deliveries`).

    `grace`: seconds that messages in work have to be finished once it is to stop. `retry`: when a
    message that has failed comes again, where its queue has no `retry` of its own; by default after
    half a second, then twice as long each time, up to five minutes.
    """

    def __init__(
        self,
        store: Store,
        *,
        grace: float = WORKERS_GRACE_SECONDS,
        retry: Retry = RETRY,
    ) -> None:
        has = getattr(store, "queue", store)
        check_function("store's method", has, "give a store of quire.open")
        self._store = store
        self._grace = check_timeout(grace)
        self._retry = check_workers_retry(retry)
        self._tasks: list[HandlerTask] = []
        self._threads: list[_Worker] = []
        self._end: SignalFlag | None = None
        self._stopped = False

    def __repr__(self) -> str:
        how = "not running" if self._end is None else f"{len(self._threads)} threads"
        return f"<Workers of {', '.join(t.source for t in self._tasks) or 'nothing'}, {how}>"

    def on(
        self,
        source: str,
        *,
        concurrency: int = 1,
        max_messages: int = 1,
        where: SelectorOrTemplate | None = None,
    ) -> Callable[[H], H]:
        """A decorator: the function is called as `handle(message, txn)` for each message.

        `source`: "queue", "queue/subscription", or a pattern as "orders.*", of all whose queues it
        gets in turn. `concurrency`: how many threads call it. With `max_messages` above 1 it is
        given `Messages`, up to so many, in one transaction. `where`: only those of one queue that a
        selector or a `Template` holds for, as for `Store.consume`. It has done its work when it
        returns: what makes a coroutine or a generator is refused, and what returns one has failed.
        Raises InvalidArgument.
        """
        task_of = HandlerTask.of(source, concurrency, max_messages, where)

        def register(handler: H) -> H:
            check_function("handler", handler, _GIVE)
            check_takes("handler", handler, 2, _GIVE)
            self._tasks.append(task_of(handler))
            return handler

        return register

    def answer(self, source: str, *, concurrency: int = 1) -> Callable[[H], H]:
        """A decorator: what the function returns for a request, bytes, is put as its reply.

        It is called as `answer(request, txn)`; the reply and what it puts are one transaction with
        the request's get. RequestFailed of it ends the request with that error. Any other exception
        is a failure as of any handler: the request comes again, and its client is told once it is a
        dead letter (`max_deliveries`). A message that asks for no reply is handled, too. `source`
        and `concurrency` as for `on`. Raises InvalidArgument.
        """

        def register(function: H) -> H:
            check_function("function", function, _GIVE)
            check_takes("function", function, 2, _GIVE)
            self.on(source, concurrency=concurrency)(answering(self._store, source, function))
            return function

        return register

    def run(self) -> None:
        """Handle messages until SIGTERM, SIGINT or `stop`, then finish what is in work.

        Called by the main thread, it takes the two signals as long as it runs; by another one, only
        `stop` ends it. A second signal ends the grace, `stop` called again does not. What the
        handler of another signal raises has the threads end as a signal does, then `run` raises it;
        it ends the grace, too. Raises QueueNotFound, SubscriptionNotFound,
        InvalidSelector and InvalidArgument before anything is handled, StoreClosed if the store was
        closed, StoreFailed if it has failed and has to be opened again, ConnectionLost if the owner
        that `quire.connect` connected to is gone, and the SystemExit or KeyboardInterrupt of a
        handler.
        """
        defer_signals(self._run)

    def _run(self) -> None:
        """Run, while handlers of signals run in the waits alone (WR10)."""
        with importing():
            from quire.remote import stop_on_signals

        if self._end is not None or not self._tasks:
            raise InvalidArgument("workers run once at a time, and with a handler: see Workers.on")
        for task in self._tasks:
            _check_there(self._store, task)
        with stop_on_signals() as end:
            self._threads = [
                _Worker(self._store, task, end, self._retry)
                for task in self._tasks
                for _ in range(task.concurrency)
            ]
            self._end = end
            try:
                for worker in self._threads:
                    worker.thread.start()
                if not self._stopped:
                    waiting(end.wait)
            finally:
                try:
                    self._finish(end)
                finally:
                    self._end, self._stopped = None, False
        for worker in self._threads:
            if worker.run.ended_by is not None:
                raise worker.run.ended_by

    def stop(self) -> None:
        """Let `run` finish what is in work, and return; before it, it returns at once.

        For any thread, a handler or a signal handler: nothing waits here.
        """
        self._stopped = True
        end = self._end
        if end is not None:
            with suppress(OSError):  # it has just returned
                end.set()

    @property
    def failures(self) -> int:
        """How often a message was not handled and is there again, since `run` began."""
        return sum(worker.run.failures for worker in self._threads)

    def status(self) -> list[WorkerInfo]:
        """Return each handler's progress since `run` began, in the order of their adding."""
        runs = [worker.run for worker in self._threads]
        return [info_of(task, runs, self._running(task)) for task in self._tasks]

    def _running(self, task: HandlerTask) -> int:
        return sum(each.thread.is_alive() for each in self._threads if each.run.task is task)

    def _finish(self, end: SignalFlag) -> None:
        """End the threads, as WR2 and WR3 say; raise what a handler of a signal did (WR10)."""
        interrupt: BaseException | None = None
        signals = end.signals
        started = [worker for worker in self._threads if worker.thread.ident is not None]
        for worker in started:
            worker.stop()
        end.clear()
        until = _ENV.monotonic() + self._grace
        while any(worker.thread.is_alive() for worker in started):
            left = until - _ENV.monotonic()
            if left <= 0 or end.signals > signals:
                break
            try:
                if waiting(end.wait, min(left, STOP_POLL_SECONDS)):
                    end.clear()
            except BaseException as error:  # noqa: BLE001 - raised when all have ended
                interrupt = error
                break
        late = [worker for worker in started if worker.thread.is_alive()]
        if late:
            self._roll_back({worker.run.label for worker in late})
        for worker in started:
            if worker not in late:
                worker.thread.join()
        if interrupt is not None:
            raise interrupt

    def _roll_back(self, late: set[str]) -> None:
        for label in late:
            _log.warning("%s has not ended in time: it is rolled back, and left behind", label)

        def abort() -> None:
            for info in self._store.admin.transactions():
                if info.owner in late:
                    with suppress(QuireError):  # it has just ended
                        self._store.admin.abort(info.id)

        with suppress(QuireError):  # no owner is to be had: theirs has rolled them back as it ended
            Errand(_ENV.monotonic()).do(abort)


class _Worker:
    """A thread of a handler."""

    def __init__(self, store: Store, task: HandlerTask, end: SignalFlag, retry: Retry) -> None:
        self.run = HandlerRun(task, retry)
        self.thread = Thread(target=self._run, name=f"quire-worker-{task.source}")
        self._store = store
        self._end = end
        self._stopping = False
        self._wake = WakeUp()
        self._messages: Consumer[Any] | None = None

    def stop(self) -> None:
        """Take nothing more."""
        self._stopping = True
        self._wake.set()
        messages = self._messages
        if messages is not None:
            messages.stop()

    def _is_stopping(self) -> bool:
        """The flag is set before the thread of `run` has told its workers."""
        if self._stopping:
            return True
        with suppress(OSError, ValueError):
            return self._end.wait(0.0)
        return True  # it was closed: `run` has returned

    def _run(self) -> None:
        try:
            run, pause = self.run, FIRST_PAUSE_SECONDS
            while not self._is_stopping():
                before = run.handled
                has_failed = self._handle_until_a_failure()
                if run.handled > before or run.is_later:
                    pause = FIRST_PAUSE_SECONDS
                if has_failed and not run.is_later:
                    self._wake.wait(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        except (StoreClosed, StoreFailed, ConnectionLost, *ENDS) as error:
            self.run.ended_by = error
        finally:
            if not self._stopping:  # the others are not to go on without it
                with suppress(OSError):  # `run` has just returned
                    self._end.set()

    def _handle_until_a_failure(self) -> bool:
        """Handle messages; return True after a failure, False to stop or to take other numbers."""
        run = self.run
        found: Any = None
        try:
            with Consumer[Any](self._store, run.options()) as messages:
                self._messages = messages
                if self._is_stopping():
                    return False
                for found in messages:
                    try:
                        self._handle(found, messages.transaction)
                    except Exception as error:
                        self._give_back(found, messages.transaction, error)
                        raise
                    messages.acknowledge()
                    is_last = run.note_handled(found)
                    found = None
                    if self._is_stopping() or is_last:
                        break
        except StoreClosed:
            raise
        except BaseException as error:  # logged, and the message is there again
            run.note_failure(error, found)
            if isinstance(error, ENDS) or is_of_no_use(self._store, error):
                raise
            return True
        finally:
            self._messages = None
        return False

    def _give_back(self, found: Any, transaction: Transaction, error: Exception) -> None:
        """Reject messages whose handler has failed (WR7 to WR9); the rest is rolled back."""
        if isinstance(error, NOT_THE_MESSAGE) or transaction.state != "open":
            return
        messages: list[Message] = [found] if isinstance(found, Message) else list(found)
        with suppress(QuireError):  # then it is there again at once
            info = self._store.queue(messages[0].queue)
            if self.run.rejects(messages, info) and not self._is_exclusive(info.name):
                for message in messages:
                    transaction.reject(message, reason_of(error), self.run.delay)
                self.run.note_rejected(messages, info)

    def _is_exclusive(self, queue: str) -> bool:
        has_others = "/" in self.run.task.source
        return has_others and self.run.reads_exclusively(self._store.subscriptions(queue))

    def _handle(self, message: Any, transaction: Transaction) -> None:
        handler = self.run.task.handler
        check_done("handler", handler, handler(message, transaction))


def _check_there(store: Store, task: HandlerTask) -> None:
    """Raises what a get would raise. The queues of a pattern may come later."""
    if not is_pattern(task.source):
        check_readable(task.source, store.queue(task.source.partition("/")[0]))
    if task.where is not None:  # raises for a wrong selector
        store.browse(task.source, max_messages=1, where=task.where)
