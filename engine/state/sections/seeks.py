"""The section of a transaction that moves subscriptions. Layout: `format`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from quire.engine.records import format
from quire.engine.state.durable_state import DurableQueue
from quire.errors import PositionLost

from .section import Folding, RowsSection, Stamp


class Seek(NamedTuple):
    """A subscription goes to the position: what is kept from there on is unread, the rest read."""

    queue_id: int
    subscription_id: int
    position: int


class Seeks(RowsSection, frozen=True):
    """Seeks of subscriptions."""

    kind = format.MOVES
    layout = format.SEEK
    row = Seek

    seeks: Sequence[Seek]

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        for queue, (_, subscription_id, position) in fold.queues_of(self.seeks):
            queue.seek(subscription_id, min(position, queue.end_position))


def check_kept(queue: DurableQueue, position: int) -> None:
    """Raises PositionLost where a subscription would go back further than what is kept.

    Where that is the latest of each key, what is not there was superseded.
    """
    first = queue.released.first_gap(0)
    if position < first and queue.config.properties.keep_latest is None:
        raise PositionLost(
            f"queue {queue.config.name!r} does not keep position {position} any more: the first "
            f"position that it keeps is {first}"
        )
