"""A queue: its records, its space, its subscriptions, under one lock.

- No thread holds the locks of two queues.
- `released` holds the positions that every subscription has read; a queue without subscriptions
  releases nothing. What is released is given back at once (see `releases`).
- Q3: `space.used` is a function of the records and of `released` plus what open and prepared
  transactions hold, so that recovery arrives at the same number. A partly released block counts by
  the messages that are left, in a volatile queue as a whole: it is in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice
from typing import Any, Final, NamedTuple

from quire.calls.wake_up import Condition
from quire.definitions.near_names import did_you_mean
from quire.definitions.properties import DROP_OLDEST
from quire.engine.pages.block_places import Places
from quire.engine.pages.record_page import RecordPages
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef, BlockRow
from quire.engine.records.commit_record import Part, PartRow, Read
from quire.engine.state.durable_state import (
    KEEPER,
    OPEN,
    PREPARED,
    TOPIC,
    WORK,
    DurableQueue,
    DurableSubscription,
    QueueEffects,
    Ranges,
)
from quire.engine.strategies import BothLocks, Strategy
from quire.env import Env
from quire.env.interpreter import Lock
from quire.errors import (
    QueueDisabled,
    QueueFull,
    QueueNotFound,
    StoreCorrupt,
    SubscriptionNotFound,
)
from quire.limits import POINTERS_AT_ONCE, VOLATILE_RECORDS
from quire.reports.info import QueueInfo, SubscriptionInfo
from quire.reports.topic_readers import tell_unread

from .arrivals import Arrivals
from .queue_log import QueueLog, Sealing
from .read_structure import Pointer, ReadStructure
from .recent_removals import RecentRemovals
from .record_list import RecordList, Sealed
from .releases import Releases
from .reservation import Space
from .subscription import Subscription


class Switches(NamedTuple):
    """The store's switches: True where it lets in puts, and where it lets in gets."""

    puts: bool
    gets: bool
    no_room: str = ""  # why puts are refused as the disk is nearly full; "": it is not


ALL_ON: Final = Switches(puts=True, gets=True)


