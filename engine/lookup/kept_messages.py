"""Messages that a transaction keeps from others and leaves in the queue (`hold=True`).

- KP1: it is in flight. So what its transaction takes by id goes from here to what that has got, in
  the state that it has and with the group that came with it; where the get is undone, it is kept as
  before. Nobody else can have it in between.
"""

from __future__ import annotations

from collections.abc import Sequence

from quire.engine.queues.queue import InFlightRange, Queue
from quire.engine.queues.subscription import Subscription

from .taken_positions import TakenPositions


class KeptMessages:
    """A transaction's kept messages. Covered by its lock; other threads call `has`."""

    __slots__ = ("_positions", "_taken")

    def __init__(self) -> None:
        self._positions = TakenPositions()
        self._taken: set[tuple[Subscription, int]] = set()  # what has gone from here since

    def keep(
        self, queue: Queue, subscription: Subscription, runs: Sequence[tuple[int, ...]]
    ) -> None:
        """These are in flight for that; what was kept before is so once."""
        for lo, hi, *_ in runs:
            self._taken.discard((subscription, lo))
            self._positions.add(queue, subscription, lo, hi)

    def keeps(self, subscription: Subscription, position: int) -> bool:
        """Return True if the message is kept now."""
        return self._positions.has(subscription, position)

    def has(self, subscription: Subscription, position: int) -> bool:
        """Return True if the message is kept, or was and is now among its transaction's reads."""
        return (subscription, position) in self._taken or self.keeps(subscription, position)

    def rows(self) -> list[InFlightRange]:
        """Return the kept messages, in runs."""
        return self._positions.rows()

    def take(self, subscription: Subscription, position: int) -> None:
        """Its transaction takes it (KP1)."""
        if self._positions.remove(subscription, position, position + 1):
            self._taken.add((subscription, position))

    def take_back(
        self, queue: Queue, subscription: Subscription, runs: list[tuple[int, int, int]]
    ) -> None:
        """Keep the runs again that were kept before an undone get, and drop them from `runs`."""
        own = [run for run in runs if (subscription, run[0]) in self._taken]
        self.keep(queue, subscription, own)
        runs[:] = [run for run in runs if run not in own]

    def forget(self, subscription: Subscription, position: int) -> None:
        """It was given back for another reason: it is kept no more."""
        self._taken.discard((subscription, position))

    def leave(self, subscription: Subscription | None = None) -> list[InFlightRange]:
        """All of it, or what is of this one: it is kept no more, and to be given back."""
        rows = self._positions.rows()
        staying = [row for row in rows if subscription is not None and row[5] is not subscription]
        leaving = [row for row in rows if subscription is None or row[5] is subscription]
        self._positions = TakenPositions(staying)
        return leaving
