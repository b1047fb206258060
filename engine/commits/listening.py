"""Notices to listeners of a queue: the ids of messages that were put, or that were read.

- Nothing is queued for anybody. Messages are never changed and their positions ascend in
  commit order, so a listener is a place: a position in the queue; of removals the number of the
  next message that leaves the subscription (DP2). What is asked from a place on is what was
  committed from there on; so nothing comes before its commit, nothing twice, and ids are joined as
  far as there are some. What a listener takes of memory does not grow with what it has not heard.
- HR2: what was put and has been read before the listener looked is told too, as long as the queue
  knows it (DP1). Else it is counted as missed, whether or not it would have fitted.
- HR3: the group of a message is told to who listens for this group, or for group 0; a message of
  group 0 is told to all.
- HR6: what cannot be got at its put, as it is not due, is told when it can be (`due`), and what is
  given back, or comes again after a delay, is told again (`returned`): as these are numbered (DP3),
  as long as they are known. What a place from another period of listening is before, or one that an
  owner before has told, is told by the times of the messages: each once that was not due then.
- HR5: how much was missed is not known (None) where only an owner before knew it.
- HR4: what a subscription passes by, as its selector does not hold for it, was never in it: it has
  not left. Where it is not known any more, it is among what was missed, as all that does not fit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from quire.batches.delivered_slice import Delivered
from quire.block.format import Column
from quire.engine.live_state.engine_state import EngineState
from quire.engine.lookup.candidates import rows_in
from quire.engine.queues.queue import Queue
from quire.engine.queues.recent_removals import DUE, RETURNED, RecentRemovals, Returns
from quire.engine.queues.subscription import Subscription
from quire.engine.reading.fetcher import Fetcher
from quire.env import Env
from quire.errors import InvalidArgument, PositionLost, QueueNotFound
from quire.libraries import np
from quire.limits import LISTENED_SECONDS, NEVER_US, NOTICE_LOOKS
from quire.reports.info import Notice

from .sequencer import Sequencer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from quire.engine.lookup.choice import Choice


class ListenedFor(NamedTuple):
    """The request of a listener."""

    choice: Choice
    group: int
    most: int  # ids of one answer
    created_us: int | None  # of the queue that the position is in; None: of the one that is there
    mark: ReturnsMark | None  # None: nothing is told of what became available after its put


class ReturnsMark(NamedTuple):
    """How far a listener is in what became available after its put (HR6)."""

    period: int  # of the `Returns`
    number: int  # of those that are next
    due_us: int  # what was due by then it knows, of what it has passed

    def __str__(self) -> str:
        return f"{self.period:x}:{self.number}:{self.due_us}"

    @classmethod
    def of(cls, text: object) -> ReturnsMark | None:
        """Raises InvalidArgument for what is none."""
        if text == "":
            return None
        found = (
            re.fullmatch(r"([0-9a-f]{1,16}):(\d{1,18}):(\d{1,18})", text)
            if isinstance(text, str)
            else None
        )
        if found is None:
            raise InvalidArgument(f"mark {text!r:.100}: give the mark of a Notice")
        return cls(int(found[1], 16), int(found[2]), int(found[3]))


# Where it begins, how many messages, they themselves (None: missed), and whether they are there.
ListenedPiece = tuple[int, int, Delivered | None, bool]


class Listening:
    """Makes notices for the listeners of queues. Thread-safe."""

    def __init__(
        self, env: Env, state: EngineState, sequencer: Sequencer, delivery: Fetcher
    ) -> None:
        self._env = env
        self._state = state
        self._sequencer = sequencer
        self._delivery = delivery

    def puts(
        self, queue: Queue, request: ListenedFor, start: int | None, until: int | None
    ) -> Notice:
        """Return the puts from the position on; without a start no puts, but the place.

        With `until` what is kept of [start, until): it was there before anybody listened.
        Raises QueueNotFound, PositionLost for a position that the queue never had, StoreCorrupt.
        """
        returns = self._recent_removals(queue).returns
        self._look_ahead(queue, returns)
        with queue.lock:
            _check_there(queue, request)
            # What has come since is told by the next look: of it nobody knows when it is due.
            end, is_shut = min(returns.seen, queue.end_position), queue.is_shut
            now = ReturnsMark(returns.period, returns.total, returns.due_us)
        if start is None:
            return _place(queue, "put", end, now)
        if start > queue.end_position:
            raise PositionLost(
                f"position {start} of queue {queue.name!r}, which ends before it: it is another "
                "queue than this place is of; listen anew"
            )
        mark = now if request.mark is None else request.mark
        if is_shut:
            return _place(queue, "put", start, mark)
        came = self._returned(queue, request, start, mark, now, returns)
        if came is not None:
            return came
        end = max(start, end)
        if mark[:2] == now[:2] and start == end:
            now = mark  # it stays as it is, and nothing is to be kept anew for it
        request = request._replace(mark=now)
        if until is not None:
            end = min(end, until)
            return _notice(queue, "put", request, start, end, self._kept(queue, start, end))
        # What an owner before had of a volatile queue nobody knows (HR5).
        before = None if start < queue.begin else 0
        start = max(start, queue.begin)
        return _notice(
            queue, "put", request, start, end, self._kept_and_left(queue, start, end), before
        )

    def removals(
        self, queue: Queue, subscription: Subscription, request: ListenedFor, start: int | None
    ) -> Notice:
        """Return what has left a subscription from the number `start` on. Raises QueueNotFound."""
        recent_removals = self._recent_removals(queue)
        with queue.lock:
            _check_there(queue, request)
            queue.check_there(subscription)
            end = recent_removals.number(subscription)
            found = [] if start is None else recent_removals.since(subscription, start)
        if start is None:
            return _place(queue, "removal", end, None)
        # HR5: of a volatile queue, or the subscription was moved back, and its owner is gone.
        before = None if start < queue.begin or start > end else 0
        start = min(max(start, queue.begin), end)
        pieces = _with_gaps(start, end, found)
        return _notice(queue, "removal", request, start, end, pieces, before, subscription)

    def when_put(
        self, queue: Queue, past: int, returns: int | None, callback: Callable[[], None]
    ) -> Callable[[], None] | None:
        """Have it called once messages are behind the position; None: some are, or never will.

        `returns`: or once other than so many became available after their put.
        """

        def is_ready() -> bool:
            if queue.dropped or queue.is_shut:
                return queue.dropped
            recent_removals = queue.recent_removals
            total = None if recent_removals is None else recent_removals.returns.total
            return queue.end_position > past or (None not in (total, returns) and total != returns)

        return queue.when(is_ready, callback)

    def when_removed(
        self, queue: Queue, subscription: Subscription, past: int, callback: Callable[[], None]
    ) -> Callable[[], None] | None:
        """The same of removals from a subscription, by their number."""
        recent_removals = self._recent_removals(queue)
        return queue.when(
            lambda: (
                queue.dropped or subscription.removed or recent_removals.number(subscription) > past
            ),
            callback,
        )

    # What is kept for listeners (DP1)

    def _recent_removals(self, queue: Queue) -> RecentRemovals:
        """Return the queue's recent removals, which are kept from now on at the latest."""
        now = self._env.monotonic()
        recent_removals = queue.recent_removals
        if recent_removals is None:
            recent_removals = self._sequencer.exclusive(lambda: self._begin(queue, now))
        recent_removals.listened_at = now
        return recent_removals

    def _begin(self, queue: Queue, now: float) -> RecentRemovals:
        with queue.lock:
            if queue.recent_removals is None:
                first, drawn = queue.released.first_gap(0), self._env.random_u64()
                returns = Returns(drawn, first, self._env.now_us())
                queue.recent_removals = RecentRemovals(queue.subscriptions.values(), now, returns)
            if not queue.dropped:
                self._state.listened[queue.queue_id] = queue
                self._state.collect_special()
            return queue.recent_removals

    def end_unused(self) -> None:
        """Stop keeping removals of queues to which nobody has listened for a while."""
        if not self._state.listened:
            return
        over = self._env.monotonic() - LISTENED_SECONDS
        for queue in list(self._state.listened.values()):
            recent_removals = queue.recent_removals
            if recent_removals is not None and recent_removals.listened_at < over:
                self._sequencer.exclusive(lambda own=queue: self._end(own))  # type: ignore[misc]

    def _end(self, queue: Queue) -> None:
        with queue.lock:
            self._state.listened.pop(queue.queue_id, None)
            self._state.collect_special()
            recent_removals, queue.recent_removals = queue.recent_removals, None
            if recent_removals is not None:
                for subscription in queue.subscriptions.values():
                    recent_removals.leave(subscription)

    # What becomes available after its put (HR6)

    def advance(self) -> None:
        """Tell those who wait what is due by now."""
        for queue in list(self._state.listened.values()):
            recent_removals = queue.recent_removals
            if (
                recent_removals is not None
                and recent_removals.returns.next_us <= self._env.now_us()
            ):
                with queue.lock:
                    recent_removals.returns.advance(self._env.now_us())
                    queue.wake()

    @property
    def next_due(self) -> float:
        """Seconds until something is due that somebody listens for; infinite: nothing is known."""
        recent_removals = [queue.recent_removals for queue in list(self._state.listened.values())]
        due_us = min(
            (d.returns.next_us for d in recent_removals if d is not None), default=NEVER_US
        )
        return math.inf if due_us == NEVER_US else (due_us - self._env.now_us()) / 1e6

    def _look_ahead(self, queue: Queue, returns: Returns) -> None:
        """Know when each message is due that is there, and which are due by now."""
        with queue.lock:
            if returns.advance(self._env.now_us()):
                queue.wake()
            is_timed = bool(queue.config.properties.timed)
            if not is_timed:
                returns.seen = queue.end_position
        while is_timed:
            with queue.lock:
                start, end = returns.seen, queue.end_position
            if start >= end:
                break
            found = [
                (due_us, position + row)
                for position, part in self._delivery.parts(queue, start, end)
                for row, due_us in enumerate(_due(part).tolist())
                if due_us > returns.due_us
            ]
            with queue.lock:
                if returns.seen == start:  # else another thread was faster
                    returns.seen = end
                    for due_us, position in found:
                        returns.expect(due_us, position)

    def _returned(
        self,
        queue: Queue,
        request: ListenedFor,
        start: int,
        mark: ReturnsMark,
        now: ReturnsMark,
        returns: Returns,
    ) -> Notice | None:
        """Return a notice of messages before the position that became available since the mark."""
        if mark.period != now.period:
            return self._due_since(queue, request, start, mark, now)
        with queue.lock:
            events = returns.since(mark.number)
        missed = max(0, events[0].number - mark.number) if events else now.number - mark.number
        number, event, found = mark.number + missed, RETURNED, _Ids(request)
        for each in events:
            if each.number >= now.number or found.is_full or (found.ids and each.event != event):
                break
            first = each.start + max(0, number - each.number)
            last = min(each.end, start)  # what is behind is told with the puts
            event, number = each.event, each.number + each.end - each.start
            for position, part in self._delivery.parts(queue, first, last) if first < last else ():
                rows = _fitting(None, part, request)
                taken = found.add(part, rows[_due(part)[rows] <= now.due_us])
                if taken is not None:
                    number = each.number + position + taken - each.start
                    break
        if not found.ids and not missed:
            return None
        mark = ReturnsMark(now.period, number, now.due_us)
        return Notice(
            queue.name, event, start, found.ids, found.groups, missed, more=True,
            created_us=queue.config.created_us, mark=str(mark),
        )  # fmt: skip

    def _due_since(
        self, queue: Queue, request: ListenedFor, start: int, mark: ReturnsMark, now: ReturnsMark
    ) -> Notice | None:
        """Return a notice of kept messages before the position, due since another period's mark."""
        if not queue.config.properties.timed or start <= queue.begin:
            return None
        waiting: list[tuple[int, int, int]] = []  # when, id, group
        for _, part in self._delivery.parts(queue, queue.released.first_gap(0), start):
            due, rows = _due(part), _fitting(None, part, request)
            rows = rows[(due[rows] > mark.due_us) & (due[rows] <= now.due_us)]
            ids = part.block.ids(part.first_id, part.start, part.stop)
            columns = due[rows].tolist(), ids[rows].tolist(), _groups(part)[rows].tolist()
            waiting += zip(*columns, strict=True)
        if not waiting:
            return None
        waiting.sort()
        due_now, rest = waiting[: request.most], waiting[request.most :]
        if rest:  # those of one moment are told together
            whole = [row for row in due_now if row[0] < rest[0][0]]
            due_now = whole or [row for row in waiting if row[0] == due_now[0][0]]
            rest = waiting[len(due_now) :]
        mark = mark._replace(due_us=due_now[-1][0]) if rest else now
        return Notice(
            queue.name, DUE, start, [row[1] for row in due_now], [row[2] for row in due_now],
            more=True, created_us=queue.config.created_us, mark=str(mark),
        )  # fmt: skip

    # What was put

    def _kept(self, queue: Queue, start: int, end: int) -> Iterator[ListenedPiece]:
        """The messages of [start, end) that are there still."""
        while start < end:
            with queue.lock:
                low, high = next(queue.released.gaps(start, end), (end, end))
            for position, part in self._delivery.parts(queue, low, high):
                yield position, part.stop - part.start, part, True
            start = high

    def _kept_and_left(self, queue: Queue, start: int, end: int) -> Iterator[ListenedPiece]:
        """All messages of [start, end): as they are kept, as they have left, or missed."""
        for position, count, part, is_kept in self._kept(queue, start, end):
            yield from self._removed_pieces(queue, start, position)
            yield position, count, part, is_kept
            start = position + count
        yield from self._removed_pieces(queue, start, end)

    def _removed_pieces(self, queue: Queue, start: int, end: int) -> Iterator[ListenedPiece]:
        """Yield the parts and gaps of messages that are not kept any more (HR2)."""
        if start >= end:
            return
        recent_removals = queue.recent_removals
        with queue.lock:
            found = [] if recent_removals is None else recent_removals.between(start, end)
        yield from _with_gaps(start, end, found)


