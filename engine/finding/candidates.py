"""The messages of a subscription for which a choice holds, in the order of delivery.

- Nothing is taken, and blocks are read without any lock: what is found may be elsewhere by then. So
  who takes it asks again under the queue's lock.
- CD1: in commit order the search ends with the last message that is asked for. In other orders all
  that a choice holds for are ranked, by their headers, as the selection ranks them; among messages
  of sequences commit order holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quire.batches.delivered_slice import Delivered
from quire.definitions.order import COMMIT, by_sequence
from quire.definitions.properties import Properties
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.reading.delivery import Delivery
from quire.engine.reading.indexing import Columns
from quire.engine.reading.position_search import position_of
from quire.errors import PositionLost

from .choice import Choice


class Candidate(NamedTuple):
    """A message that may be taken, or looked at."""

    rank: Any
    position: int
    group: int  # the number of its ordered group; 0: none
    part: Delivered  # the message alone


Wanted = Callable[[list[int]], list[int]]
Matching = tuple[Delivered, int, NDArray[np.int64]]  # a part, its first position, and of it which


def candidates(
    delivery: Delivery,
    queue: Queue,
    subscription: Subscription,
    choice: Choice,
    most: int,
    wanted: Wanted,
) -> list[Candidate]:
    """Up to `most` of them. `wanted`: which positions of those that are found count.

    Raises StoreCorrupt, QueueNotFound.
    """
    properties = queue.config.properties
    found = (
        each
        for part, position, rows in _matching(delivery, queue, subscription, choice)
        for each in _ranked(part, position, wanted((rows + position).tolist()), properties)
    )
    if _in_commit_order(properties):
        return [each for each, _ in zip(found, range(most), strict=False)]
    return nsmallest(most, found, key=lambda each: each[:2])


def count(delivery: Delivery, queue: Queue, subscription: Subscription, choice: Choice) -> int:
    """For how many messages it holds. Raises as `candidates`."""
    return sum(len(rows) for _, _, rows in _matching(delivery, queue, subscription, choice))


def _in_commit_order(properties: Properties) -> bool:
    order = properties.order
    return order == COMMIT or (isinstance(order, dict) and by_sequence(order))


def _matching(
    delivery: Delivery,
    queue: Queue,
    subscription: Subscription,
    choice: Choice,
) -> Iterator[Matching]:
    for start, end in _ranges(delivery, queue, subscription, choice):
        for position, part in delivery.parts(queue, start, end):
            rows = rows_of(part, choice)
            if len(rows):
                yield part, position, rows


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


def _ranges(
    delivery: Delivery, queue: Queue, subscription: Subscription, choice: Choice
) -> Iterator[tuple[int, int]]:
    """Where they may be, of what the subscription has not read."""
    if choice.message_id is not None:
        try:
            position = position_of(delivery, queue, choice.message_id)
        except PositionLost:
            return
        with queue.lock:
            is_read = subscription.done.contains(position)
        if not is_read:
            yield position, position + 1
        return
    start = 0
    while True:
        with queue.lock:
            start = subscription.done.first_gap(start)
            if queue.dropped or start >= queue.end_position:
                return
            _, end = next(subscription.done.gaps(start, queue.end_position))
        yield start, end
        start = end


def _ranked(
    part: Delivered, first: int, positions: list[int], properties: Properties
) -> Iterator[Candidate]:
    ranks = groups = None
    if not positions:
        return
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
