"""What a batch has of each of its inputs, whole or in part.

YIN1. The rows of an input are numbered from 0, in the order of their positions. Any runs of these
    numbers can be had as a DataFrame of their own: the same rows each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from quire.spark_graphs.partition import QueuePiece, QuirePartition, partitions
from quire.spark_graphs.schema import source_schema

from .task_store import Given, Reading, TaskStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Run = tuple[int, int]
"""Rows from one number to before another."""


class Input(Protocol):
    """The messages of one queue in one batch."""

    @property
    def queue(self) -> str:
        """Which queue they are of."""

    @property
    def count(self) -> int:
        """How many they are."""

    def frame(self, spark: SparkSession, runs: Sequence[Run]) -> DataFrame:
        """Some of them, in order."""

    def message(self, number: int) -> pa.RecordBatch:
        """One of them, in all columns of the source's schema."""


@dataclass(frozen=True)
class Leased:
    """Messages that stay in the store's files under a lease."""

    queue: str
    pieces: tuple[QueuePiece, ...]
    store: TaskStore

    @property
    def count(self) -> int:
        return self._ends[-1] if self.pieces else 0

    @property
    def size_bytes(self) -> int:
        """About how many bytes they are."""
        return sum(piece.size_bytes for piece in self.pieces)

    @cached_property
    def _ends(self) -> list[int]:
        """The numbers before which the rows of each piece end."""
        return list(accumulate(each.piece.stop - each.piece.start for each in self.pieces))

    def frame(self, spark: SparkSession, runs: Sequence[Run]) -> DataFrame:
        whole = list(runs) == [(0, self.count)]
        parts = partitions(self.pieces if whole else self._cut(runs), None)
        schema = source_schema()
        return _rows(spark, len(parts), Reading(self.store, parts, schema), schema)

    def message(self, number: int) -> pa.RecordBatch:
        part = QuirePartition(self._cut([(number, number + 1)]))
        (found,) = self.store.read(part, source_schema())
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
    rows: pa.Table  # in the columns of the source's schema

    @property
    def count(self) -> int:
        return int(self.rows.num_rows)

    def frame(self, spark: SparkSession, runs: Sequence[Run]) -> DataFrame:
        some = [self.rows.slice(begin, end - begin) for begin, end in runs]
        rows = pa.concat_tables(some) if some else self.rows.slice(0, 0)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        given = Given(sink.getvalue().to_pybytes())
        return _rows(spark, 1 if rows.num_rows else 0, given, source_schema())

    def message(self, number: int) -> pa.RecordBatch:
        return self.rows.slice(number, 1).combine_chunks().to_batches()[0]


def empty(queue: str, store: TaskStore) -> Leased:
    """An input without messages, by which a function is tried."""
    return Leased(queue, (), store)


def _rows(spark: SparkSession, parts: int, function: Any, schema: Any) -> DataFrame:
    """The rows that `function` gives for so many parts, each a task of its own."""
    return spark.range(0, parts, 1, max(1, parts)).mapInArrow(function, schema)
