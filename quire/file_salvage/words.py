"""The report of a salvage in words."""

from __future__ import annotations

from collections.abc import Iterator

from .report import LostMessages, PreparedSalvaged, QueueSalvaged, SalvageReport


def report_lines(report: SalvageReport) -> Iterator[str]:
    """Yield the lines of a report, but for its findings."""
    yield f"{report.path}: {_counted(sum(q.messages for q in report.queues))} salvaged"
    for queue in report.queues:
        yield _queue_line(queue)
    for lost in report.lost:
        yield _lost_line(lost)
    for transaction in report.prepared:
        yield _prepared_line(transaction)
    if report.unplaced:
        yield (
            f"{_counted(report.unplaced)} of which no record says the queue: some may have been "
            "read, or never committed"
        )


def _queue_line(queue: QueueSalvaged) -> str:
    lost = f", {_counted(queue.lost)} lost" if queue.lost else ""
    moved = f", {queue.moved} of them behind damage: perhaps read before" if queue.moved else ""
    made = " (its definition was lost)" if queue.is_reconstructed else ""
    return f"queue {queue.name!r}{made}: {_counted(queue.messages)}{moved}{lost}"


def _lost_line(lost: LostMessages) -> str:
    where = f"{lost.file}, " if lost.file else ""
    where += f"offset {lost.offset}: " if lost.offset is not None else ""
    at = f"position {lost.start}"
    if lost.messages > 1:
        at = f"positions {lost.start} to {lost.end - 1}"
    return f"lost: queue {lost.queue!r}, {at}: {where}{lost.reason}"


def _prepared_line(transaction: PreparedSalvaged) -> str:
    if transaction.is_kept:
        return f"prepared transaction {transaction.xid!r}: still to be decided"
    lost = f"a part of its {_counted(transaction.messages)} is lost"
    return f"prepared transaction {transaction.xid!r}: rolled back, as {lost}"


def _counted(count: int) -> str:
    return f"{count:,} message" + "s" * (count != 1)
