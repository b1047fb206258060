"""What a batch has of each of its inputs, whole or in part.

YIN1. The rows of an input are numbered from 0, in the order of their positions. Any runs of these
    numbers can be had as a DataFrame of their own: the same rows each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from quire.spark_graphs.partition import QueuePiece, QuirePartition, partitions
from quire.spark_graphs.row_columns import whole_schema

from .task_store import PartReader, TaskStore, trouble

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Run = tuple[int, int]
"""Rows from one number to before another."""


def arrow_columns(words: str | None) -> pa.Schema:
    """All columns of an input, as tasks read them; `words`: the schema of a typed queue."""
    return to_arrow_schema(whole_schema(words), timezone="UTC")


class Input(Protocol):
    """The messages of one queue in one batch."""

    @property
    def queue(self) -> str:
        """Which queue they are of."""

    @property
    def count(self) -> int:
        """How many they are."""

    @property
    def size_bytes(self) -> int:
        """About how many bytes they are."""

    def frame(self, spark: SparkSession, runs: Sequence[Run], *, by_tasks: bool) -> DataFrame:
        """Some of them, in order; read by tasks, or now, to travel with the job."""

    def message(self, number: int, words: str | None = None) -> pa.RecordBatch:
        """One of them, in all columns (see `arrow_columns`).

        `words`: the schema of a typed queue as it is now, which may have more columns than when the
        graph was started; None: as it was then.
        """


@dataclass(frozen=True)
class Leased:
    """Messages that stay in the store's files under a lease."""

    queue: str
    pieces: tuple[QueuePiece, ...]
    store: TaskStore
    words: str | None = None  # the schema of a typed queue

    @property
    def count(self) -> int:
        return self._ends[-1] if self.pieces else 0

    @property
    def size_bytes(self) -> int:
        """About how many bytes they are."""
        return sum(item.size_bytes for item in self.pieces)

    @cached_property
    def _ends(self) -> list[int]:
        """The numbers before which the rows of each piece end."""
        return list(accumulate(each.piece.stop - each.piece.start for each in self.pieces))

    def frame(self, spark: SparkSession, runs: Sequence[Run], *, by_tasks: bool) -> DataFrame:
        whole = list(runs) == [(0, self.count)]
        pieces = list(self.pieces) if whole else self._cut(runs)
        if by_tasks:
            parts = partitions(pieces, None)
            numbers = spark.range(0, len(parts), 1, max(1, len(parts)))
            return numbers.mapInArrow(
                PartReader(self.store, parts, self.words), whole_schema(self.words)
            )
        with trouble():
            found = list(self.store.read(QuirePartition(pieces), self.words))
        rows = pa.Table.from_batches(found, arrow_columns(self.words))
        return _local(spark, rows, self.words)

    def message(self, number: int, words: str | None = None) -> pa.RecordBatch:
        part = QuirePartition(self._cut([(number, number + 1)]))
        (found,) = self.store.read(part, words or self.words)
        return found

    def _cut(self, runs: Sequence[Run]) -> list[QueuePiece]:
        """The pieces of some rows only."""
        found = []
        for begin, end in runs:
            for item, stop in zip(self.pieces, self._ends, strict=True):
                start = stop - (item.piece.stop - item.piece.start)
                first, last = max(begin, start), min(end, stop)
                if first < last:
                    found.append(_part_of(item, first - start, last - start))
        return found


def _part_of(item: QueuePiece, first: int, last: int) -> QueuePiece:
    """Messages [first, last) of a piece's own."""
    piece = item.piece
    cut = piece._replace(
        start=piece.start + first,
        stop=piece.start + last,
        first_position=piece.first_position + first,
    )
    size = item.size_bytes * (last - first) // (piece.stop - piece.start)
    return replace(item, piece=cut, size_bytes=max(1, size))


@dataclass(frozen=True)
class Held:
    """Messages that the driver has in memory: dead letters that are put back through a step."""

    queue: str
    rows: pa.Table  # in all columns that the queue has now
    words: str | None = None  # the schema of a typed queue, when the graph was started

    @property
    def count(self) -> int:
        return int(self.rows.num_rows)

    @property
    def size_bytes(self) -> int:
        return int(self.rows.nbytes)

    def frame(self, spark: SparkSession, runs: Sequence[Run], *, by_tasks: bool) -> DataFrame:
        some = [self.rows.slice(begin, end - begin) for begin, end in runs]
        rows = pa.concat_tables(some) if some else self.rows.slice(0, 0)
        rows = rows.select(arrow_columns(self.words).names)
        return _local(spark, rows, self.words)

    def message(self, number: int, words: str | None = None) -> pa.RecordBatch:
        return self.rows.slice(number, 1).combine_chunks().to_batches()[0]


def empty(queue: str, store: TaskStore, words: str | None) -> Leased:
    """An input without messages, by which a function is tried."""
    return Leased(queue, (), store, words)


def _local(spark: SparkSession, rows: pa.Table, words: str | None) -> DataFrame:
    """Rows of all columns that travel with the job."""
    if rows.num_rows:
        return spark.createDataFrame(rows, whole_schema(words))
    # Spark cannot make a DataFrame of an Arrow table without rows (4.3); this needs no job either.
    # Made of rows, Arrow would import pandas for it, here and so in each of Spark's workers.
    schema = arrow_columns(words)
    nulls = pa.Table.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
    return spark.createDataFrame(nulls, whole_schema(words)).limit(0)
