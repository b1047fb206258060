"""Schemas of typed queues: an Arrow schema, or the words that Spark has for it, and back.

    id bigint not null, amount double, tags array<string>, at timestamp

| words | Arrow type |
|---|---|
| boolean | bool |
| tinyint or byte, smallint or short, int or integer, bigint or long | int8, int16, int32, int64 |
| float or real, double | float, double |
| decimal(p, s), also dec, numeric; without numbers decimal(10, 0) | decimal128(p, s) |
| string, binary | string, binary |
| date | date32 |
| timestamp or timestamp_ltz, timestamp_ntz | timestamp("us", "UTC"), timestamp("us") |
| array<T>, map<K, V>, struct<name: T, ...> | list, map, struct |

A column may be null unless `not null` follows it. Names that are no plain words stand in backticks.
An Arrow schema may have other forms of the same types (large or view strings, dictionaries,
timestamps in seconds or milliseconds or of another time zone): they become those of the table.

- RW1: the words are the schema: `words_of` and `schema_of_words` undo each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Final, NoReturn

from quire.errors import InvalidArgument
from quire.libraries import pa
from quire.limits import MAX_COLUMNS, MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH

from .tokens import Tokens

META: Final = "_meta"
"""The column that has a message's header, beside those of its row."""


@cache
def _simple() -> dict[str, pa.DataType]:
    """The types that have no parts, by their words."""
    return {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }


@cache
def _word_of() -> dict[pa.DataType, str]:
    return {type_: word for word, type_ in _simple().items()}


_ALSO: Final = {
    "bool": "boolean",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>`(?:[^`]|``)+`)|(?P<word>[^\W\d]\w*)|(?P<number>\d+)|(?P<sign>[<>(),:]))"
)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _types() -> str:
    return f"{', '.join(_simple())}, decimal(p, s), array<T>, map<K, V>, struct<name: T>"


def check_schema(name: str, value: object) -> str | None:
    """The words of a schema that a caller gives in either form; None for None.

    Raises InvalidArgument, naming the column that cannot be.
    """
    if value is None:
        return None
    if isinstance(value, pa.Schema):
        schema = _plain_schema(value)
    elif isinstance(value, str):
        schema = _Words(value).schema()
    else:
        raise InvalidArgument(
            f"{name} {value!r:.100}: give a pyarrow Schema, words as 'id bigint, amount double', "
            "or None"
        )
    _check_names(schema)
    for column in schema.names:  # not where a schema is read: those that are there stay
        if column.lower() == META:
            raise InvalidArgument(
                f"column {column!r}: messages have their header under {META!r}, and Spark takes "
                "capital letters for small ones"
            )
    words = words_of(schema)
    if len(json.dumps(words)) > MAX_SCHEMA_BYTES:
        raise InvalidArgument(
            f"{name}: its words take {len(json.dumps(words))} bytes; at most {MAX_SCHEMA_BYTES} "
            "are possible: have fewer columns, or shorter names"
        )
    return words


@lru_cache(maxsize=1024)
def schema_of_words(words: str) -> pa.Schema:
    """The Arrow schema. Raises InvalidArgument for what is none."""
    return _Words(words).schema()


def words_of(schema: pa.Schema) -> str:
    """The words of a schema of the types above."""
    return ", ".join(f"{_name_of(each.name)} {_words_of_field(each)}" for each in schema)


def check_grows(queue: str, before: str | None, after: str | None) -> None:
    """A schema may get nullable columns behind those it has. Raises InvalidArgument."""
    if before == after:
        return
    if before is None or after is None:
        raise InvalidArgument(
            f"queue {queue!r} holds {'rows' if after is None else 'bytes'}, as it was made: make "
            "another queue, and put there what the messages say"
        )
    old, new = schema_of_words(before), schema_of_words(after)
    for index, field in enumerate(old):
        there = new.field(index) if index < len(new) else None
        if there is None or not there.equals(field):
            found = "is not there" if there is None else f"would be {_shown(there)}"
            raise InvalidArgument(
                f"queue {queue!r}: column {index + 1} is {_shown(field)} and {found}: columns stay "
                "as they are; only nullable ones may be added behind them"
            )
    for field in list(new)[len(old) :]:
        if not field.nullable:
            raise InvalidArgument(
                f"queue {queue!r}: column {field.name!r} is added and not null, but messages that "
                "are there have no value of it: leave 'not null' out"
            )


def nulls(count: int, type_: pa.DataType) -> pa.Array:
    """Return an array of nulls."""
    array = pa.nulls(count, type_)
    # Arrow lets all buffers share one, which the children of a slice would keep as a whole.
    return pa.concat_arrays([array]) if type_.num_fields else array


def check_part(queue: str, offered: str, own: str) -> None:
    """Rows of the given schema must fit the queue's own. Raises InvalidArgument."""
    if is_part(offered, own):
        return
    theirs, schema = schema_of_words(offered), schema_of_words(own)
    for index, field in enumerate(theirs):
        there = schema.field(index) if index < len(schema) else None
        if there is None or not there.equals(field):
            found = "none" if there is None else _shown(there)
            raise InvalidArgument(
                f"the rows are not those of queue {queue!r}: column {index + 1} is "
                f"{_shown(field)}, where the queue has {found}"
            )
    lacking = next(field for field in list(schema)[len(theirs) :] if not field.nullable)
    raise InvalidArgument(f"the rows are not those of queue {queue!r}: they lack {_shown(lacking)}")


@lru_cache(maxsize=1024)
def is_part(older: str, newer: str) -> bool:
    """Return True if the second schema is the first, or has more nullable columns behind it."""
    if older == newer:
        return True
    if not newer.startswith(f"{older}, "):
        return False
    added = list(schema_of_words(newer))[len(schema_of_words(older)) :]
    return all(field.nullable for field in added)


def first_difference(there: str | None, requested: str | None) -> str:
    """Return a description of where two schemas differ; None stands for bytes."""
    if there is None or requested is None:
        return f"it holds {'bytes' if there is None else 'rows'}, not {requested or 'bytes'}"
    own, requested_schema = schema_of_words(there), schema_of_words(requested)
    for index in range(max(len(own), len(requested_schema))):
        found, expected = (
            _shown(s.field(index)) if index < len(s) else "" for s in (own, requested_schema)
        )
        if not expected:
            return f"it has column {found} besides"
        if not found:
            return f"it has no column {expected}: alter_queue adds nullable ones"
        if found != expected:
            return f"column {index + 1} is {found}, not {expected}"
    raise AssertionError("the schemas are the same")


def _shown(field: pa.Field) -> str:
    return f"'{_name_of(field.name)} {_words_of_field(field)}'"


def _name_of(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return name
    return "`" + name.replace("`", "``") + "`"


