"""The sections of messages that are about to be returned to who asked for them. Layout: `format`.

A queue with `max_deliveries` notes each delivery before it happens: a message that kills whoever
gets it is counted all the same, and comes to its end. What is given back untouched (`unget`) is
noted, too. Nothing waits for a sync of that: lost with the power, it counts as delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from quire.engine.records import format
from quire.engine.records.commit_record import Read

from .section import Folding, PendingSection, Section, Stamp


@dataclass(frozen=True, slots=True)
class _DeliverySection(Section):
    """Positions of subscriptions, as a COMMIT names what it reads."""

    runs: Sequence[Read]

    def pack(self) -> bytes:
        return b"".join([format.READ.pack(*run) for run in self.runs])

    @classmethod
    def unpack(cls, body: memoryview) -> Self:
        runs = [Read(*row) for row in format.READ.iter_unpack(body)]
        if not runs or any(run.start >= run.end for run in runs):
            raise ValueError("no deliveries, or of nothing")
        return cls(runs)


@dataclass(frozen=True, slots=True)
class Deliveries(_DeliverySection):
    """These are about to be delivered."""

    kind: ClassVar[int] = format.DELIVERIES

    @property
    def record_name(self) -> str:
        return "HANDED_OUT"

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        for queue, run in fold.queues_of(self.runs):
            queue.hand_out(run)


@dataclass(frozen=True, slots=True)
class Untouched(_DeliverySection):
    """These were not delivered after all."""

    kind: ClassVar[int] = format.UNTOUCHED

    @property
    def record_name(self) -> str:
        return "TAKEN_BACK"

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        for queue, run in fold.queues_of(self.runs):
            queue.take_back(run)


class DeliveriesSection(PendingSection):
    """The same on its way into the journal."""

    __slots__ = ()

    room = -1  # the transaction that reads comes next
