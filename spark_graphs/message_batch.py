"""Messages as Spark wants them: exact Arrow types, in batches of a size that is fast for Spark.

No message is touched by itself: columns are passed on, cast or made as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from quire.engine import Piece, PieceReader
from quire.errors import PositionLost, QuireError, StoreCorrupt, StoreNotFound

from . import connection, position_range
from .partition import QueuePiece, QuirePartition

# 64 Ki rows were a quarter faster than Spark's own 10,000, and half a million twice as slow.
BATCH_ROWS = 1 << 16
BATCH_BYTES = 64 << 20


def read_partition(
    path: str, partition: QuirePartition, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The messages of a task, straight from the store's files, in the schema's columns."""
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    reader = PieceReader(path)
    return coalesced(
        _selected(arrow_schema, item.queue, position, batch)
        for item in partition.pieces
        for position, batch in _read(reader, path, item)
    )


def _read(reader: PieceReader, path: str, item: QueuePiece) -> Iterator[tuple[int, pa.RecordBatch]]:
    """A piece's batches and their first positions, also when its bytes were moved meanwhile.

    They may be after the owner died, and its leases with it, or after a lease has run out. What is
    read then fails its checksum, and the store is asked once more where the messages are.
    """
    position = item.piece.first_position
    end = position + item.piece.stop - item.piece.start
    try:
        for batch in reader.read(item.piece):
            yield position, batch
            position += batch.num_rows
        return
    except (StoreCorrupt, PositionLost, StoreNotFound) as error:
        pieces = _find_again(path, item.queue, position, end, error)
    for piece in pieces:
        for batch in reader.read(piece):
            yield position, batch
            position += batch.num_rows


def _find_again(path: str, queue: str, begin: int, end: int, error: QuireError) -> list[Piece]:
    try:
        lease = connection.call(
            path,
            lambda store: position_range.lease(store, queue, begin, end, fail_on_data_loss=True),
        )
    except QuireError as second:
        raise error from second
    return lease.pieces if lease is not None else []


def _selected(
    schema: pa.Schema, queue: str, position: int, batch: pa.RecordBatch
) -> pa.RecordBatch:
    """The columns that Spark asked for, with the types that it asked for."""
    columns = []
    for field in schema:
        if field.name == "queue":
            column = _repeated(queue, batch.num_rows)
        elif field.name == "position":
            column = pa.array(np.arange(position, position + batch.num_rows, dtype=np.int64))
        else:
            column = batch.column(field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return _batch(columns, schema, batch.num_rows)


def _batch(columns: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    # No column at all, as for a count; the rows are all that there is to say.
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _repeated(queue: str, rows: int) -> pa.Array:
    if rows > BATCH_ROWS:
        return pa.repeat(pa.scalar(queue), rows)
    return _longest_repeated(queue).slice(0, rows)


@lru_cache(maxsize=16)
def _longest_repeated(queue: str) -> pa.Array:
    return pa.repeat(pa.scalar(queue), BATCH_ROWS)


def coalesced(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of BATCH_ROWS, or of BATCH_BYTES where rows are large."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows < BATCH_ROWS and size < BATCH_BYTES:
            continue
        whole = pa.concat_batches(waiting) if len(waiting) > 1 else batch
        step = min(BATCH_ROWS, max(1, rows * BATCH_BYTES // max(size, 1)))
        full = rows // step * step
        for start in range(0, full, step):
            yield whole.slice(start, step)
        rest = whole.slice(full)
        rows, size = rest.num_rows, rest.nbytes
        waiting = [rest] if rows else []
    if waiting:
        yield pa.concat_batches(waiting) if len(waiting) > 1 else waiting[0]
