"""Rows that are put and keys that are deleted, as the rows of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from quire.errors import InvalidArgument
from quire.libraries import np, pa

from .format import NEVER
from .key_hash import hashes_of
from .keyed_rows import KeyedRows
from .row_layout import RowLayout, layout_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


def put_rows(
    layout: RowLayout, batch: pa.RecordBatch, expires: NDArray[np.int64], timers: NDArray[np.int64]
) -> KeyedRows:
    """Return rows that are put; the later ones first, as they are the newer."""
    hashes = hashes_of(batch.columns[: layout.key_columns])
    rows = KeyedRows(hashes, expires, np.zeros(len(batch), np.bool_), timers, batch)
    return rows.take(np.arange(len(batch) - 1, -1, -1))


def deleted_rows(layout: RowLayout, keys: Sequence[pa.Array]) -> KeyedRows:
    """Return what deletes these keys."""
    count, schema = len(keys[0]), layout.schema
    others = [pa.nulls(count, field.type) for field in list(schema)[len(keys) :]]
    batch = pa.RecordBatch.from_arrays([*keys, *others], schema=schema)
    never = np.full(count, NEVER, np.int64)
    return KeyedRows(hashes_of(keys), never, np.ones(count, np.bool_), never, batch)


def times_of(what: str, values: Any, count: int, default: int) -> NDArray[np.int64]:
    """Return a time for each row: those that a caller gives, and the default for null.

    `values`: an array or a list, None: none. Raises InvalidArgument.
    """
    if values is None:
        return np.full(count, default, np.int64)
    try:
        times = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
        if pa.types.is_timestamp(times.type):
            times = times.cast(pa.timestamp("us", times.type.tz))
        times = times.cast(pa.int64())
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"{what}: give an array of int64, microseconds as a rule, null where there is none "
            f"({error})"
        ) from error
    if len(times) != count:
        raise InvalidArgument(f"{what}: {len(times)} for {count} rows: give one for each")
    if isinstance(times, pa.ChunkedArray):
        times = times.combine_chunks()
    return np.asarray(times.fill_null(default), np.int64)


def expiry(now_us: int, ttl_us: int | None) -> int:
    """Return when a row expires that is put now."""
    return NEVER if ttl_us is None else min(NEVER, now_us + ttl_us)


def written_layout(layout: RowLayout, rows: KeyedRows) -> RowLayout:
    """Return the layout of a run of these rows."""
    return layout_of(layout.words, layout.key_columns, timed=bool((rows.timers != NEVER).any()))


def size_of(layout: RowLayout, rows: KeyedRows) -> int:
    """Return how many bytes rows take in a run, about."""
    return int(rows.batch.nbytes) + len(rows.hashes) * layout.row_bytes
