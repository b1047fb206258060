"""Rows to columns of a schema: Arrow data, tables of other libraries and mappings, all checked.

- What is returned fits the schema in every value, or InvalidArgument names the column, and nothing
  is returned. No value is changed: a cast that would change one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.block.arrow_input import SET_BY_STORE, keep_header
from quire.block.encoding import granted_headers, headers_of_rows, prioritised
from quire.block.header_columns import Headers
from quire.definitions.properties import Granted
from quire.definitions.row_schema import META, nulls, schema_of_words, word_of_type
from quire.errors import InvalidArgument
from quire.libraries import np, pa
from quire.limits import MAX_PAYLOAD_BYTES, MESSAGE_OVERHEAD_BYTES
from quire.messages.message_fields import Fields

from .row_block import RowBlock
from .row_bytes import row_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GIVE = "a pyarrow RecordBatch or Table, a DataFrame of pandas or polars, or a list of mappings"


@cache
def _kinds() -> tuple[tuple[str, Callable[[pa.DataType], bool]], ...]:
    return (
        ("integer", pa.types.is_integer),
        ("floating", pa.types.is_floating),
        ("decimal", pa.types.is_decimal),
        ("boolean", pa.types.is_boolean),
        ("date", pa.types.is_date),
        ("timestamp", pa.types.is_timestamp),
        ("text", lambda t: pa.types.is_string(t) or pa.types.is_large_string(t)),
        ("text", pa.types.is_string_view),
        ("bytes", lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t)),
        ("bytes", lambda t: pa.types.is_binary_view(t) or pa.types.is_fixed_size_binary(t)),
        ("map", pa.types.is_map),
        ("list", lambda t: pa.types.is_list(t) or pa.types.is_large_list(t)),
        ("list", lambda t: pa.types.is_fixed_size_list(t) or pa.types.is_list_view(t)),
        ("struct", pa.types.is_struct),
    )


class Rows(NamedTuple):
    """Rows of the schema that these words name, their headers, and the bytes of each row."""

    words: str
    batch: pa.RecordBatch
    headers: Headers
    sizes: NDArray[np.int64]

    @property
    def charge_bytes(self) -> int:
        """The bytes that the rows are charged to their queue's capacity."""
        own = int(self.sizes.sum()) + MESSAGE_OVERHEAD_BYTES * len(self.sizes)
        return own + self.headers.charge_bytes()

    @property
    def largest_charge(self) -> int:
        """The bytes that the largest of them is charged."""
        charges = self.sizes + self.headers.charges(len(self.sizes))
        return int(charges.max()) + MESSAGE_OVERHEAD_BYTES if len(charges) else 0

    def slice(self, start: int, stop: int) -> Rows:
        """Return the rows from `start` to `stop`."""
        headers = self.headers.slice(start, stop).present()
        batch = self.batch.slice(start, stop - start)
        return Rows(self.words, batch, headers, self.sizes[start:stop])

    def with_granted(self, granted: Granted) -> Rows:
        """The rows, with what their queue grants."""
        return self._replace(headers=granted_headers(self.headers, len(self.sizes), granted))


def rows_of_block(block: RowBlock) -> Rows:
    """The messages of a block."""
    return Rows(block.words, block.rows, block.headers, np.diff(block.offsets).astype(np.int64))


def is_row(value: object) -> bool:
    """Return True if a put of the value puts a row: a mapping, or a batch of one row."""
    return isinstance(value, (Mapping, pa.RecordBatch))


def one_row(words: str, value: object, fields: Fields | None, default_priority: int = 0) -> Rows:
    """Return one row, of a mapping or a batch of one row. Raises InvalidArgument.

    `default_priority`: what it has if the fields say none.
    """
    if isinstance(value, pa.RecordBatch):
        if value.num_rows != 1:
            raise InvalidArgument(f"put takes one row, not {value.num_rows}: use put_many for many")
        batch = _fitting(words, value.schema.names, value.columns, 1)
    else:
        batch = _of_mappings(words, [value])
    headers = Headers()
    if fields is not None or default_priority:
        headers = headers_of_rows([fields], default_priority)
    return _measured(words, batch, headers)


