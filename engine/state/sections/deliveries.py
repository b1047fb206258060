"""The sections of messages that are about to be returned to who asked for them. Layout: `format`.

A queue with `max_deliveries` notes each delivery before it happens: a message that kills whoever
gets it is counted all the same, and comes to its end. What is given back untouched (`unget`) is
noted, too. Nothing waits for a sync of that: lost with the power, it counts as delivered.
"""

from __future__ import annotations

from collections.abc import Sequence

from quire.engine.records import format
from quire.engine.records.commit_record import Read

from .section import Folding, RowsSection, Stamp


class _DeliverySection(RowsSection, frozen=True):
    """Positions of subscriptions, as a COMMIT names what it reads."""

    layout = format.READ
    row = Read

    runs: Sequence[Read]

    @staticmethod
    def makes_sense(row: Read) -> bool:
        return row.start < row.end


class Deliveries(_DeliverySection, frozen=True):
    """These are about to be delivered."""

    kind = format.DELIVERIES
    names = ("HANDED_OUT",)

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        for queue, run in fold.queues_of(self.runs):
            queue.hand_out(run)


class Untouched(_DeliverySection, frozen=True):
    """These were not delivered after all."""

    kind = format.UNTOUCHED
    names = ("TAKEN_BACK",)

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        for queue, run in fold.queues_of(self.runs):
            queue.take_back(run)
