"""Handlers of messages: what both kinds of `quire.workers`, threads and tasks, have in common.

What becomes of a message whose handler has failed is WR7 to WR9 of `quire.workers`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, cast

from msgspec import Struct

from quire.arguments import check_concurrency, check_max_messages, check_source, check_sources
from quire.definitions.order import by_sequence
from quire.definitions.retry import Retry, check_retry
from quire.env import OsEnv
from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    QueueDisabled,
    QueueFull,
    QueueNotFound,
    RemoteError,
    StateFull,
    StoreError,
    StoreFailed,
    SubscriptionNotFound,
    TransactionError,
)
from quire.limits import (
    FOREVER_SECONDS,
    MAX_REASON_BYTES,
    WORKERS_LONGEST_RETRY_SECONDS,
    WORKERS_RETRY_SECONDS,
)
from quire.loggers import FIELDS, logger
from quire.messages.message import Message
from quire.reports.info import QueueInfo, SubscriptionInfo
from quire.selectors.template import SelectorOrTemplate, check_selecting

from .consumer import ConsumerOptions

_log: Final = logger("quire.workers")
_ENV: Final = OsEnv()
ENDS: Final = (SystemExit, KeyboardInterrupt)  # what a handler ends all workers by
NOT_THE_MESSAGE: Final = (  # what fails whichever message is handled (WR8)
    QueueDisabled, QueueFull, QueueNotFound, RemoteError, StateFull, StoreError, TransactionError,
)  # fmt: skip
RETRY: Final[Retry] = {
    "delay": WORKERS_RETRY_SECONDS, "cap": WORKERS_LONGEST_RETRY_SECONDS, "jitter": 0.2
}  # fmt: skip


class WorkerInfo(Struct, frozen=True):
    """A handler as it was when asked."""

    source: str
    handler: str  # its name
    running: int  # threads, or tasks
    handled: int  # messages, or batches, whose transactions have committed
    failures: int  # that were rolled back
    last_error: str | None  # of the latest failure


class HandlerTask(NamedTuple):
    """A handler, and what it is called for."""

    source: str
    handler: Callable[[Any, Any], Any]
    concurrency: int
    max_messages: int
    where: SelectorOrTemplate | None

    @classmethod
    def of(
        cls, source: object, concurrency: object, max_messages: object, where: object
    ) -> Callable[[Callable[[Any, Any], Any]], HandlerTask]:
        """Return a factory for a handler. Raises InvalidArgument."""
        chosen = check_selecting(where)
        checked = (check_sources if chosen is None else check_source)(source)
        check_concurrency(concurrency)
        most = check_max_messages(max_messages)
        return lambda handler: cls(checked, handler, cast(int, concurrency), most, chosen)

    @property
    def name(self) -> str:
        """The name of the handler."""
        return name_of(self.handler)


class HandlerRun:
    """The progress of one thread or task of a handler, and how it goes on after a failure."""

    def __init__(self, task: HandlerTask, retry: Retry) -> None:
        self.task = task
        self.handled = 0
        self.failures = 0
        self.last_error: str | None = None
        self.ended_by: BaseException | None = None  # what `run` is to raise
        # By this its transaction is known from others, here and at an owner in another process.
        self.label = f"{task.name} of {task.source}, {os.getpid()}-{_ENV.random_u64():016x}"
        self.is_later = False  # what has failed last comes later (WR7)
        self.delay: float | Retry | None = None  # so much later
        self._outcome = ""  # of what has failed last, in words; empty: it is there again at once
        self._retry = retry
        self._single = 0  # so many messages are taken one at a time (WR9)

    def options(self) -> ConsumerOptions:
        """Return what is asked for, until a failure, or until as many as before are taken."""
        task, self.is_later, self._outcome = self.task, False, ""
        number = 1 if self._single else task.max_messages
        single = task.max_messages == 1
        return ConsumerOptions(
            task.source, number, single, FOREVER_SECONDS, "auto", self.label, task.where
        )

    def note_handled(self, found: object) -> bool:
        """Return True if as many as before are to be taken at once again."""
        self.handled += 1
        if _log.isEnabledFor(logging.DEBUG):
            self._tell(logging.DEBUG, "handled", found, "it is done")
        if not self._single:
            return False
        self._single -= 1
        return not self._single

    def note_failure(self, error: BaseException, found: object) -> None:
        """Count and log that it is rolled back. `found`: what the handler got; None: nothing."""
        self.failures += 1
        self.last_error = f"{type(error).__name__}: {error}"
        outcome = self._outcome or "it is rolled back"
        if found is not None and not self._outcome:
            outcome += f", and there again {'one at a time' if self._single else 'at once'}"
        self._tell(logging.ERROR, "failed with", found, outcome, error)

    def _tell(
        self,
        level: int,
        verb: str,
        found: Any,
        outcome: str,
        error: BaseException | None = None,
    ) -> None:
        """Log what became of the messages that the handler got."""
        fields: dict[str, Any] = {"handler": self.task.name, "source": self.task.source}
        if found is not None:
            messages = [found] if isinstance(found, Message) else list(found)
            fields |= {
                "queue": messages[0].queue,
                "messages": [message.id for message in messages],
                "delivery": messages[0].delivery_count,
            }
        fields["outcome"] = outcome
        shown = "no message" if found is None else shown_as(found)
        _log.log(
            level, "%s %s %s: %s", self.task.name, verb, shown, outcome,
            exc_info=error, extra={FIELDS: fields},
        )  # fmt: skip

    def note_rejected(self, messages: Sequence[Message], info: QueueInfo) -> None:
        """Note that messages of that queue were rejected, and so come later."""
        self.is_later = True
        most = info.max_deliveries
        if most is not None and all(message.delivery_count >= most for message in messages):
            self._outcome = f"it becomes a dead letter in {info.dead_letter!r}"
        else:
            self._outcome = "it is rolled back, and comes again later"

    def rejects(self, messages: Sequence[Message], info: QueueInfo) -> bool:
        """Return True if what the handler has failed with is to come later, after `delay`.

        `info`: of its queue.
        """
        if len(messages) > 1:
            self._single = len(messages)
            self.delay = 0.0
        else:
            self._single -= self._single > 0
            self.delay = self._retry if info.retry is None else None
        is_late = len(messages) == 1 or info.retry is not None
        return is_late and not by_sequence(info.order)

    def reads_exclusively(self, subscriptions: Iterable[SubscriptionInfo]) -> bool:
        """Return True if its subscription, one of these, is an exclusive one."""
        name = self.task.source.partition("/")[2]
        return any(each.exclusive for each in subscriptions if each.name == name)


def info_of(task: HandlerTask, runs: Iterable[HandlerRun], running: int) -> WorkerInfo:
    """Return what the runs of a handler, of which so many go on, have done."""
    own = [run for run in runs if run.task is task]
    errors = [run.last_error for run in own if run.last_error is not None]
    return WorkerInfo(
        task.source,
        task.name,
        running,
        sum(run.handled for run in own),
        sum(run.failures for run in own),
        errors[-1] if errors else None,
    )


def is_of_no_use(store: Any, error: BaseException) -> bool:
    """Return True if the store object is of no use from now on (WR6)."""
    if isinstance(error, ConnectionLost):
        return bool(getattr(store, "is_lost", False))
    return isinstance(error, StoreFailed) and store.role == "owner" and bool(store.failed)


def name_of(function: object) -> str:
    """As it is told to users."""
    return getattr(function, "__qualname__", repr(function))


def check_workers_retry(retry: object) -> Retry:
    """Return when a failed message comes again. Raises InvalidArgument."""
    if retry is None:
        raise InvalidArgument("retry None: give a policy, as {'delay': 0.5}, or leave it out")
    checked: Any = retry
    check_retry("retry", checked)
    return checked  # type: ignore[no-any-return]


def check_readable(source: str, info: QueueInfo) -> None:
    """Raises what a get would raise. `info`: of the queue."""
    queue, _, subscription = source.partition("/")
    if info.kind == "topic" and not subscription:
        raise InvalidArgument(
            f"source {source!r} is a topic: read it as '{source}/subscription'; subscribe first"
        )
    if info.kind != "topic" and subscription:
        raise InvalidArgument(f"source {source!r}: {queue!r} is a work queue, read it as {queue!r}")
    if subscription and subscription not in info.subscriptions:
        raise SubscriptionNotFound(
            f"queue {queue!r} has no subscription {subscription!r}: make it with subscribe"
        )


def reason_of(error: Exception) -> str:
    """For the dead letter that the message may become."""
    text = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
    return text[:MAX_REASON_BYTES].decode("utf-8", "ignore")


def shown_as(found: Any) -> str:
    """Return a description in words of the messages that a handler was called with."""
    if isinstance(found, Message):
        return f"message {found.id} of queue {found.queue!r}, delivery {found.delivery_count}"
    messages = list(found)
    first, last = messages[0], messages[-1]
    return f"{len(messages)} messages of queue {first.queue!r}, {first.id} to {last.id}"
