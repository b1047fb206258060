"""The section of a transaction that is prepared: it takes effect once it is decided.

Its record has all its parts, on pages and in files, its reads and its entries. Layout: `format`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

from quire.engine.records import format
from quire.engine.records.commit_record import CommitRecord, LedgerEntry
from quire.engine.records.prepared_record import PrepareRecord

from .attachment import Attachment
from .section import Folding, PendingSection, Section
from .values import Values, ValuesSection

_HOLDABLE = (format.ATTACHMENT, format.HELD, format.VALUES)


class Held(Section, frozen=True):
    """What the section says; it is the whole record that is folded (see `Fold.take`)."""

    kind = format.HELD
    names = ("PREPARE",)

    xid: str
    taken: int  # so many of the reads, the first ones, are in flight

    def pack(self) -> bytes:
        xid = self.xid.encode()
        return format.HELD_HEADER.pack(len(xid), 0, self.taken) + xid

    @classmethod
    def unpack(cls, body: memoryview) -> Self:
        length, _, taken = format.HELD_HEADER.unpack_from(body)
        return cls(xid_in(body, format.HELD_HEADER.size, length), taken)

    def checked(self, record: CommitRecord) -> CommitRecord:
        """The record that it stands in. Raises ValueError for contradictions."""
        if (
            self.taken > len(record.reads)
            or any(part.kind == format.INLINE for part in record.parts)
            or any(read.start >= read.end for read in record.reads[: self.taken])
            or any(section.kind not in _HOLDABLE for section in record.sections)
        ):
            raise ValueError("it is not of a prepared transaction")
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


def xid_in(body: memoryview, start: int, length: int) -> str:
    """The xid at that place. Raises ValueError."""
    name = body[start : start + length]
    if not len(name) == length > 0:
        raise ValueError(f"an xid of {len(name)} bytes, not {length}")
    return str(name, "utf-8")


class Holding(Protocol):
    """What the store holds for the transaction (see `queues.prepared_transactions`)."""

    record: PrepareRecord
    transaction_id: int


class HoldingOrder(Protocol):
    """What is prepared, and is prepared or decided next."""

    def place(self, prepared: Any) -> None:
        """It takes its place. Raises XidExists."""

    def withdraw(self, prepared: Any) -> None:
        """Its record was not written."""

    def decide(self, xid: str, expected: Any) -> Holding:
        """A decision takes its place. Raises TransactionNotFound."""

    def undecide(self, prepared: Any) -> None:
        """It was not written."""


class HeldSection(PendingSection):
    """A prepare on its way into the journal, behind the section of the values that it sets."""

    __slots__ = ("_check_entries", "_held", "_is_placed", "_order", "_values")

    room = 1

    def __init__(
        self,
        order: HoldingOrder,
        check_entries: Callable[[Sequence[LedgerEntry]], None],
        fold: Folding,
        held: Holding,
        values: ValuesSection | None,
    ) -> None:
        """`check_entries` raises AlreadyCommitted, KeyHeld."""
        super().__init__(fold, Held(held.record.xid, held.record.taken))
        self._order = order
        self._check_entries = check_entries
        self._held = held
        self._values = values
        self._is_placed = False

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
