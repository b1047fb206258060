"""The columns that a read of typed queues requests, and their schema for Spark.

- The columns of a typed queue are its schema's, with Spark's types for them, and `_meta`, a struct
  of the header with `queue` and `position` among it. It is read only if it is asked for.
- Streams and batches ask alike: by `columns` and `where`; batches also by `.schema(...)`, which is
  a selection of the same columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from quire.definitions.row_schema import META, schema_of_words
from quire.errors import InvalidArgument
from quire.libraries import pa
from quire.libraries.late_imports import importing
from quire.messages.message_schema import MESSAGE_SCHEMA
from quire.spark_graphs import position_range
from quire.spark_graphs.options import ReadOptions
from quire.spark_graphs.schema import META_COLUMNS, source_schema

from .spark_condition import SparkCondition, resolved, spark_condition

if TYPE_CHECKING:
    from quire.engine.reading.row_read import RowQuery
    from quire.interface.store import Store
    from quire.reports.info import QueueInfo

BYTES = "bytes"
"""The word for queues without columns."""

_NAME = re.compile(r"\s*(`(?:[^`]|``)+`|[^\s,`.]+)(?:\.(\w+))?\s*(?:,|$)")


def words_of_queues(found: Iterable[QueueInfo]) -> str | None:
    """The schema that queues to be read together have; None: they hold bytes.

    Raises InvalidArgument where they differ.
    """
    by_words = {queue.schema: queue.name for queue in found}
    if len(by_words) > 1:
        (one, first), (other, second) = list(by_words.items())[:2]
        raise InvalidArgument(
            f"queue '{first}' has {one or 'bytes'}, and queue '{second}' {other or 'bytes'}: read "
            "queues of different columns by a source each"
        )
    return next(iter(by_words), None)


def words_read(store: Store, options: ReadOptions) -> str | None:
    """The schema of the queues that are named; of a pattern, those that it finds are to have none.

    Raises QueueNotFound with what to do.
    """
    if options.pattern is not None:
        return None
    return words_of_queues(position_range.infos(store, options.queues).values())


def check_loaded(loaded: str, words: str | None, queues: Iterable[str]) -> None:
    """Raise InvalidArgument if queues have other columns than when they were loaded.

    A stream would leave the new ones out, and let go of their messages.
    """
    if loaded != (words or BYTES):
        raise _stale(" and ".join(f"'{queue}'" for queue in queues), loaded, words)


def _stale(queues: str, loaded: str, words: str | None) -> InvalidArgument:
    return InvalidArgument(
        f"queue {queues} holds {words or BYTES}, and held {loaded} when this DataFrame was loaded: "
        "load it again, or name the columns to be read by the option 'columns' when you load it. "
        "Nothing was read or released"
    )


def check_words(
    found: Iterable[QueueInfo], words: str | None, *, all_columns: bool = False
) -> None:
    """Raise InvalidArgument unless queues that are found later hold what a read was planned for.

    `all_columns`: those of the queue are read, whichever it has; more of them are not left out.
    """
    for queue in found:
        is_grown = words is not None and (queue.schema or "").startswith(f"{words}, ")
        if is_grown and all_columns:
            raise _stale(f"'{queue.name}'", words or BYTES, queue.schema)
        if queue.schema != words and not is_grown:
            raise InvalidArgument(
                f"queue '{queue.name}' holds {queue.schema or 'bytes'}, and the read was planned "
                f"for {words or 'bytes'}: name typed queues (no pattern finds them), and start "
                "anew if a queue was made again"
            )


def spark_type(type_: pa.DataType) -> DataType:
    """Spark's type of a column."""
    return from_arrow_type(type_, prefer_timestamp_ntz=True)


def typed_schema(words: str, options: ReadOptions) -> StructType:
    """The columns of a read of a typed queue, as its options say."""
    own = from_arrow_schema(schema_of_words(words), prefer_timestamp_ntz=True)
    if options.columns is None:
        return own
    found = []
    meta: list[str] | None = None
    for text, inner in named(options.columns):
        name = resolved(text, [*own.names, META]) or text
        if name == META:
            meta = (meta or []) + (list(META_COLUMNS) if inner is None else [_meta_name(inner)])
        elif inner is None and name in own.names:
            found.append(own[name])
        else:
            full = name if inner is None else f"{name}.{inner}"
            raise InvalidArgument(
                f"option 'columns': there is no column '{full}'; there are "
                f"{', '.join([*own.names, META])}"
            )
    if meta is not None:
        fields = [StructField(name, META_COLUMNS[name]) for name in dict.fromkeys(meta)]
        found.append(StructField(META, StructType(fields)))
    return _without_doubles(found)


