"""The section of a transaction that moves subscriptions. Layout: `format`."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import NamedTuple

from quire.engine.records import format
from quire.engine.records.commit_record import Read
from quire.engine.state.durable_state import DurableQueue
from quire.errors import PositionLost, QueueNotFound, SubscriptionNotFound

from .section import Folding, PendingSection, RowsSection, Stamp


class Seek(NamedTuple):
    """A subscription goes to the position: what is kept from there on is unread, the rest read."""

    queue_id: int
    subscription_id: int
    position: int


class Moves(RowsSection, frozen=True):
    """What the section says."""

    kind = format.MOVES
    layout = format.SEEK
    row = Seek

    seeks: Sequence[Seek]

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        for queue, (_, subscription_id, position) in fold.queues_of(self.seeks):
            queue.seek(subscription_id, min(position, queue.end_position))


class MovesSection(PendingSection):
    """Moves of subscriptions on their way into the journal.

    `strict`: the subscriptions of which all from that position on has to be there still.
    """

    __slots__ = ("_queues", "_strict", "comes_first")

    room = -1
    said: Moves

    def __init__(
        self,
        queues: Mapping[int, DurableQueue],
        fold: Folding,
        seeks: Sequence[Seek],
        strict: Collection[int],
    ) -> None:
        super().__init__(fold, Moves(seeks))
        self._queues = queues
        self._strict = strict
        self.comes_first = any(seek.subscription_id in strict for seek in seeks)

    def split(
        self, queues: Container[int], fold: Folding
    ) -> tuple[MovesSection | None, MovesSection | None]:
        """The moves in other queues, and those in these, for that fold; None: there are none."""
        own = [seek for seek in self.said.seeks if seek.queue_id in queues]
        others = [seek for seek in self.said.seeks if seek.queue_id not in queues]
        return (
            MovesSection(self._queues, self._fold, others, self._strict) if others else None,
            MovesSection(self._queues, fold, own, self._strict) if own else None,
        )

    def passed(self) -> list[Read]:
        """What is read by it at most, as reads."""
        return [Read(seek[0], seek[1], 0, seek[2]) for seek in self.said.seeks]

    def check(self) -> None:
        """Raises QueueNotFound, SubscriptionNotFound, PositionLost."""
        for queue_id, subscription_id, position in self.said.seeks:
            queue = self._queues.get(queue_id)
            if queue is None:
                raise QueueNotFound("a queue whose subscription is moved was dropped: roll back")
            if subscription_id not in queue.subscriptions:
                raise SubscriptionNotFound(
                    f"the subscription of queue {queue.config.name!r} that is moved was removed: "
                    "roll back"
                )
            if subscription_id in self._strict:
                check_kept(queue, position)


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
