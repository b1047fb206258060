"""The messages that a batch has of each of its inputs, whole or in part.

- The rows of an input are numbered from 0, in the order of their positions. Any runs of these
  numbers can be had as a DataFrame of their own: the same rows each time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar, Protocol

from msgspec import Struct
from msgspec.structs import replace

from quire.libraries import pa
from quire.spark_graphs.graphs.spark.local_rows import local_frame
from quire.spark_graphs.graphs.step_state import StepState
from quire.spark_graphs.limits import LOCAL_BYTES
from quire.spark_graphs.pyspark_features import to_arrow_schema
from quire.spark_graphs.reading.partition import QueuePiece, QuirePartition, partitions
from quire.spark_graphs.reading.row_columns import whole_schema

from .due_input import DueInput
from .row_ranges import RowRange, numbers_in
from .task_store import PartReader, TaskStore, trouble

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def arrow_columns(schema_ddl: str | None) -> pa.Schema:
    """Return all columns of an input, as tasks read them; `schema_ddl`: of a typed queue."""
    return to_arrow_schema(whole_schema(schema_ddl))


class Framed(Protocol):
    """The messages of one queue, or the due rows of a state, as a function gets them."""

    @property
    def queue(self) -> str:
        """The name of the queue, or of the state."""

    @property
    def due(self) -> StepState | None:
        """The state whose rows they are; None: they are messages."""

    def frame(self, spark: SparkSession, runs: Sequence[RowRange], *, by_tasks: bool) -> DataFrame:
        """Return some messages, in order; read by tasks, or now, to travel with the job."""


class Leased(Struct, frozen=True, dict=True):
    """Messages that stay in the store's files under a lease."""

    queue: str
    pieces: tuple[QueuePiece, ...]
    store: TaskStore
    schema_ddl: str | None = None  # the schema of a typed queue

    due: ClassVar[None] = None

    @property
    def count(self) -> int:
        """The number of messages."""
        return self._ends[-1] if self.pieces else 0

    @property
    def size_bytes(self) -> int:
        """About how many bytes they are."""
        return sum(item.size_bytes for item in self.pieces)

    @cached_property
    def _ends(self) -> list[int]:
        """The numbers before which the rows of each piece end."""
        return list(accumulate(each.piece.stop - each.piece.start for each in self.pieces))

    def frame(self, spark: SparkSession, runs: Sequence[RowRange], *, by_tasks: bool) -> DataFrame:
        whole = list(runs) == [(0, self.count)]
        pieces = list(self.pieces) if whole else self._cut(runs)
        if by_tasks:
            parts = partitions(pieces, None)
            numbers = spark.range(0, len(parts), 1, max(1, len(parts)))
            return numbers.mapInArrow(
                PartReader(self.store, parts, self.schema_ddl), whole_schema(self.schema_ddl)
            )
        return _local(spark, replace(self, pieces=tuple(pieces)).load().rows, self.schema_ddl)

    def grown(self, schema_ddl: str | None) -> Leased:
        """Return the input with the columns that its typed queue has got since the graph's start.

        `schema_ddl`: its schema now; None: as it was then.
        """
        return replace(self, schema_ddl=schema_ddl or self.schema_ddl)

    def message(self, number: int) -> pa.RecordBatch:
        """Return one of them, in all columns (see `arrow_columns`)."""
        part = QuirePartition(self._cut([(number, number + 1)]))
        (found,) = self.store.read(part, self.schema_ddl)
        return found

    def position(self, number: int) -> int:
        """Return the position of a row in its queue."""
        index = bisect_right(self._ends, number)
        piece = self.pieces[index].piece
        return piece.first_position + number - (self._ends[index - 1] if index else 0)

    def count_to(self, position: int) -> int:
        """Return how many rows there are up to and with a position of the queue."""
        found = 0
        for item in self.pieces:
            piece = item.piece
            found += max(0, min(piece.stop - piece.start, position + 1 - piece.first_position))
        return found

    def part(self, runs: Sequence[RowRange]) -> Leased:
        """Return some of them as an input of their own, in order."""
        return replace(self, pieces=tuple(self._cut(runs)))

    def load(self) -> LoadedMessages:
        """Return the input in memory: for many looks at a few messages."""
        with trouble():
            found = list(self.store.read(QuirePartition(list(self.pieces)), self.schema_ddl))
        return LoadedMessages(
            self.queue,
            pa.Table.from_batches(found, arrow_columns(self.schema_ddl)),
            self.schema_ddl,
        )

    def _cut(self, runs: Sequence[RowRange]) -> list[QueuePiece]:
        """The pieces of some rows only."""
        found = []
        for begin, end in runs:
            for index in range(bisect_right(self._ends, begin), len(self.pieces)):
                start = self._ends[index - 1] if index else 0
                if start >= end:
                    break
                first, last = max(begin, start), min(end, self._ends[index])
                if first < last:
                    found.append(_part_of(self.pieces[index], first - start, last - start))
        return found


