"""The section of a transaction that sets values of states. Layout: `format`.

A value is an entry of the catalog. The entries' numbers are known when the transaction has its
place in the order; until then the section has zeros for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, Self

from quire.engine.records import format
from quire.engine.records.key_values import StateKey, ValueSet, to_text
from quire.engine.state.catalog import STATE, CatalogChange

from .section import Folding, PendingSection, Section, Stamp


class Setting(NamedTuple):
    """One key that a transaction sets; no value: it is deleted."""

    name: str
    key: str
    value: bytes | None


class Values(Section, frozen=True):
    """What the section says."""

    kind = format.VALUES

    sets: Sequence[ValueSet]

    def pack(self) -> bytearray:
        """Empty where nothing is set."""
        body = bytearray(format.VALUES_HEADER.size if self.sets else 0)
        for number, name, key, value in self.sets:
            texts = name.encode(), key.encode()
            size = 0 if value is None else len(value) + 1
            body += format.VALUE.pack(number, len(texts[0]), len(texts[1]), size)
            body += b"".join(texts) + (value or b"")
        return body

    @classmethod
    def unpack(cls, body: memoryview) -> Self:
        sets: list[ValueSet] = []
        for at, number, name_bytes, key_bytes, value_bytes in _rows(body):
            begin = at + format.VALUE.size
            middle, end = begin + name_bytes, begin + name_bytes + key_bytes
            name, key = str(body[begin:middle], "utf-8"), str(body[middle:end], "utf-8")
            value = bytes(body[end : end + value_bytes - 1]) if value_bytes else None
            sets.append(ValueSet(number, name, key, value))
        if not sets:
            raise ValueError("no values of states")
        return cls(sets)

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        changes = []
        for number, name, key, value in self.sets:
            body = None
            if value is not None:
                body = {"name": name, "key": key, "value": to_text(value)}
            changes.append(CatalogChange(STATE, number, body))
        fold.define(changes, where)


def _rows(body: memoryview | bytearray) -> Iterator[tuple[int, int, int, int, int]]:
    """Where in a body each value is, and what is said before it."""
    at = format.VALUES_HEADER.size
    while at < len(body):
        number, name_bytes, key_bytes, value_bytes = format.VALUE.unpack_from(body, at)
        yield at, number, name_bytes, key_bytes, value_bytes
        at += format.VALUE.size + name_bytes + key_bytes
        at += max(value_bytes - 1, 0)  # one more than it has, or 0: it is deleted
    if at != len(body):
        raise ValueError(f"values of {at} bytes, not {len(body)}")


class StateOrder(Protocol):
    """What is committed, and is to be committed next, of states (see `live_values`)."""

    @property
    def changing(self) -> AbstractContextManager[Any]:
        """Held while several are changed."""

    def check(self, reads: Mapping[StateKey, Any], sets: Iterable[StateKey]) -> None:
        """Raises StateConflict, KeyHeld."""

    def place(
        self, by: object, sets: Collection[tuple[str, str, bool]], xid: str | None = None
    ) -> list[int]:
        """The numbers of the entries that are put, or deleted (False)."""

    def unplace(self, by: object, sets: Collection[tuple[str, str, bool]]) -> None:
        """They are committed, or not after all."""


class ValuesSection(PendingSection):
    """Values on their way into the journal, with what the transaction has read of states.

    `xid`: it is prepared by that, and holds the keys then.
    """

    __slots__ = ("_marks", "_order", "_reads", "_settings", "_xid", "room")

    said: Values  # the numbers are right once it has its place
    body: bytearray

    def __init__(
        self,
        order: StateOrder,
        fold: Folding,
        reads: Mapping[StateKey, Any],
        settings: Sequence[Setting],
        xid: str | None = None,
    ) -> None:
        super().__init__(fold, Values([ValueSet(0, *one) for one in settings]))
        self._order = order
        self._reads = reads
        self._settings = settings
        self._xid = xid
        self._marks = [(one.name, one.key, one.value is not None) for one in settings]
        self.room = 1 if settings else 0

    def check(self) -> None:
        """Raises StateConflict, KeyHeld."""
        self._order.check(self._reads, [(name, key) for name, key, _ in self._marks])

    def place(self, first_id: int, time_us: int) -> None:
        """The numbers are known."""
        if not self._settings:
            return
        numbers = self._order.place(self, self._marks, self._xid)
        for (at, *_), number in zip(_rows(self.body), numbers, strict=True):
            format.NUMBER.pack_into(self.body, at, number)
        pairs = zip(numbers, self._settings, strict=True)
        self.said = Values([ValueSet(number, *one) for number, one in pairs])

    def withdraw(self) -> None:
        self._order.unplace(self, self._marks)

    def apply(self, address: int) -> None:
        if not self._settings:
            return
        if self._xid is None:
            with self._order.changing:
                super().apply(address)
        self._order.unplace(self, self._marks)
