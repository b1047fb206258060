"""Messages as Spark wants them: exact Arrow types, in batches of a size that is fast for Spark.

No message is touched by itself: columns are passed on, cast or made as a whole. The batches are
those of `PieceReader.read_all`, of up to 64 Ki rows, which Spark takes a quarter faster than its
own 10,000.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql.types import StructType

from quire.errors import PositionLost, StoreCorrupt
from quire.libraries import np, pa
from quire.reports.info import Piece
from quire.rows.row_filter import RowCondition, chosen
from quire.spark_graphs.limits import CACHED_ROWS
from quire.spark_graphs.pyspark_features import to_arrow_schema
from quire.spark_graphs.task_files.task_files import files_at
from quire.spark_graphs.worker_garbage import leave_out_modules

from .moved_pieces import find_again
from .partition import QuirePartition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from quire.engine import PieceReader
    from quire.env import Env

PositionArray: TypeAlias = "NDArray[np.int64]"
PositionRanges = deque[tuple[int, int]]  # of positions, half-open
_NONE = np.empty(0, dtype=np.int64)


def read_partition(
    path: str,
    partition: QuirePartition,
    schema: StructType,
    where: RowCondition | None = None,
    env: Env | None = None,
) -> Iterator[pa.RecordBatch]:
    """The messages of a task, from the store's files, in the schema's columns.

    Only those for which the condition is true, if there is one.
    """
    arrow_schema = to_arrow_schema(schema)
    files = files_at(path, env)
    with files.seen(), contextlib.closing(files.reader()) as reader:
        runs = groupby(partition.pieces, key=lambda item: (item.queue, item.created_us))
        for (queue, created_us), items in runs:
            pieces = [item.piece for item in items]
            for positions, batch in _read(reader, path, queue, created_us, pieces):
                found = _selected(arrow_schema, queue, positions, batch)
                yield found if where is None else _chosen(where, queue, positions, batch, found)
    leave_out_modules()


def _read(
    reader: PieceReader, path: str, queue: str, created_us: int | None, pieces: list[Piece]
) -> Iterator[tuple[PositionArray, pa.RecordBatch]]:
    """The batches of a queue's pieces with their positions, also if places have changed.

    They may have after the owner died, and its leases with it, or after a lease has run out. What
    is read then fails its checksum, and the store is asked once more where the messages are.
    """
    runs = _runs(pieces)
    try:
        for batch in reader.read_all(pieces, queue):
            yield _taken(runs, batch.num_rows), batch
    except (PositionLost, StoreCorrupt) as error:
        pieces = find_again(path, queue, created_us, runs, error)
    else:
        return
    for batch in reader.read_all(pieces, queue):
        yield _taken(runs, batch.num_rows), batch


def _runs(pieces: list[Piece]) -> PositionRanges:
    """The positions of the pieces, which rise, and have gaps where messages were gone."""
    runs: PositionRanges = deque()
    for piece in pieces:
        begin, end = piece.first_position, piece.first_position + piece.stop - piece.start
        if runs and runs[-1][1] == begin:
            begin, _ = runs.pop()
        runs.append((begin, end))
    return runs


def _taken(runs: PositionRanges, rows: int) -> PositionArray:
    """The positions of the next rows, which are taken out of the runs."""
    found = []
    while rows:
        begin, end = runs.popleft()
        middle = min(end, begin + rows)
        found.append(np.arange(begin, middle, dtype=np.int64))
        rows -= middle - begin
        if middle < end:
            runs.appendleft((middle, end))
    return found[0] if len(found) == 1 else np.concatenate([_NONE, *found])


def _selected(
    schema: pa.Schema, queue: str, positions: PositionArray, batch: pa.RecordBatch
) -> pa.RecordBatch:
    """The columns that Spark asked for, with the types that it asked for."""
    columns = []
    for field in schema:
        if field.name == "queue":
            column = _repeated(queue, batch.num_rows)
        elif field.name == "position":
            column = pa.array(positions)
        else:
            column = batch.column(field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _chosen(
    where: RowCondition,
    queue: str,
    positions: PositionArray,
    batch: pa.RecordBatch,
    found: pa.RecordBatch,
) -> pa.RecordBatch:
    """The selected columns of the rows for which the condition is true."""

    def column(name: str) -> pa.Array:
        if name == "position":
            return pa.array(positions)
        return _repeated(queue, batch.num_rows) if name == "queue" else batch.column(name)

    return found.filter(chosen(where, column))


def _repeated(queue: str, rows: int) -> pa.Array:
    if rows > CACHED_ROWS:
        return pa.repeat(pa.scalar(queue), rows)
    return _longest_repeated(queue).slice(0, rows)


@lru_cache(maxsize=16)
def _longest_repeated(queue: str) -> pa.Array:
    return pa.repeat(pa.scalar(queue), CACHED_ROWS)
