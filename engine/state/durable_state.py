"""The durable state of a store, from a checkpoint and the journal's records: plain values.

Nothing here does I/O, starts a thread, asks the time or draws a random number. `fold` changes it,
record by record, in the journal's order. What stands beside a queue (`QueueEffects`) is told of
each change, and gives the lock under which it is made; live objects read the state under it.

- The same records on the same state give the same state, on every machine.
- N2: `released` holds the positions that every subscription has read; a queue without subscriptions
  releases nothing.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from quire.definitions.order import sequence_of
from quire.definitions.properties import DEFAULT, Properties
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRow
from quire.engine.records.commit_record import Part, PartRow, ReadRow
from quire.engine.records.key_values import KeyValues
from quire.engine.records.packed_records import PackedRecords
from quire.engine.records.prepared_record import PrepareRecord
from quire.intervals import IntervalSet
from quire.limits import SEQUENCE_SENDERS

from .attempts import Attempts
from .requests import Requests

TOPIC: Final = "topic"
WORK: Final = "work"
KEEPER: Final = ""  # what the subscription of a topic is called that holds what the topic keeps
LOST: Final = "lost"  # the kind of a queue whose definition damage hides; only a dump goes on so

assert format.INLINE == 0
_pack = format.PACKED_RECORD.pack

# What holds the space and the places of what a commit puts, until it is applied.
NOBODY: Final = "nobody"  # it is read from the journal
OPEN: Final = "open"  # an open transaction
PREPARED: Final = "prepared"

Ranges = Sequence[tuple[int, int]]  # of positions, half-open, ascending


class QueueConfig(Struct, frozen=True):
    """The arguments that a queue is made with, or was altered to."""

    queue_id: int
    name: str
    kind: str
    capacity: int
    max_messages: int | None
    created_us: int
    subscription_id: int  # the built-in subscription of a work queue; 0 for a topic
    data_file: int = 0  # where its blocks and record pages are to go, if there are so many files
    properties: Properties = DEFAULT
    is_volatile: bool = False  # its messages are in memory only, and no record tells of them


class PageEntry(NamedTuple):
    """The directory's entry for one record page."""

    position: int  # of the page's first message
    end: int  # behind its last message
    page: int  # in the data file
    records: int


class CatalogEntry(NamedTuple):
    """A thing that is defined: see `catalog`."""

    version: int  # how often it was put
    body: dict[str, Any]


class SubscriptionForm(NamedTuple):
    """The form of a subscription: exclusive or not, durable or not, selector or none."""

    exclusive: bool = False  # one transaction at a time has messages of it
    durable: bool = True  # else it ends with its client
    where: str | None = None  # the selector of what it asks for; None: all


SHARED: Final = SubscriptionForm()


class DurableSubscription:
    """A subscription's read positions, and the outcomes of deliveries of the others."""

    __slots__ = (
        "attempts", "done", "durable", "exclusive", "name", "numbers", "subscription_id", "where",
    )  # fmt: skip

    def __init__(
        self, subscription_id: int, name: str, done: IntervalSet, form: SubscriptionForm
    ) -> None:
        self.subscription_id = subscription_id
        self.name = name
        self.exclusive, self.durable, self.where = form
        self.done = done  # of a work queue: its `released` itself
        self.attempts = Attempts()
        # By sender, of queues in an order by sequence: the number after the highest that is read;
        # of those that were heard last.
        self.numbers: OrderedDict[int, int] = OrderedDict()

    def note_number(self, sender: int, number: int) -> None:
        """All of the sender below this number is read."""
        numbers = self.numbers
        numbers[sender] = max(number, numbers.get(sender, 0))
        numbers.move_to_end(sender)
        if len(numbers) > SEQUENCE_SENDERS:
            numbers.popitem(last=False)


