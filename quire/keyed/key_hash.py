"""The hash of a key: by it runs are sorted, and keys found. Layout: `format`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quire.checksum import checksum
from quire.libraries import np, pa, pc

if TYPE_CHECKING:
    from numpy.typing import NDArray


def hashes_of(keys: Sequence[pa.Array]) -> NDArray[np.uint64]:
    """Return the hash of each key; `keys`: its columns, without nulls."""
    if len(keys) == 1 and is_text(keys[0].type):
        found = [checksum(each) for each in binary_of(keys[0]).to_pylist()]
    elif len(keys) == 1:
        raw, width = fixed_bytes(keys[0]), width_of(keys[0].type)
        data = raw.tobytes()
        found = [checksum(data[at : at + width]) for at in range(0, len(data), width)]
    else:
        found = [checksum(each) for each in _joined(keys).to_pylist()]
    return np.array(found, np.uint64)


def _joined(keys: Sequence[pa.Array]) -> pa.Array:
    parts: list[pa.Array] = []
    for column in keys:
        if is_text(column.type):
            texts = binary_of(column)
            lengths = np.asarray(pc.binary_length(texts)).astype("<u4")
            parts += [_as_texts(lengths.view(np.uint8).reshape(-1, 4)), texts]
        else:
            parts.append(_as_texts(fixed_bytes(column)))
    return joined_texts(parts)


def joined_texts(parts: Sequence[pa.Array]) -> pa.Array:
    """Join arrays of binary row by row."""
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))


def _as_texts(values: NDArray[np.uint8]) -> pa.Array:
    count, width = values.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), data])


def is_text(type_: pa.DataType) -> bool:
    """Return True for strings and binary."""
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def binary_of(column: pa.Array) -> pa.Array:
    """Return strings as their bytes."""
    return column.view(pa.binary()) if pa.types.is_string(column.type) else column


def width_of(type_: pa.DataType) -> int:
    """Return the bytes of a value in a row's fixed part; 0 for a text."""
    if is_text(type_):
        return 0
    return 1 if pa.types.is_boolean(type_) else int(type_.bit_width) // 8


def fixed_bytes(column: pa.Array) -> NDArray[np.uint8]:
    """Return the values of a column of numbers as rows of bytes, zeros where they are null."""
    count, width = len(column), width_of(column.type)
    if pa.types.is_boolean(column.type):
        flags = np.asarray(column.fill_null(False) if column.null_count else column)
        return flags.astype(np.uint8).reshape(count, 1)
    data = column.buffers()[1]
    if not count or data is None:
        return np.zeros((count, width), np.uint8)
    whole = np.frombuffer(data, np.uint8)
    values = whole[column.offset * width : (column.offset + count) * width].reshape(count, width)
    if column.null_count:
        values = values.copy()
        values[np.asarray(column.is_null())] = 0
    return values
