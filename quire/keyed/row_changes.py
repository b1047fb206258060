"""Rows that are put and keys that are deleted, as the rows of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quire.libraries import np, pa

from .format import NEVER
from .key_hash import hashes_of
from .keyed_rows import KeyedRows
from .row_layout import RowLayout

if TYPE_CHECKING:
    from numpy.typing import NDArray


def put_rows(layout: RowLayout, batch: pa.RecordBatch, expires: NDArray[np.int64]) -> KeyedRows:
    """Return rows that are put, each with its time; the later ones first, as they are the newer."""
    hashes = hashes_of(batch.columns[: layout.key_columns])
    rows = KeyedRows(hashes, expires, np.zeros(len(batch), np.bool_), batch)
    return rows.take(np.arange(len(batch) - 1, -1, -1))


def deleted_rows(layout: RowLayout, keys: Sequence[pa.Array]) -> KeyedRows:
    """Return what deletes these keys."""
    count, schema = len(keys[0]), layout.schema
    others = [pa.nulls(count, field.type) for field in list(schema)[len(keys) :]]
    batch = pa.RecordBatch.from_arrays([*keys, *others], schema=schema)
    never = np.full(count, NEVER, np.int64)
    return KeyedRows(hashes_of(keys), never, np.ones(count, np.bool_), batch)


def expiry(now_us: int, ttl_us: int | None) -> int:
    """Return when a row expires that is put now."""
    return NEVER if ttl_us is None else min(NEVER, now_us + ttl_us)


def size_of(layout: RowLayout, rows: KeyedRows) -> int:
    """Return how many bytes rows take in a run, about."""
    return int(rows.batch.nbytes) + len(rows.hashes) * layout.row_bytes
