"""Reports on the parts of a store: plain frozen values, the same embedded and remote."""

from __future__ import annotations

import base64
from enum import Enum
from typing import Any

from msgspec import Struct, field


class QueueInfo(Struct, frozen=True):
    """A queue as it was when asked. Sizes in bytes as charged against the capacity."""

    name: str
    kind: str  # "topic" or "work"
    capacity_bytes: int
    max_messages: int | None
    used_bytes: int  # unread committed messages, and what open and prepared transactions hold
    messages: int  # committed and not yet read by every subscription
    first_position: int  # of the oldest message that is kept
    end_position: int  # the next message committed gets this position
    subscriptions: tuple[str, ...]
    open_transactions: int  # T
    reserving: int  # R
    created_us: int
    data_file: int  # the number of the file that holds its blocks, from 0
    prepared: int = 0  # transactions that are prepared and not decided; T does not count them
    text: str = ""  # this and what follows: see `QueueOptions`
    properties: dict[str, Any] = field(default_factory=dict)
    order: str | dict[str, Any] = "commit"
    default_priority: int = 0
    puts: bool = True
    gets: bool = True
    max_deliveries: int | None = None
    retry: dict[str, Any] | None = None
    timed: bool | None = None
    ttl: float | None = None  # seconds
    max_ttl: float | None = None  # seconds
    grouped: bool = False
    keep_expired: bool = False
    dead_letter: str | None = None
    keep_seconds: float | None = None
    keep_bytes: int | None = None
    keep_messages: int | None = None
    keep_forever: bool = False
    keep_latest: str | None = None
    overflow: str = "fail"
    grow_to: int | None = None  # bytes
    max_message_bytes: int | None = None
    max_stream_bytes: int | None = None
    dropped: int = 0  # messages that gave way to later ones: see `QueueOptions.overflow`
    id: int = 0  # its number in the catalog, which it keeps whatever it is called
    dedup_count: int | None = None
    dedup_seconds: float | None = None
    request_ids: int = 0  # that it keeps
    type: str = "persistent"
    persistent: bool = True  # whether its description is durable
    volatile: bool = False  # whether its messages are in the owner's memory only
    schema: str | None = None  # the columns of its messages in words; None: they are bytes
    indexed: tuple[str, ...] = ()  # names whose values are found without looking at all
    codec: str | None = None  # by which values are encoded that are put
    max_in_flight: int | None = None
    rate: float | None = None  # messages a second
    group_max_in_flight: int | None = None
    group_rate: float | None = None  # messages a second
    verified_sender: bool = False


class CatalogItem(Struct, frozen=True):
    """Something that is defined in the store."""

    type: str  # "queue", "subscription", "alias", "store" or "schedule"
    key: int  # its number; of one type no number comes twice
    version: int  # how often it was put
    body: dict[str, Any]


class ScheduleInfo(Struct, frozen=True):
    """A schedule as it was when asked. Times in microseconds since the epoch."""

    id: int  # its number in the catalog
    name: str
    queue: str
    cron: str
    timezone: str
    missed: str  # "skip", "once" or "all": see `ScheduleOptions`
    paused: bool
    payload_base64: str
    message: dict[str, Any]  # its fields, those that were given
    created_us: int
    last_us: int | None  # the last due time for which a message was put; None: none was
    next_us: int | None  # the next due time; None: there is none, or it is paused
    waiting: str | None  # what keeps a message that is due from being put; None: nothing

    @property
    def payload(self) -> bytes:
        """The payload of the messages that it puts."""
        return base64.b64decode(self.payload_base64)


class PreparedInfo(Struct, frozen=True):
    """A prepared transaction that waits for its decision."""

    xid: str
    prepared_us: int  # microseconds since the epoch
    age_seconds: float
    queues: tuple[str, ...]  # that it has put to or got from
    messages: int  # that it puts
    bytes: int  # what they count against the queues' capacities


class SubscriptionInfo(Struct, frozen=True):
    """A subscription as it was when asked."""

    queue: str
    name: str
    position: int  # everything below is read
    delivered: int  # messages in flight: got, their transactions not ended
    pending: int  # messages not read yet, those in flight included
    spent: int = 0  # of them, those that wait for the dead-letter queue to take them
    # Of them, those that come later: rejected with a delay, not due yet, or waiting for one before
    # them in their sequence.
    delayed: int = 0
    exclusive: bool = False  # one transaction at a time has messages of it
    where: str | None = None  # the selector of what it asks for; None: all
    durable: bool = True  # else it ends with its client
    gaps: int = 0  # messages handed out though one before them in their sequence was missing
    # When the oldest message that is not read was committed, or another one of its block;
    # microseconds since the epoch. None: all is read.
    oldest_us: int | None = None


class TransactionState(Enum):
    """The state of a transaction."""

    OPEN = "open"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    IN_DOUBT = "in doubt"


class TransactionInfo(Struct, frozen=True):
    """An open transaction as it was when asked. Sizes in bytes as charged to its queues."""

    id: int
    state: str
    owner: str  # who began it: a process and a thread, or a client
    opened_us: int  # microseconds since the epoch
    age_seconds: float
    seconds_left: float | None  # until it is rolled back; None: it may stay open for ever
    large: bool
    bytes: int  # of its queues' capacity
    messages: int
    buffered_bytes: int  # in memory, the part of it in the write buffer
    spilled_bytes: int  # in pages of the data file
    file_bytes: int  # in files of a large transaction
    queues: tuple[str, ...]  # that it has put to
    in_flight: int  # messages it has got
    sources: tuple[str, ...] = ()  # the queues and subscriptions that it has got them from


