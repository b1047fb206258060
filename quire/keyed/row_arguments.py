"""The rows and keys that callers give a keyed state, and its definition, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quire.arguments import check_max_messages, check_name, check_seconds, is_int
from quire.definitions.row_schema import check_schema, schema_of_words, words_of
from quire.errors import InvalidArgument
from quire.libraries import pa
from quire.moments import Duration
from quire.rows.row_input import rows_of

from .format import NEVER
from .key_hash import is_text
from .limits import MAX_KEY_COLUMNS, MAX_KEYED_NAME
from .manifest import KeyedDefinition
from .row_layout import RowLayout


def check_keyed_name(name: object) -> str:
    """Return the name of a keyed state. Raises InvalidArgument."""
    found = check_name(name, "keyed state")
    if len(found) > MAX_KEYED_NAME:
        raise InvalidArgument(
            f"the name of a keyed state has up to {MAX_KEYED_NAME} characters, not {len(found)}: "
            "give a shorter one"
        )
    return found


def definition_of(
    name: str, key: str | Sequence[str], schema: object, ttl: Duration | None
) -> KeyedDefinition:
    """Return what the arguments of an opening say. Raises InvalidArgument."""
    words = check_schema("schema", schema)
    names = [key] if isinstance(key, str) else key
    if not isinstance(names, (list, tuple)):
        raise InvalidArgument(
            f"keyed state {name!r}: the key {key!r:.100}: give the name of a column, or a list"
        )
    names = list(names)
    fields = list(schema_of_words(words or ""))
    if not names or [field.name for field in fields[: len(names)]] != names:
        raise InvalidArgument(
            f"keyed state {name!r}: the key {names!r} is not the schema's first columns: put them "
            "first, in this order"
        )
    if len(names) > MAX_KEY_COLUMNS:
        raise InvalidArgument(
            f"keyed state {name!r}: a key of {len(names)} columns: at most {MAX_KEY_COLUMNS}; join "
            "some of them to one"
        )
    for number, field in enumerate(fields):
        _check_type(name, field, is_key=number < len(names))
    plain = [field.with_nullable(False) for field in fields[: len(names)]]
    ttl_us = None if ttl is None else int(check_seconds(ttl) * 1_000_000)
    return KeyedDefinition(words_of(pa.schema([*plain, *fields[len(names) :]])), len(names), ttl_us)


def _check_type(name: str, field: pa.Field, *, is_key: bool) -> None:
    types, type_ = pa.types, field.type
    if types.is_nested(type_):
        raise InvalidArgument(
            f"keyed state {name!r}: column {field.name!r} is of type {type_}: a keyed state has no "
            "nested columns; keep it as a string of JSON, or each part as a column"
        )
    if is_key and not (
        is_text(type_) or types.is_integer(type_) or types.is_boolean(type_)
        or types.is_date(type_) or types.is_timestamp(type_)
    ):  # fmt: skip
        raise InvalidArgument(
            f"keyed state {name!r}: the key {field.name!r} is of type {type_}, of which values "
            "that are equal may differ: make it a string, or a whole number"
        )


def keys_of(name: str, layout: RowLayout, keys: Any) -> list[pa.Array]:
    """Return the columns of keys that a caller gives. Raises InvalidArgument."""
    names, source = layout.key_names, keys
    if isinstance(keys, (pa.RecordBatch, pa.Table)):
        lacking = [each for each in names if each not in keys.schema.names]
        if lacking:
            raise InvalidArgument(f"keys of keyed state {name!r}: column {lacking[0]!r} is missing")
        source = keys.select(names)
    elif len(names) == 1 and isinstance(keys, pa.ChunkedArray):
        source = pa.table([keys], names)
    elif len(names) == 1 and isinstance(keys, pa.Array):
        source = pa.RecordBatch.from_arrays([keys], names)
    elif isinstance(keys, (str, bytes, Mapping)) or not isinstance(keys, Iterable):
        raise InvalidArgument(
            f"keys of keyed state {name!r}: give a list of them, an array, or a table with the "
            f"columns {', '.join(names)}; not {type(keys).__name__}"
        )
    elif not hasattr(keys, "columns"):  # no DataFrame
        source = [_key_row(names, each) for each in keys]
    found = [rows.batch for rows in rows_of(layout.key_words, source)]
    if not found:
        return [pa.nulls(0, layout.schema.field(each).type) for each in names]
    return list((pa.concat_batches(found) if len(found) > 1 else found[0]).columns)


def _key_row(names: Sequence[str], key: Any) -> Any:
    if isinstance(key, Mapping):
        if set(key) != set(names):
            raise InvalidArgument(f"the key {key!r:.100}: give the columns {', '.join(names)}")
        return key
    values = key if len(names) > 1 and isinstance(key, tuple) else (key,)
    if len(values) != len(names):
        raise InvalidArgument(f"the key {key!r:.100}: give {len(names)} values, as a tuple")
    return dict(zip(names, values, strict=True))


def check_due(until: object, limit: object) -> None:
    """Check what timers are looked for. Raises InvalidArgument."""
    if not is_int(until) or not -NEVER <= until < NEVER:
        raise InvalidArgument(
            f"until {until!r:.100}: give a whole number, as timers are: microseconds as a rule"
        )
    check_max_messages(limit)


def batch_of(layout: RowLayout, rows: Any) -> pa.RecordBatch | None:
    """Return rows that a caller gives; None: there are none. Raises InvalidArgument."""
    parts = rows_of(layout.words, rows)
    if any(part.headers.columns() for part in parts):
        raise InvalidArgument("rows of a keyed state have no column '_meta': leave it out")
    if not parts:
        return None
    found = [part.batch for part in parts]
    batch = pa.concat_batches(found) if len(found) > 1 else found[0]
    return pa.RecordBatch.from_arrays(batch.columns, schema=layout.schema)
