"""Retention: messages that a topic keeps after all have read them go by age, bytes or number, or
because there is a later one of their key.

Such a topic has a subscription of its own, the keeper, which nobody reads. What all others have
read is kept until the keeper is moved past it, by ordinary transactions.

- Nothing is taken from a subscription: what one has not read stays, whatever the keeper does. But
  what has a later message of its key (`keep_latest`) is read for all of them by one transaction,
  like what has expired; what somebody holds of it is when that is given back.
- RN2: a put that finds no room has what all have read give way first, from the oldest on, and no
  more of it than brings the room; but what is to be kept for ever stays, and the latest of a key.
"""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from quire.calls.signal_safety import allow_reentry
from quire.engine.lookup import latest_of_keys
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.reading import position_search
from quire.engine.transactions.context import Context
from quire.engine.transactions.reads import TransactionReads
from quire.env.interpreter import RLock
from quire.errors import QueueFull, QuireError
from quire.intervals import IntervalSet
from quire.limits import INTERVAL_SECONDS, LET_GO_PART, POINTERS_AT_ONCE, PURGED_RUNS

from .own_transaction import MessageRuns, own_transaction, pass_by, pass_over, take_part

if TYPE_CHECKING:
    from quire.engine.lookup.latest_of_keys import LatestOfKeys


class _Kept(Struct):
    """The part of a queue that the keeper holds, as far as it was counted."""

    start: int  # positions
    end: int
    charge: int = 0  # bytes
    due_us: int = 0  # nothing is too old before


