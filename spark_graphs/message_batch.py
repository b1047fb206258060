"""Messages as Spark wants them: exact Arrow types, in batches of a size that is fast for Spark.

No message is touched by itself: columns are passed on, cast or made as a whole. The batches are
those of `PieceReader.read_all`, of up to 64 Ki rows, which Spark takes a quarter faster than its
own 10,000.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from quire.engine import PieceReader
from quire.errors import PositionLost, QuireError, StoreCorrupt
from quire.info import Piece

from . import connection, position_range, sight
from .limits import CACHED_ROWS
from .partition import QuirePartition


def read_partition(
    path: str, partition: QuirePartition, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The messages of a task, straight from the store's files, in the schema's columns."""
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    with sight.seen(path), contextlib.closing(PieceReader(path)) as reader:
        runs = groupby(partition.pieces, key=lambda item: (item.queue, item.created_us))
        for (queue, created_us), items in runs:
            pieces = [item.piece for item in items]
            for position, batch in _read(reader, path, queue, created_us, pieces):
                yield _selected(arrow_schema, queue, position, batch)


def _read(
    reader: PieceReader, path: str, queue: str, created_us: int | None, pieces: list[Piece]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches of a queue's pieces with their first positions, also if places have changed.

    They may have after the owner died, and its leases with it, or after a lease has run out. What
    is read then fails its checksum, and the store is asked once more where the messages are.
    """
    position = pieces[0].first_position
    end = pieces[-1].first_position + pieces[-1].stop - pieces[-1].start
    try:
        for batch in reader.read_all(pieces, queue):
            yield position, batch
            position += batch.num_rows
    except (PositionLost, StoreCorrupt) as error:
        pieces = _find_again(path, queue, created_us, position, end, error)
    else:
        return
    for batch in reader.read_all(pieces, queue):
        yield position, batch
        position += batch.num_rows


def _find_again(
    path: str, queue: str, created_us: int | None, begin: int, end: int, error: QuireError
) -> list[Piece]:
    try:
        known = {} if created_us is None else {queue: created_us}
        leases = connection.call(
            path,
            lambda store: position_range.lease(
                store, {queue: (begin, end)}, fail_on_data_loss=True, created_us=known
            ),
        )
    except PositionLost as second:  # says why the place holds other bytes by now
        raise second from error
    except QuireError as second:
        raise error from second
    return [piece for lease in leases for piece in lease.pieces]


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
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _repeated(queue: str, rows: int) -> pa.Array:
    if rows > CACHED_ROWS:
        return pa.repeat(pa.scalar(queue), rows)
    return _longest_repeated(queue).slice(0, rows)


@lru_cache(maxsize=16)
def _longest_repeated(queue: str) -> pa.Array:
    return pa.repeat(pa.scalar(queue), CACHED_ROWS)
