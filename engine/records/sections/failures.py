"""The section of deliveries that have failed. Layout: `format`.

It is written where what has failed comes again later, or the queue has `retry`: the wait, as it was
drawn, and the count survive the process. Nothing waits for a sync of it: lost with the power, the
message is delivered too early once, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

from quire.engine.records import format

from .section import Folding, Section, Stamp


class Failure(NamedTuple):
    """Positions [start, end) of a subscription have failed, and come again then; 0: at once."""

    queue_id: int
    subscription_id: int
    start: int
    end: int
    due_us: int


@dataclass(frozen=True, slots=True)
class Failures(Section):
    """What the section says."""

    kind: ClassVar[int] = format.FAILURES

    runs: Sequence[Failure]

    @property
    def record_name(self) -> str:
        return "FAILED"

    def pack(self) -> bytes:
        return b"".join([format.FAILURE.pack(*run) for run in self.runs])

    @classmethod
    def unpack(cls, body: memoryview) -> Self:
        runs = [Failure(*row) for row in format.FAILURE.iter_unpack(body)]
        if not runs or any(run.start >= run.end or run.due_us < 0 for run in runs):
            raise ValueError("no failures, or of nothing")
        return cls(runs)

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        for queue, run in fold.queues_of(self.runs):
            queue.fail(*run[1:])
