"""The columns of messages in Spark, and what a reader or a writer may be asked for.

A source has all columns, or those that the user's schema names. A sink needs `payload`, and `queue`
unless an option names the queue; it takes the other columns if they are there. The columns that
the store sets itself are accepted by a sink and not used, so that what was read can be written as
it is.
"""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quire.errors import InvalidArgument

_COLUMNS: dict[str, DataType] = {
    "queue": StringType(),
    "id": LongType(),
    "position": LongType(),
    "payload": BinaryType(),
    "priority": IntegerType(),
    "group": IntegerType(),
    "time": TimestampType(),
    "sender": StringType(),
    "correlation_id": StringType(),
    "reply_to": StringType(),
    "content_type": StringType(),
    "expires_at": TimestampType(),
    "deliver_at": TimestampType(),
    "delivery_count": IntegerType(),
    "attributes": MapType(StringType(), StringType()),
}
META_COLUMNS = {name: type_ for name, type_ in _COLUMNS.items() if name != "payload"}
"""The fields of `_meta`, beside the columns of typed queues."""
_WITHOUT_HEADERS = ("queue", "id", "position", "payload", "time")
SET_BY_STORE = frozenset({"id", "position", "time", "delivery_count"})


def source_schema(include_headers: bool = True) -> StructType:
    """The schema of a source: all columns, or those that every message has beside its headers."""
    names = _COLUMNS if include_headers else _WITHOUT_HEADERS
    return StructType([StructField(name, _COLUMNS[name]) for name in names])


def check_source_schema(schema: StructType) -> None:
    """Refuse a user's schema that is no selection of the source's columns."""
    for field in schema.fields:
        if field.name not in _COLUMNS:
            raise InvalidArgument(
                f"format 'quire' has no column '{field.name}'; it has {', '.join(_COLUMNS)}"
            )
        if not _same_type(field.dataType, _COLUMNS[field.name]):
            raise _wrong_type(field, _COLUMNS[field.name].simpleString())
        if not field.nullable:
            raise InvalidArgument(f"column '{field.name}' must not be declared NOT NULL")


def check_sink_schema(schema: StructType, queue: str | None) -> None:
    """Refuse rows that are no messages, before any is written.

    Args:
        schema: that of the DataFrame.
        queue: the option that overrides the column `queue`, if given.
    """
    for field in schema.fields:
        if field.name not in _COLUMNS:
            raise InvalidArgument(
                f"column '{field.name}' is no part of a message; a sink of format 'quire' takes "
                f"{', '.join(_COLUMNS)}. Put the rest into payload or attributes, or drop it"
            )
        if not _is_writable(field):
            raise _wrong_type(field, _writable_types(field.name))
    names = schema.fieldNames()
    if len(set(names)) != len(names):
        raise InvalidArgument(f"a column is there twice: {', '.join(names)}")
    if "payload" not in names:
        raise InvalidArgument("column 'payload' (binary or string) is missing")
    if queue is None and "queue" not in names:
        raise InvalidArgument("name the queue: by a string column 'queue' or the option 'queue'")


def _is_writable(field: StructField) -> bool:
    if field.name == "payload":
        return isinstance(field.dataType, (BinaryType, StringType))
    return _same_type(field.dataType, _COLUMNS[field.name])


def _writable_types(name: str) -> str:
    return "binary or string" if name == "payload" else _COLUMNS[name].simpleString()


def _same_type(actual: DataType, expected: DataType) -> bool:
    """Equal types but for what a map says about null values, which no message has anyway."""
    if isinstance(actual, MapType) and isinstance(expected, MapType):
        return actual.keyType == expected.keyType and actual.valueType == expected.valueType
    return actual == expected


def _wrong_type(field: StructField, expected: str) -> InvalidArgument:
    return InvalidArgument(
        f"column '{field.name}' is {field.dataType.simpleString()} and must be {expected}"
    )
