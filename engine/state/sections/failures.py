"""The section of deliveries that have failed. Layout: `format`.

It is written where what has failed comes again later, or the queue has `retry`: the wait, as it was
drawn, and the count survive the process. Nothing waits for a sync of it: lost with the power, the
message is delivered too early once, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from quire.engine.records import format

from .section import Folding, RowsSection, Stamp


class Failure(NamedTuple):
    """Positions [start, end) of a subscription have failed, and come again then; 0: at once."""

    queue_id: int
    subscription_id: int
    start: int
    end: int
    due_us: int


class Failures(RowsSection, frozen=True):
    """Failed deliveries, with the times of their retries."""

    kind = format.FAILURES
    names = ("FAILED",)
    layout = format.FAILURE
    row = Failure

    runs: Sequence[Failure]

    @staticmethod
    def makes_sense(row: Failure) -> bool:
        return row.start < row.end and row.due_us >= 0

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        for queue, run in fold.queues_of(self.runs):
            queue.fail(*run[1:])