def _check_there(queue: Queue, request: ListenedFor) -> None:
    if queue.dropped:
        raise QueueNotFound(f"queue {queue.name!r} was dropped")
    if request.created_us not in (None, queue.config.created_us):
        raise PositionLost(
            f"the queue {queue.name!r} in which this place is was dropped, and another one has its "
            "name: listen anew"
        )


def _place(queue: Queue, on: str, position: int, mark: ReturnsMark | None) -> Notice:
    """Nothing but where a listener is."""
    shown = "" if mark is None else str(mark)
    return Notice(queue.name, on, position, created_us=queue.config.created_us, mark=shown)


class _Ids:
    """The ids of a notice that is being made."""

    def __init__(self, request: ListenedFor) -> None:
        self._most = request.most
        self.ids: list[int] = []
        self.groups: list[int] = []

    @property
    def is_full(self) -> bool:
        """Return True if it has as many as it may."""
        return len(self.ids) >= self._most

    def add(self, part: Delivered, rows: NDArray[np.intp]) -> int | None:
        """Add messages of a part; return how many of the part were passed, or None: all of it."""
        room, passed = self._most - len(self.ids), None
        if len(rows) > room:
            rows = rows[:room]
            passed = int(rows[-1]) + 1 if room else 0
        self.ids += part.block.ids(part.first_id, part.start, part.stop)[rows].tolist()
        self.groups += _groups(part)[rows].tolist()
        return passed


