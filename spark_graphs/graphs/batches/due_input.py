"""The rows of a state whose timers are due, as one more input of a step's batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.types import StructField, StructType, TimestampType

from quire.keyed.timer_mark import TimerMark
from quire.libraries import np, pa
from quire.spark_graphs.graphs.spark.local_rows import local_frame, spark_schema
from quire.spark_graphs.graphs.step_state import TIMER, StepState

from .row_ranges import RowRange, numbers_in

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession


class DuePlace(NamedTuple):
    """A row's place in the order of the timers of a version of its state."""

    version: int
    time: int
    hash: int


class DueInput(Struct, frozen=True):
    """Rows whose timers are due up to a mark, in the order of their timers. The driver has them."""

    due: StepState
    rows: pa.Table  # in the columns of the state
    times: NDArray[np.int64]  # of their timers
    hashes: NDArray[np.uint64]  # of their keys
    version: int
    mark: TimerMark

    @classmethod
    def none_of(cls, state: StepState) -> DueInput:
        """Return an input without rows, by which a function is tried."""
        none = pa.table([], schema=pa.schema([]))
        return cls(state, none, np.zeros(0, np.int64), np.zeros(0, np.uint64), 0, TimerMark(0))

    @property
    def queue(self) -> str:
        return self.due.name

    @property
    def count(self) -> int:
        return len(self.times)

    @property
    def size_bytes(self) -> int:
        return int(self.rows.nbytes)

    def frame(self, spark: SparkSession, runs: Sequence[RowRange], *, by_tasks: bool) -> DataFrame:
        columns = spark_schema(self.due.schema).fields
        schema = StructType([*columns, StructField(TIMER, TimestampType())])
        if not self.count:
            return local_frame(spark, self.rows, schema)
        some = self.part(runs)
        times = pa.array(some.times).cast(pa.timestamp("us", "UTC"))
        return local_frame(spark, some.rows.append_column(TIMER, times), schema)

    def part(self, runs: Sequence[RowRange]) -> DueInput:
        some = numbers_in(runs)
        rows = self.rows.take(some) if self.count else self.rows
        return replace(self, rows=rows, times=self.times[some], hashes=self.hashes[some])

    def load(self) -> DueInput:
        return self

    def grown(self, schema_ddl: str | None) -> DueInput:
        return self  # a state has the columns that the graph says

    def message(self, number: int) -> pa.RecordBatch:
        """Return one of the rows."""
        return self.rows.slice(number, 1).combine_chunks().to_batches()[0]

    def position(self, number: int) -> DuePlace:
        """Return the place of a row."""
        return DuePlace(self.version, int(self.times[number]), int(self.hashes[number]))

    def count_to(self, place: DuePlace) -> int:
        """Return how many rows there are up to and with a place; none of another version."""
        if place.version != self.version:
            return 0
        return int(TimerMark(place.time, place.hash).reaches(self.times, self.hashes).sum())
