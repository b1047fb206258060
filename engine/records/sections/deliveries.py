"""The section of messages that are about to be returned to who asked for them. Layout: `format`.

A queue with `max_deliveries` notes each delivery before it happens: a message that kills whoever
gets it is counted all the same, and comes to its end.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from quire.engine.records import format
from quire.engine.records.commit_record import Read
from quire.errors import StoreCorrupt

from .section import Folding, PendingSection, Stamp


class Deliveries(NamedTuple):
    """What the section says: positions of subscriptions, as a COMMIT names what it reads."""

    runs: Sequence[Read]

    @property
    def kind(self) -> int:
        return format.DELIVERIES

    @property
    def record_name(self) -> str:
        return "HANDED_OUT"

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        fold.hand_out(self.runs)


def unpack_deliveries(body: memoryview, where: str) -> Deliveries:
    """Read the section; `StoreCorrupt` for contradictions."""
    try:
        runs = [Read(*row) for row in format.READ.iter_unpack(body)]
    except struct.error as error:
        raise StoreCorrupt(f"{where}: unreadable record of a delivery ({error})") from error
    if not runs or any(run.start >= run.end for run in runs):
        raise StoreCorrupt(f"{where}: contradictory record of a delivery")
    return Deliveries(runs)


class DeliveriesSection(PendingSection):
    """The same on its way into the journal."""

    KIND: ClassVar[int] = format.DELIVERIES

    __slots__ = ("_fold", "_runs", "body")

    room = -1  # the transaction that reads comes next

    def __init__(self, fold: Folding, runs: Sequence[Read]) -> None:
        self._fold = fold
        self._runs = runs
        self.body = b"".join([format.READ.pack(*run) for run in runs])

    def apply(self, address: int) -> None:
        self._fold.hand_out(self._runs)
