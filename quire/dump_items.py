"""What a dump yields: frozen values, one class for each kind of line. Sizes in bytes.

Positions are half-open ranges [start, end). Files are named relative to the store. Numbers that do
not fit 53 bits (store, generation, a large transaction's file) are hexadecimal text.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from quire.errors import StoreVersion

# The names of a queue's records.
OPEN, MESSAGES, INDIRECT = "OPEN", "MESSAGES", "INDIRECT"
COMMIT, ROLLBACK, PREPARE = "COMMIT", "ROLLBACK", "PREPARE"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run of messages is: "journal", "data" (outside the journal) or "ltds"."""

    where: str
    file: str
    address: int | None  # journal: LSN; data: offset in the file
    page: int | None  # data: of the file
    bytes: int  # of the block; 0 for ltds


@dataclass(frozen=True, slots=True)
class Part:
    """The messages that a commit puts into one queue, in one place."""

    queue_id: int
    queue: str | None
    messages: int
    first_id: int | None  # None: a prepared transaction has no ids yet
    charge: int
    place: Place


@dataclass(frozen=True, slots=True)
class Read:
    """Positions that a commit has read for a subscription, or that were handed out."""

    queue_id: int
    queue: str | None
    subscription_id: int
    subscription: str | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Moved:
    """A subscription that a transaction has moved (`Transaction.seek`)."""

    queue_id: int
    queue: str | None
    subscription_id: int
    subscription: str | None
    position: int  # everything that is kept from there on is unread then


@dataclass(frozen=True, slots=True)
class Change:
    """An entry of the catalog that is put, or deleted where there is no body."""

    type: str
    key: int
    body: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Request:
    """The request id of a put: of which message, among those that the transaction put there."""

    queue_id: int
    queue: str | None
    request_id: str
    index: int


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A key's last committed version."""

    item: ClassVar[str] = "ledger"
    key: str
    version: int


@dataclass(frozen=True, slots=True)
class StoreItem:
    """What every file of the store agrees on."""

    item: ClassVar[str] = "store"
    path: str
    store_id: str
    page_size: int
    segment_bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointItem:
    """The checkpoint from which recovery would begin."""

    item: ClassVar[str] = "checkpoint"
    file: str
    lsn: int
    restart_lsn: int
    created_us: int  # of the store
    next_id: int
    last_time_us: int
    queues: int
    ledger_entries: int
    large_files: int
    data_files: int
    data_pages: int
    free_pages: int


@dataclass(frozen=True, slots=True)
class JournalItem:
    """The whole journal in numbers."""

    item: ClassVar[str] = "journal"
    segments: int
    first_lsn: int
    end_lsn: int
    groups: int
    records: dict[str, int]  # by kind
    record_bytes: int


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One record of the journal."""

    item: ClassVar[str] = "record"
    lsn: int
    group_lsn: int
    generation: str
    kind: int
    name: str
    transaction: int  # 0: none
    bytes: int  # with its header
    file: str
    offset: int
    time_us: int | None = None
    first_id: int | None = None
    messages: int | None = None
    parts: tuple[Part, ...] = ()
    reads: tuple[Read, ...] = ()
    entries: tuple[LedgerEntry, ...] = ()
    requests: tuple[Request, ...] = ()
    changes: tuple[Change, ...] = ()  # of the catalog
    xid: str | None = None  # of a prepared transaction
    moved: tuple[Moved, ...] = ()


@dataclass(frozen=True, slots=True)
class SubscriptionItem:
    """A subscription, as the durable state has it."""

    item: ClassVar[str] = "subscription"
    queue_id: int
    queue: str | None
    subscription_id: int
    name: str
    position: int  # everything below is read
    read: int  # messages read, wherever
    pending: int


@dataclass(frozen=True, slots=True)
class QueueItem:
    """A queue, as the durable state has it."""

    item: ClassVar[str] = "queue"
    queue_id: int
    name: str | None
    kind: str | None
    capacity: int | None
    max_messages: int | None
    created_us: int | None
    end_position: int
    released: int  # messages that every subscription has read
    record_pages: int
    certain: bool  # False: damage hides how many messages came before
    data_file: int | None = None  # its number: where the queue's blocks and record pages go
    request_ids: int = 0  # of puts, that it keeps


@dataclass(frozen=True, slots=True)
class PreparedItem:
    """A transaction in doubt: prepared, and neither committed nor rolled back."""

    item: ClassVar[str] = "prepared"
    xid: str
    prepared_us: int
    messages: int
    queues: tuple[str, ...]
    reads: int  # messages that it has taken


@dataclass(frozen=True, slots=True)
class OpenItem:
    """An open transaction, as the owner has it; nothing of it is durable."""

    item: ClassVar[str] = "open"
    transaction: int
    opened_us: int
    queues: tuple[str, ...]  # that it has put to
    messages: int
    bytes: int
    in_flight: int  # messages that it has got


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """One record of a queue's ordered record list."""

    item: ClassVar[str] = "queue_record"
    queue_id: int
    queue: str | None
    name: str  # OPEN, MESSAGES, INDIRECT, COMMIT, ROLLBACK, PREPARE
    transaction: int | None = None  # None: not known (any more)
    lsn: int | None = None  # of the COMMIT record that tells it
    position: int | None = None  # None: its transaction has not committed
    messages: int = 0
    released: int = 0  # of them, by all subscriptions
    first_id: int | None = None
    time_us: int | None = None
    charge: int | None = None
    place: Place | None = None
    record_file: str | None = None  # of the record page that holds it; None: the journal tells it
    record_page: int | None = None
    certain: bool = True  # False: the position may be a later one
    xid: str | None = None  # of a prepared transaction
    open: bool = False  # its transaction is open, as the owner says