def _words_of_field(field: pa.Field) -> str:
    return word_of_type(field.type) + ("" if field.nullable else " not null")


def word_of_type(type_: pa.DataType) -> str:
    """Return the word of one of the types of the table."""
    if type_ in _word_of():
        return _word_of()[type_]
    if pa.types.is_decimal128(type_):
        return f"decimal({type_.precision}, {type_.scale})"
    if pa.types.is_map(type_):
        return f"map<{word_of_type(type_.key_type)}, {word_of_type(type_.item_type)}>"
    if pa.types.is_list(type_):
        return f"array<{word_of_type(type_.value_type)}>"
    inner = ", ".join(f"{_name_of(each.name)}: {_words_of_field(each)}" for each in type_)
    return f"struct<{inner}>"


def _check_names(schema: pa.Schema) -> None:
    if not 1 <= len(schema) <= MAX_COLUMNS:
        raise InvalidArgument(f"a schema has 1 to {MAX_COLUMNS} columns, not {len(schema)}")
    if META in schema.names:
        raise InvalidArgument(f"column {META!r}: messages have their header under this name")
    _check_unlike([each.name for each in schema])


def _check_unlike(names: list[str]) -> None:
    """Check that no two names are alike for Spark, which does not tell capital from small
    letters.
    """
    seen: set[str] = set()
    for name in names:
        if not name or name.lower() in seen:
            raise InvalidArgument(
                f"column {name!r}: every column needs a name, and one that no other has, also "
                "with capital letters taken for small ones"
            )
        seen.add(name.lower())


# Arrow's types


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([_plain_field(each, each.name, 0) for each in schema])


def _plain_field(field: pa.Field, column: str, depth: int) -> pa.Field:
    return pa.field(field.name, plain_type(field.type, column, depth), field.nullable)


def plain_type(type_: pa.DataType, column: str, depth: int = 0) -> pa.DataType:
    """The type of the table that is the same but for its form. Raises InvalidArgument."""
    if depth > MAX_SCHEMA_DEPTH:
        raise InvalidArgument(
            f"column {column!r} is nested more than {MAX_SCHEMA_DEPTH} deep: make it flatter"
        )
    types = pa.types
    plain = _plain_simple(type_)
    if plain is not None:
        return plain
    if types.is_dictionary(type_):
        return plain_type(type_.value_type, column, depth + 1)
    if types.is_map(type_):
        key = plain_type(type_.key_type, column, depth + 1)
        return _map_of(key, plain_type(type_.item_type, column, depth + 1))
    if types.is_list(type_) or types.is_large_list(type_):
        return _list_of(plain_type(type_.value_type, column, depth + 1))
    if types.is_struct(type_) and type_.num_fields:
        fields = [_plain_field(each, column, depth + 1) for each in type_]
        _check_unlike([each.name for each in fields])
        return pa.struct(fields)
    hint = ", of microseconds" if types.is_timestamp(type_) else ""
    raise InvalidArgument(f"column {column!r} of type {type_}: there are {_types()}{hint}")