def rows_of(words: str, source: object, default_priority: int = 0) -> list[Rows]:
    """Return all rows of a source; those of a table in its batches, empty ones left out.

    A column `_meta` has what a put may set besides the row; `default_priority` is of rows whose
    priority is null or left out. Raises InvalidArgument.
    """
    try:
        found = [_of_batch(words, batch, default_priority) for batch in _batches(words, source)]
    except pa.ArrowException as error:
        raise InvalidArgument(f"the rows cannot be used: {error}") from error
    return [rows for rows in found if rows.batch.num_rows]


def _batches(words: str, source: Any) -> list[pa.RecordBatch]:
    if isinstance(source, pa.RecordBatch):
        return [source]
    if isinstance(source, pa.Table):
        table = source
    elif isinstance(source, (str, bytes, bytearray, memoryview, Mapping)):
        raise InvalidArgument(f"rows are {_GIVE}: give one row as a list of one")
    elif type(source).__module__.partition(".")[0] == "pandas":
        table = pa.Table.from_pandas(source, preserve_index=False)
    elif hasattr(source, "__arrow_c_stream__"):
        table = pa.table(source)
    elif isinstance(source, Iterable):
        return [_of_mappings(words, list(source))]
    else:
        raise InvalidArgument(f"rows are {_GIVE}, not {type(source).__name__}")
    batches: list[pa.RecordBatch] = table.to_batches()
    return batches or [pa.RecordBatch.from_pylist([], schema=table.schema)]


def _of_batch(words: str, batch: pa.RecordBatch, default_priority: int) -> Rows:
    names, columns = list(batch.schema.names), list(batch.columns)
    headers = Headers()
    if names.count(META) == 1:
        place = names.index(META)
        headers = _headers_of(columns.pop(place), default_priority)
        del names[place]
    headers = prioritised(headers, batch.num_rows, default_priority)
    return _measured(words, _fitting(words, names, columns, batch.num_rows), headers)


def _headers_of(meta: pa.Array, default_priority: int) -> Headers:
    if not pa.types.is_struct(meta.type):
        raise InvalidArgument(f"column {META!r} must be of type struct, not {meta.type}")
    headers = Headers()
    names = [meta.type.field(index).name for index in range(meta.type.num_fields)]
    refused = [name for name in names if name in (*SET_BY_STORE, "position")]
    if refused:
        raise InvalidArgument(
            f"column {META!r} has {', '.join(refused)}, which the store sets: leave it out"
        )
    for name, array in zip(names, meta.flatten(), strict=True):
        if not keep_header(headers, name, array, default_priority):
            raise InvalidArgument(f"column {META!r}: there is no header {name!r}")
    return headers


def _measured(words: str, batch: pa.RecordBatch, headers: Headers) -> Rows:
    sizes = row_bytes(batch)
    if len(sizes) and int(sizes.max()) > MAX_PAYLOAD_BYTES:
        raise InvalidArgument(
            f"a row of {int(sizes.max())} bytes is above the limit of {MAX_PAYLOAD_BYTES}: put a "
            "pointer to where its content is kept"
        )
    return Rows(words, batch, headers, sizes)


# Columns


def _fitting(
    words: str, names: Sequence[str], columns: Sequence[pa.Array], count: int
) -> pa.RecordBatch:
    schema = schema_of_words(words)
    if len(set(names)) < len(names):
        raise InvalidArgument(f"the rows have columns of the same name: {', '.join(names)}")
    source = dict(zip(names, columns, strict=True))
    for name in names:
        if schema.get_field_index(name) < 0:
            raise _undeclared(name, words)
    fitting = [_fit(field, source.get(field.name), count) for field in schema]
    return pa.RecordBatch.from_arrays(fitting, schema=schema)


def _undeclared(column: object, words: str) -> InvalidArgument:
    """Return the error of a column that neither a queue nor a keyed state of these words has."""
    return InvalidArgument(
        f"column {column!r:.100} is not in the schema, which is {words}: drop it, or add it to the "
        "schema (of a queue: alter_queue(schema=))"
    )


def _fit(field: pa.Field, array: pa.Array | None, count: int) -> pa.Array:
    if array is None:
        if not field.nullable:
            raise InvalidArgument(f"column {field.name!r} is missing, and is not null")
        return nulls(count, field.type)
    array.validate(full=True)
    if array.type != field.type:
        _check_kind(field.name, array.type, field.type)
        try:
            if pa.types.is_decimal(field.type) and pa.types.is_integer(array.type):
                array = array.cast(pa.decimal128(38, field.type.scale))
            array = array.cast(field.type)
        except (pa.ArrowException, ValueError) as error:
            raise InvalidArgument(
                f"column {field.name!r} of type {array.type} does not fit "
                f"{word_of_type(field.type)}: {error}"
            ) from None
    _check_nulls(field.name, field, array)
    return array


