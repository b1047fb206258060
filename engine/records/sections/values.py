"""The section of a transaction that sets values of states. Layout: `format`.

A value is an entry of the catalog. The entries' numbers are known when the transaction has its
place in the order; until then the section has zeros for them.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple, Protocol

from quire.engine.records import format
from quire.engine.records.catalog import STATE, CatalogChange
from quire.engine.records.key_values import StateKey, ValueSet, to_text
from quire.errors import StoreCorrupt

from .section import Folding, PendingSection, Stamp


class Setting(NamedTuple):
    """One key that a transaction sets; no value: it is deleted."""

    name: str
    key: str
    value: bytes | None


class Values(NamedTuple):
    """What the section says."""

    sets: Sequence[ValueSet]

    @property
    def kind(self) -> int:
        return format.VALUES

    @property
    def record_name(self) -> str:
        return ""

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        set_values(fold, self.sets, where)

    @property
    def bytes(self) -> int:
        """What the body takes."""
        size = format.VALUES_HEADER.size if self.sets else 0
        for _, name, key, value in self.sets:
            size += format.VALUE.size + len(name.encode()) + len(key.encode()) + len(value or b"")
        return size


def set_values(fold: Folding, sets: Iterable[ValueSet], where: str) -> None:
    """They are committed."""
    changes = []
    for number, name, key, value in sets:
        body = None
        if value is not None:
            body = {"name": name, "key": key, "value": to_text(value)}
        changes.append(CatalogChange(STATE, number, body))
    fold.define(changes, where)


def pack_values(sets: Sequence[ValueSet]) -> tuple[bytearray, list[int]]:
    """The section's body, empty where nothing is set; and where in it the numbers stand."""
    body = bytearray(format.VALUES_HEADER.size if sets else 0)
    places: list[int] = []
    for number, name, key, value in sets:
        texts = name.encode(), key.encode()
        size = 0 if value is None else len(value) + 1
        places.append(len(body))
        body += format.VALUE.pack(number, len(texts[0]), len(texts[1]), size)
        body += b"".join(texts) + (value or b"")
    return body, places


def unpack_values(body: memoryview, where: str) -> Values:
    """Read the section; `StoreCorrupt` for contradictions."""
    sets: list[ValueSet] = []
    try:
        format.VALUES_HEADER.unpack_from(body)
        at = format.VALUES_HEADER.size
        while at < len(body):
            number, name_bytes, key_bytes, value_bytes = format.VALUE.unpack_from(body, at)
            at += format.VALUE.size
            ends = at + name_bytes, at + name_bytes + key_bytes
            name, key = str(body[at : ends[0]], "utf-8"), str(body[ends[0] : ends[1]], "utf-8")
            at, value = ends[1], None
            if value_bytes:  # one more than it has
                at += value_bytes - 1
                value = bytes(body[ends[1] : at])
            sets.append(ValueSet(number, name, key, value))
    except (ValueError, struct.error) as error:
        raise StoreCorrupt(f"{where}: unreadable values of states ({error})") from error
    if at != len(body) or not sets:
        raise StoreCorrupt(f"{where}: contradictory values of states")
    return Values(sets)


class StateOrder(Protocol):
    """What is committed, and is to be committed next, of states (see `state_values`)."""

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
    """The same on its way into the journal, with what the transaction has read of states.

    `xid`: it is prepared by that, and holds the keys then.
    """

    KIND: ClassVar[int] = format.VALUES

    __slots__ = (
        "_fold", "_marks", "_numbered", "_order", "_reads", "_settings", "_xid", "body",
        "room", "said",
    )  # fmt: skip

    def __init__(
        self,
        order: StateOrder,
        fold: Folding,
        reads: Mapping[StateKey, Any],
        settings: Sequence[Setting],
        xid: str | None = None,
    ) -> None:
        self._order = order
        self._fold = fold
        self._reads = reads
        self._settings = settings
        self._xid = xid
        self._marks = [(one.name, one.key, one.value is not None) for one in settings]
        self.said = Values(())  # once it has its place
        self.room = 1 if settings else 0
        self.body, self._numbered = pack_values([ValueSet(0, *one) for one in settings])

    def check(self) -> None:
        """Raises StateConflict, KeyHeld."""
        self._order.check(self._reads, [(name, key) for name, key, _ in self._marks])

    def place(self, first_id: int, time_us: int) -> None:
        """The numbers are known."""
        if not self._settings:
            return
        numbers = self._order.place(self, self._marks, self._xid)
        for at, number in zip(self._numbered, numbers, strict=True):
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
                set_values(self._fold, self.said.sets, "the state")
        self._order.unplace(self, self._marks)
