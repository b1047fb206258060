"""Blocks to Arrow: batches of `MESSAGE_SCHEMA`, without work per message.

Arrays are made of buffers, never by `pa.array`: its first call imports pandas if that is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from quire.libraries import np, pa
from quire.limits import ARROW_CACHED_ROWS
from quire.messages import message_schema

from .format import ABSENT_TIME, Column
from .header_columns import Attributes, Buffer, Headers, Strings, base_zero

if TYPE_CHECKING:
    from numpy.typing import NDArray


@cache
def _time() -> pa.DataType:
    return pa.timestamp("us", "UTC")


@cache
def _map_type() -> pa.DataType:
    return message_schema.MESSAGE_SCHEMA.field("attributes").type


@lru_cache(maxsize=1024)
def schema_of(queue: str) -> pa.Schema:
    """`MESSAGE_SCHEMA` with the queue in its metadata."""
    return message_schema.MESSAGE_SCHEMA.with_metadata({"queue": queue})


def to_record_batch(
    headers: Headers,
    offsets: NDArray[np.int32],
    payload: memoryview,
    *,
    ids: NDArray[np.int64],
    times: NDArray[np.int64],
    delivery_count: int | NDArray[np.int32],
    queue: str,
    copy: bool,
) -> pa.RecordBatch:
    """A batch of the messages whose payloads lie in `payload` at `offsets`."""
    arrays = header_arrays(headers, ids=ids, times=times, delivery_count=delivery_count)
    arrays.append(_binary(pa.binary(), None, offsets, payload, copy=copy))
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(queue))


def to_header_batch(
    headers: Headers, ids: NDArray[np.int64], times: NDArray[np.int64]
) -> pa.RecordBatch:
    """A batch of `HEADER_SCHEMA`, with memory of its own."""
    arrays = header_arrays(headers, ids=ids, times=times)
    return pa.RecordBatch.from_arrays(arrays, schema=message_schema.HEADER_SCHEMA)


def header_arrays(
    headers: Headers,
    *,
    ids: NDArray[np.int64],
    times: NDArray[np.int64],
    delivery_count: int | NDArray[np.int32] | None = None,
) -> list[pa.Array]:
    """The columns of `MESSAGE_SCHEMA` but the payload, or, without counts, of `HEADER_SCHEMA`."""
    strings, fixed, count = headers.strings, headers.fixed, len(ids)
    counts = [] if delivery_count is None else [_count_column(delivery_count, count)]
    return [
        _fixed(pa.int64(), ids),
        _small(fixed.get(Column.PRIORITY), count),
        _small(fixed.get(Column.GROUP), count),
        _fixed(_time(), times),
        _string(strings.get(Column.SENDER), count),
        _string(strings.get(Column.CORRELATION_ID), count),
        _string(strings.get(Column.REPLY_TO), count),
        _string(strings.get(Column.CONTENT_TYPE), count),
        _optional_time(fixed.get(Column.EXPIRES_AT), count),
        _optional_time(fixed.get(Column.DELIVER_AT), count),
        *counts,
        _map(headers.attributes, count),
    ]


class _Constant:
    """An array of one value, made once and handed out in slices."""

    __slots__ = ("_array", "_make")

    def __init__(self, make: Callable[[int], pa.Array]) -> None:
        self._make = make
        self._array: pa.Array | None = None

    def rows(self, count: int) -> pa.Array:
        if count > ARROW_CACHED_ROWS:
            return self._make(count)
        if self._array is None:
            self._array = self._make(ARROW_CACHED_ROWS)
        return self._array.slice(0, count)


def _int32(value: int) -> Callable[[int], pa.Array]:
    return lambda count: _fixed(pa.int32(), np.full(count, value, np.int32))


def _empty_maps(count: int) -> pa.Array:
    nothing = pa.nulls(0, pa.string())
    offsets = _fixed(pa.int32(), np.zeros(count + 1, np.int32))
    return pa.MapArray.from_arrays(offsets, nothing, nothing, _map_type())


_ZEROS = _Constant(_int32(0))
_ONES = _Constant(_int32(1))
_NO_STRINGS = _Constant(lambda count: pa.nulls(count, pa.string()))
_NO_TIMES = _Constant(lambda count: pa.nulls(count, _time()))
_NO_MAPS = _Constant(_empty_maps)


def _fixed(type_: pa.DataType, values: NDArray[Any]) -> pa.Array:
    """An array over the values; a view of a block's memory is copied."""
    if not values.flags.owndata:
        values = values.copy()
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def _small(values: NDArray[Any] | None, count: int) -> pa.Array:
    if values is None:
        return _ZEROS.rows(count)
    return _fixed(pa.int32(), values.astype(np.int32))


def _count_column(values: int | NDArray[np.int32], count: int) -> pa.Array:
    if isinstance(values, int):
        if values == 1:
            return _ONES.rows(count)
        values = np.full(count, values, np.int32)
    return _fixed(pa.int32(), values)


def _bitmap(valid: NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _optional_time(values: NDArray[Any] | None, count: int) -> pa.Array:
    if values is None:
        return _NO_TIMES.rows(count)
    valid = _bitmap(values != ABSENT_TIME)
    return pa.Array.from_buffers(_time(), count, [valid, pa.py_buffer(values.copy())])


def _binary(
    type_: pa.DataType,
    valid: NDArray[np.uint8] | None,
    offsets: NDArray[Any],
    data: Buffer,
    *,
    copy: bool = True,
) -> pa.Array:
    """Rows of bytes: the offsets counted from 0, the bytes copied or not."""
    content: Buffer = memoryview(data)[int(offsets[0]) : int(offsets[-1])]
    if copy:
        content = bytes(content)
    buffers: Sequence[pa.Buffer | None] = [
        None if valid is None else _bitmap(valid),
        pa.py_buffer(base_zero(offsets)),
        pa.py_buffer(content),
    ]
    return pa.Array.from_buffers(type_, len(offsets) - 1, buffers)


def text_array(text: Strings) -> pa.Array:
    """The strings as an array; it refers to their bytes."""
    return _binary(pa.string(), text.valid, text.offsets, text.data, copy=False)


def binary_array(offsets: NDArray[np.int32], data: Buffer) -> pa.Array:
    """Rows of bytes as an array; it refers to the bytes."""
    return _binary(pa.binary(), None, offsets, data, copy=False)


def _string(text: Strings | None, count: int) -> pa.Array:
    if text is None:
        return _NO_STRINGS.rows(count)
    return _binary(pa.string(), text.valid, text.offsets, text.data)


def _map(attributes: Attributes | None, count: int) -> pa.Array:
    if attributes is None:
        return _NO_MAPS.rows(count)
    pairs = len(attributes.keys.offsets) - 1
    return pa.MapArray.from_arrays(
        _fixed(pa.int32(), base_zero(attributes.starts).astype(np.int32)),
        _string(attributes.keys, pairs),
        _string(attributes.values, pairs),
        _map_type(),
    )
