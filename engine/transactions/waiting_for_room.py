"""A queue has no room for what a transaction does: what it says is done then, or it is waited.

- WR1: nobody is stuck behind what a commit puts on behalf of somebody else, who has named the queue
  for it. It makes no commit fail, and has none wait: where its queue takes it not, full, stopped,
  typed or gone, it goes to that queue's dead letters and, where these do not take it either, it is
  dropped, and the log tells that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from quire.arguments import check_timeout
from quire.batches.moved_messages import QUEUE, TIME, joined
from quire.calls.signal_safety import allow_reentry
from quire.definitions.existing_queue import check_waits
from quire.definitions.properties import WAIT
from quire.engine.lookup.requested_reports import RequestedReport
from quire.engine.queues.queue import Queue
from quire.errors import (
    ArchiveFull,
    InvalidArgument,
    QueueDisabled,
    QueueFull,
    QueueNotFound,
    QuireError,
)
from quire.limits import MESSAGE_OVERHEAD_BYTES, ROOM_TRIES
from quire.loggers import log_warning, logger
from quire.messages.message_fields import Fields
from quire.messages.message_types import REASON, reason_of
from quire.moments import Duration

from .context import Context

_log: Final = logger("quire.reports")
_REFUSALS: Final = (QueueNotFound, QueueDisabled, QueueFull, InvalidArgument)
PutOne = Callable[[str, bytes, Fields, int], object]  # queue, payload, fields, charge
R = TypeVar("R")


def with_room(
    context: Context,
    full: QueueFull,
    action: Callable[[], R],
    seconds: float,
    wait: Callable[[Queue, QueueFull, float], None],
) -> R:
    """Do what was refused again, so often as there may be room for it by then.

    `wait` waits for a queue so many seconds at most; it raises what it has waited for in vain.
    """
    deadline = context.env.monotonic() + seconds
    tries = 0
    while True:
        queue = context.state.names.get(full.queue or "")
        tries += 1
        if queue is None or tries > ROOM_TRIES or not allow_reentry(context.make_room, queue, full):
            left = deadline - context.env.monotonic()
            if left <= 0 or full.queue is None:
                raise full
            if queue is not None:  # else it has another name since, which the next error tells
                wait(queue, full, left)
        try:
            return action()
        except QueueFull as again:
            full = again


def patience(context: Context, full: QueueFull, seconds: float) -> float:
    """How long a put waits: so long, where its queue or the archive says so.

    Raises what nothing helps.
    """
    queue = context.state.names.get(full.queue or "")
    if not full.has_remedy or queue is None:
        raise full
    if isinstance(full, ArchiveFull):
        return seconds
    waits = queue.config.properties.overflow == WAIT and queue.space.may_admit(full)
    return seconds if waits else 0.0


def put_patience(context: Context, queue: str, timeout: Duration) -> float:
    """Seconds that a put says it waits for room, where the queue has puts wait.

    Raises InvalidArgument, QueueNotFound.
    """
    seconds = check_timeout(timeout)
    if seconds:
        config = context.state.queue(queue).config
        check_waits(config.name, config.properties.overflow, seconds)
    return seconds


def put_on_behalf(context: Context, reports: list[RequestedReport], put: PutOne) -> None:
    """Put these for a commit, each as far as its queue takes it (WR1); none is left."""
    dropped: dict[str, tuple[int, QuireError]] = {}
    while reports:
        report = reports[0]
        refused = _refused(context, report, put)
        if refused is not None:
            letter = _dead_letter(context, report, refused)
            if letter is None or _refused(context, letter, put) is not None:
                count, _ = dropped.get(report.to, (0, refused))
                dropped[report.to] = count + 1, refused
        del reports[0]
    for count, refused in dropped.values():
        log_warning(_log, "%d reports that senders ask for are dropped: %s", count, refused)


def _dead_letter(
    context: Context, report: RequestedReport, refused: QuireError
) -> RequestedReport | None:
    """The report as a dead letter of the queue that has refused it, if that has such letters."""
    queue = context.state.names.get(report.to)
    letters = None if queue is None else queue.config.properties.dead_letter
    if letters is None:
        return None
    own = {QUEUE: report.to, REASON: reason_of(refused), TIME: str(context.env.now_us())}
    attributes = joined(report.fields.attributes, own)
    correlation_id = report.fields.correlation_id
    return RequestedReport(letters, Fields(correlation_id=correlation_id, attributes=attributes))


def _refused(context: Context, report: RequestedReport, put: PutOne) -> QuireError | None:
    """Put it, perhaps after its queue has made room for it; why the queue does not take it."""
    charge = MESSAGE_OVERHEAD_BYTES + report.fields.extra_bytes
    put_it = partial(put, report.to, b"", report.fields, charge)

    def wait(_queue: Queue, full: QueueFull, _seconds: float) -> None:
        raise full

    try:
        try:
            put_it()
        except QueueFull as full:
            with_room(context, full, put_it, 0.0, wait)
    except QueueFull as full:
        if full.has_remedy and context.sequencer.is_together:
            raise  # this is done again where room can be made
        return full
    except _REFUSALS as refused:
        return refused
    return None
