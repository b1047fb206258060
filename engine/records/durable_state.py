"""What a store holds durably: a checkpoint, and the journal's records after it, as plain values.

Nothing here does I/O, takes a lock, starts a thread, asks the time or draws a random number. `fold`
changes it, record by record, in the journal's order; live objects are made around it, and read it
under their queue's lock.

- N1: the same records on the same state give the same state, on every machine.
- N2: `released` holds the positions that every subscription has read; a queue without subscriptions
  releases nothing.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from quire.intervals import IntervalSet
from quire.properties import DEFAULT, Properties

from . import format
from .attempts import Attempts
from .commit_record import Part, PartRow, ReadRow
from .key_values import KeyValues
from .packed_records import PackedRecords
from .prepared_record import PrepareRecord
from .requests import Requests

TOPIC: Final = "topic"
WORK: Final = "work"
KEEPER: Final = ""  # what the subscription of a topic is called that holds what the topic keeps
LOST: Final = "lost"  # the kind of a queue whose definition damage hides; only a dump goes on so

assert format.INLINE == 0
_pack = format.PACKED_RECORD.pack

# A commit: its time, its record's address; whether an open transaction holds its space and places
# until now; the transaction's id, 0 if nobody asks; whether a prepared one holds them.

Ranges = Sequence[tuple[int, int]]  # of positions, half-open, ascending


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """What a queue is made with, or was altered to."""

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
    """What kind of subscription it is."""

    exclusive: bool = False  # one transaction at a time has messages of it
    durable: bool = True  # else it ends with its client


SHARED: Final = SubscriptionForm()


class DurableSubscription:
    """What a subscription has read, and how often what it has not read was given back."""

    __slots__ = ("attempts", "done", "durable", "exclusive", "name", "subscription_id")

    def __init__(
        self, subscription_id: int, name: str, done: IntervalSet, form: SubscriptionForm
    ) -> None:
        self.subscription_id = subscription_id
        self.name = name
        self.exclusive, self.durable = form
        self.done = done  # of a work queue: its `released` itself
        self.attempts = Attempts()


class DurableQueue:
    """A queue: how it was made, its records, what is read of it."""

    __slots__ = (
        "config", "directory", "end_position", "ltds", "released", "requests", "ring",
        "subscriptions", "tail",
    )  # fmt: skip

    def __init__(self, config: QueueConfig, ltds: dict[int, str]) -> None:
        """`ltds`: the store's files of large transactions, by id, with the queue of each."""
        self.config = config
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
        self, parts: Sequence[PartRow], first_id: int, time_us: int, address: int
    ) -> tuple[int, int]:
        """A commit puts these parts.

        Returns what they charge, and the bits of their kinds: 0 where all are inline.
        """
        data, starts = self.tail.data, self.tail.starts
        position = self.end_position
        total = kinds = 0
        for place, charge, checksum, _, length, count, kind, _, _, _ in parts:
            if not kind:  # inline
                place += address
            data += _pack(position, first_id, time_us, place, charge, checksum, length, count, kind)
            starts.append(position)
            position += count
            first_id += count
            total += charge
            kinds |= kind
        self.end_position = position
        if kinds & format.LTDS:
            self.hold(parts)
        return total, kinds

    def keep_request(self, request_id: str, message_id: int, time_us: int) -> None:
        """A message was put with the request id, if any are kept."""
        properties = self.config.properties
        if properties.most_requests:
            self.requests.commit(request_id, message_id, time_us, properties)

    def alter(self, config: QueueConfig) -> None:
        """It has other limits and properties."""
        self.config = config
        self.requests.alter(config.properties)

    def hold(self, parts: Sequence[PartRow]) -> None:
        """Files of large transactions belong to the queue now."""
        for address, _, _, _, _, _, kind, _, _, _ in parts:
            if kind == format.LTDS:
                self.ltds[address] = self.config.name

    def begin_at(self, position: int) -> None:
        """Of a volatile queue: it is empty, its next message gets this position."""
        self.end_position = position
        if position:
            for done in [self.released, *(s.done for s in self.subscriptions.values())]:
                done.add(0, position)

    def acknowledge(self, read: ReadRow) -> Ranges:
        """A commit has read these positions. Returns those that are released by that."""
        start, end = read[2], read[3]
        subscription = self.subscriptions.get(read[1])
        if subscription is None or start >= end:
            return ()  # it was removed after the transaction had read
        if subscription.attempts.starts:
            subscription.attempts.forget(start, end)
        done, released = subscription.done, self.released
        if end - start == 1:  # as most are: without a list of what was not read before
            if not done.add(start, end):
                return ()
            if done is not released:
                ring = self.ring
                for _ in range(len(ring)):
                    if not ring[0].done.contains(start):
                        return ()
                    ring.rotate(-1)
                released.add(start, end)
            return ((start, end),)
        if done is released:
            return self._release(list(done.gaps(start, end)))
        done.add(start, end)
        return self._release(self.read_by_all(start, end))

    def hand_out(self, read: ReadRow) -> None:
        """These positions are delivered once more, those that are not read."""
        subscription = self.subscriptions.get(read[1])
        if subscription is not None:
            for start, end in subscription.done.gaps(read[2], read[3]):
                subscription.attempts.add(start, end)

    def subscribe(
        self, subscription_id: int, name: str, start: int, form: SubscriptionForm
    ) -> Ranges:
        """A new subscription begins at the position. Returns what is released by that."""
        done = self.released.copy()
        if start > 0:
            done.add(0, start)
        self.join(subscription_id, name, done, form)
        return self.release_read()

    def seek(self, subscription_id: int, position: int) -> Ranges:
        """A subscription goes to the position. Returns what is released by that.

        What is kept from there on is unread, and what is before it is read.
        """
        subscription = self.subscriptions.get(subscription_id)
        if subscription is None:
            return ()  # it was removed meanwhile
        done, released = subscription.done, self.released
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

    def unsubscribe(self, subscription_id: int) -> Ranges:
        """A subscription goes. Returns what is released by that."""
        self.ring.remove(self.subscriptions.pop(subscription_id))
        return self.release_read()

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