class Queue(QueueEffects):
    """A queue with its records, its space and its subscriptions, under one lock."""

    lock: Lock
    # Few queues have these as attributes of their own: they are kept few, as a test of them tells.
    gave_way = 0  # messages of a volatile queue, to later ones
    _most_records = VOLATILE_RECORDS  # of a volatile queue, before released ones go
    _has_warned = False  # that nobody reads, to this process
    begin = 0  # of a volatile queue: the first position since the opening
    recent_removals: RecentRemovals | None = None  # what is read, while somebody listens

    def __init__(
        self,
        durable: DurableQueue,
        pages: RecordPages,
        places: Places,
        strategy: Strategy,
        env: Env,
        used: int = 0,
    ) -> None:
        """Around a durable queue; `used`: what its records charge that are not released."""
        self.durable = durable
        durable.beside = self
        self.config = config = durable.config
        self.queue_id = config.queue_id
        self.name = config.name
        self.stopped = ""  # why neither puts nor gets are possible, in words
        self._stops: dict[str, str] = {}  # that, by what is missing
        self.lock = Lock()
        self._arrived: Arrivals | None = None  # made by the first that waits
        # Who takes space enters `admission`: the lock, and before it, under a strategy whose
        # commits lock all, the one that such a commit holds.
        self.writers = Lock()
        self.admission: AbstractContextManager[Any] = (
            BothLocks(self.writers, self.lock) if strategy.locks_queues else self.lock
        )
        self.released = durable.released
        self.space = Space(config, strategy)
        self._switches = ALL_ON
        self.dropped = False
        self.grants = False  # to messages that are put, what their put did not say
        self.asks_more = False  # of a put, than room: `grants`, or it is to be said that
        self.is_unread = False  # nobody reads, and nothing says what goes then (NR2)
        self._places = places
        self._limit()
        self._shut()
        self.space.recovered(used, durable.end_position - self.released.total)
        self.records = RecordList(durable, pages)
        self.releases = Releases(durable, self.records, self.space, self.lock)
        self.log = QueueLog()
        self.free = places.free  # of the blocks that a change has released, without the lock
        self._env = env
        self.subscriptions: dict[int, Subscription] = {}
        self.named: dict[str, Subscription] = {}
        self.keeper: Subscription | None = None  # has not read what is kept beyond all readers
        self.epoch = 0  # records that were looked up before it was raised may have moved
        for subscription in durable.subscriptions.values():
            self._join(subscription)
        self._look_for_readers()

    @property
    def data_file(self) -> int:
        """The number of the file that its blocks go to: as is wished, of those that are there."""
        return self.config.data_file % len(self._places.managers)

    @property
    def is_volatile(self) -> bool:
        """Return True if its messages are in memory only."""
        return self.config.is_volatile

    @property
    def schema(self) -> str | None:
        """Return the schema of its rows; None: its messages are bytes."""
        return self.config.properties.schema

    @property
    def has_rules(self) -> bool:
        """Return True if messages leave it by themselves, or count as read."""
        return self.space.passes or self.config.properties.has_rules

    @property
    def block_bytes(self) -> int:
        """Return the limit of bytes for a block of several of its messages."""
        return self.config.properties.block_bytes

    @property
    def is_temporary(self) -> bool:
        """Return True if the queue ends with the store's opening."""
        return not self.config.properties.persistent

    @property
    def end_position(self) -> int:
        """The next message committed gets it."""
        return self.durable.end_position

    # Subscriptions

    def _join(self, durable: DurableSubscription) -> None:
        subscription = Subscription(self.queue_id, durable, ReadStructure(self.records), self._env)
        if durable.name == KEEPER and self.config.kind == TOPIC:
            self.keeper = subscription
        else:
            subscription.obey(self.config.properties, is_volatile=self.is_volatile)
        self.subscriptions[durable.subscription_id] = self.named[durable.name] = subscription
        subscription.await_end(len(self.releases.views))
        if self.recent_removals is not None:
            self.recent_removals.join(subscription)

    def subscription(self, name: str | None) -> Subscription:
        """By name; None is the built-in one of a work queue. Raises `SubscriptionNotFound`."""
        if self.config.kind == WORK:
            if name is None:
                return self.subscriptions[self.config.subscription_id]
            raise SubscriptionNotFound(
                f"queue {self.name!r} is a work queue: it has no subscriptions, read it as "
                f"{self.name!r}"
            )
        if name is None:
            raise SubscriptionNotFound(
                f"queue {self.name!r} is a topic: read it through a subscription, as "
                f"'{self.name}/subscription'; subscribe first, with subscribe({self.name!r}, NAME)"
            )
        subscription = self.named.get(name)
        if subscription is None:
            raise SubscriptionNotFound(
                f"queue {self.name!r} has no subscription {name!r}"
                f"{did_you_mean(name, [each.name for each in self.readers()])}: make it with "
                f"subscribe({self.name!r}, {name!r})"
            )
        return subscription

    def readers(self) -> list[Subscription]:
        """All subscriptions but the keeper."""
        return [s for s in self.subscriptions.values() if s is not self.keeper]

    def _look_for_readers(self) -> None:
        properties = self.config.properties
        lets_go = properties.keeps or properties.overflow == DROP_OLDEST
        is_read = len(self.subscriptions) > (self.keeper is not None)
        self.is_unread = self.config.kind == TOPIC and not (lets_go or is_read)
        self.space.is_unread = self.is_unread
        selects = any(each.where is not None for each in self.subscriptions.values())
        self.space.passes = selects or properties.keep_latest is not None
        self.asks_more = self.grants or (self.is_unread and not self._has_warned)

    def tell_unread(self) -> None:
        """Somebody of this process is about to put here: say that nobody reads, once (NR1)."""
        if self.is_unread and not self._has_warned:
            self._has_warned = True  # first: the warning may be made an error
            self._look_for_readers()
            tell_unread(self.name)

    # Beside the fold (see `QueueEffects`)

    def appended(
        self, start: int, end: int, charge: int, held_by: str, transaction_id: int
    ) -> None:
        if held_by == OPEN:
            if transaction_id:
                self.space.commit(charge, end - start)
            else:
                self.space.commit_whole(charge, end - start)
        elif held_by == PREPARED:
            self.space.commit_prepared(charge, end - start)
        else:
            self.space.recovered(charge, end - start)
        if transaction_id:
            self.log.commit(transaction_id, start, end)
        if self._arrived is not None:
            self._arrived.notify_all()

    def placed(self, parts: Sequence[PartRow], held_by: str) -> None:
        if self.config.is_volatile:
            if len(self.durable.tail.starts) >= self._most_records:
                self._forget_released()
        elif held_by != PREPARED:
            for part in parts:
                if part[6] == format.DATA:
                    self._places.commit(Part(*part), held_by == OPEN)

    def acknowledged(self, read: Read | InFlightRange, released: Ranges) -> Sequence[BlockRow]:
        """Return the blocks that a read releases.

        It is an `InFlightRange` where an open transaction has the messages in flight until now.
        """
        if type(read) is not Read:
            _, _, start, end, _, subscription, record, epoch = read
            subscription.delivered -= end - start
            if record is not None and epoch == self.epoch:
                if not subscription.is_plain:
                    self._forget(read)
                    if self.releases.views:
                        return self.releases.free(released)
                if not released:
                    return ()
                self.space.release(record[4], 1)
                return (record,)
        self._forget(read)
        return self.releases.free(released) if released else ()

    def note_progress(self, subscription_id: int, sender: int, number: int) -> None:
        known = self.subscriptions.get(subscription_id)
        if known is not None and known.order.note_number(sender, number):
            self.wake()

    def _forget(self, read: Read | InFlightRange) -> None:
        """Let a subscription forget read positions; wake those that may have the next ones."""
        known, start, end = self.subscriptions.get(read[1]), read[2], read[3]
        if known is not None and start < end:
            is_other = known.forget(start, end)
            if self.recent_removals is not None:
                self.recent_removals.note(read, known)
            if is_other or known.is_guarded or known.awaited or known.pace is not None:
                self.wake()

    def sought(self, subscription_id: int, released: Ranges) -> Sequence[BlockRow]:
        subscription = self.subscriptions.get(subscription_id)
        if subscription is not None:
            subscription.moved()
            if self.recent_removals is not None:
                self.recent_removals.moved(subscription)
        self.wake()
        return self.releases.free(released)

    def joined(self, subscription: DurableSubscription, released: Ranges) -> Sequence[BlockRow]:
        self._join(subscription)
        self._look_for_readers()
        return self.releases.free(released)

    def left(self, subscription_id: int, released: Ranges) -> Sequence[BlockRow]:
        subscription = self.subscriptions.pop(subscription_id)
        subscription.removed = True
        del self.named[subscription.name]
        if subscription is self.keeper:
            self.keeper = None
        self._look_for_readers()
        self.wake()
        return self.releases.free(released)

    def altered(self) -> None:
        self.config = config = self.durable.config
        self.name = config.name
        self._limit()
        self._shut()
        for subscription in self.readers():
            subscription.obey(config.properties, is_volatile=self.is_volatile)
        self._look_for_readers()
        self.wake_all()

    def switch(self, switches: Switches) -> None:
        """The store as a whole is stopped for puts or gets, or has no room, or not any more."""
        with self.lock:
            self._switches = switches
            self._limit()
            self._shut()
            self.wake_all()

    def obey_archive(self) -> None:
        """Puts wait for the archive's shipper, or do not any more."""
        with self.lock:
            self._limit()
            self.wake_all()

    def _limit(self) -> None:
        self.grants = self.config.properties.grants
        self.puts_are_plain = not (self.is_volatile or self.grants)
        waits_for = no_room = ""
        if not self.is_volatile:  # which takes no space of a disk
            waits_for, no_room = self._places.unshipped.puts_wait, self._switches.no_room
        self.space.limit(self.config, self._why_not("puts"), waits_for, no_room)

    def _why_not(self, what: str) -> str:
        """Return why there can be no "puts", or no "gets", in words; "": there can."""
        if self.stopped:
            return self.stopped
        if not getattr(self._switches, what):
            return (
                f"the store is stopped for {what}: store.admin.switch({what}=True) lets them go on"
            )
        if not getattr(self.config.properties, what):
            return (
                f"queue {self.name!r} is stopped for {what}: alter_queue({self.name!r}, "
                f"{what}=True) lets them go on"
            )
        return ""

    def mark_dropped(self, dropped: bool) -> None:
        """It is being dropped, or is not after all; called under the lock."""
        self.dropped = dropped
        self._shut()

    def stop(self, why: str, missing: str = "type") -> None:
        """Nothing can be put or got from now on, for the reason; "": for this one it can again.

        `missing`: what the reason is about.
        """
        with self.lock:
            if why == self._stops.get(missing, ""):
                return
            self._stops[missing] = why
            self.stopped = "; ".join([reason for reason in self._stops.values() if reason])
            self._limit()
            self._shut()
            self.wake_all()

    def _shut(self) -> None:
        self.is_shut = self.dropped or bool(self._why_not("gets"))  # nothing can be got

    @property
    def switches(self) -> Switches:
        """Return what the store as a whole lets in."""
        return self._switches

    def check_there(self, subscription: Subscription) -> None:
        """Raises QueueNotFound, SubscriptionNotFound, QueueDisabled."""
        if self.dropped:
            raise QueueNotFound(f"queue {self.name!r} was dropped")
        if subscription.removed:
            raise SubscriptionNotFound(
                f"subscription {subscription.name!r} of {self.name!r} was removed"
            )
        if self.is_shut:
            raise QueueDisabled(self._why_not("gets"))

    def drop(self) -> None:
        """It is in no list any more."""
        with self.lock:
            self.mark_dropped(True)
            kept = [ref for ref in self.records if self.unreleased(ref)]
            self.records.retire()
            self.wake_all()
        self.free(kept)

    # Of a volatile queue, which no checkpoint keeps small

    def begin_at(self, position: int) -> None:
        """It is there again after an opening, empty; its next message gets this position."""
        with self.lock:
            self.begin = position
            self.durable.begin_at(position)
            for subscription in self.subscriptions.values():
                subscription.resume([])

    def _forget_released(self) -> None:
        """Let go of records of messages that were read, and of the log, now and then."""
        tail = self.durable.tail
        with self.lock:
            tail.drop_released(self.released)
            self.log.drop(self.log.to_seal(*self.log.begin_sealing(), self.end_position))
            self._most_records = VOLATILE_RECORDS + 2 * len(tail)

    def leave(self, transaction_id: int) -> None:
        """A transaction that opened the queue and put nothing has ended."""
        self.space.abandon(0, 0)
        self.log.rollback(transaction_id, self.end_position)

    def unreleased(self, ref: BlockRef) -> bool:
        """Return True if any message of the block is still to be read."""
        return not self.released.covers(ref.position, ref.position + ref.count)

    def seal(self, sealed: Sealed, logged: Sealing) -> list[BlockRef]:
        """A checkpoint has sealed records of the tail into new record pages.

        `logged`: what goes from the log. Returns the blocks that are free by that: old ones, and
        the new ones that were released meanwhile, as the old ones were then. Keeps Q3: the charge
        of partly released messages is taken anew.
        """
        freed: list[BlockRef] = []
        for old, new in sealed.moved:
            if old[0].kind == format.DATA:  # moved as it is (see `reorganising`)
                freed.append(old[0] if self.unreleased(new) else new)
                continue
            if not self.released.overlaps(new.position, new.end):
                continue
            if self.releases.replace(old, new):
                freed.append(new)
        self.epoch += 1
        self.records.seal(sealed, self.released)
        self.log.drop(logged)
        for subscription in self.subscriptions.values():
            subscription.read_structure.reset()
        return freed

    def log_to_keep(self, position: int) -> Sealing:
        """For `seal`: how the log looks without what ended below the position."""
        with self.lock:
            there = self.log.begin_sealing()
        return self.log.to_seal(*there, position)

    # Reading

    def take(
        self,
        subscription: Subscription,
        limit: int,
        taker: object,
        taken: list[tuple[int, int, int]],
    ) -> bool:
        """Add the next positions for the subscription, and how often they are delivered now.

        `taker`: which transaction takes them. False: there are none.
        """
        if subscription.is_guarded and not subscription.admits(taker):
            return False
        while subscription.take(limit, self.end_position, taker, taken):
            start, end, _ = taken[-1]
            if not subscription.most or not subscription.is_spent(start):
                taken[-1] = start, end, subscription.deliveries(start)
                return True
            subscription.set_aside(start, end)
            del taken[-1]
        return False

    def deliverable(self, subscription: Subscription | None, start: int, end: int) -> list[Pointer]:
        """Pointers to the first messages of [start, end), `POINTERS_AT_ONCE` at most.

        What somebody's read_to or unsubscribe has released since it was taken is gone.
        `subscription`: whose they are, in flight.
        """
        result: list[Pointer] = []
        for lo, hi in self.released.gaps(start, end):
            room = POINTERS_AT_ONCE - len(result)
            if not room:
                break
            if subscription is not None and not subscription.is_selected:
                result += subscription.read_structure.pointers(lo, hi, room)
            else:  # in no order that would be worth scanning ahead
                result += self.pointers(lo, hi)[:room]
        return result

    def pointers(self, start: int, end: int) -> list[Pointer]:
        """Pointers to the first committed messages of [start, end), as far as they are kept."""
        kept = (ref for ref in self.records.near(start, end) if self.unreleased(ref))
        return [
            Pointer(ref, max(start - ref.position, 0), min(end - ref.position, ref.count))
            for ref in islice(kept, POINTERS_AT_ONCE)
        ]

    def kept(self, start: int, end: int) -> list[Pointer]:
        """Pointers as `pointers` gives them, without the lock; none of a queue that was dropped."""
        with self.lock:
            return [] if self.dropped else self.pointers(start, end)

    def wait(self, timeout: float, ready: Callable[[], bool]) -> bool:
        """Wait under the lock until the queue changes and `ready`; False: the time is over."""
        return self._arrivals().wait_for(ready, timeout)

    def changes(self) -> int:
        """How often it has changed since somebody asked first; called under the lock."""
        return self._arrivals().changes

    def _arrivals(self) -> Arrivals:
        self._arrived = self._arrived or Arrivals(self.lock)
        return self._arrived

    def when_ready(
        self, subscription: Subscription, callback: Callable[[], None], taker: object = None
    ) -> Callable[[], None] | None:
        """Have it called at the next change, once; what withdraws it.

        None, and it is not called: there may be something for the subscription now, or for this
        taker alone. It is called under the lock: it must not wait, nor use the store. `when` asks
        what it is given.
        """

        def is_ready() -> bool:
            if self.is_shut or subscription.removed:
                return True
            return subscription.has_next(self.end_position, taker)

        return self.when(is_ready, callback)

    def when(
        self, is_ready: Callable[[], bool], callback: Callable[[], None]
    ) -> Callable[[], None] | None:
        with self.lock:
            return None if is_ready() else self._arrivals().add(callback)

    def wait_for_room(self, full: QueueFull, timeout: float, wanted: Callable[[], bool]) -> bool:
        """Wait until what was refused would find space, or it is not `wanted`.

        False: the time is over.
        """
        with self.lock:
            space = self.space
            if space.room is None:
                space.room = Condition(self.lock)

            def ready() -> bool:
                fits = space.lack(full) == (0, 0)
                return fits or self.dropped or bool(space.stopped) or not wanted()

            return space.room.wait_for(ready, timeout)

    def wake_all(self) -> None:
        """Wake those that wait for messages or for space; called under the lock."""
        self.wake()
        if self.space.room is not None:
            self.space.room.notify_all()

    def wake(self) -> None:
        """Something arrived, was returned, or the queue is gone; called under the lock."""
        if self._arrived is not None:
            self._arrived.notify_all()

    def info(self, dropped: int = 0) -> QueueInfo:
        """`dropped`: how many of its messages gave way to others."""
        with self.lock:
            space = self.space
            properties = self.config.properties
            return QueueInfo(
                id=self.queue_id,
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
                dropped=dropped,
                volatile=self.is_volatile,
                request_ids=len(self.durable.requests),
                **{**properties._asdict(), "properties": dict(properties.properties)},
            )

    def subscription_info(self, subscription: Subscription) -> SubscriptionInfo:
        with self.lock:
            oldest = self._oldest(subscription)
            return SubscriptionInfo(
                queue=self.name,
                name=subscription.name,
                position=subscription.position,
                delivered=subscription.delivered,
                pending=self.end_position - subscription.done.total,
                spent=subscription.spent.total,
                delayed=subscription.delayed,
                exclusive=subscription.exclusive,
                where=subscription.where,
                durable=subscription.durable,
                gaps=subscription.gaps,
                oldest_us=None if oldest is None else oldest.time_us,
            )

    def _oldest(self, subscription: Subscription) -> BlockRef | None:
        """Return the record of the oldest message that is not read; None: there is none."""
        first = subscription.done.first_gap(0)
        if first >= self.end_position:
            return None
        with suppress(StoreCorrupt):  # which verify tells
            return next(iter(self.records.near(first, first + 1)), None)
        return None


InFlightRange = tuple[int, int, int, int, Queue, Subscription, BlockRow | None, int]
"""A read of an open transaction, which has these messages in flight until it ends.

It begins with the fields of a `Read`, which it is in the transaction's record; then the queue and
the subscription, the record of a block's only message, as it was in the queue's epoch, and that. A
plain tuple is made, and taken apart, in half the time.
"""
