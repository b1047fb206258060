"""The report of a salvage: plain values."""

from __future__ import annotations

from msgspec import Struct

from quire.file_dump.items import Finding


class LostMessages(Struct, frozen=True):
    """Messages of a queue that could not be salvaged, or have no record that can be read."""

    queue: str
    start: int  # positions [start, end)
    end: int
    file: str  # relative to the damaged store; empty: no record of them was found
    offset: int | None
    reason: str

    @property
    def messages(self) -> int:
        return self.end - self.start


class QueueSalvaged(Struct, frozen=True):
    """A queue of the new store."""

    name: str
    messages: int  # that somebody has still to read
    lost: int
    moved: int = 0  # of the messages, those behind damage: at other positions, read or not
    is_reconstructed: bool = False  # its definition was lost: a work queue has its messages


class PreparedSalvaged(Struct, frozen=True):
    """A prepared transaction that nobody has decided, or whose decision was lost."""

    xid: str
    is_kept: bool  # False: a part of it was lost, so it is rolled back
    messages: int


class SalvageReport(Struct, frozen=True):
    """The report: what was salvaged, what is lost, and by file and offset what is damaged."""

    path: str
    queues: list[QueueSalvaged]
    lost: list[LostMessages]
    prepared: list[PreparedSalvaged]
    findings: list[Finding]
    unplaced: int  # messages in the queues for those whose queue is not known

    @property
    def is_complete(self) -> bool:
        """True if nothing was damaged, as far as can be told."""
        damage = any(finding.damage for finding in self.findings)
        kept = all(transaction.is_kept for transaction in self.prepared)
        return kept and not (damage or self.lost or self.unplaced)
