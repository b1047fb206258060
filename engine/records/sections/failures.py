"""The section of deliveries that have failed. Layout: `format`.

It is written where what has failed comes again later, or the queue has `retry`: the wait, as it was
drawn, and the count survive the process. Nothing waits for a sync of it: lost with the power, the
message is delivered too early once, and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from quire.engine.records import format
from quire.errors import StoreCorrupt

from .section import Folding, PendingSection, Stamp


class Failure(NamedTuple):
    """Positions [start, end) of a subscription have failed, and come again then; 0: at once."""

    queue_id: int
    subscription_id: int
    start: int
    end: int
    due_us: int


class Failures(NamedTuple):
    """What the section says."""

    runs: Sequence[Failure]

    @property
    def kind(self) -> int:
        return format.FAILURES

    @property
    def record_name(self) -> str:
        return "FAILED"

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        fold.fail(self.runs)


def unpack_failures(body: memoryview, where: str) -> Failures:
    """Read the section; `StoreCorrupt` for contradictions."""
    try:
        runs = [Failure(*row) for row in format.FAILURE.iter_unpack(body)]
    except struct.error as error:
        raise StoreCorrupt(f"{where}: unreadable record of a failure ({error})") from error
    if not runs or any(run.start >= run.end or run.due_us < 0 for run in runs):
        raise StoreCorrupt(f"{where}: contradictory record of a failure")
    return Failures(runs)


class FailuresSection(PendingSection):
    """The same on its way into the journal."""

    KIND: ClassVar[int] = format.FAILURES

    __slots__ = ("_fold", "_runs", "body")

    def __init__(self, fold: Folding, runs: Sequence[Failure]) -> None:
        self._fold = fold
        self._runs = runs
        self.body = b"".join([format.FAILURE.pack(*run) for run in runs])

    def apply(self, address: int) -> None:
        self._fold.fail(self._runs)
