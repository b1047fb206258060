"""What is told to who listens to a queue: the ids of messages that were put, or that were read.

- Nothing is queued for anybody. Messages are never changed and their positions ascend in
  commit order, so a listener is a place: a position in the queue; of removals the number of the
  next message that leaves the subscription (DP2). What is asked from a place on is what was
  committed from there on; so nothing comes before its commit, nothing twice, and ids are joined as
  far as there are some. What a listener takes of memory does not grow with what it has not heard.
- HR2: what was put and has been read before the listener looked is told too, as long as the queue
  knows it (DP1). Else it is counted as missed, whether or not it would have fitted.
- HR3: the group of a message is told to who listens for this group, or for group 0; a message of
  group 0 is told to all.
- HR5: how much was missed is not known (None) where only an owner before knew it.
- HR4: what a subscription passes by, as its selector does not hold for it, was never in it: it has
  not left. Where it is not known any more, it is among what was missed, as all that does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from quire.batches.delivered_slice import Delivered
from quire.block.format import Column
from quire.engine.finding.candidates import rows_in
from quire.engine.live_state.live_state import State
from quire.engine.queues.departures import Departures
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.reading.delivery import Delivery
from quire.env import Env
from quire.errors import PositionLost, QueueNotFound
from quire.libraries import np
from quire.limits import HEARD_LOOKS, LISTENED_SECONDS
from quire.reports.info import Notice

from .sequencer import Sequencer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from quire.engine.finding.choice import Choice


class ListenedFor(NamedTuple):
    """What somebody listens for."""

    choice: Choice
    group: int
    most: int  # ids of one answer
    created_us: int | None  # of the queue that the position is in; None: of the one that is there


HeardPiece = tuple[int, int, Delivered | None]  # where it begins, how many messages; None: missed


class Listening:
    """See the module. Thread-safe."""

    def __init__(self, env: Env, state: State, sequencer: Sequencer, delivery: Delivery) -> None:
        self._env = env
        self._state = state
        self._sequencer = sequencer
        self._delivery = delivery

    def puts(
        self, queue: Queue, asked: ListenedFor, start: int | None, until: int | None
    ) -> Notice:
        """What was put from the position on; without a start nothing, but the place.

        With `until` what is kept of [start, until): it was there before anybody listened.
        Raises QueueNotFound, PositionLost for a position that the queue never had, StoreCorrupt.
        """
        self._departures(queue)
        with queue.lock:
            _check_there(queue, asked)
            end = queue.end_position
        if start is None:
            return _place(queue, "put", end)
        if start > end:
            raise PositionLost(
                f"position {start} of queue {queue.name!r}, which ends at {end}: it is another "
                "queue than this place is of; listen anew"
            )
        if until is not None:
            end = min(end, until)
            return _notice(queue, "put", asked, start, end, self._kept(queue, start, end))
        # What an owner before had of a volatile queue nobody knows (HR5).
        before = None if start < queue.begin else 0
        start = max(start, queue.begin)
        return _notice(
            queue, "put", asked, start, end, self._kept_and_left(queue, start, end), before
        )

    def removals(
        self, queue: Queue, subscription: Subscription, asked: ListenedFor, start: int | None
    ) -> Notice:
        """What has left a subscription, from the number `start` on. Raises QueueNotFound."""
        departures = self._departures(queue)
        with queue.lock:
            _check_there(queue, asked)
            queue.check_there(subscription)
            end = departures.number(subscription)
            found = [] if start is None else departures.since(subscription, start)
        if start is None:
            return _place(queue, "removal", end)
        # HR5: of a volatile queue, or the subscription was moved back, and its owner is gone.
        before = None if start < queue.begin or start > end else 0
        start = min(max(start, queue.begin), end)
        pieces = _with_gaps(start, end, found)
        return _notice(queue, "removal", asked, start, end, pieces, before, subscription)

    def when_put(
        self, queue: Queue, past: int, callback: Callable[[], None]
    ) -> Callable[[], None] | None:
        """Have it called once messages are behind the position; None: some are, or never will."""
        return queue.when(lambda: queue.dropped or queue.end_position > past, callback)

    def when_removed(
        self, queue: Queue, subscription: Subscription, past: int, callback: Callable[[], None]
    ) -> Callable[[], None] | None:
        """The same of removals from a subscription, by their number."""
        departures = self._departures(queue)
        return queue.when(
            lambda: queue.dropped or subscription.removed or departures.number(subscription) > past,
            callback,
        )

    # What is kept for listeners (DP1)

    def _departures(self, queue: Queue) -> Departures:
        """What has left the queue, from now on at the latest."""
        now = self._env.monotonic()
        departures = queue.departures
        if departures is None:
            departures = self._sequencer.exclusive(lambda: self._begin(queue, now))
        departures.asked_at = now
        return departures

    def _begin(self, queue: Queue, now: float) -> Departures:
        with queue.lock:
            if queue.departures is None:
                queue.departures = Departures(queue.subscriptions.values(), now)
            if not queue.dropped:
                self._state.listened[queue.queue_id] = queue
                self._state.look_apart()
            return queue.departures

    def end_unused(self) -> None:
        """Of queues to which nobody has listened for a while nothing is kept any more."""
        if not self._state.listened:
            return
        over = self._env.monotonic() - LISTENED_SECONDS
        for queue in list(self._state.listened.values()):
            departures = queue.departures
            if departures is not None and departures.asked_at < over:
                self._sequencer.exclusive(lambda own=queue: self._end(own))  # type: ignore[misc]

    def _end(self, queue: Queue) -> None:
        with queue.lock:
            self._state.listened.pop(queue.queue_id, None)
            self._state.look_apart()
            if queue.departures is not None:
                queue.departures = None
                for subscription in queue.subscriptions.values():
                    subscription.await_end(-1)

    # What was put

    def _kept(self, queue: Queue, start: int, end: int) -> Iterator[HeardPiece]:
        """The messages of [start, end) that are there still."""
        while start < end:
            with queue.lock:
                low, high = next(queue.released.gaps(start, end), (end, end))
            for position, part in self._delivery.parts(queue, low, high):
                yield position, part.stop - part.start, part
            start = high

    def _kept_and_left(self, queue: Queue, start: int, end: int) -> Iterator[HeardPiece]:
        """All messages of [start, end): as they are kept, as they have left, or missed."""
        for position, count, part in self._kept(queue, start, end):
            yield from self._left(queue, start, position)
            yield position, count, part
            start = position + count
        yield from self._left(queue, start, end)

    def _left(self, queue: Queue, start: int, end: int) -> Iterator[HeardPiece]:
        """Of what is not kept any more (HR2)."""
        if start >= end:
            return
        departures = queue.departures
        with queue.lock:
            found = [] if departures is None else departures.between(start, end)
        yield from _with_gaps(start, end, found)


def _check_there(queue: Queue, asked: ListenedFor) -> None:
    if queue.dropped:
        raise QueueNotFound(f"queue {queue.name!r} was dropped")
    if asked.created_us not in (None, queue.config.created_us):
        raise PositionLost(
            f"the queue {queue.name!r} in which this place is was dropped, and another one has its "
            "name: listen anew"
        )


def _place(queue: Queue, on: str, position: int) -> Notice:
    """Nothing but where a listener is."""
    return Notice(queue.name, on, position, created_us=queue.config.created_us)


def _with_gaps(start: int, end: int, found: list[tuple[int, Delivered]]) -> Iterator[HeardPiece]:
    """The parts from `start` to `end`, and what is missing between them."""
    for first, part in found:
        if first > start:
            yield start, first - start, None
        start = first + part.stop - part.start
        yield first, start - first, part
    if start < end:
        yield start, end - start, None


def _notice(
    queue: Queue,
    on: str,
    asked: ListenedFor,
    start: int,
    end: int,
    pieces: Iterator[HeardPiece],
    missed: int | None = 0,
    left: Subscription | None = None,
) -> Notice:
    """What is told of the pieces, as far as one answer goes. `left`: what they have left."""
    ids: list[int] = []
    groups: list[int] = []
    looks = 0
    for first, count, part in pieces:
        start = first + count
        if part is None:
            missed = None if missed is None else missed + count
            continue
        of_rows = _groups(part)
        rows = rows_in(left, part, asked.choice)  # HR4
        if asked.group:
            rows = rows[(of_rows[rows] == asked.group) | (of_rows[rows] == 0)]  # HR3
        if len(ids) + len(rows) > asked.most:
            rows = rows[: asked.most - len(ids)]
            start = first + int(rows[-1]) + 1
        ids += part.block.ids(part.first_id, part.start, part.stop)[rows].tolist()
        groups += of_rows[rows].tolist()
        looks += count
        if len(ids) >= asked.most or looks >= HEARD_LOOKS:
            break
    else:
        start = end
    created_us = queue.config.created_us
    return Notice(queue.name, on, start, ids, groups, missed, start < end, created_us)


def _groups(part: Delivered) -> NDArray[np.int64]:
    """The groups of its messages."""
    if not part.block.columns & Column.GROUP:
        return np.zeros(part.stop - part.start, np.int64)
    groups = part.block.headers_with(Column.GROUP).fixed[Column.GROUP]
    return groups[part.start : part.stop].astype(np.int64)
