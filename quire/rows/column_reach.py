"""The reach of the columns of a block of rows, by which readers skip it. Layout: `format`.

- What is told is true of every row: none is below a least value, none above a greatest. What is not
  known is not told, and nobody skips by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from quire.libraries import np, pa, pc
from quire.limits import STATISTICS_COLUMNS, STATISTICS_ROWS, STATISTICS_TEXT


@cache
def _dtypes() -> dict[pa.DataType, Any]:
    return {
        pa.int8(): np.int8,
        pa.int16(): np.int16,
        pa.int32(): np.int32,
        pa.int64(): np.int64,
        pa.date32(): np.int32,
        pa.timestamp("us"): np.int64,
        pa.timestamp("us", "UTC"): np.int64,
        pa.float32(): np.float32,
        pa.float64(): np.float64,
    }


class Reach(NamedTuple):
    """The reach of a column: its nulls, and the least and the greatest value where they are known.

    Dates are days, timestamps microseconds, both since 1970.
    """

    nulls: int
    least: Any = None
    greatest: Any = None


def statistics_of(batch: pa.RecordBatch) -> bytes:
    """Return the statistics of the columns, as the block has them; nothing for few rows."""
    if batch.num_rows < STATISTICS_ROWS:
        return b""
    found = {}
    for field, array in list(zip(batch.schema, batch.columns, strict=True))[:STATISTICS_COLUMNS]:
        found[field.name] = [array.null_count, *_reach(field.type, array)]
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()


def read_statistics(data: bytes) -> dict[str, Reach]:
    """The reverse. Raises ValueError for what is none."""
    if not data:
        return {}
    statistics = json.loads(data)
    if not isinstance(statistics, Mapping):
        raise ValueError("statistics are an object")
    found = {}
    for name, values in statistics.items():
        nulls, least, greatest = values
        if not isinstance(nulls, int) or isinstance(least, (list, dict)):
            raise ValueError(f"statistics of column {name!r}")
        found[name] = Reach(nulls, least, greatest)
    return found


def _reach(type_: pa.DataType, array: pa.Array) -> tuple[Any, Any]:
    if array.null_count == len(array):
        return None, None
    dtype = _dtypes().get(type_)
    if dtype is not None:
        return _of_numbers(dtype, array)
    if pa.types.is_string(type_):
        return _of_text(array)
    return None, None


def _of_numbers(dtype: Any, array: pa.Array) -> tuple[Any, Any]:
    _, data = array.buffers()
    values = np.frombuffer(data, dtype)[array.offset : array.offset + len(array)]
    if array.null_count:
        values = values[np.asarray(array.is_valid())]
    least, greatest = values.min().item(), values.max().item()
    if isinstance(least, float) and not np.isfinite([least, greatest]).all():
        return None, None  # JSON has no such numbers, and NaN is neither less nor more
    return least, greatest


def _of_text(array: pa.Array) -> tuple[str | None, str | None]:

    ends = pc.min_max(array)
    least, greatest = ends["min"].as_py(), ends["max"].as_py()
    return least[:STATISTICS_TEXT], greatest if len(greatest) <= STATISTICS_TEXT else None
