"""What every kind of section is, as a record says it, and on its way there."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from quire.engine.records.prepared_record import PrepareRecord
    from quire.engine.state.catalog import CatalogChange
    from quire.engine.state.durable_state import DurableQueue

Row = TypeVar("Row", bound=tuple[int, *tuple[int, ...]])  # which begins with the id of a queue


class Stamp(NamedTuple):
    """A record's place in the order."""

    address: int
    first_id: int  # of the messages that come with it
    time_us: int


class Verdict(Protocol):
    """What is decided of a prepared transaction, as the fold takes it."""

    @property
    def xid(self) -> str: ...

    @property
    def commit(self) -> bool: ...

    @property
    def messages(self) -> int:
        """In all parts of it."""


class Folding(Protocol):
    """The fold, as far as sections use it (see `fold`)."""

    @property
    def state(self) -> Any:
        """The durable state."""

    def queues_of(self, rows: Iterable[Row]) -> Iterator[tuple[DurableQueue, Row]]: ...

    def define(self, changes: Sequence[CatalogChange], where: str) -> None: ...

    def prepare(self, record: PrepareRecord, where: str) -> None: ...

    def decide(
        self, decision: Verdict, stamp: Stamp, where: str, transaction_id: int = 0
    ) -> None: ...


class Section(Struct, frozen=True):
    """What a record says. The same object is folded when it is committed, and in recovery."""

    kind: ClassVar[int]
    """Its number in the record."""
    names: ClassVar[tuple[str, ...]] = ()
    """What people call a record that has it; none: it goes by its kind."""

    @property
    def record_name(self) -> str:
        """The one of the names that is this one's; empty: it has none."""
        return self.names[0] if self.names else ""

    def pack(self) -> bytes | bytearray:
        """Its bytes in the record."""
        raise NotImplementedError

    @classmethod
    def unpack(cls, body: memoryview) -> Self:
        """The reverse. Raises ValueError, struct.error."""
        raise NotImplementedError

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        """Its transaction is committed."""


class RowsSection(Section, frozen=True):
    """One whose only field has rows of numbers, each packed alike, behind the id of a queue."""

    layout: ClassVar[struct.Struct]
    row: ClassVar[Callable[..., Any]]
    """Makes a row of its numbers."""

    def pack(self) -> bytes:
        rows = getattr(self, self.__struct_fields__[0])
        return b"".join([self.layout.pack(*row) for row in rows])

    @classmethod
    def unpack(cls, body: memoryview) -> Self:
        rows = [cls.row(*numbers) for numbers in cls.layout.iter_unpack(body)]
        if not rows or not all(map(cls.makes_sense, rows)):
            raise ValueError(f"no {cls.__name__}, or of nothing")
        return cls(rows)  # its only field

    @staticmethod
    def makes_sense(row: Any) -> bool:
        """Whether a row can be one of these."""
        return True


class PendingSection:
    """A section on its way into the journal, in the steps of a commit."""

    __slots__ = ("_fold", "body", "said")

    room = 0
    """1: it takes room on the disk; -1: it makes some, and may go on where the disk is full."""
    comes_first = False
    """No other change of its group may come before it: it checks what they change."""
    messages = 0
    """So many ids it takes, once `check` has returned."""

    said: Section
    body: bytes | bytearray
    """Its bytes in the record, if any; `place` may fill some of them in."""

    def __init__(self, fold: Folding, said: Section) -> None:
        self._fold = fold
        self.said = said
        self.body = said.pack()

    def check(self) -> None:
        """Whether it may be committed next. Raises to refuse the transaction."""

    def place(self, first_id: int, time_us: int) -> None:
        """It is committed next, with ids from there on and at that time. Must not raise."""

    def withdraw(self) -> None:
        """Its record was not written; perhaps it was not even checked. Must not raise."""

    def apply(self, address: int) -> None:
        """Its record is durable there, or its transaction has none. Must not raise."""
        self.said.fold(self._fold, Stamp(address, 0, 0), "a section")