@dataclass(frozen=True, slots=True)
class MessageItem:
    """One message: its header, and how its payload begins; of a row its columns, as JSON."""

    item: ClassVar[str] = "message"
    queue_id: int
    queue: str | None
    position: int
    id: int
    time_us: int
    released: bool
    fields: dict[str, Any]  # those of the header that are not absent
    payload_bytes: int
    payload_start: bytes


@dataclass(frozen=True, slots=True)
class PagesItem:
    """Consecutive pages of a data file, and what they hold."""

    item: ClassVar[str] = "pages"
    file: str
    first: int
    pages: int
    use: str  # header, records, block, prepared, open, free, other
    queue_id: int | None = None
    queue: str | None = None
    position: int | None = None  # of the first message; None: its transaction has not committed
    messages: int | None = None
    transaction: int | None = None  # the open one that holds them, as the owner says
    xid: str | None = None  # of the prepared one that holds them


@dataclass(frozen=True, slots=True)
class FileItem:
    """A large transaction's file."""

    item: ClassVar[str] = "file"
    file: str
    bytes: int
    messages: int | None  # None: it is not finished, or damaged
    queue: str | None  # None: no committed or prepared transaction holds it
    xid: str | None = None  # of the prepared one that holds it


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a place that the reader should know."""

    item: ClassVar[str] = "finding"
    file: str
    offset: int | None  # in the file
    damage: bool  # False: nothing that was promised is lost
    message: str
    lost: str = ""
    lsn: int | None = None  # in the journal

    @classmethod
    def of(cls, file: str, offset: int | None, error: BaseException, lost: str) -> Finding:
        """What could not be read. What a newer release has written is no damage."""
        damage = not isinstance(error, StoreVersion)
        return cls(file, offset, damage, str(error), lost)


Item = (
    StoreItem
    | CheckpointItem
    | JournalItem
    | JournalRecord
    | QueueItem
    | SubscriptionItem
    | PreparedItem
    | OpenItem
    | QueueRecord
    | MessageItem
    | PagesItem
    | FileItem
    | LedgerEntry
    | Finding
)


def as_json(item: Item) -> dict[str, Any]:
    """Plain values, "item" naming the class; bytes that are no UTF-8 in base64, by another name."""
    values = {"item": item.item, **asdict(item)}
    if isinstance(item, MessageItem):
        start: bytes = values.pop("payload_start")
        try:
            values["payload_start"] = start.decode()
        except UnicodeDecodeError:
            values["payload_start_base64"] = b64encode(start).decode()
    return values
