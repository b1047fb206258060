"""The items of a dump: frozen values, each a line. Most of them hold a mapping.

What a field is, its name says: `..._us` is a time in microseconds since 1970, `..._bytes` a size,
an LSN an address in the journal, a plural with a number how many there are.
`quire.file_dump.words` makes lines of that, whatever it is of. Files are named relative to the
store. Numbers that do not fit 53 bits (store, generation, a large transaction's file) are
hexadecimal text.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from msgspec import Struct

from quire.errors import StoreVersion

# The names of a queue's records.
OPEN, MESSAGES, INDIRECT = "OPEN", "MESSAGES", "INDIRECT"
COMMIT, ROLLBACK, PREPARE = "COMMIT", "ROLLBACK", "PREPARE"


class Described(Struct, frozen=True):
    """Something that the store has; `item` says what it is.

    "store", "checkpoint", "journal", "record" (of the journal), "queue", "subscription",
    "prepared", "open" (a transaction, as the owner has it), "message", "file", "ledger".
    """

    item: str
    fields: Mapping[str, Any]


class Place(Struct, frozen=True):
    """The place of a run of messages: "journal", "data" (outside the journal) or "ltds"."""

    where: str
    file: str
    lsn: int | None = None  # journal
    offset: int | None = None  # data: in the file
    page: int | None = None  # data: of the file
    bytes: int | None = None  # of the block


class DumpedQueueRecord(Struct, frozen=True):
    """One record of a queue's ordered record list."""

    item: ClassVar[str] = "queue_record"
    queue_id: int
    queue: str | None  # None: its definition is lost
    name: str  # OPEN, MESSAGES, INDIRECT, COMMIT, ROLLBACK, PREPARE
    position: int | None = None  # None: its transaction has not committed
    transaction: int | None = None  # None: not known (any more)
    xid: str | None = None  # of a prepared transaction
    messages: int = 0
    first_id: int | None = None
    time_us: int | None = None
    charge: int | None = None
    released: int = 0  # of the messages, by all subscriptions
    place: Place | None = None
    lsn: int | None = None  # of the COMMIT record that tells it
    record_file: str | None = None  # of the record page that holds it; None: the journal tells it
    record_page: int | None = None
    certain: bool = True  # False: the position may be a later one
    open: bool = False  # its transaction is open, as the owner says


class PagesItem(Struct, frozen=True):
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


class Finding(Struct, frozen=True):
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
        """Describe what could not be read. What a newer release has written is no damage."""
        damage = not isinstance(error, StoreVersion)
        return cls(file, offset, damage, str(error), lost)


Item = Described | DumpedQueueRecord | PagesItem | Finding
DescribeRow = Callable[[Any, dict[str, Any]], dict[str, Any]]


def plain_value(value: Any, row: DescribeRow = lambda value, fields: fields) -> Any:
    """Values of the language alone: what has fields as a mapping by name, runs of it as lists.

    `row` makes of something that has fields, and of these, what is told of it.
    """
    if isinstance(value, Described):
        return plain_value(value.fields, row)
    if isinstance(value, Mapping):
        return {name: plain_value(each, row) for name, each in value.items()}
    if isinstance(value, Struct):
        names = value.__struct_fields__
    elif hasattr(value, "_fields"):
        names = value._fields
    else:
        is_run = isinstance(value, (tuple, list))
        return [plain_value(each, row) for each in value] if is_run else value
    return row(value, {name: plain_value(getattr(value, name), row) for name in names})


def as_json(item: Item) -> dict[str, Any]:
    """Plain values, "item" naming the class; bytes that are no UTF-8 in base64, by another name."""
    return {"item": item.item, **_json_fields(plain_value(item))}


def _json_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in values.items():
        try:
            plain[name] = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            plain[f"{name}_base64"] = b64encode(value).decode()
        if isinstance(value, list):
            plain[name] = [
                _json_fields(each) if isinstance(each, Mapping) else each for each in value
            ]
    return plain
