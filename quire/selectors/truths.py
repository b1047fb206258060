"""Conditions: what is true, false or unknown of messages, as SQL's logic of three values has it.

- TV1: what is compared with something unknown is unknown. NOT leaves it so; AND is false if a part
  is false, OR is true if a part is true, else both are unknown if a part is.
- TV2: of one message alone and of the messages of a block at once the same is true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from quire.libraries import np, pa, pc
from quire.messages.message import Message
from quire.rows.row_filter import RowCondition

from .block_columns import BlockColumns, Truths, row_column, truths_of, unknown
from .like_pattern import LikePattern
from .numbers import Flags, NumberColumn, is_related, related
from .values import Value, ValueKind


class Truth(Protocol):
    """A condition, or a part of one."""

    def of(self, message: Message) -> bool | None:
        """Return the truth for one message; None: it is unknown."""

    def rows(self, columns: BlockColumns) -> Truths:
        """Return the truths for many messages."""


class FixedTruth(Struct, frozen=True):
    """The same for all messages."""

    value: bool

    def of(self, message: Message) -> bool | None:
        return self.value

    def rows(self, columns: BlockColumns) -> Truths:
        return Truths(np.bool_(self.value), np.bool_(not self.value))


class IsTrue(Struct, frozen=True):
    """A boolean by itself."""

    value: Value

    def of(self, message: Message) -> bool | None:
        return self.value.of(message)  # type: ignore[no-any-return]

    def rows(self, columns: BlockColumns) -> Truths:
        return self.value.column(columns)  # type: ignore[no-any-return]


class Comparison(Struct, frozen=True):
    """Two values of one kind. Only numbers are less or greater."""

    sign: str
    left: Value
    right: Value

    def of(self, message: Message) -> bool | None:
        left, right = self.left.of(message), self.right.of(message)
        if left is None or right is None:
            return None
        if self.left.kind is ValueKind.NUMBER:
            return is_related(self.sign, left, right)
        return bool((left == right) == (self.sign == "="))

    def rows(self, columns: BlockColumns) -> Truths:
        left, right = self.left.column(columns), self.right.column(columns)
        if isinstance(left, NumberColumn):
            return Truths.where(related(self.sign, left, right), left.known & right.known)
        if isinstance(left, Truths):
            equal = (left.true & right.true) | (left.false & right.false)
            other = (left.true & right.false) | (left.false & right.true)
            return Truths(equal, other) if self.sign == "=" else Truths(other, equal)
        if left is None or right is None:
            return unknown()

        found = pc.equal(left, right) if self.sign == "=" else pc.not_equal(left, right)
        if isinstance(found, pa.Scalar):
            return Truths(np.bool_(found.as_py()), np.bool_(not found.as_py()))
        return Truths.of_array(found)


class OfRow(Struct, frozen=True):
    """A condition on one column of a typed queue: see `quire.rows.row_filter`."""

    condition: RowCondition
    type: Any  # pa.DataType of the column (see LD1 of `lazily_loaded`)

    def of(self, message: Message) -> bool | None:
        rows = message.row  # type: ignore[attr-defined]
        return self.condition.mask(lambda name: row_column(rows, name, self.type))[0].as_py()  # type: ignore[no-any-return]

    def rows(self, columns: BlockColumns) -> Truths:
        return Truths.of_array(
            self.condition.mask(lambda name: columns.row_column(name, self.type))
        )


class Among(Struct, frozen=True):
    """A text that is one of several."""

    value: Value
    texts: frozenset[str]

    def of(self, message: Message) -> bool | None:
        text = self.value.of(message)
        return None if text is None else text in self.texts

    def rows(self, columns: BlockColumns) -> Truths:
        return truths_of(self.value.column(columns), self.texts.__contains__)


class Like(Struct, frozen=True):
    """A text that is like a pattern."""

    value: Value
    pattern: LikePattern

    def of(self, message: Message) -> bool | None:
        text = self.value.of(message)
        return None if text is None else self.pattern.is_like(text)

    def rows(self, columns: BlockColumns) -> Truths:
        texts, pattern = self.value.column(columns), self.pattern
        if texts is None or pattern.plain is None:
            return truths_of(texts, pattern.is_like)

        compare = {
            "equal": pc.equal,
            "starts": pc.starts_with,
            "ends": pc.ends_with,
            "contains": pc.match_substring,
        }[pattern.plain]
        return Truths.of_array(compare(texts, pattern.part))


class IsThere(Struct, frozen=True):
    """A value that is not null."""

    value: Value

    def of(self, message: Message) -> bool | None:
        return self.value.of(message) is not None

    def rows(self, columns: BlockColumns) -> Truths:
        found = self.value.column(columns)
        if isinstance(found, NumberColumn):
            return Truths.where(found.known, np.True_)
        if found is None:
            return Truths(np.False_, np.True_)
        return Truths.of_array(found.is_valid())


class Not(Struct, frozen=True):
    """The opposite."""

    part: Truth

    def of(self, message: Message) -> bool | None:
        found = self.part.of(message)
        return None if found is None else not found

    def rows(self, columns: BlockColumns) -> Truths:
        true, false = self.part.rows(columns)
        return Truths(false, true)


class All(Struct, frozen=True):
    """AND."""

    parts: Sequence[Truth]

    def of(self, message: Message) -> bool | None:
        known = True
        for part in self.parts:
            found = part.of(message)
            if found is False:
                return False
            known = known and found is not None
        return True if known else None

    def rows(self, columns: BlockColumns) -> Truths:
        true: Flags = np.True_
        false: Flags = np.False_
        for part in self.parts:
            more = part.rows(columns)
            true, false = true & more.true, false | more.false
            if np.all(false):
                break
        return Truths(true, false)


class OneOf(Struct, frozen=True):
    """OR."""

    parts: Sequence[Truth]

    def of(self, message: Message) -> bool | None:
        known = True
        for part in self.parts:
            found = part.of(message)
            if found is True:
                return True
            known = known and found is not None
        return False if known else None

    def rows(self, columns: BlockColumns) -> Truths:
        true: Flags = np.False_
        false: Flags = np.True_
        for part in self.parts:
            more = part.rows(columns)
            true, false = true | more.true, false & more.false
            if np.all(true):
                break
        return Truths(true, false)
