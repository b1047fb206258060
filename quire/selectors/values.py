"""The values that conditions compare: literals, fields of messages, and results of arithmetic.

Each value can be had of one message, and of the messages of a block at once: of texts an array (or
None: none has one), of numbers `NumberColumn`, of booleans `Truths`.
"""

from __future__ import annotations

from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Protocol

from msgspec import Struct

from quire.libraries import np, pa
from quire.messages.message import Message
from quire.messages.streamed_message import StreamedMessage

from .block_columns import BlockColumns, Truths, numbers_of, row_column, text_of, truths_of
from .numbers import Number, NumberColumn, arithmetic, arithmetic_of, number_of


class ValueKind(Enum):
    """The kinds of values. Only values of one kind are compared with one another."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIME = "time"
    DATE = "date"
    BYTES = "bytes"
    NESTED = "list, map or struct"


class Value(Protocol):
    """A value of a condition."""

    @property
    def kind(self) -> ValueKind:
        """The kind of values that it can be compared with."""

    def of(self, message: Message) -> Any:
        """Return the value of one message; None: it has none."""

    def column(self, columns: BlockColumns) -> Any:
        """Return the values of many messages."""


class Literal(Struct, frozen=True, dict=True):
    """A value that is written in the selector, or set in the template."""

    kind: ValueKind
    value: Any

    def of(self, message: Message) -> Any:
        """The same for all."""
        return self.value

    def column(self, columns: BlockColumns) -> Any:
        """The same for all: of texts and bytes one scalar."""
        return self._for_all

    @cached_property
    def _for_all(self) -> Any:
        if self.kind is ValueKind.NUMBER:
            return NumberColumn.of_number(self.value)
        if self.kind is ValueKind.BOOLEAN:
            return Truths(np.bool_(self.value), np.bool_(not self.value))
        return pa.scalar(self.value)


class HeaderField(Struct, frozen=True):
    """A field of the header, under its name as a message has it."""

    name: str
    kind: ValueKind
    divisor: int = 1  # 1000: microseconds are seen as milliseconds

    def of(self, message: Message) -> Any:
        """Return the value as the message has it."""
        value = getattr(message, self.name)
        return value // self.divisor if self.divisor > 1 and value is not None else value

    def column(self, columns: BlockColumns) -> Any:
        """Return the values as the block has them."""
        if self.kind is ValueKind.TEXT:
            return columns.text(self.name)
        numbers = columns.number(self.name)
        if self.divisor == 1:
            return numbers
        return numbers._replace(exact=numbers.exact // self.divisor)


class Attribute(Struct, frozen=True):
    """A text that is read as a number or a boolean where it is compared with one."""

    name: str
    kind: ClassVar[ValueKind] = ValueKind.TEXT

    def of(self, message: Message) -> str | None:
        """Return the text; None where the message does not have it."""
        return message.attributes.get(self.name)

    def column(self, columns: BlockColumns) -> pa.Array | None:
        """Null where a message does not have it."""
        return columns.attribute(self.name)


class PayloadText(Struct, frozen=True):
    """The payload as text, which is read as an attribute is. Streams, and other bytes, are none."""

    kind: ClassVar[ValueKind] = ValueKind.TEXT

    def of(self, message: Message) -> str | None:
        """Return the text; None where it is none."""
        return None if isinstance(message, StreamedMessage) else text_of(message.payload)

    def column(self, columns: BlockColumns) -> pa.Array | None:
        """Null where it is no text."""
        return columns.payload_text()


class PayloadBytes(Struct, frozen=True):
    """The payload as it is; of streams none."""

    kind: ClassVar[ValueKind] = ValueKind.BYTES

    def of(self, message: Message) -> bytes | None:
        """Return the payload; None of a stream."""
        return None if isinstance(message, StreamedMessage) else message.payload

    def column(self, columns: BlockColumns) -> pa.Array | None:
        """Return the payloads; None of streams."""
        return columns.payload()


class RowColumn(Struct, frozen=True):
    """A column of a typed queue."""

    name: str
    kind: ValueKind
    type: Any  # pa.DataType (see LD1 of `lazily_loaded`)

    def of(self, message: Message) -> Any:
        """Return the value as Python has it; a decimal as a double."""
        value = row_column(message.row, self.name, self.type)[0].as_py()  # type: ignore[attr-defined]
        if isinstance(value, Decimal):
            return float(value)
        return value

    def column(self, columns: BlockColumns) -> Any:
        """Return the values as the block has them."""
        array = columns.row_column(self.name, self.type)
        if self.kind is ValueKind.BOOLEAN:
            return Truths.of_array(array)
        return row_numbers(array) if self.kind is ValueKind.NUMBER else array


def row_numbers(array: pa.Array) -> NumberColumn:
    """A column of integers as exact numbers, one of others as doubles."""
    known = np.True_
    if array.null_count:
        known = array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_integer(array.type):
        values = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return NumberColumn.of_exact(values, known)
    doubles = array.cast(pa.float64()).fill_null(0.0)
    return NumberColumn.of_approximate(doubles.to_numpy(zero_copy_only=False), known)


class AsNumber(Struct, frozen=True):
    """A text read as a number."""

    text: Value
    kind: ClassVar[ValueKind] = ValueKind.NUMBER

    def of(self, message: Message) -> Number | None:
        """Return the number; None where the text is none."""
        text = self.text.of(message)
        return None if text is None else number_of(text)

    def column(self, columns: BlockColumns) -> NumberColumn:
        """Return the numbers; not known where the text is none."""
        return numbers_of(self.text.column(columns))


class AsBoolean(Struct, frozen=True):
    """A text read as true or false."""

    text: Value
    kind: ClassVar[ValueKind] = ValueKind.BOOLEAN

    def of(self, message: Message) -> bool | None:
        """Return the boolean; None where the text is neither."""
        text = self.text.of(message)
        return None if text is None else boolean_of(text)

    def column(self, columns: BlockColumns) -> Truths:
        """Unknown where it is neither."""
        return truths_of(self.text.column(columns), boolean_of)


def boolean_of(text: str) -> bool | None:
    """True or false as a text says it, in capital or small letters."""
    return {"true": True, "false": False}.get(text.lower()) if len(text) <= 5 else None


class Arithmetic(Struct, frozen=True):
    """Two numbers with + - * or / between them."""

    sign: str
    left: Value
    right: Value
    kind: ClassVar[ValueKind] = ValueKind.NUMBER

    def of(self, message: Message) -> Number | None:
        """Return the result; None where it has no value (SN1)."""
        return arithmetic_of(self.sign, self.left.of(message), self.right.of(message))

    def column(self, columns: BlockColumns) -> NumberColumn:
        """Return the results; not known where there is no value (SN1)."""
        return arithmetic(self.sign, self.left.column(columns), self.right.column(columns))
