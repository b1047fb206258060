"""The messages of a subscription for which a choice holds, in the order of delivery.

- Nothing is taken, and blocks are read without any lock: what is found may be elsewhere by then. So
  who takes it asks again under the queue's lock.
- In commit order the search ends with the last message that is asked for. In other orders all
  that a choice holds for are ranked, by their headers, as the selection ranks them; among messages
  of sequences commit order holds.
- CD1: a message never changes. So who waits looks at each once (`Passed`), and again only at those
  for which the choice holds and which somebody else has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from msgspec import Struct, field

from quire.batches.delivered_slice import Delivered
from quire.definitions.order import COMMIT, by_sequence
from quire.definitions.properties import Properties
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.reading import position_search
from quire.engine.reading.fetcher import Fetcher
from quire.engine.reading.indexing import Columns
from quire.errors import PositionLost, QueueNotFound
from quire.libraries import np
from quire.limits import PASSED_POSITIONS

from . import choice as choices
from .attribute_index import AttributeIndex, runs_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from quire.selectors.analysis import FieldPlace

    from .choice import Choice


class Candidate(NamedTuple):
    """A message that may be taken, or looked at."""

    rank: Any
    position: int
    group: int  # the number of its ordered group; 0: none
    part: Delivered  # the message alone


Wanted = Callable[[list[int]], list[int]]
Matching: TypeAlias = (
    "tuple[Delivered, int, NDArray[np.int64]]"  # a part, its first position, and of it which
)


class Passed(Struct):
    """How far somebody who waits has looked (CD1)."""

    end: int = 0
    matching: list[int] = field(default_factory=list)  # below it; too many are looked for again

    def note(self, position: int, rows: NDArray[np.int64]) -> None:
        """These are found, of a part that begins there."""
        if position >= self.end:
            self.matching += (rows + position).tolist()

    def reach(self, end: int) -> None:
        """All below it was looked at."""
        self.end = end
        if len(self.matching) > PASSED_POSITIONS:
            self.end, self.matching = 0, []


class Finder:
    """Finds the messages of a subscription that match a choice, in its order. Thread-safe."""

    def __init__(self, delivery: Fetcher) -> None:
        self._delivery = delivery
        self._indexes: WeakKeyDictionary[Queue, dict[FieldPlace, AttributeIndex]]
        self._indexes = WeakKeyDictionary()

    def candidates(
        self,
        queue: Queue,
        subscription: Subscription,
        choice: Choice,
        most: int,
        wanted: Wanted,
        passed: Passed | None = None,
        may_have: Callable[[int], bool] = lambda _: True,
    ) -> list[Candidate]:
        """Up to `most` of them. `wanted`: which positions of those that are found count.

        `may_have`: whether those of a group do. Raises StoreCorrupt, QueueNotFound.
        """
        properties = queue.config.properties
        found = (
            each
            for part, position, rows in self._matching(queue, subscription, choice, passed)
            for each in _ranked(part, position, wanted((rows + position).tolist()), properties)
            if not each.group or may_have(each.group)
        )
        if _in_commit_order(properties):
            return [each for each, _ in zip(found, range(most), strict=False)]
        return nsmallest(most, found, key=lambda each: each[:2])

    def count(self, queue: Queue, subscription: Subscription, choice: Choice) -> int:
        """For how many messages it holds. Raises as `candidates`."""
        return sum(len(rows) for _, _, rows in self._matching(queue, subscription, choice))

    def browse(
        self,
        queue: Queue,
        subscription: Subscription | None,
        choice: Choice,
        start: int,
        most: int,
        end: int | None = None,
    ) -> list[Delivered]:
        """Up to `most` messages at [start, end) for which it holds, in commit order.

        Those that the subscription has not read; None: all that the queue keeps. Raises as
        `candidates`.
        """
        with queue.lock:
            if queue.dropped:
                raise QueueNotFound(f"queue {queue.name!r} was dropped")
            end = queue.end_position if end is None else end
        found: list[Delivered] = []
        for part, _, rows in self._matching(queue, subscription, choice, None, start, end):
            for first, last in runs_of(rows[:most].tolist()):
                found.append(part._replace(start=part.start + first, stop=part.start + last))
            most -= len(rows)
            if most <= 0:
                break
        if queue.dropped:  # meanwhile: it is not known what was not looked at
            raise QueueNotFound(f"queue {queue.name!r} was dropped")
        return found

    def runs(
        self, queue: Queue, subscription: Subscription, choice: Choice, end: int
    ) -> Iterator[tuple[int, int]]:
        """The ascending runs of positions below `end` for which it holds. Raises as `browse`."""
        for _, position, rows in self._matching(queue, subscription, choice, None, 0, end):
            yield from runs_of((rows + position).tolist())

    def _matching(
        self,
        queue: Queue,
        subscription: Subscription | None,
        choice: Choice,
        passed: Passed | None = None,
        first: int = 0,
        last: int | None = None,
    ) -> Iterator[Matching]:
        for start, end in self._ranges(queue, subscription, choice, passed, first, last):
            for position, part in self._delivery.parts(queue, start, end):
                rows = rows_in(subscription, part, choice)
                if len(rows):
                    if passed is not None:
                        passed.note(position, rows)
                    yield part, position, rows

    def _ranges(
        self,
        queue: Queue,
        subscription: Subscription | None,
        choice: Choice,
        passed: Passed | None,
        first: int,
        last: int | None,
    ) -> Iterator[tuple[int, int]]:
        """Yield the unread runs at [first, last) where matching messages may be."""
        done = queue.released if subscription is None else subscription.done
        with queue.lock:
            if done.first_gap(first) >= (queue.end_position if last is None else last):
                return  # all is read, so no index need be asked
        positions = self._positions(queue, choice)
        is_known, start = positions is not None, first
        if positions is None and passed is not None and passed.end:
            positions, start = passed.matching, passed.end
        if positions:
            with queue.lock:
                before = queue.end_position if last is None else last
                left = [
                    position
                    for position in positions
                    if first <= position < before and not done.contains(position)
                ]
            yield from runs_of(left)
        if is_known:
            return
        while True:
            with queue.lock:
                start = done.first_gap(start)
                before = queue.end_position if last is None else min(last, queue.end_position)
                if queue.dropped or start >= before:
                    break
                _, end = next(done.gaps(start, before))
            yield start, end
            start = end
        if passed is not None:
            passed.reach(start)

    def _positions(self, queue: Queue, choice: Choice) -> list[int] | None:
        """The ascending positions of all that may be asked for; None: they are not known."""
        if choice.message_id is not None:
            try:
                return [position_search.position_of(self._delivery, queue, choice.message_id)]
            except PositionLost:
                return []
        names = queue.config.properties.indexed
        if choice.condition is None or not names:
            return None
        for place, value in choice.condition.equalities.items():
            is_hashed = isinstance(value, str) or (type(value) is int and place[0] == "column")
            if place[1] in names and is_hashed:
                indexes = self._indexes.setdefault(queue, {})
                index = indexes.setdefault(place, AttributeIndex(place))
                return index.find(self._delivery, queue, value)
        return None


def rows_of(part: Delivered, choice: Choice) -> NDArray[np.int64]:
    """The rows of a part for which the condition holds, counted from its first."""
    if choice.condition is None:
        return np.arange(part.stop - part.start)
    chosen = choice.condition.rows(
        part.block,
        first_id=part.first_id,
        time_us=part.time_us,
        start=part.start,
        stop=part.stop,
    )
    return np.flatnonzero(chosen)


def rows_in(
    subscription: Subscription | None, part: Delivered, choice: Choice
) -> NDArray[np.int64]:
    """The same of those that the subscription asks for: the rest was never in it. None: of all."""
    rows = rows_of(part, choice)
    if not len(rows) or subscription is None or subscription.wanted is None:
        return rows
    matching = rows_of(part, choices.Choice(condition=subscription.wanted))
    return np.intersect1d(rows, matching, assume_unique=True)


def _in_commit_order(properties: Properties) -> bool:
    order = properties.order
    return order == COMMIT or (isinstance(order, dict) and by_sequence(order))


def _ranked(
    part: Delivered, first: int, positions: list[int], properties: Properties
) -> Iterator[Candidate]:
    if not positions:
        return
    ranks = groups = None
    if not _in_commit_order(properties) or properties.grouped:
        columns = Columns(first, first + part.stop - part.start, properties)
        columns.take(part, first)
        headers = columns.headers()
        ranks = None if _in_commit_order(properties) else headers.ranks
        groups = headers.groups
    for position in positions:
        at = position - first
        row = part.start + at
        yield Candidate(
            0 if ranks is None else ranks[at],
            position,
            0 if groups is None else int(groups[at]),
            part._replace(start=row, stop=row + 1),
        )
