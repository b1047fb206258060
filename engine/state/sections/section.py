"""The interface of all kinds of sections: in a record, and on the way there."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from quire.engine.records.prepared_record import PrepareRecord
    from quire.engine.state.catalog import CatalogChange
    from quire.engine.state.durable_state import DurableQueue

Row = TypeVar("Row", bound=tuple[int, *tuple[int, ...]])  # which begins with the id of a queue


class Stamp(Struct, frozen=True, gc=False):
    """A record's place in the order."""

    address: int
    first_id: int  # of the messages that come with it
    time_us: int


class Verdict(Protocol):
    """The decision on a prepared transaction, as the fold takes it."""

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

    def decide(self, decision: Verdict, stamp: Stamp, where: str) -> None: ...


class Section(Struct, frozen=True):
    """A section of a record. The same object is folded when it is committed, and in recovery."""

    kind: ClassVar[int]
    """Its number in the record."""
    names: ClassVar[tuple[str, ...]] = ()
    """The names of a record that has it, for people; none: it goes by its kind."""

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
        """Return True if a row can be one of these."""
        return True