class QueueEffects:
    """The effects of the fold on a queue; by default none.

    Here nothing does: the queue's state is all that is asked for. But for `placed` and `free` all
    is called with its lock held, once the queue is changed. What releases positions returns the
    blocks that are free by that.
    """

    lock: AbstractContextManager[Any] = nullcontext()
    """Held while the queue is changed."""
    free: Callable[[Sequence[BlockRow]], None] = staticmethod(lambda freed: None)
    """Called with the blocks that are free, if there are any."""

    def appended(
        self, start: int, end: int, charge: int, held_by: str, transaction_id: int
    ) -> None:
        """A commit has put messages at these positions.

        `held_by`: what held their space until now. `transaction_id`: by which the queue knows the
        commit, 0 if nobody asks.
        """

    def placed(self, parts: Sequence[PartRow], held_by: str) -> None:
        """A commit has put parts that are not all in the journal; their places."""

    def acknowledged(self, read: Any, released: Ranges) -> Sequence[BlockRow]:
        """A commit has read; `read`: what the fold was given for it."""
        return ()

    def note_progress(self, subscription_id: int, sender: int, number: int) -> None:
        """A subscription has read all of the sender below this number."""

    def sought(self, subscription_id: int, released: Ranges) -> Sequence[BlockRow]:
        """A subscription was moved."""
        return ()

    def joined(self, subscription: DurableSubscription, released: Ranges) -> Sequence[BlockRow]:
        """A subscription was made."""
        return ()

    def left(self, subscription_id: int, released: Ranges) -> Sequence[BlockRow]:
        """It was removed."""
        return ()

    def altered(self) -> None:
        """The queue has another name, other limits or properties."""


NOTHING: Final = QueueEffects()


