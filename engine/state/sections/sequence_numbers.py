"""The section of what is read of sequences. Layout: `format`.

Which number of a sender is next cannot be told by what is left once messages are gone. So who reads
them says it, in the record that reads them: queues with an order by sequence only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from quire.engine.records import format

from .section import Folding, RowsSection, Stamp


class SequenceProgress(NamedTuple):
    """All below this number of a sender is read, or counts as missing."""

    queue_id: int
    subscription_id: int
    sender: int
    number: int


class SequenceNumbers(RowsSection, frozen=True):
    """The numbers that subscriptions have read last of senders' sequences."""

    kind = format.NUMBERS
    layout = format.SENDER
    row = SequenceProgress

    progress: Sequence[SequenceProgress]

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        for queue, row in fold.queues_of(self.progress):
            queue.note_number(*row[1:])
