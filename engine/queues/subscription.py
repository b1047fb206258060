"""A subscription: one consumer group's durable position in a queue.

- U1: every position below the cursor is in exactly one of three states: read (durable, in `done`),
  in flight (given to an open transaction), or returned (its transaction rolled back).
- U2: returned positions are delivered before the cursor moves on: a rollback makes messages
  available again at their place in the order.
- U3: what was read is known by the journal alone; the cursor, what is in flight and what was
  returned are gone with the process, and every position not in `done` is delivered again, but for
  what prepared transactions have got: that stays in flight.
"""

from __future__ import annotations

from quire.engine.records.durable_state import DurableSubscription
from quire.intervals import IntervalSet

from .read_structure import ReadStructure


class Subscription:
    """See the module. The queue's lock covers it."""

    __slots__ = (
        "attempts", "cursor", "delivered", "done", "name", "queue_id", "read_structure", "removed",
        "returned", "subscription_id",
    )  # fmt: skip

    def __init__(
        self, queue_id: int, durable: DurableSubscription, structure: ReadStructure
    ) -> None:
        self.queue_id = queue_id
        self.subscription_id = durable.subscription_id
        self.name = durable.name
        self.done = durable.done
        self.attempts = durable.attempts
        self.cursor = self.done.first_gap(0)
        self.returned = IntervalSet()
        self.delivered = 0
        self.removed = False
        self.read_structure = structure

    @property
    def position(self) -> int:
        """Everything below it is read."""
        return self.done.first_gap(0)

    def take(self, limit: int, end: int) -> tuple[int, int] | None:
        """The next run of at most `limit` positions below `end`, now in flight, or None."""
        run = self._take_returned(limit) if self.returned else self._take_new(limit, end)
        if run is not None:
            self.delivered += run[1] - run[0]
        return run

    def take_one(self, end: int) -> int:
        """The next position below `end`, now in flight; -1: there is none."""
        if self.returned.total or self.attempts.starts:
            run = self.take(1, end)
            return -1 if run is None else run[0]
        start = self.cursor
        last = self.done.last()
        if last is not None and last[1] > start:
            start = self.done.first_gap(start)
        if start >= end:
            return -1
        self.cursor = start + 1
        self.delivered += 1
        return start

    def has_next(self, end: int) -> bool:
        """Whether there is a position below `end` to take."""
        return bool(self.returned.total) or self.done.first_gap(self.cursor) < end

    def _take_new(self, limit: int, end: int) -> tuple[int, int] | None:
        start = self.cursor
        last = self.done.last()
        if last is not None and last[1] > start:
            start = self.done.first_gap(start)
        if start >= end:
            self.cursor = max(self.cursor, min(start, end))
            return None
        stop = min(start + limit, end)
        if last is not None and last[1] > start:
            stop = next(self.done.gaps(start, stop))[1]
        if self.attempts:  # counted before the store was opened
            stop = self.attempts.equal(start, stop)
        self.cursor = stop
        return start, stop

    def _take_returned(self, limit: int) -> tuple[int, int] | None:
        """The first returned positions that have been delivered equally often."""
        run = self.returned.pop_first(limit)
        assert run is not None
        start, end = run
        stop = self.attempts.equal(start, end)
        if stop < end:
            self.returned.add(stop, end)
        return start, stop

    def deliveries(self, position: int) -> int:
        """How often the position is delivered now, this time included."""
        return self.attempts.of(position) + 1

    def give_back(self, start: int, end: int, *, counted: bool) -> None:
        """[start, end) was in flight and is available again (U2).

        `counted`: it had reached its reader, so its next delivery is one more.
        """
        for lo, hi in list(self.done.gaps(start, end)):
            self.returned.add(lo, hi)
            if counted:
                self.attempts.add(lo, hi)
        self.delivered -= end - start  # last: what is interrupted before can be repeated

    def resume(self, in_flight: list[tuple[int, int]]) -> None:
        """Recovery is done: [start, end) of each are in flight, what is unread is available."""
        self.returned = IntervalSet()
        self.cursor = self.done.first_gap(0)
        if in_flight:
            self.cursor = max(self.cursor, *(end for _, end in in_flight))
            for lo, hi in self.done.gaps(0, self.cursor):
                self.returned.add(lo, hi)
            for start, end in in_flight:
                self.returned.remove(start, end)

    def unread_below(self, position: int) -> list[tuple[int, int]]:
        """The positions below the given one that are not read."""
        return list(self.done.gaps(0, position)) if position > 0 else []
