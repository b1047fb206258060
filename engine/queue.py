"""A queue: its records, its space, its subscriptions, under one lock.

- Q1: no thread holds the locks of two queues.
- Q2: `released` holds the positions that every subscription has read; a queue without subscriptions
  releases nothing. A block all of whose messages are released is given back at once, wherever it
  is.
- Q3: `space.used` is a function of the records and of `released` plus what open and prepared
  transactions hold, so that recovery arrives at the same number.
- Q4: what a change releases is looked up in record pages. They are read before its journal record
  is written (`releasing`): damage refuses the change, and the store goes on. Found later it
  would leave a record that nobody can apply, recovery neither. What other changes on their way
  read counts as read, as they may be applied first.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from quire.errors import SubscriptionNotFound
from quire.intervals import IntervalSet
from quire.limits import POINTERS_AT_ONCE

from . import format
from .block_ref import BlockRef, Row
from .info import QueueInfo, QueueRecord, SubscriptionInfo
from .queue_log import QueueLog, Sealing
from .read_structure import Pointer, ReadStructure
from .record_list import PageEntry, RecordList
from .record_page import RecordPages
from .reservation import Space
from .strategies import Strategy
from .subscription import Subscription

TOPIC = "topic"
WORK = "work"

Reading = tuple[int, int, int]  # a subscription's id, and the positions that it has read: from, to

# What a transaction has got: the ids of queue and subscription, the positions from and to, both
# themselves, and of a block's only message the record, as it was in the queue's epoch.
Taken = tuple[int, int, int, int, "Queue", Subscription, BlockRef | None, int]


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """What a queue is made with."""

    queue_id: int
    name: str
    kind: str
    capacity: int
    max_messages: int | None
    created_us: int
    subscription_id: int  # the built-in subscription of a work queue; 0 for a topic
    data_file: int = 0  # where its blocks and record pages go


class Queue:
    """See the module."""

    def __init__(self, config: QueueConfig, pages: RecordPages, strategy: Strategy) -> None:
        self.config = config
        self.queue_id = config.queue_id
        self.name = config.name
        self.data_file = config.data_file
        self.lock = threading.Lock()
        self._arrived: threading.Condition | None = None  # made by the first that waits
        # Who takes space enters `admission`: the lock, and before it, under a strategy whose
        # commits lock all, the one that such a commit holds.
        self.writers = threading.Lock()
        self.admission: AbstractContextManager[Any] = (
            _Both(self.writers, self.lock) if strategy.locks_queues else self.lock
        )
        self.space = Space(config.name, config.capacity, config.max_messages, strategy)
        self.records = RecordList(config.queue_id, pages)
        self.log = QueueLog()
        self.end_position = 0
        self.released = IntervalSet()
        self.subscriptions: dict[int, Subscription] = {}
        self.named: dict[str, Subscription] = {}
        self._ring: deque[Subscription] = deque()  # the first one held back the last release
        self._leaving: list[Reading] = []  # of changes on their way (Q4)
        self.dropped = False
        self.epoch = 0  # records that were looked up before it was raised may have moved
        if config.kind == WORK:
            self.add_subscription(config.subscription_id, "", self.released)

    # Subscriptions

    def add_subscription(self, subscription_id: int, name: str, done: IntervalSet) -> Subscription:
        subscription = Subscription(
            self.queue_id, subscription_id, name, done, ReadStructure(self.records)
        )
        self.subscriptions[subscription_id] = self.named[name] = subscription
        self._ring.append(subscription)
        return subscription

    def start_of(self, start: int) -> IntervalSet:
        """What a new subscription that begins at the position counts as read."""
        done = self.released.copy()
        if start > 0:
            done.add(0, start)
        return done

    def remove_subscription(self, subscription_id: int) -> list[BlockRef]:
        """Take a subscription away; return the blocks that nobody waits for any more."""
        subscription = self.subscriptions.pop(subscription_id)
        subscription.removed = True
        del self.named[subscription.name]
        self._ring.remove(subscription)
        return self.release_read()

    def release_read(self) -> list[BlockRef]:
        """Release what every subscription has read; return the blocks that are free by that."""
        if not self.subscriptions or self.end_position == 0:
            return []
        return self._release(self._read_by_all(0, self.end_position))

    def subscription(self, name: str | None) -> Subscription:
        """By name; None is the built-in one of a work queue. Raises `SubscriptionNotFound`."""
        if self.config.kind == WORK and name is None:
            return self.subscriptions[self.config.subscription_id]
        subscription = self.named.get(name) if name is not None else None
        if subscription is not None and self.config.kind == TOPIC:
            return subscription
        if name is None:
            raise SubscriptionNotFound(
                f"queue {self.name!r} is a topic: read it through a subscription, as "
                f'"{self.name}/NAME" (make one with subscribe({self.name!r}, NAME))'
            )
        if self.config.kind == WORK:
            raise SubscriptionNotFound(
                f"queue {self.name!r} is a work queue: it has no subscriptions, read it as "
                f"{self.name!r}"
            )
        raise SubscriptionNotFound(
            f"queue {self.name!r} has no subscription {name!r}: make it with "
            f"subscribe({self.name!r}, {name!r})"
        )

    # Committed changes: made in journal order, under the lock

    def append(self, row: Row) -> None:
        """A committed block: the fields of its `BlockRef`, whose position is `end_position`."""
        self.records.tail.append(row)
        self.end_position = row[0] + row[7]

    def leave(self, transaction_id: int) -> None:
        """A transaction that opened the queue and put nothing has ended."""
        self.space.abandon(0, 0)
        self.log.rollback(transaction_id, self.end_position)

    def acknowledge(self, subscription_id: int, start: int, end: int) -> list[BlockRef]:
        """Positions [start, end) are read; return the blocks that are released by that."""
        subscription = self.subscriptions.get(subscription_id)
        if subscription is None or start >= end:
            return []  # it was removed after the transaction had read
        if subscription.returned or subscription.attempts:
            subscription.forget(start, end)
        done = subscription.done
        if done is self.released:
            last = done.last()
            if last is None or last[1] <= start:
                return self._release(((start, end),))
            return self._release(list(done.gaps(start, end)))
        done.add(start, end)
        return self._release(self._read_by_all(start, end))

    def settle(
        self, subscription: Subscription, start: int, end: int, row: BlockRef | None, epoch: int
    ) -> Sequence[BlockRef]:
        """What was in flight at [start, end) is read for good; the blocks that are free by that.

        `row`: the record of a block's only message, as it was in the epoch.
        """
        subscription.delivered -= end - start
        if (
            row is None
            or epoch != self.epoch
            or subscription.removed
            or subscription.returned.total
            or subscription.attempts.starts
        ):
            return self.acknowledge(subscription.subscription_id, start, end)
        if not subscription.done.add(start, end):
            return ()  # somebody's read_to has passed it
        if subscription.done is not self.released:
            ring = self._ring
            for _ in range(len(ring)):
                if not ring[0].done.contains(start):
                    return ()
                ring.rotate(-1)
            self.released.add(start, end)
        self.space.release(row[4], 1)
        return (row,)

    @contextmanager
    def releasing(self, reads: Sequence[Reading]) -> Iterator[None]:
        """While a change is made by which these are read (Q4). Raises StoreCorrupt."""
        with self.lock:
            self._leaving += reads
        try:
            with self.lock:
                self._check_release([(start, end) for _, start, end in reads])
            yield
        finally:
            with self.lock:
                for read in reads:
                    self._leaving.remove(read)

    def leaving(self, subscription: Subscription) -> AbstractContextManager[None]:
        """The same for a change that removes a subscription: it holds nothing back then."""
        whole = (subscription.subscription_id, 0, self.end_position)
        return self.releasing([whole] if len(self.subscriptions) > 1 else [])

    def check_beginning(self, position: int) -> None:
        """The same for a new subscription that passes over what came before the position."""
        with self.lock:
            self._check_release([(0, position)])

    def _check_release(self, ranges: list[tuple[int, int]]) -> None:
        """Read the record pages of what all have read there, with what is on its way."""
        parts = [part for lo, hi in ranges if lo < hi for part in self.released.gaps(lo, hi)]
        if not any(self.records.missing(lo, hi) for lo, hi in parts):
            return
        for subscription in self._ring:
            uid = subscription.subscription_id
            going = IntervalSet.from_list(
                (lo, hi) for i, lo, hi in self._leaving if i == uid and lo < hi
            )
            parts = IntervalSet.from_list(
                part
                for lo, hi in parts
                for read in (subscription.done, going)
                for part in read.intersection(lo, hi)
            ).to_list()
        self.records.check(parts)

    def check_records(self) -> None:
        """The same for all that the queue holds."""
        for entry in list(self.records.directory):
            with self.lock:  # for one page: nobody waits for the others
                self.records.check([(entry.position, entry.end)])

    def _read_by_all(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that every subscription has read and that are not released."""
        parts = list(self.released.gaps(start, end))
        ring = self._ring
        for _ in range(len(ring)):
            parts = [part for lo, hi in parts for part in ring[0].done.intersection(lo, hi)]
            if not parts:
                break
            ring.rotate(-1)
        return parts

    def _release(self, parts: Iterable[tuple[int, int]]) -> list[BlockRef]:
        freed: list[BlockRef] = []
        released = self.released
        for start, end in parts:
            charge = 0
            released.add(start, end)
            for ref in self.records.overlapping(start, end):
                position, stop, count = ref.position, ref.position + ref.count, ref.count
                now = min(end, stop) - max(start, position)
                after = now if now == count else _covered(released, position, stop)
                charge += ref.charge * after // count - ref.charge * (after - now) // count
                if after == count:
                    freed.append(ref)
            self.space.release(charge, end - start)
            self.records.drop_pages(start, end, released)
        return freed

    def unreleased(self, ref: BlockRef) -> bool:
        """Whether any message of the block is still to be read."""
        return not self.released.covers(ref.position, ref.position + ref.count)

    def seal(
        self,
        count: int,
        replaced: PageEntry | None,
        entries: list[PageEntry],
        rewritten: dict[PageEntry, PageEntry],
        moved: list[tuple[list[BlockRef], BlockRef]],
        logged: Sealing,
    ) -> list[BlockRef]:
        """A checkpoint sealed the first `count` records of the tail into new record pages.

        `replaced` is the last page of before, written anew; `rewritten` are others; `moved` pairs
        old records with the one in their stead; `logged`: what goes from the log. Returns the
        blocks that are free by that: old ones, and the new ones that were released meanwhile, as
        the old ones were then. Keeps Q3: the charge of partly released messages is taken anew.
        """
        freed: list[BlockRef] = []
        for old, new in moved:
            if old[0].kind == format.DATA:  # moved as it is (see `reorganise`)
                freed.append(old[0] if self.unreleased(new) else new)
                continue
            if not self.released.overlaps(new.position, new.end):
                continue
            before = sum(
                ref.released_charge(_covered(self.released, ref.position, ref.end)) for ref in old
            )
            covered = _covered(self.released, new.position, new.end)
            self.space.correct(before - new.released_charge(covered))
            if covered == new.count:
                freed.append(new)
        self.epoch += 1
        self.records.seal(count, replaced, entries, rewritten, self.released)
        self.log.drop(logged)
        for subscription in self.subscriptions.values():
            subscription.read_structure.reset()
        return freed

    def log_to_keep(self, position: int) -> Sealing:
        """For `seal`: how the log looks without what ended below the position."""
        with self.lock:
            there = self.log.begin_sealing()
        return self.log.to_seal(*there, position)

    def listing(self, start: int = 0, limit: int | None = None) -> list[QueueRecord]:
        """The queue's records that no checkpoint has sealed, in queue order: so many of them."""
        with self.lock:  # for no longer than a copy takes
            log, committed = self.log.copy(), self.records.tail.copy()
        stop = None if limit is None else start + limit
        return list(log.records(committed.between(0, len(committed))))[start:stop]

    # Reading

    def take(self, subscription: Subscription, limit: int) -> tuple[int, int, int] | None:
        """The next positions for the subscription and how often they are delivered now."""
        run = subscription.take(limit, self.end_position)
        if run is None:
            return None
        return *run, subscription.deliveries(run[0])

    def deliverable(self, subscription: Subscription, start: int, end: int) -> list[Pointer]:
        """Pointers to the first of what is in flight at [start, end), `POINTERS_AT_ONCE` at most.

        What somebody's read_to or unsubscribe has released since it was taken is gone.
        """
        result: list[Pointer] = []
        for lo, hi in self.released.gaps(start, end):
            room = POINTERS_AT_ONCE - len(result)
            if not room:
                break
            result += subscription.read_structure.pointers(lo, hi, room)
        return result

    def pointers(self, start: int, end: int) -> list[Pointer]:
        """Pointers to the first committed messages of [start, end), as far as they are kept."""
        kept = (ref for ref in self.records.overlapping(start, end) if self.unreleased(ref))
        return [
            Pointer(ref, max(start - ref.position, 0), min(end - ref.position, ref.count))
            for ref in islice(kept, POINTERS_AT_ONCE)
        ]

    def wait(self, timeout: float, ready: Callable[[], bool]) -> None:
        """Wait under the lock until the queue changes and `ready`, or the time is over."""
        if self._arrived is None:
            self._arrived = threading.Condition(self.lock)
        self._arrived.wait_for(ready, timeout)

    def wait_for_room(self, timeout: float, wanted: Callable[[], bool]) -> bool:
        """Wait until a commit would find space, or it is not `wanted`; False: the time is over."""
        with self.lock:
            space = self.space
            if space.room is None:
                space.room = threading.Condition(self.lock)
            return space.room.wait_for(
                lambda: space.may_commit() or self.dropped or not wanted(), timeout
            )

    def wake_all(self) -> None:
        """Who waits for messages or for space shall look again; called under the lock."""
        self.wake()
        if self.space.room is not None:
            self.space.room.notify_all()

    def wake(self) -> None:
        """Something arrived, was returned, or the queue is gone; called under the lock."""
        if self._arrived is not None:
            self._arrived.notify_all()

    def info(self) -> QueueInfo:
        with self.lock:
            space = self.space
            return QueueInfo(
                name=self.name,
                kind=self.config.kind,
                capacity_bytes=space.capacity,
                max_messages=space.max_messages,
                used_bytes=space.used,
                messages=space.live_messages,
                first_position=self.released.first_gap(0),
                end_position=self.end_position,
                subscriptions=tuple(s.name for s in self.subscriptions.values() if s.name),
                open_transactions=space.open_transactions,
                reserving=space.reserving,
                created_us=self.config.created_us,
                data_file=self.data_file,
                prepared=space.prepared,
            )

    def subscription_info(self, subscription: Subscription) -> SubscriptionInfo:
        with self.lock:
            return SubscriptionInfo(
                queue=self.name,
                name=subscription.name,
                position=subscription.position,
                delivered=subscription.delivered,
                pending=self.end_position - subscription.done.total,
            )


class _Both:
    """Two locks, held one inside the other."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, outer: threading.Lock, inner: threading.Lock) -> None:
        self._outer = outer
        self._inner = inner

    def __enter__(self) -> None:
        self._outer.acquire()
        self._inner.acquire()

    def __exit__(self, *exception: object) -> None:
        self._inner.release()
        self._outer.release()


def _covered(released: IntervalSet, start: int, end: int) -> int:
    return sum(hi - lo for lo, hi in released.intersection(start, end))
