"""The section of a transaction that sets values of states. Layout: `format`.

A value is an entry of the catalog. The entries' numbers are known when the transaction has its
place in the order; until then the section has zeros for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

from quire.engine.records import format
from quire.engine.records.key_values import ValueSet, to_text
from quire.engine.state.catalog import STATE, CatalogChange

from .section import Folding, Section, Stamp


class Setting(NamedTuple):
    """One key that a transaction sets; no value: it is deleted."""

    name: str
    key: str
    value: bytes | None


class Values(Section, frozen=True):
    """The values that a transaction sets."""

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
        for at, number, name_bytes, key_bytes, value_bytes in value_rows(body):
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


def value_rows(body: memoryview | bytearray) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield the place of each value in a body, with its number and its sizes."""
    at = format.VALUES_HEADER.size
    while at < len(body):
        number, name_bytes, key_bytes, value_bytes = format.VALUE.unpack_from(body, at)
        yield at, number, name_bytes, key_bytes, value_bytes
        at += format.VALUE.size + name_bytes + key_bytes
        at += max(value_bytes - 1, 0)  # one more than it has, or 0: it is deleted
    if at != len(body):
        raise ValueError(f"values of {at} bytes, not {len(body)}")