class FoldedQueue(Protocol):
    """A queue as the fold changes it: an object around the durable one, with more effects."""

    @property
    def durable(self) -> DurableQueue: ...

    def commit(
        self,
        parts: Sequence[PartRow],
        first_id: int,
        time_us: int,
        address: int,
        live: bool,
        transaction_id: int,
        prepared: bool,
    ) -> int:
        """See `DurableQueue.append` and `Fold.commit`; how many messages they are."""

    def acknowledge(self, read: Any) -> object: ...

    def hand_out(self, read: ReadRow) -> object: ...

    def seek(self, subscription_id: int, position: int) -> object: ...

    def subscribe(
        self, subscription_id: int, name: str, start: int, form: SubscriptionForm
    ) -> object: ...

    def unsubscribe(self, subscription_id: int) -> object: ...

    def alter(self, config: QueueConfig) -> object: ...

    def drop(self) -> None: ...


Q = TypeVar("Q", bound=FoldedQueue)
PartsByQueue = Sequence[tuple[Q, Sequence[Part]]]  # a transaction's parts, by queue
RowsByQueue = Sequence[tuple[Q, Sequence[PartRow]]]


class Effects(Protocol[Q]):
    """What stands beside the fold, for the whole store."""

    def made(self, queue: DurableQueue, used: int) -> Q:
        """A queue, new or of a checkpoint, whose records charge so much; the object to fold on."""

    def held(self, record: PrepareRecord, groups: PartsByQueue[Q], *, counted: bool) -> None:
        """A transaction is prepared. `counted`: a checkpoint has counted its space and places."""

    def ended(self, record: PrepareRecord, groups: PartsByQueue[Q], first_id: int | None) -> None:
        """It is committed, and its messages' ids begin there; None: it is rolled back."""

    def fault(self, where: str, text: str) -> None:
        """The record or checkpoint contradicts the state. May raise."""


class DurableState(Generic[Q]):
    """The whole store."""

    __slots__ = (
        "catalog", "last_time_us", "ledger", "ltds", "names", "next_id", "next_queue_id",
        "next_subscription_id", "prepared", "queues", "values",
    )  # fmt: skip

    def __init__(self) -> None:
        # By type and key.
        self.catalog: defaultdict[str, dict[int, CatalogEntry]] = defaultdict(dict)
        self.queues: dict[int, Q] = {}
        self.names: dict[str, Q] = {}  # aliases too
        self.ledger: dict[str, int] = {}
        self.prepared: dict[str, PrepareRecord] = {}  # undecided ones, by xid
        self.values = KeyValues()  # of the entries of type "state"
        self.ltds: dict[int, str] = {}  # held files of large transactions; the queue of each
        self.next_id = 1  # of the next message
        self.last_time_us = 0
        self.next_queue_id = 1
        self.next_subscription_id = 1
