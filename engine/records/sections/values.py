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
from quire.engine.records.catalog import PREPARED_STATE, STATE, CatalogChange
from quire.engine.records.key_values import StateKey, to_text
from quire.errors import StoreCorrupt

from .section import Folding


class Setting(NamedTuple):
    """One key that a transaction sets; no value: it is deleted."""

    name: str
    key: str
    value: bytes | None


class ValueSet(NamedTuple):
    """The same with the number of its entry in the catalog, as the section says it."""

    number: int
    name: str
    key: str
    value: bytes | None


class Values(NamedTuple):
    """What the section says.

    `held_number`: the number of the entry that holds them while their transaction is prepared.
    """

    held_number: int
    sets: Sequence[ValueSet]

    @property
    def kind(self) -> int:
        return format.VALUES

    def fold(self, fold: Folding, where: str) -> None:
        changes = []
        for number, name, key, value in self.sets:
            body = None
            if value is not None:
                body = {"name": name, "key": key, "value": to_text(value)}
            changes.append(CatalogChange(STATE, number, body))
        fold.define(changes, where)

    def hold(self, fold: Folding, xid: str, where: str) -> None:
        rows = [
            [number, name, key, None if value is None else to_text(value)]
            for number, name, key, value in self.sets
        ]
        body: dict[str, Any] = {"xid": xid, "sets": rows}
        fold.define([CatalogChange(PREPARED_STATE, self.held_number, body)], where)


def unpack_values(body: memoryview, where: str) -> Values:
    """Read the section; `StoreCorrupt` for contradictions."""
    sets: list[ValueSet] = []
    try:
        (held_number,) = format.VALUES_HEADER.unpack_from(body)
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
    return Values(held_number, sets)


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

    def number(self) -> int:
        """Of an entry of another type."""

    def unplace(self, by: object, sets: Collection[tuple[str, str, bool]]) -> None:
        """They are committed, or not after all."""


class ValuesSection:
    """The same on its way into the journal, with what the transaction has read of states.

    `xid`: it is prepared by that, and holds the keys then.
    """

    KIND: ClassVar[int] = format.VALUES

    __slots__ = (
        "_fold", "_marks", "_numbered", "_order", "_reads", "_settings", "_xid", "body",
        "comes_first", "relieves", "said",
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
        self._numbered: list[int] = []  # where in the body
        self.said = Values(0, ())  # once it has its place
        self.relieves = not settings
        self.comes_first = False  # what others of the group set is known (see `state_values`)
        self.body = self._pack()

    def _pack(self) -> bytearray:
        body = bytearray()
        if self._settings:
            body += format.VALUES_HEADER.pack(0)
        for name, key, value in self._settings:
            texts = name.encode(), key.encode()
            size = 0 if value is None else len(value) + 1
            self._numbered.append(len(body))
            body += format.VALUE.pack(0, len(texts[0]), len(texts[1]), size)
            body += b"".join(texts) + (value or b"")
        return body

    def check(self) -> None:
        """Raises StateConflict, KeyHeld."""
        self._order.check(self._reads, [(name, key) for name, key, _ in self._marks])

    def place(self) -> None:
        """The numbers are known."""
        if not self._settings:
            return
        numbers = self._order.place(self, self._marks, self._xid)
        held_number = 0 if self._xid is None else self._order.number()
        format.VALUES_HEADER.pack_into(self.body, 0, held_number)
        for at, number in zip(self._numbered, numbers, strict=True):
            format.NUMBER.pack_into(self.body, at, number)
        sets = [ValueSet(number, *one) for number, one in zip(numbers, self._settings, strict=True)]
        self.said = Values(held_number, sets)

    def withdraw(self) -> None:
        self._order.unplace(self, self._marks)

    def apply(self, time_us: int) -> None:
        if not self._settings:
            return
        with self._order.changing:
            if self._xid is None:
                self.said.fold(self._fold, "the state")
            else:
                self.said.hold(self._fold, self._xid, "the state")
        self._order.unplace(self, self._marks)
