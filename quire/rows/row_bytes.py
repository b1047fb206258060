"""The bytes that the values of rows are charged to a queue's capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quire.block.header_columns import offsets_of
from quire.libraries import np, pa

if TYPE_CHECKING:
    from numpy.typing import NDArray


def row_bytes(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Return the bytes of each row's values, without offsets, validity and names."""
    total = np.zeros(batch.num_rows, np.int64)
    for array in batch.columns:
        total += _bytes_of(array)
    return total


def _bytes_of(array: pa.Array) -> int | NDArray[np.int64]:
    """Return the bytes of each value, or the number that all have."""
    type_ = array.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return np.diff(_offsets(array)).astype(np.int64)
    if pa.types.is_map(type_):
        return _of_lists(array, _bytes_of(array.keys) + _bytes_of(array.items))
    if pa.types.is_list(type_):
        return _of_lists(array, _bytes_of(array.values))
    if pa.types.is_struct(type_):
        total: int | NDArray[np.int64] = 0
        for index in range(type_.num_fields):
            total = total + _bytes_of(array.field(index))
        return total
    return max(1, int(type_.bit_width) >> 3)


def _of_lists(array: pa.Array, inner: int | NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = _offsets(array)
    if isinstance(inner, int):
        return np.diff(offsets).astype(np.int64) * inner
    bounds: NDArray[np.int64] = offsets_of(inner)[offsets]
    return np.diff(bounds)


def _offsets(array: pa.Array) -> NDArray[Any]:
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