class Description(Struct, frozen=True):
    """A message without its payload: its header and its attributes, as a `Message` has them."""

    id: int
    queue: str
    position: int  # in its queue, from 0
    size: int  # of the payload, in bytes
    priority: int = 0
    group: int = 0
    time: int = 0  # of its commit, microseconds since the epoch, as the other times
    sender: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    content_type: str | None = None
    expires_at: int | None = None
    deliver_at: int | None = None
    attributes: dict[str, str] = field(default_factory=dict)


class Notice(Struct, frozen=True):
    """A listener's notice: which messages were put, or have left, but not what is in them."""

    queue: str
    # "put", or "removal"; "due" or "returned" for what became available after its put.
    on: str
    position: int  # where the listener is behind that (see `Listeners.poll_notices`)
    ids: list[int] = field(default_factory=list)  # of the messages, in the order of their commits
    groups: list[int] = field(default_factory=list)  # of each of them
    # Further messages, of any group, that have gone by before anybody looked. None: nobody knows
    # how many, if any, as only an owner that has ended knew.
    missed: int | None = 0
    more: bool = False  # there is more to be told, now
    created_us: int = 0  # when the queue was made: another of its name is another queue
    mark: str = ""  # how far the listener is in what became available after its put


class ListenerInfo(Struct, frozen=True):
    """A durable registration, whether or not somebody listens."""

    name: str
    source: str
    on: str  # "put" or "removal"
    group: int
    position: int  # what is before was told
    where: str | None = None  # in words


class QueueRecord(Struct, frozen=True):
    """A record of a queue that no checkpoint has sealed, in words."""

    kind: str  # "OPEN", "MESSAGES", "INDIRECT", "COMMIT" or "ROLLBACK"
    transaction_id: int | None  # None: not known any more, or a put of its own
    messages: int = 0
    position: int | None = None  # of its first message; None: it has none before the commit
    where: str = ""  # "journal", "data", "ltds" or "memory"; "" for control records
    address: int = 0  # as in a Piece
    length: int = 0


class Piece(Struct, frozen=True):
    """A run of messages in one place, for a reader that opens the store's files itself."""

    kind: str  # "journal", "data" or "ltds"
    address: int  # journal: LSN; data: file number << 48 | byte offset; ltds: the file's id
    length: int  # bytes of the block; 0 for ltds
    checksum: int  # of the block: another one at this place is a StoreCorrupt, never wrong data
    start: int  # messages [start, stop) of the block or file
    stop: int
    first_id: int
    time_us: int
    first_position: int  # of message `start`


class Lease(Struct, frozen=True):
    """A range of a queue whose messages stay in place until the lease is released or ends.

    Ranges that were leased together have one id, and end together.
    """

    lease_id: int
    queue: str
    start: int
    end: int
    pieces: list[Piece]
    created_us: int = 0  # when the queue was made: another of its name is another queue


class StateLease(Struct, frozen=True):
    """All that a store held durably at one moment, and keeps in place until the lease ends."""

    lease_id: int
    number: int  # of the latest record that it has
    time_us: int  # when that was, microseconds since the epoch
    state_hash: str  # as `verify` tells it
    generation: int  # of the journal
    image: bytes  # the bytes of a checkpoint, whose records name places of now


class ArchiveInfo(Struct, frozen=True):
    """The archive that a store's records are shipped to."""

    url: str
    history: int  # drawn when an archive was first set; every entry carries it
    keep_seconds: float  # how long restore points are kept; 0: for ever
    limit: int  # bytes of the journal, and of released space, that wait to be shipped
    full: str  # "gap" or "wait": beyond the limit
    boundary_place: int = 0  # entries up to this one are not needed any more


class ShippingReport(Struct, frozen=True):
    """The report of a shipper, for the owner of the store."""

    lsn: int  # every group that ends at or before this LSN is in the archive
    number: int  # of the latest record there
    place: int  # of the latest entry
    base_number: int = 0  # of the newest base; 0: there is none
    error: str = ""  # why nothing can be shipped now, for status and log; "": all is well
    boundary_place: int = 0
    url: str = (
        ""  # of the archive; where the store has another one by now, nothing is taken from it
    )


class ShippingState(Struct, frozen=True):
    """The work that a shipper is to do next."""

    url: str  # "": the archive is off
    history: int
    keep_seconds: float  # how long restore points are kept; 0: for ever
    store_id: int
    segment_bytes: int
    page_size: int
    end_lsn: int  # of the durable journal; all before it may be shipped
    end_number: int  # of the latest record before `end_lsn`
    lsn: int  # where to go on: as last reported, or as the checkpoint says, or, after a gap, later
    number: int  # of the latest record before `lsn`
    place: int  # a hint: no entry at or before it is missing, but for merged and removed ones
    gap: bool  # records before one up to `number` were not shipped, and no base has these yet


class CompactReport(Struct, frozen=True):
    """The outcome of `compact`: bytes of the disk before and after, by what has them.

    "journal", "data" (files), "checkpoint" (what is kept back for those of a full disk).
    """

    before: dict[str, int]
    after: dict[str, int]

    @property
    def freed_bytes(self) -> int:
        """The bytes that were given back; less than 0 where others put more meanwhile."""
        return sum(self.before.values()) - sum(self.after.values())


class Report(Struct, frozen=True):
    """The findings of `verify`: damage, and warnings, which need not be damage.

    `warnings` are those findings that an ordinary end may explain: a tail of the journal that was
    cut when the store was opened, as after a power failure. `ok` means no finding but warnings.
    """

    findings: list[str] = field(default_factory=list)
    checked: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def damage(self) -> list[str]:
        """The findings that are damage."""
        return [finding for finding in self.findings if finding not in self.warnings]

    @property
    def ok(self) -> bool:
        """Return True if there is no damage."""
        return not self.damage