def whole_schema(words: str | None) -> StructType:
    """All columns of a queue: its own and `_meta`, or those of messages of bytes."""
    if words is None:
        return source_schema()
    own = from_arrow_schema(schema_of_words(words), prefer_timestamp_ntz=True)
    meta = StructType([StructField(name, type_) for name, type_ in META_COLUMNS.items()])
    # Also what is not null there: a DataFrame without rows is made of one that is all nulls.
    return StructType([*(StructField(f.name, f.dataType) for f in own), StructField(META, meta)])


def chosen_columns(options: ReadOptions, schema: StructType) -> StructType:
    """The columns to be read of a queue of bytes, which are flat."""
    if options.columns is None:
        return schema
    found = []
    for text, inner in named(options.columns):
        name = resolved(text, schema.names) or text
        if inner is not None or name not in schema.names:
            raise InvalidArgument(
                f"option 'columns': there is no column '{name}'; there are "
                f"{', '.join(schema.names)}"
            )
        found.append(schema[name])
    return _without_doubles(found)


def _without_doubles(fields: Sequence[StructField]) -> StructType:
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise InvalidArgument(f"option 'columns' names a column twice: {', '.join(names)}")
    return StructType(list(fields))


def _meta_name(text: str) -> str:
    name = resolved(text, META_COLUMNS)
    if name is None:
        raise InvalidArgument(
            f"option 'columns': {META} has no field '{text}'; it has {', '.join(META_COLUMNS)}"
        )
    return name


def named(columns: str) -> list[tuple[str, str | None]]:
    """The names of an option `columns`, each with that of a field of `_meta`, if it has one."""
    found = []
    place = 0
    while place < len(columns):
        match = _NAME.match(columns, place)
        if match is None:
            raise InvalidArgument(
                f"option 'columns' is '{columns}': give names with commas between them, such as "
                "'id, amount, _meta.position'; others than plain ones in backticks"
            )
        name = match[1]
        plain = name[1:-1].replace("``", "`") if name.startswith("`") else name
        found.append((plain, match[2]))
        place = match.end()
    if not found:
        raise InvalidArgument("option 'columns' names no column")
    return found


def row_query(words: str, schema: StructType) -> RowQuery:
    """Return what tasks read for a schema. Raises InvalidArgument for what the queue has not."""
    with importing():
        from quire.engine.reading.row_read import RowQuery

    own = {field.name: field for field in schema_of_words(words)}
    columns: list[str] = []
    meta: tuple[str, ...] = ()
    for field in schema.fields:
        if field.name == META:
            meta = _meta_fields(field)
            continue
        there = own.get(field.name)
        if there is None:
            raise InvalidArgument(
                f"the queue has no column '{field.name}'; it has {', '.join([*own, META])}"
            )
        wanted = spark_type(there.type)
        if field.dataType.simpleString().lower() != wanted.simpleString().lower():
            raise InvalidArgument(
                f"column '{field.name}' is {wanted.simpleString()}, not "
                f"{field.dataType.simpleString()}"
            )
        if there.nullable and not field.nullable:
            raise InvalidArgument(f"column '{field.name}' may be null: do not declare it NOT NULL")
        columns.append(field.name)
    return RowQuery(words, tuple(columns), meta)


def _meta_fields(field: StructField) -> tuple[str, ...]:
    if not isinstance(field.dataType, StructType):
        raise InvalidArgument(f"column '{META}' is a struct of {', '.join(META_COLUMNS)}")
    for inner in field.dataType.fields:
        name = _meta_name(inner.name)
        if inner.dataType.simpleString() != META_COLUMNS[name].simpleString():
            raise InvalidArgument(
                f"column '{META}.{name}' is {META_COLUMNS[name].simpleString()}, not "
                f"{inner.dataType.simpleString()}"
            )
    return tuple(field.dataType.names)


def typed_where(words: str, where: str | None) -> SparkCondition | None:
    """The condition of a typed queue's read. Raises InvalidArgument."""
    if where is None:
        return None
    types = {field.name: field.type for field in schema_of_words(words)}
    types |= {f"{META}.{name}": type_ for name, type_ in meta_types().items()}
    return spark_condition(where, types)


def plain_where(where: str | None) -> SparkCondition | None:
    """The condition of a read of a queue of bytes. Raises InvalidArgument."""
    return None if where is None else spark_condition(where, meta_types())


def meta_types() -> dict[str, pa.DataType]:
    """The Arrow types of the header's columns."""
    types = {field.name: field.type for field in MESSAGE_SCHEMA if field.name != "payload"}
    return {"queue": pa.string(), "position": pa.int64(), **types}