def _part_of(item: QueuePiece, first: int, last: int) -> QueuePiece:
    """Messages [first, last) of a piece's own."""
    piece = item.piece
    cut = replace(
        piece,
        start=piece.start + first,
        stop=piece.start + last,
        first_position=piece.first_position + first,
    )
    size = item.size_bytes * (last - first) // (piece.stop - piece.start)
    return replace(item, piece=cut, size_bytes=max(1, size))


class LoadedMessages(Struct, frozen=True):
    """Messages that the driver has in memory: dead letters that are put back through a step."""

    queue: str
    rows: pa.Table  # in all columns that the queue has now
    schema_ddl: str | None = None  # the schema of a typed queue, when the graph was started

    due: ClassVar[None] = None

    @property
    def count(self) -> int:
        return int(self.rows.num_rows)

    @property
    def size_bytes(self) -> int:
        return int(self.rows.nbytes)

    def frame(self, spark: SparkSession, runs: Sequence[RowRange], *, by_tasks: bool) -> DataFrame:
        rows = self.part(runs).rows.select(arrow_columns(self.schema_ddl).names)
        return _local(spark, rows, self.schema_ddl)

    def part(self, runs: Sequence[RowRange]) -> LoadedMessages:
        if len(runs) == 1:
            ((begin, end),) = runs
            return replace(self, rows=self.rows.slice(begin, end - begin))
        return replace(self, rows=self.rows.take(numbers_in(runs)))

    def load(self) -> LoadedMessages:
        return self

    def grown(self, schema_ddl: str | None) -> LoadedMessages:
        return self  # it has them

    def message(self, number: int) -> pa.RecordBatch:
        return self.rows.slice(number, 1).combine_chunks().to_batches()[0]

    def position(self, number: int) -> int:
        """Return the number: these messages are in no queue."""
        return number

    def count_to(self, position: int) -> int:
        return min(position + 1, self.count)


Input = Leased | LoadedMessages | DueInput
"""The messages of one queue in one batch, or its due rows of a state."""


class Near:
    """An input of which some rows are in memory: for trials of ever fewer, and of the next ones."""

    def __init__(self, source: Input) -> None:
        self._source = source
        self._first = self._end = 0
        self._loaded: LoadedMessages | DueInput | None = (
            None  # rows from the first to before the end
        )

    def part(self, runs: Sequence[RowRange]) -> Input:
        """Return a part as an input's; what is small does not come from the store each time."""
        found = self._source.part(runs)
        if not runs or found.size_bytes > LOCAL_BYTES:
            return found
        begin, end = runs[0][0], runs[-1][1]
        if self._loaded is None or begin < self._first or end > self._end:
            self._load(begin, end)
        assert self._loaded is not None
        return self._loaded.part(
            [(first - self._first, last - self._first) for first, last in runs]
        )

    def _load(self, begin: int, end: int) -> None:
        """These rows, and of those behind them what is small with them."""
        self._end = self._source.count
        while True:
            found = self._source.part([(begin, self._end)])
            if found.size_bytes <= LOCAL_BYTES or self._end == end:
                break
            self._end = max(end, (begin + self._end) // 2)
        self._first, self._loaded = begin, found.load()


def empty(queue: str, store: TaskStore, schema_ddl: str | None) -> Leased:
    """An input without messages, by which a function is tried."""
    return Leased(queue, (), store, schema_ddl)


def _local(spark: SparkSession, rows: pa.Table, schema_ddl: str | None) -> DataFrame:
    """Rows of all columns that travel with the job."""
    return local_frame(spark, rows, whole_schema(schema_ddl))