class Retention:
    """The retention of all topics. Thread-safe."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._kept: dict[Queue, _Kept] = {}
        self._latest: dict[Queue, LatestOfKeys] = {}
        self._superseding = RLock()
        self._moving = threading.local()
        self.last_error: str | None = None

    def let_go(self) -> None:
        """Let go of all that is not to be kept any more, as far as it can go now."""
        ruled = self._context.state.ruled
        if not ruled or getattr(self._moving, "is_here", False):
            return
        self.last_error = None
        for queue in list(ruled):
            keeper = queue.keeper
            if keeper is None or queue.stopped:
                continue
            try:
                if queue.config.properties.keep_latest is not None:
                    allow_reentry(self.supersede, queue, INTERVAL_SECONDS)
                if queue.config.properties.lets_go:
                    allow_reentry(self._move_keeper, queue, keeper, self._target(queue, keeper))
            except QuireError as error:  # the others go on
                self.last_error = f"what {queue.name!r} keeps: {error}"
        for queue in [queue for queue in self._kept if queue not in ruled]:
            self._kept.pop(queue, None)
        for queue in list(self._latest):
            if queue not in ruled or queue.config.properties.keep_latest is None:
                self._latest.pop(queue, None)

    def supersede(self, queue: Queue, seconds: float = math.inf) -> None:
        """Read all that has a later message of its key, or what is found in so long."""
        if getattr(self._moving, "is_here", False):
            return
        started = self._context.env.monotonic()
        self._moving.is_here = True
        try:
            with self._superseding:
                latest = self._latest_of(queue)
                is_more = latest is not None
                while latest is not None and is_more and not queue.dropped:
                    is_more = latest.catch_up(self._context.delivery, queue)
                    self._read_superseded(queue, latest)
                    is_more &= self._context.env.monotonic() - started < seconds
        finally:
            self._moving.is_here = False

    def _latest_of(self, queue: Queue) -> LatestOfKeys | None:
        """Return what is known of the queue's keys, as its properties are now."""
        properties = queue.config.properties
        if properties.keep_latest is None or queue.keeper is None:
            return None
        found = self._latest.get(queue)
        now = latest_of_keys.LatestOfKeys(properties)
        if found is None or found.place != now.place:
            found = self._latest[queue] = now
        return found

    def _read_superseded(self, queue: Queue, latest: LatestOfKeys) -> None:
        keeper = queue.keeper
        if keeper is None:
            return
        with queue.lock:
            passing = [run for part in latest.passing for run in keeper.done.gaps(*part)]
        for runs in latest.parts(PURGED_RUNS // len(queue.subscriptions) or 1):
            with own_transaction(self._context, "maintenance") as txn:
                txn.getting(_take_superseded, queue, runs)
                pass_over(txn, queue, keeper, runs)
                txn.commit()
        for at in range(0, len(passing), PURGED_RUNS):
            with own_transaction(self._context, "maintenance") as txn:
                pass_over(txn, queue, keeper, passing[at : at + PURGED_RUNS])
                txn.commit()

    def make_room(self, queue: Queue, full: QueueFull) -> bool:
        """Something that all have read gives way, if that brings the room that is missing (RN2)."""
        keeper = queue.keeper
        properties = queue.config.properties
        if keeper is None or not properties.lets_go or properties.keep_latest is not None:
            return False
        with queue.lock:
            space, start = queue.space, keeper.position
            lacks_bytes, lacks_messages = space.lack(full)
            others = [s.position for s in queue.readers()]
            limit = min(others, default=queue.end_position)
            max_messages = space.max_messages
            goal = lacks_bytes and max(lacks_bytes, space.capacity // LET_GO_PART)
            count = lacks_messages and max(lacks_messages, (max_messages or 0) // LET_GO_PART)
        brought, target = self._walk(queue, start, limit, goal, count)
        if target == start or brought < lacks_bytes or target - start < lacks_messages:
            return False
        with suppress(QuireError):  # the put says what is missing
            self._move_keeper(queue, keeper, target)
            return True
        return False

    def _move_keeper(self, queue: Queue, keeper: Subscription, target: int) -> None:
        """Move the keeper."""
        if keeper.position < target:
            self._forget(queue, target)
        self._moving.is_here = True
        try:
            for _ in pass_by(self._context, "maintenance", queue, keeper, target):
                pass
        finally:
            self._moving.is_here = False

    def _target(self, queue: Queue, keeper: Subscription) -> int:
        """Below it nothing is to be kept."""
        properties = queue.config.properties
        with queue.lock:
            start, end = keeper.position, queue.end_position
        target = start
        if properties.keep_messages is not None:
            target = max(target, end - properties.keep_messages)
        if properties.keep_bytes is not None:
            target = max(target, self._past_bytes(queue, start, end, properties.keep_bytes))
        if properties.keep_seconds is not None:
            kept_us = int(properties.keep_seconds * 1e6)
            target = max(target, self._past_age(queue, start, kept_us))
        return target

    def _note(self, queue: Queue, start: int) -> _Kept:
        kept = self._kept.get(queue)
        if kept is None or kept.start != start:
            kept = self._kept[queue] = _Kept(start, start)
        return kept

    def _forget(self, queue: Queue, target: int) -> None:
        """Stop counting what is below the target."""
        kept = self._kept.get(queue)
        if kept is not None and kept.start < target:
            kept.charge -= self._walk(queue, kept.start, min(target, kept.end))[0]
            kept.start, kept.end = target, max(kept.end, target)

    def _past_age(self, queue: Queue, start: int, kept_us: int) -> int:
        """The first position that is not too old."""
        now_us = self._context.env.now_us()
        kept = self._note(queue, start)
        if now_us < kept.due_us + kept_us:
            return start
        position = position_search.position_at(self._context.delivery, queue, now_us - kept_us + 1)
        with queue.lock:
            first = next(queue.records.overlapping(position, queue.end_position), None)
        kept.due_us = (
            now_us if first is None else first.time_us
        )  # or later: then it is looked again
        return position

    def _past_bytes(self, queue: Queue, start: int, end: int, limit: int) -> int:
        """The first position that is within so many bytes of the end."""
        with queue.lock:
            space = queue.space
            if space.used - space.pending_bytes - space.prepared_bytes <= limit:
                return start
        kept = self._note(queue, start)
        brought, kept.end = self._walk(queue, kept.end, end)
        kept.charge += brought
        if kept.charge <= limit:
            return start
        return self._walk(queue, start, end, kept.charge - limit)[1]

    def _walk(
        self, queue: Queue, start: int, end: int, goal: int | None = None, messages: int = 0
    ) -> tuple[int, int]:
        """Return the charge of the messages of [start, end), and where they end.

        With a goal they end where they come to so many bytes, and so many messages.
        """
        total, position = 0, start
        while position < end:
            with queue.lock:  # for some of them at a time
                refs = list(islice(queue.records.overlapping(position, end), POINTERS_AT_ONCE))
            for ref in refs:
                if goal is not None and total >= goal and position - start >= messages:
                    return total, position
                first, stop = max(position, ref.position), min(ref.end, end)
                if goal is not None and ref.charge:  # no more of the block than is needed
                    by_charge = -(-(goal - total) * ref.count // ref.charge)
                    stop = min(stop, max(first + by_charge, start + messages, first + 1))
                total += ref.charge * (stop - first) // ref.count
                position = stop
                if stop < min(ref.end, end):
                    break
            if not refs:
                break
        return total, position


def _take_superseded(reads: TransactionReads, queue: Queue, runs: MessageRuns) -> None:
    """Take what is not read of these positions, of each subscription, but what somebody holds."""
    reads.further().is_counted = False
    with queue.lock:
        for each in queue.readers():
            if queue.dropped or each.removed or each.seeker is not None:
                continue
            for start, end in runs:
                reserved = IntervalSet.from_list(each.held_in(start, end))
                for part in reserved.gaps(start, end):
                    take_part(reads, queue, each, *part)