def _plain_simple(type_: pa.DataType) -> pa.DataType | None:
    """The plain type of one without others in it; None for others."""
    types = pa.types
    if types.is_large_string(type_) or types.is_string_view(type_):
        return pa.string()
    if types.is_large_binary(type_) or types.is_binary_view(type_):
        return pa.binary()
    if types.is_timestamp(type_) and type_.unit != "ns":
        return pa.timestamp("us") if type_.tz is None else _simple()["timestamp"]
    is_decimal = types.is_decimal128(type_) and 0 <= type_.scale <= type_.precision
    return type_ if is_decimal or type_ in _word_of() else None


def _list_of(element: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", element))


def _map_of(key: pa.DataType, value: pa.DataType) -> pa.DataType:
    return pa.map_(key, pa.field("value", value))


# Words


class _Words:
    """Reads words, one token after another."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = Tokens(text, _TOKEN, self._fail)
        self._depth = 0

    def schema(self) -> pa.Schema:
        fields = self._fields("", can_have_colon=True)
        self._tokens.expect_end()
        schema = pa.schema(fields)
        _check_names(schema)
        return schema

    def _fields(self, end: str, *, can_have_colon: bool) -> list[pa.Field]:
        fields = []
        while True:
            name = self._name()
            if can_have_colon:
                self._tokens.take_sign(":")
            type_ = self._type(name)
            nullable = True
            if self._tokens.take_word("not"):
                if not self._tokens.take_word("null"):
                    self._fail("not")
                nullable = False
            fields.append(pa.field(name, type_, nullable))
            if not self._tokens.take_sign(","):
                break
        if end:
            self._tokens.expect_sign(end)
            _check_unlike([each.name for each in fields])
        return fields

    def _name(self) -> str:
        kind, text = self._tokens.next()
        if kind == "name":
            return text[1:-1].replace("``", "`")
        if kind != "word":
            self._fail(text)
        return text

    def _type(self, column: str) -> pa.DataType:
        kind, text = self._tokens.next()
        word = _ALSO.get(text.lower(), text.lower()) if kind == "word" else ""
        if word in _simple():
            return _simple()[word]
        make = self._made_of.get(word)
        if make is None:
            raise InvalidArgument(
                f"schema {self._text!r:.200}: column {column!r} of type {text!r}: there are "
                f"{_types()}"
            )
        self._depth += 1
        if self._depth > MAX_SCHEMA_DEPTH:
            raise InvalidArgument(
                f"column {column!r} is nested more than {MAX_SCHEMA_DEPTH} deep: make it flatter"
            )
        type_ = make(self, column)
        self._depth -= 1
        return type_

    def _decimal(self, column: str) -> pa.DataType:
        precision, scale = 10, 0
        if self._tokens.take_sign("("):
            precision = self._number()
            if self._tokens.take_sign(","):
                scale = self._number()
            self._tokens.expect_sign(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise InvalidArgument(
                f"column {column!r}: decimal({precision}, {scale}) has more than 38 digits, or "
                "more behind the point than at all"
            )
        return pa.decimal128(precision, scale)

    def _array(self, column: str) -> pa.DataType:
        self._tokens.expect_sign("<")
        element = self._type(column)
        self._tokens.expect_sign(">")
        return _list_of(element)

    def _map(self, column: str) -> pa.DataType:
        self._tokens.expect_sign("<")
        key = self._type(column)
        self._tokens.expect_sign(",")
        value = self._type(column)
        self._tokens.expect_sign(">")
        return _map_of(key, value)

    def _struct(self, column: str) -> pa.DataType:
        self._tokens.expect_sign("<")
        return pa.struct(self._fields(">", can_have_colon=True))

    _made_of: Final[Mapping[str, Callable[[_Words, str], pa.DataType]]] = {
        "decimal": _decimal,
        "array": _array,
        "map": _map,
        "struct": _struct,
    }

    def _number(self) -> int:
        kind, text = self._tokens.next()
        if kind != "number" or len(text) > 9:
            self._fail(text)
        return int(text)

    def _fail(self, there: str) -> NoReturn:
        raise InvalidArgument(
            f"schema {self._text!r:.200}: it cannot be read at {there!r}: give columns as "
            "'id bigint not null, amount double'"
        )


def rows_one_by_one(queue: str) -> InvalidArgument:
    """The error for rows that are put with request ids."""
    return InvalidArgument(
        f"queue {queue!r} holds rows: put each by itself with its request_id; request_ids are for "
        "payloads of bytes"
    )
