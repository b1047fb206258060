"""Handlers of messages: what both kinds of `quire.workers`, threads and tasks, have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from msgspec import Struct

from quire.arguments import check_concurrency, check_max_messages, check_source, check_sources
from quire.definitions.retry import Retry, check_retry
from quire.errors import (
    InvalidArgument,
    QueueDisabled,
    QueueFull,
    QueueNotFound,
    RemoteError,
    StateFull,
    StoreError,
    SubscriptionNotFound,
    TransactionError,
)
from quire.limits import MAX_REASON_BYTES, WORKERS_LONGEST_RETRY_SECONDS, WORKERS_RETRY_SECONDS
from quire.messages.message import Message
from quire.reports.info import QueueInfo
from quire.selectors.template import SelectorOrTemplate, check_selecting

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
        """What makes one of a handler. Raises InvalidArgument."""
        chosen = check_selecting(where)
        checked = (check_sources if chosen is None else check_source)(source)
        check_concurrency(concurrency)
        most = check_max_messages(max_messages)
        return lambda handler: cls(checked, handler, cast(int, concurrency), most, chosen)

    @property
    def name(self) -> str:
        """Of the handler."""
        return name_of(self.handler)


def name_of(function: object) -> str:
    """As it is told to users."""
    return getattr(function, "__qualname__", repr(function))


def check_workers_retry(retry: object) -> Retry:
    """When what has failed comes again. Raises InvalidArgument."""
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
    """What a handler was given, in words."""
    if isinstance(found, Message):
        return f"message {found.id}, delivery {found.delivery_count}"
    return f"{len(found)} messages"