class DurableQueue:
    """A queue: how it was made, its records, what is read of it. What changes tell `beside`."""

    __slots__ = (
        "beside", "config", "directory", "end_position", "ltds", "queue_id", "released",
        "requests", "ring", "subscriptions", "tail",
    )  # fmt: skip

    def __init__(self, config: QueueConfig, ltds: dict[int, str]) -> None:
        """`ltds`: the store's files of large transactions, by id, with the queue of each."""
        self.beside: QueueEffects = NOTHING
        self.config = config
        self.queue_id = config.queue_id
        self.ltds = ltds
        self.end_position = 0
        self.directory: list[PageEntry] = []  # record pages, which only checkpoints write
        self.tail = PackedRecords()  # the records behind them
        self.released = IntervalSet()
        self.requests = Requests()
        self.subscriptions: dict[int, DurableSubscription] = {}
        # The same; the first one held back the last release.
        self.ring: deque[DurableSubscription] = deque()
        if config.kind == WORK:
            self.join(config.subscription_id, "", self.released)

    def join(
        self, subscription_id: int, name: str, done: IntervalSet, form: SubscriptionForm = SHARED
    ) -> DurableSubscription:
        """Add a subscription that has read so much."""
        subscription = DurableSubscription(subscription_id, name, done, form)
        self.subscriptions[subscription_id] = subscription
        self.ring.append(subscription)
        return subscription

    def append(
        self,
        parts: Sequence[PartRow],
        first_id: int,
        time_us: int,
        address: int,
        held_by: str,
        transaction_id: int,
    ) -> int:
        """A commit, whose record is at the address, puts these parts; how many messages they are.

        See `QueueEffects.appended`. Where a part contradicts itself, those before it stay.
        """
        beside = self.beside
        with beside.lock:
            tail = self.tail
            data, starts = tail.data, tail.starts
            start = position = self.end_position
            total = kinds = 0
            try:
                for place, charge, checksum, _, length, count, kind, _, _, _ in parts:
                    if not kind:  # inline
                        place += address
                    data += _pack(
                        position, first_id, time_us, place, charge, checksum, length, count, kind
                    )
                    starts.append(position)
                    position += count
                    first_id += count
                    total += charge
                    kinds |= kind
            finally:
                self.end_position = position
            beside.appended(start, position, total, held_by, transaction_id)
        if kinds:
            if kinds & format.LTDS:
                self.hold(parts)
            beside.placed(parts, held_by)
        return position - start

    def keep_request(self, request_id: str, message_id: int, time_us: int) -> None:
        """A message was put with the request id, if any are kept."""
        properties = self.config.properties
        if properties.most_requests:
            self.requests.commit(request_id, message_id, time_us, properties)

    def alter(self, config: QueueConfig) -> None:
        """It has other limits and properties."""
        with self.beside.lock:
            if sequence_of(config.properties.order) != sequence_of(self.config.properties.order):
                for subscription in self.ring:
                    subscription.numbers.clear()
            self.config = config
            self.requests.alter(config.properties)
            self.beside.altered()

    def hold(self, parts: Sequence[PartRow]) -> None:
        """Files of large transactions belong to the queue now."""
        for address, _, _, _, _, _, kind, _, _, _ in parts:
            if kind == format.LTDS:
                self.ltds[address] = self.config.name

    def begin_at(self, position: int) -> None:
        """Make a volatile queue empty, its next message at this position."""
        self.end_position = position
        if position:
            for done in [self.released, *(s.done for s in self.subscriptions.values())]:
                done.add(0, position)

    def acknowledge(self, read: ReadRow) -> None:
        """A commit has read these positions."""
        beside = self.beside
        with beside.lock:
            released: Ranges = ()
            start, end = read[2], read[3]
            subscription = self.subscriptions.get(read[1])
            if subscription is not None:  # else it was removed after the read
                if subscription.attempts.starts and start < end:
                    subscription.attempts.forget(start, end)
                done = subscription.done
                if end - start != 1:
                    released = self._read(done, start, end)
                elif done.add(start, end) and (done is self.released or self._read_one(start)):
                    released = ((start, end),)
            freed = beside.acknowledged(read, released)
        if freed:
            beside.free(freed)

    def _read(self, done: IntervalSet, start: int, end: int) -> Ranges:
        """A subscription that has read so much has read this, too: what is released by that."""
        if start >= end:
            return ()
        if done is self.released:
            return self._release(list(done.gaps(start, end)))
        done.add(start, end)
        return self._release(self.read_by_all(start, end))

    def _read_one(self, position: int) -> bool:
        """A subscription has read one position that it had not read before, as most are."""
        ring = self.ring
        for _ in range(len(ring)):
            if not ring[0].done.contains(position):
                return False
            ring.rotate(-1)
        self.released.add(position, position + 1)
        return True

    def hand_out(self, read: ReadRow) -> None:
        """These positions are delivered once more, those that are not read."""
        with self.beside.lock:
            for attempts, start, end in self._unread(read[1], read[2], read[3]):
                attempts.add(start, end)

    def take_back(self, read: ReadRow) -> None:
        """They are not, after all."""
        with self.beside.lock:
            for attempts, start, end in self._unread(read[1], read[2], read[3]):
                attempts.take_back(start, end)

    def fail(self, subscription_id: int, start: int, end: int, due_us: int) -> None:
        """The delivery of these positions failed, of those that are not read: they come again then.

        0: at once, or never.
        """
        with self.beside.lock:
            noted = self.config.properties.max_deliveries is not None
            for attempts, lo, hi in self._unread(subscription_id, start, end):
                attempts.fail(lo, hi, due_us, noted=noted)

    def _unread(
        self, subscription_id: int, start: int, end: int
    ) -> Iterator[tuple[Attempts, int, int]]:
        """The parts that a subscription has not read, if it is there, with what came of them."""
        subscription = self.subscriptions.get(subscription_id)
        if subscription is not None:
            for lo, hi in subscription.done.gaps(start, end):
                yield subscription.attempts, lo, hi

    def note_number(self, subscription_id: int, sender: int, number: int) -> None:
        """A subscription has read all of the sender below this number."""
        beside = self.beside
        with beside.lock:
            subscription = self.subscriptions.get(subscription_id)
            if subscription is not None and sequence_of(self.config.properties.order):
                subscription.note_number(sender, number)
                beside.note_progress(subscription_id, sender, number)

    def subscribe(
        self, subscription_id: int, name: str, start: int, form: SubscriptionForm
    ) -> None:
        """A new subscription begins at the position."""
        beside = self.beside
        with beside.lock:
            done = self.released.copy()
            if start > 0:
                done.add(0, start)
            subscription = self.join(subscription_id, name, done, form)
            freed = beside.joined(subscription, self.release_read())
        beside.free(freed)

    def seek(self, subscription_id: int, position: int) -> None:
        """A subscription goes to the position.

        What is kept from there on is unread, and what is before it is read.
        """
        beside = self.beside
        with beside.lock:
            subscription = self.subscriptions.get(subscription_id)
            released: Ranges = ()
            if subscription is not None:  # else it was removed meanwhile
                released = self._go_to(subscription, position)
            freed = beside.sought(subscription_id, released)
        beside.free(freed)

    def _go_to(self, subscription: DurableSubscription, position: int) -> Ranges:
        done, released = subscription.done, self.released
        subscription.attempts.forget_failures()
        if position > 0:
            subscription.attempts.forget(0, position)
        if done is not released:
            done.clear()
            for start, end in released:
                done.add(start, end)
            if position > 0:
                done.add(0, position)
        elif position > 0:
            return self._release(list(released.gaps(0, position)))
        return self._release(self.read_by_all(0, position)) if position > 0 else ()

    def unsubscribe(self, subscription_id: int) -> None:
        """A subscription goes."""
        beside = self.beside
        with beside.lock:
            self.ring.remove(self.subscriptions.pop(subscription_id))
            freed = beside.left(subscription_id, self.release_read())
        beside.free(freed)

    def release_read(self) -> Ranges:
        """Release what every subscription has read (N2)."""
        if not self.subscriptions or self.end_position == 0:
            return ()
        return self._release(self.read_by_all(0, self.end_position))

    def read_by_all(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that every subscription has read and that are not released."""
        parts = list(self.released.gaps(start, end))
        ring = self.ring
        for _ in range(len(ring)):
            parts = [part for lo, hi in parts for part in ring[0].done.intersection(lo, hi)]
            if not parts:
                break
            ring.rotate(-1)
        return parts

    def _release(self, parts: list[tuple[int, int]]) -> Ranges:
        for start, end in parts:
            self.released.add(start, end)
        return parts


PartsByQueue = Sequence[tuple[DurableQueue, Sequence[Part]]]  # a transaction's parts, by queue
RowsByQueue = Sequence[tuple[DurableQueue, Sequence[PartRow]]]


class Effects(Protocol):
    """The effects of the fold on the whole store; by default none."""

    @property
    def defining(self) -> AbstractContextManager[Any]:
        """Held while entries of the catalog are put and deleted."""
        return nullcontext()

    def made(self, queue: DurableQueue, used: int) -> None:
        """A queue, new or of a checkpoint, whose records charge so much: it may stand beside."""

    def dropped(self, queue: DurableQueue) -> None:
        """It is in no list any more."""

    def named(self, name: str, queue: DurableQueue | None) -> None:
        """A queue is found by the name; None: none is any more."""
        return

    def held(self, record: PrepareRecord, groups: PartsByQueue, *, counted: bool) -> None:
        """A transaction is prepared. `counted`: a checkpoint has counted its space and places."""
        return

    def known_as(self, record: PrepareRecord) -> int:
        """Return the id by which the queues know a prepared transaction; 0: they do not."""
        return 0

    def ended(self, record: PrepareRecord, groups: PartsByQueue, first_id: int | None) -> None:
        """It is committed, and its messages' ids begin there; None: it is rolled back."""
        return

    def archived(self, body: Mapping[str, Any] | None) -> None:
        """The archive that the store has by its catalog; None: it never had any."""
        return

    def fault(self, where: str, text: str) -> None:
        """The record or checkpoint contradicts the state. May raise."""


class DurableState:
    """The whole store."""

    __slots__ = (
        "catalog", "last_time_us", "ledger", "ltds", "names", "next_id", "next_queue_id",
        "next_subscription_id", "prepared", "queues", "values",
    )  # fmt: skip

    def __init__(self) -> None:
        # By type and key.
        self.catalog: defaultdict[str, dict[int, CatalogEntry]] = defaultdict(dict)
        self.queues: dict[int, DurableQueue] = {}
        self.names: dict[str, DurableQueue] = {}  # aliases too
        self.ledger: dict[str, int] = {}
        self.prepared: dict[str, PrepareRecord] = {}  # undecided ones, by xid
        self.values = KeyValues()  # of the entries of type "state"
        self.ltds: dict[int, str] = {}  # held files of large transactions; the queue of each
        self.next_id = 1  # of the next message
        self.last_time_us = 0
        self.next_queue_id = 1
        self.next_subscription_id = 1
