"""The functions of tasks that read and write the rows of a state, and of the driver for a few rows.

YSW1. A key is there once in what a batch writes, and has no null: rows of a batch have no order, so
    of two one would win by chance. What is refused is a row's fault, which may come of a message.
- A task reads the pieces of its keys only, and writes one run for each of its ranges of keys. Where
  one cannot be written, none of them stays.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct
from pyspark.sql.types import IntegerType, StructField, StructType

from quire.errors import InvalidArgument
from quire.keyed import StateLook, WrittenRun
from quire.libraries import np, pa, pc
from quire.spark_graphs.graphs.batches.task_store import RowRefused, trouble
from quire.spark_graphs.graphs.step_state import DELETE, OWN_COLUMNS, TIMER, TTL, StepState
from quire.spark_graphs.limits import FOUND_BYTES
from quire.spark_graphs.task_files.task_files import files_at

from .written_files import remove_files

WRITTEN: Final = "runs binary"
"""The columns of what a job returns that writes a state."""
_RANGE: Final = "_range of keys"


class RowFinder(Struct, frozen=True):
    """Keys in, the rows that the state has for them out."""

    path: str
    look: StateLook
    columns: tuple[str, ...]  # of the rows: the state may have got more since

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = rows_at_once(self.look)
        for batch in batches:
            for start in range(0, len(batch), count):
                yield self.rows_of(pa.Table.from_batches([batch.slice(start, count)]))

    def rows_of(self, keys: pa.Table) -> pa.RecordBatch:
        """Return the rows of these keys. Raises StoreTrouble."""
        files = files_at(self.path)
        with trouble(), files.seen():
            return self.look.rows_of(files, keys).select(list(self.columns))


def rows_at_once(look: StateLook) -> int:
    """Return how many rows of a state are to be in memory together: `FOUND_BYTES` of them."""
    rows = sum(run.rows for run in look.manifest.runs)
    kept = sum(run.kept for run in look.manifest.runs)
    return max(1, FOUND_BYTES * rows // kept) if kept else FOUND_BYTES


class RangeTagger(Struct, frozen=True):
    """Rows in, the same out with the number of their range of keys."""

    state: StepState
    look: StateLook
    ranges: int

    column = _RANGE

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = range_numbers(
                self.state, self.look, pa.Table.from_batches([batch]), self.ranges
            )
            yield batch.append_column(_RANGE, pa.array(numbers.astype(np.int32)))

    def schema_of(self, schema: StructType) -> StructType:
        """Return the columns that come out."""
        fields = [StructField(each.name, each.dataType) for each in schema]
        return StructType([*fields, StructField(_RANGE, IntegerType())])


class RowWriter(Struct, frozen=True):
    """Rows with their ranges in, one row out that names the runs that were written of them."""

    path: str
    state: StepState
    look: StateLook
    ranges: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: list[WrittenRun] = []
        parts = list(batches)
        if parts:
            rows = pa.Table.from_batches(parts)
            try:
                self._write(rows, found)
            except BaseException:
                remove_files(self.path, None, {run.file or None for run in found})
                raise
        yield pa.RecordBatch.from_pydict({"runs": [pickle.dumps(found)]})

    def _write(self, rows: pa.Table, found: list[WrittenRun]) -> None:
        """Write the run of each range, and add it to those that are found."""
        numbers = rows.column(_RANGE)
        for number in pc.unique(numbers).to_pylist():
            own = rows.filter(pc.equal(numbers, number)).drop_columns([_RANGE])
            run = written_by(self.path, self.state, self.look, own, number, self.ranges)
            found += [] if run is None else [run]


def written_of(rows: Sequence[Sequence[bytes]]) -> tuple[WrittenRun, ...]:
    """Return the runs of all tasks."""
    return tuple(run for row in rows for run in pickle.loads(row[0]))


def written_by(
    path: str, state: StepState, look: StateLook, rows: pa.Table, number: int = 0, ranges: int = 1
) -> WrittenRun | None:
    """Write what a step returns for a state, as the run of a range; None: there is nothing.

    Raises RowRefused, StoreTrouble.
    """
    if not rows.num_rows:
        return None
    files = files_at(path)
    try:
        with trouble(), files.seen():
            _check_keys(state, rows)
            kept, deletes = rows, ()
            if DELETE in rows.schema.names:
                gone = pc.fill_null(rows.column(DELETE), False)
                deletes = rows.filter(gone).select(list(state.key))
                kept = rows.filter(pc.invert(gone))
            expires = _expires(kept, look.now_us)
            timers = kept.column(TIMER) if TIMER in kept.schema.names else None
            return look.write(files, plain_rows(kept), deletes, number, ranges, expires, timers)
    except InvalidArgument as error:
        raise _refused(state, error) from error


def range_numbers(state: StepState, look: StateLook, rows: pa.Table, ranges: int) -> Any:
    """Return the range of each row. Raises RowRefused."""
    try:
        _check_nulls(state, rows)
        return look.range_numbers(rows, ranges)
    except InvalidArgument as error:
        raise _refused(state, error) from error


def plain_rows(rows: pa.Table) -> pa.Table:
    """Return the rows without what a step returns beside the columns of a state."""
    return rows.drop_columns([each for each in OWN_COLUMNS if each in rows.schema.names])


def _refused(state: StepState, error: InvalidArgument) -> RowRefused:
    return RowRefused(f"rows for state '{state.name}': {error}")


def _check_nulls(state: StepState, rows: pa.Table) -> None:
    for name in state.key:
        nulls = rows.column(name).null_count
        if nulls:
            raise InvalidArgument(f"the column {name!r} of the key is null in {nulls} of them")


def _check_keys(state: StepState, rows: pa.Table) -> None:
    """Raise InvalidArgument where a key is null, or there twice (YSW1)."""
    _check_nulls(state, rows)
    counts = rows.select(list(state.key)).group_by(list(state.key)).aggregate([([], "count_all")])
    if counts.num_rows == rows.num_rows:
        return
    twice = counts.filter(pc.greater(counts.column("count_all"), 1)).slice(0, 1)
    key = ", ".join(repr(twice.column(name)[0].as_py()) for name in state.key)
    raise InvalidArgument(
        f"{rows.num_rows - counts.num_rows} of them have a key that another one has, too, as "
        f"{key:.100}, and the rows of a batch have no order: return one row for each key (groupBy, "
        "or dropDuplicates)"
    )


def _expires(rows: pa.Table, now_us: int) -> pa.Array | None:
    """Return when rows expire that say so; null: as the state says."""
    if TTL not in rows.schema.names:
        return None
    seconds = pc.cast(rows.column(TTL).combine_chunks(), pa.float64())
    refused = seconds.filter(pc.invert(pc.greater(seconds, 0.0)))  # nan is, too
    if len(refused):
        raise InvalidArgument(
            f"the column {TTL!r} is {refused[0].as_py():g}: give seconds above 0, or null for what "
            f"the state says; the column {DELETE!r} deletes a row"
        )
    most = float((1 << 62) - now_us)
    micros = pc.min_element_wise(pc.multiply(seconds, 1e6), pa.scalar(most), skip_nulls=False)
    return pc.add(pc.cast(pc.floor(micros), pa.int64()), pa.scalar(now_us, pa.int64()))