def _fitting(left: Subscription | None, part: Delivered, request: ListenedFor) -> NDArray[np.intp]:
    """The messages of a part that somebody listens for, by their rows (HR3, HR4)."""
    rows = rows_in(left, part, request.choice)
    if request.group:
        of_rows = _groups(part)[rows]
        rows = rows[(of_rows == request.group) | (of_rows == 0)]
    return rows


def _due(part: Delivered) -> NDArray[np.int64]:
    """Return when the messages of a part are due; 0: at once."""
    if not part.block.columns & Column.DELIVER_AT:
        return np.zeros(part.stop - part.start, np.int64)
    due = part.block.headers_with(Column.DELIVER_AT).fixed[Column.DELIVER_AT]
    found: NDArray[np.int64] = np.maximum(due[part.start : part.stop], 0)  # absent: far below zero
    return found


def _with_gaps(start: int, end: int, found: list[tuple[int, Delivered]]) -> Iterator[ListenedPiece]:
    """The parts from `start` to `end`, and what is missing between them."""
    for first, part in found:
        if first > start:
            yield start, first - start, None, False
        start = first + part.stop - part.start
        yield first, start - first, part, False
    if start < end:
        yield start, end - start, None, False


def _notice(
    queue: Queue,
    on: str,
    request: ListenedFor,
    start: int,
    end: int,
    pieces: Iterator[ListenedPiece],
    missed: int | None = 0,
    left: Subscription | None = None,
) -> Notice:
    """Return one notice of the pieces, up to its limit. `left`: the subscription they have left."""
    found = _Ids(request)
    looks = 0
    for first, count, part, is_kept in pieces:
        start = first + count
        if part is None:
            missed = None if missed is None else missed + count
            continue
        rows = _fitting(left, part, request)
        if is_kept and request.mark is not None and queue.config.properties.timed:  # HR6
            rows = rows[_due(part)[rows] <= request.mark.due_us]
        passed = found.add(part, rows)
        if passed is not None:
            start = first + passed
        looks += count
        if found.is_full or looks >= NOTICE_LOOKS:
            break
    else:
        start = end
    return Notice(
        queue.name, on, start, found.ids, found.groups, missed, start < end,
        queue.config.created_us, "" if request.mark is None else str(request.mark),
    )  # fmt: skip


def _groups(part: Delivered) -> NDArray[np.int64]:
    """The groups of its messages."""
    if not part.block.columns & Column.GROUP:
        return np.zeros(part.stop - part.start, np.int64)
    groups = part.block.headers_with(Column.GROUP).fixed[Column.GROUP]
    return groups[part.start : part.stop].astype(np.int64)
