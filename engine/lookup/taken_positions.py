"""Positions that a transaction has taken, by their subscriptions: each is found by itself.

- A question, and a change, of one position takes about the same however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from quire.engine.queues.queue import InFlightRange, Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.reading import position_search
from quire.engine.reading.fetcher import Fetcher
from quire.env.interpreter import Lock
from quire.intervals import IntervalSet
from quire.messages.message import Message

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class GotPart(NamedTuple):
    """Messages that were got one after another."""

    queue: Queue
    subscription: Subscription
    position: int  # of the first
    ids: NDArray[np.int64]  # ascending


class TakenPositions:
    """A transaction's positions. Its lock covers changes; other threads look at `has`."""

    __slots__ = ("_lock", "_parts")

    def __init__(self, rows: Iterable[InFlightRange] = ()) -> None:
        self._parts: dict[int, tuple[Queue, dict[Subscription, IntervalSet]]] = {}  # by queue
        self._lock = Lock()
        for _, _, lo, hi, queue, subscription, _, _ in rows:
            self.add(queue, subscription, lo, hi)

    def add(self, queue: Queue, subscription: Subscription, lo: int, hi: int) -> None:
        """Add [lo, hi)."""
        with self._lock:
            _, own = self._parts.setdefault(queue.queue_id, (queue, {}))
            own.setdefault(subscription, IntervalSet()).add(lo, hi)

    def remove(self, subscription: Subscription, lo: int, hi: int) -> bool:
        """Take [lo, hi) away, as far as it is here; return True if any of it was."""
        with self._lock:
            held = self._held(subscription)
            return held is not None and held.remove(lo, hi) > 0

    def has(self, subscription: Subscription, position: int) -> bool:
        """Return True if the position is here."""
        with self._lock:
            held = self._held(subscription)
            return held is not None and held.contains(position)

    def _held(self, subscription: Subscription) -> IntervalSet | None:
        part = self._parts.get(subscription.queue_id)
        return None if part is None else part[1].get(subscription)

    @property
    def queues(self) -> list[Queue]:
        """All of which something was added."""
        return [queue for queue, _ in self._parts.values()]

    def queues_named(self, names: Set[str], queues: Mapping[str, Queue]) -> list[Queue]:
        """The queues of these names, if something of each is here; else all of which anything is.

        A message may be of a queue that has another name by now. `queues`: all, by name.
        """
        known = [queues.get(name) for name in names]
        found = {queue for queue in known if queue is not None and queue.queue_id in self._parts}
        return list(found) if len(found) == len(names) else self.queues

    def got(
        self, delivery: Fetcher, queues: Mapping[str, Queue], messages: Sequence[Message]
    ) -> list[GotPart]:
        """Return the parts of the transaction's reads in the messages' queues, from first to last.

        `queues`: all, by name; a message may be of one that has another name by now.
        """
        ids = [message.id for message in messages]
        found: list[GotPart] = []
        for queue in self.queues_named({message.queue for message in messages}, queues):
            (start, _), (end, _) = position_search.places_of(delivery, queue, [min(ids), max(ids)])
            for subscription, held in self._parts[queue.queue_id][1].items():
                for run in list(held.intersection(start, end + 1)):
                    for position, part in delivery.parts(queue, *run):
                        own = part.block.ids(part.first_id, part.start, part.stop)
                        found.append(GotPart(queue, subscription, position, own))
        return found

    def overlapping(
        self, subscription: Subscription, runs: Iterable[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """The parts of runs of positions that are here."""
        held = self._held(subscription)
        parts = () if held is None else [held.intersection(*run) for run in runs]
        return [run for part in parts for run in part]

    def rows(self) -> list[InFlightRange]:
        """All of it, in runs."""
        with self._lock:
            return [
                row_of(queue, subscription, lo, hi)
                for queue, own in self._parts.values()
                for subscription, held in own.items()
                for lo, hi in held
            ]


def row_of(queue: Queue, subscription: Subscription, start: int, end: int) -> InFlightRange:
    """A run of positions as a `InFlightRange`, whose record is looked up."""
    return queue.queue_id, subscription.subscription_id, start, end, queue, subscription, None, 0


def drop_last(
    taken: list[InFlightRange], subscription: Subscription, runs: Sequence[tuple[int, ...]]
) -> None:
    """Take these away, as far as they are the last of what was taken."""
    for lo, hi, *_ in reversed(runs):
        last = taken[-1] if taken else None
        if last is not None and last[5] is subscription and last[3] == hi:
            if last[2] < lo:
                taken[-1] = part_of(last, last[2], lo)
            else:
                del taken[-1]


def part_of(taken: InFlightRange, start: int, end: int) -> InFlightRange:
    """Another run of the same subscription, whose record is looked up."""
    return row_of(taken[4], taken[5], start, end)


def has_retry(taken: Sequence[InFlightRange]) -> bool:
    """Return True if a failed message of these ranges is retried later."""
    for own in taken:  # noqa: SIM110 - a generator would take longer than the look
        if own[5].retry is not None:
            return True
    return False


def joined(rows: Iterable[InFlightRange]) -> list[InFlightRange]:
    """The rows in as few as can be, ascending."""
    found: list[InFlightRange] = []
    for row in sorted(rows, key=itemgetter(0, 1, 2)):
        last = found[-1] if found else None
        if last and last[5] is row[5] and last[3] == row[2]:
            found[-1] = part_of(last, last[2], row[3])
        else:
            found.append(row)
    return found


def give_back_rows(rows: list[InFlightRange], noted: Set[Subscription], *, counted: bool) -> None:
    """Give back rows, each of which is gone from the list then; see `Subscription.give_back`."""
    while rows:
        _, _, lo, hi, queue, subscription, _, _ = rows[-1]
        with queue.lock:
            try:
                subscription.give_back(lo, hi, counted=counted, noted=subscription in noted)
            except BaseException:
                subscription.go_on_giving_back(lo, hi)
                del rows[-1]
                raise
            del rows[-1]  # no call in between: an interrupt comes before or after both
            queue.wake()
