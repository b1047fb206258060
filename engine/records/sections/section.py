"""What every kind of section is, as a record says it, and on its way there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from quire.engine.records.catalog import CatalogChange

    from .moves import Seek


class Folding(Protocol):
    """The fold, as far as sections use it (see `fold`)."""

    @property
    def state(self) -> Any:
        """The durable state."""

    def seek(self, seeks: Sequence[Seek]) -> None: ...

    def define(self, changes: Sequence[CatalogChange], where: str) -> None: ...


class Section(Protocol):
    """What a record says. The same object is folded when it is committed, and in recovery."""

    @property
    def kind(self) -> int:
        """Its number in the record."""

    def fold(self, fold: Folding, where: str) -> None:
        """Its transaction is committed."""

    def hold(self, fold: Folding, xid: str, where: str) -> None:
        """Its transaction is prepared. What cannot be prepared never gets that far."""


class PendingSection(Protocol):
    """The same on its way into the journal, in the steps of a commit (see `commits.change`)."""

    KIND: ClassVar[int]  # 0: nothing of it is in the record

    @property
    def relieves(self) -> bool:
        """It takes no room on the disk: its transaction may go on where that is full."""

    @property
    def comes_first(self) -> bool:
        """No other change of its group may come before it: it checks what they change."""

    @property
    def body(self) -> bytearray:
        """Its bytes in the record; `place` may fill some of them in."""

    def check(self) -> None:
        """Whether it may be committed next. Raises to refuse the transaction."""

    def place(self) -> None:
        """It is committed next. Must not raise."""

    def withdraw(self) -> None:
        """Its record was not written. Must not raise."""

    def apply(self, time_us: int) -> None:
        """Its record is durable, or its transaction has none. Must not raise."""
