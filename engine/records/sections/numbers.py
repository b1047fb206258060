"""The section of what is read of sequences. Layout: `format`.

Which number of a sender is next cannot be told by what is left once messages are gone. So who reads
them says it, in the record that reads them: queues with an order by sequence only.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from quire.engine.records import format
from quire.errors import StoreCorrupt

from .section import Folding, PendingSection, Stamp


class Heard(NamedTuple):
    """All below this number of a sender is read, or counts as missing."""

    queue_id: int
    subscription_id: int
    sender: int
    number: int


class Numbers(NamedTuple):
    """What the section says."""

    heard: Sequence[Heard]

    @property
    def kind(self) -> int:
        return format.NUMBERS

    @property
    def record_name(self) -> str:
        return ""

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        fold.hear(self.heard)


def unpack_numbers(body: memoryview, where: str) -> Numbers:
    """Read the section; `StoreCorrupt` for contradictions."""
    try:
        heard = [Heard(*row) for row in format.SENDER.iter_unpack(body)]
    except struct.error as error:
        raise StoreCorrupt(f"{where}: unreadable numbers of sequences ({error})") from error
    if not heard:
        raise StoreCorrupt(f"{where}: contradictory numbers of sequences")
    return Numbers(heard)


class NumbersSection(PendingSection):
    """The same on its way into the journal."""

    KIND: ClassVar[int] = format.NUMBERS

    __slots__ = ("_fold", "_heard", "body")

    room = -1  # it comes with what is read

    def __init__(self, fold: Folding, heard: Sequence[Heard]) -> None:
        self._fold = fold
        self._heard = heard
        self.body = b"".join([format.SENDER.pack(*row) for row in heard])

    def apply(self, address: int) -> None:
        self._fold.hear(self._heard)