def _kind(type_: pa.DataType) -> str:
    return next((name for name, is_kind in _kinds() if is_kind(type_)), str(type_))


def _check_kind(column: str, source: pa.DataType, target: pa.DataType) -> None:
    """Check that a cast leaves values what they are, or fails. Raises InvalidArgument."""
    if pa.types.is_null(source):
        return
    if pa.types.is_dictionary(source):
        _check_kind(column, source.value_type, target)
        return
    kinds = _kind(source), _kind(target)
    fits = kinds[0] == kinds[1] or kinds in (("integer", "floating"), ("integer", "decimal"))
    if kinds == ("floating", "floating"):
        fits = source.bit_width <= target.bit_width
    if fits and kinds[1] == "list":
        _check_kind(column, source.value_type, target.value_type)
    elif fits and kinds[1] == "map":
        _check_kind(column, source.key_type, target.key_type)
        _check_kind(column, source.item_type, target.item_type)
    elif fits and kinds[1] == "struct":
        own = {field.name: field.type for field in target}
        for field in source:
            if field.name not in own:
                raise InvalidArgument(f"column {column!r} has no field {field.name!r}")
            _check_kind(column, field.type, own[field.name])
    if not fits:
        raise InvalidArgument(
            f"column {column!r} is of type {source}, and declared as {word_of_type(target)}: "
            "cast it"
        )


def _check_nulls(column: str, field: pa.Field, array: pa.Array) -> None:
    """Check the nulls of the column, and of what is inside it."""
    if array.null_count and not field.nullable:
        raise InvalidArgument(
            f"column {column!r} has {array.null_count} nulls, and is not null: give a value in "
            "each row"
        )
    if pa.types.is_struct(field.type):
        present = array.filter(array.is_valid()) if array.null_count else array
        for inner, values in zip(field.type, present.flatten(), strict=True):
            _check_nulls(f"{column}.{inner.name}", inner, values)
    elif pa.types.is_list(field.type) and field.type.num_fields:
        _check_nulls(column, field.type.value_field, array.flatten())
    elif pa.types.is_map(field.type):
        _check_nulls(column, field.type.item_field, array.items)


# Mappings


def _of_mappings(words: str, rows: Sequence[Any]) -> pa.RecordBatch:
    schema = schema_of_words(words)
    for row in rows:
        if not isinstance(row, Mapping):
            raise InvalidArgument(f"a row is a mapping of columns, not {type(row).__name__}")
        for name in row:
            if name == META:
                raise InvalidArgument(
                    f"a mapping has no {META!r}: put each such row by `put`, which takes what it "
                    f"says by name, or give a table that has a column {META!r}"
                )
            if not isinstance(name, str) or schema.get_field_index(name) < 0:
                raise _undeclared(name, words)
    arrays = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        _check_inner(field.name, field.type, values)
        arrays.append(_fit(field, _array_of(field, values), len(rows)))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array_of(field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError) as error:
        raise InvalidArgument(
            f"column {field.name!r} does not take it as {word_of_type(field.type)}: {error}"
        ) from None


def _check_inner(column: str, type_: pa.DataType, values: Sequence[Any]) -> None:
    """Arrow cuts numbers and times off, and leaves out fields of a struct that it does not know."""
    if pa.types.is_integer(type_) or pa.types.is_date(type_):
        for value in values:
            is_cut = hasattr(value, "__float__") and not hasattr(value, "__index__")
            if is_cut or (hasattr(value, "hour") and pa.types.is_date(type_)):
                raise InvalidArgument(
                    f"column {column!r} does not take {value!r:.100} as {word_of_type(type_)}"
                )
    elif pa.types.is_list(type_):
        for value in values:
            if isinstance(value, (list, tuple)):
                _check_inner(column, type_.value_type, value)
    elif pa.types.is_struct(type_):
        for value in values:
            if isinstance(value, Mapping):
                _check_struct(column, type_, value)


def _check_struct(column: str, type_: pa.DataType, value: Mapping[str, Any]) -> None:
    own = {field.name: field.type for field in type_}
    for name, inner in value.items():
        if name not in own:
            raise InvalidArgument(f"column {column!r} has no field {name!r:.100}")
        _check_inner(f"{column}.{name}", own[name], [inner])
