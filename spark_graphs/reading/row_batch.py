"""Rows of typed queues for a task, read from the store's files.

They are of a leased range. Nothing here is Spark's but the size of the batches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from quire.errors import PositionLost, StoreCorrupt
from quire.libraries import pa
from quire.libraries.late_imports import importing
from quire.limits import BATCH_BYTES, BATCH_ROWS, WHOLE_BATCH_ROWS
from quire.spark_graphs.task_files.task_files import files_at

from .moved_pieces import find_again
from .partition import QueuePiece

if TYPE_CHECKING:
    from quire.engine import PieceReader
    from quire.engine.reading.row_read import RowQuery
    from quire.reports.info import Piece


def read_rows(path: str, pieces: Iterable[QueuePiece], query: RowQuery) -> Iterator[pa.RecordBatch]:
    """The rows of leased pieces of any queues, in batches of up to BATCH_ROWS.

    Small ones are joined, others are handed out as they lie in their block. `_meta` is the last
    column if it is asked for. Raises PositionLost, StoreCorrupt.
    """
    files = files_at(path)
    with files.seen(), contextlib.closing(files.reader()) as reader:
        yield from _gathered(_all(reader, path, pieces, query))


def _gathered(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches in their order, small ones joined."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in found:
        is_whole = batch.num_rows >= WHOLE_BATCH_ROWS
        length = 0 if is_whole else batch.nbytes
        if waiting and (
            is_whole or rows + batch.num_rows > BATCH_ROWS or size + length > BATCH_BYTES
        ):
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
        if is_whole:
            yield batch
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size += length
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _all(
    reader: PieceReader, path: str, pieces: Iterable[QueuePiece], query: RowQuery
) -> Iterator[pa.RecordBatch]:
    for (queue, created_us), items in groupby(
        pieces, key=lambda item: (item.queue, item.created_us)
    ):
        yield from _of_queue(reader, path, queue, created_us, [item.piece for item in items], query)


def _of_queue(
    reader: PieceReader,
    path: str,
    queue: str,
    created_us: int | None,
    pieces: list[Piece],
    query: RowQuery,
) -> Iterator[pa.RecordBatch]:
    """Also if places have changed, as after the owner's end: they are asked for once more."""
    with importing():
        from quire.engine.reading.row_read import read_rows as rows_of_pieces

    done = 0
    try:
        for part in rows_of_pieces(reader, pieces, query, queue):
            if part.batch is not None:
                yield part.batch
            done = part.stop
        return
    except (PositionLost, StoreCorrupt) as error:
        left = [
            (max(done, begin), end)
            for begin, end in (
                (p.first_position, p.first_position + p.stop - p.start) for p in pieces
            )
            if end > done
        ]
        pieces = find_again(path, queue, created_us, left, error)
    for part in rows_of_pieces(reader, pieces, query, queue):
        if part.batch is not None:
            yield part.batch
