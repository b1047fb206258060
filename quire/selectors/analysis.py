"""The facts about a condition that are known before any message is looked at.

- TV3: a block may be left out by how far its columns reach only if nothing in it can be true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from quire.rows import row_filter
from quire.rows.row_filter import Reaching

from .truths import (
    All,
    Among,
    Comparison,
    FixedTruth,
    IsThere,
    IsTrue,
    Like,
    Not,
    OfRow,
    OneOf,
    Truth,
)
from .values import (
    Arithmetic,
    AsBoolean,
    AsNumber,
    Attribute,
    HeaderField,
    Literal,
    PayloadBytes,
    PayloadText,
    Value,
)

FieldPlace: TypeAlias = tuple[str, str]
"""("header", "attribute" or "column", its name there)."""
Reaches: TypeAlias = Mapping[str, Reaching]


def needs_payload(truth: Truth) -> bool:
    """Return True if the payload is looked at."""
    return any(isinstance(value, (PayloadBytes, PayloadText)) for value in _values(truth))


def equalities(truth: Truth) -> dict[FieldPlace, Any]:
    """Return the values that every chosen message has: of equalities that all have to be true."""
    if isinstance(truth, All):
        found: dict[FieldPlace, Any] = {}
        for part in truth.parts:
            found = {**equalities(part), **found}  # of two that differ none is true: either does
        return found
    if isinstance(truth, Among) and len(truth.texts) == 1:
        return _equality(truth.value, next(iter(truth.texts)))
    if isinstance(truth, Comparison) and truth.sign == "=":
        for value, other in ((truth.left, truth.right), (truth.right, truth.left)):
            if isinstance(other, Literal):
                return _equality(value, other.value)
    if isinstance(truth, OfRow):
        compared = truth.condition
        if isinstance(compared, row_filter.Compared) and compared.sign == "=":
            return {("column", compared.column): compared.value}
    return {}


def may(truth: Truth, reaches: Reaches, count: int) -> bool:
    """Return True if it may be true of any row of a block with these reaches (TV3)."""
    if isinstance(truth, OfRow):
        return truth.condition.may(reaches, count)
    if isinstance(truth, All):
        return all(may(part, reaches, count) for part in truth.parts)
    if isinstance(truth, OneOf):
        return any(may(part, reaches, count) for part in truth.parts)
    return not isinstance(truth, FixedTruth) or truth.value


def _equality(value: Value, other: Any) -> dict[FieldPlace, Any]:
    if isinstance(value, Attribute):
        return {("attribute", value.name): other}
    if isinstance(value, HeaderField) and value.divisor == 1 and not isinstance(other, float):
        return {("header", value.name): other}
    return {}


def _values(truth: Truth) -> Iterator[Value]:
    """Yield all values that are looked at."""
    if isinstance(truth, (All, OneOf)):
        for part in truth.parts:
            yield from _values(part)
    elif isinstance(truth, Not):
        yield from _values(truth.part)
    elif isinstance(truth, Comparison):
        yield from _parts(truth.left)
        yield from _parts(truth.right)
    elif isinstance(truth, (IsTrue, Among, Like, IsThere)):
        yield from _parts(truth.value)


def _parts(value: Value) -> Iterator[Value]:
    if isinstance(value, Arithmetic):
        yield from _parts(value.left)
        yield from _parts(value.right)
    elif isinstance(value, (AsNumber, AsBoolean)):
        yield from _parts(value.text)
    else:
        yield value
