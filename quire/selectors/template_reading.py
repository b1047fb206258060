"""Reading a template as a condition, of the same parts that a selector is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quire.definitions.row_schema import words_of
from quire.errors import InvalidArgument, InvalidSelector
from quire.libraries import pa
from quire.messages.message import GROUP_KEY
from quire.rows import row_filter
from quire.rows.row_input import one_row

from .names import kind_of
from .template import ANY, HEADER_FIELDS, Template
from .truths import All, Comparison, IsThere, Not, OfRow, Truth
from .values import Attribute, HeaderField, Literal, PayloadBytes, Value, ValueKind

_TEXTS = ("sender", "correlation_id", "reply_to", "content_type")


def read_template(template: Template, schema: pa.Schema | None) -> Truth:
    """The condition. Raises InvalidSelector, naming the field that the queue cannot have."""
    parts = list(_parts(template))
    if template.payload is not None:
        if schema is not None:
            raise InvalidSelector(
                "the template asks for a payload, and the queue holds rows: give columns"
            )
        parts.append(_equals(PayloadBytes(), template.payload))
    columns = {name: value for name, value in template.columns.items() if value is not None}
    if columns and schema is None:
        raise InvalidSelector(
            f"the template asks for columns ({', '.join(columns)}), and the queue holds bytes: "
            "give attributes or the payload"
        )
    parts += [_of_column(schema, name, value) for name, value in columns.items()]
    return parts[0] if len(parts) == 1 else All(parts)


def _parts(template: Template) -> Iterator[Truth]:
    """Yield the conditions on the header."""
    for name in HEADER_FIELDS:
        expected = getattr(template, name)
        if expected is not None:
            yield _equals(
                HeaderField(name, ValueKind.TEXT if name in _TEXTS else ValueKind.NUMBER), expected
            )
    if template.group_key is not None:
        yield _equals(Attribute(GROUP_KEY), template.group_key)
    for name, expected in template.attributes.items():
        if expected is not None:
            yield _equals(Attribute(name), expected)


def _equals(value: Value, expected: Any) -> Truth:
    return (
        IsThere(value) if expected is ANY else Comparison("=", value, Literal(value.kind, expected))
    )


def _of_column(schema: pa.Schema, name: str, expected: Any) -> Truth:
    index = schema.get_field_index(name)
    if index < 0:
        raise InvalidSelector(
            f"the template asks for column {name!r}; there are {', '.join(schema.names)}"
        )
    type_ = schema.field(index).type
    if expected is ANY:
        return Not(OfRow(row_filter.Null(name, is_null=True), type_))
    kind = kind_of(type_)
    try:
        if kind is ValueKind.NESTED or (
            isinstance(expected, bool) and kind is not ValueKind.BOOLEAN
        ):
            raise InvalidArgument("of nested types, and of truth values, ask for quire.ANY")
        scalar = one_row(
            words_of(pa.schema([pa.field(name, type_)])), {name: expected}, None
        ).batch[0][0]
    except InvalidArgument as error:
        raise InvalidSelector(f"the template asks for column {name!r}: {error}") from None
    plain = expected
    if kind is ValueKind.DATE:
        plain = row_filter.Day(scalar.value)
    elif kind is ValueKind.TIME:
        plain = row_filter.Instant(scalar.value)
    return OfRow(row_filter.Compared(name, "=", plain, scalar), type_)
