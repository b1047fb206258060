"""The section of a transaction that is prepared: it takes effect once it is decided.

Its record has all its parts, on pages and in files, its reads and its entries. Layout: `format`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

from quire.engine.records import format
from quire.engine.records.commit_record import CommitRecord, Entry
from quire.engine.records.prepared_record import PrepareRecord
from quire.errors import StoreCorrupt

from .attachment import Attachment
from .section import Folding, PendingSection, Preparing, Stamp
from .values import Values, ValuesSection


class Held(NamedTuple):
    """What the section says. `taken`: so many of the reads, the first ones, are in flight."""

    xid: str
    taken: int

    @property
    def kind(self) -> int:
        return format.HELD

    @property
    def record_name(self) -> str:
        return "PREPARE"

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        """It is the whole record that is held (see `Fold.take`)."""

    def pack(self) -> bytes:
        """The section's body."""
        xid = self.xid.encode()
        return format.PREPARE_HEADER.pack(len(xid), 0, self.taken) + xid

    @property
    def bytes(self) -> int:
        """What the body takes."""
        return len(self.pack())

    def checked(self, record: CommitRecord, where: str) -> CommitRecord:
        """The record that it stands in. Raises StoreCorrupt for contradictions."""
        if (
            self.taken > len(record.reads)
            or any(part.kind == format.INLINE for part in record.parts)
            or any(read.start >= read.end for read in record.reads[: self.taken])
            or any(section.kind not in _HOLDABLE for section in record.sections)
        ):
            raise StoreCorrupt(f"{where}: contradictory record of a prepared transaction")
        return record

    def record(self, record: CommitRecord) -> PrepareRecord:
        """What the state keeps of the record that it stands in."""
        values: Values | None = record.section(format.VALUES)
        attachment: Attachment | None = record.section(format.ATTACHMENT)
        return PrepareRecord(
            self.xid, self.taken, record.time_us, record.parts, record.reads, record.entries,
            () if values is None else values.sets,
            0 if attachment is None else attachment.attachment_id,
        )  # fmt: skip


_HOLDABLE = (format.ATTACHMENT, format.HELD, format.VALUES)


def unpack_held(body: memoryview, where: str) -> Held:
    """Read the section; `StoreCorrupt` for contradictions."""
    try:
        length, _, taken = format.PREPARE_HEADER.unpack_from(body)
    except struct.error as error:
        raise StoreCorrupt(f"{where}: unreadable record of a prepared one ({error})") from error
    return Held(xid_in(body, format.PREPARE_HEADER.size, length, where), taken)


def xid_in(body: memoryview, start: int, length: int, where: str) -> str:
    """The xid at that place."""
    name = body[start : start + length]
    try:
        if len(name) == length > 0:
            return str(name, "utf-8")
    except ValueError:
        pass
    raise StoreCorrupt(f"{where}: unreadable xid")


class Holding(Protocol):
    """What the store holds for the transaction (see `queues.prepared`)."""

    record: PrepareRecord


H = TypeVar("H", bound=Holding)
H_contra = TypeVar("H_contra", bound=Holding, contravariant=True)


class HoldingOrder(Protocol[H_contra]):
    """What is prepared, and is to be prepared next."""

    def place(self, prepared: H_contra) -> None:
        """It takes its place. Raises XidExists."""

    def withdraw(self, prepared: H_contra) -> None:
        """Its record was not written."""


class HeldSection(PendingSection, Generic[H]):
    """The same on its way into the journal, behind the one of the values that it sets."""

    KIND: ClassVar[int] = format.HELD

    __slots__ = (
        "_check_entries", "_fold", "_held", "_is_placed", "_order", "_values", "body",
    )  # fmt: skip

    room = 1

    def __init__(
        self,
        order: HoldingOrder[H],
        check_entries: Callable[[Sequence[Entry]], None],
        fold: Preparing,
        held: H,
        values: ValuesSection | None,
    ) -> None:
        """`check_entries` raises AlreadyCommitted, KeyHeld."""
        self._order = order
        self._check_entries = check_entries
        self._fold = fold
        self._held = held
        self._values = values
        self._is_placed = False
        self.body = Held(held.record.xid, held.record.taken).pack()

    def check(self) -> None:
        self._check_entries(self._held.record.entries)
        self._order.place(self._held)
        self._is_placed = True

    def place(self, first_id: int, time_us: int) -> None:
        sets = () if self._values is None else self._values.said.sets
        self._held.record = self._held.record._replace(prepared_us=time_us, sets=sets)

    def withdraw(self) -> None:
        if self._is_placed:
            self._order.withdraw(self._held)
            self._is_placed = False

    def apply(self, address: int) -> None:
        self._fold.prepare(self._held.record, "prepare")
