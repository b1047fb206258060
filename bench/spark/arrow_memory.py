"""Data sources that do nothing but hand Arrow batches to Spark, or drop what Spark hands them.

They show what Spark itself costs: format "memory" gives messages of random bytes from memory, batch
and streaming; a stream to format "discard" is lost. Options of "memory": `rows` (in all, or in each
micro-batch), `batches` (micro-batches of a stream) and `seed`.
"""
# ruff: noqa: N802, N803 (Spark calls its data sources by names of its own)

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from bench.measuring.payloads import as_arrow

__all__ = ["Discard", "Memory"]

BATCH_ROWS = 65_536
PARTITIONS = 2


class Memory(DataSource):
    """Messages from memory, with the columns of the schema that the user gives."""

    @classmethod
    def name(cls) -> str:
        return "memory"

    def schema(self) -> str:
        return "payload binary"

    def reader(self, schema: StructType) -> DataSourceReader:
        return MemoryReader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return MemoryStreamReader(schema, self.options)


class MemoryPartition(InputPartition):
    """A task's share."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


def shares(rows: int) -> list[InputPartition]:
    """The rows over the partitions; few rows are in one, as those of a queue are."""
    count = PARTITIONS if rows > BATCH_ROWS else 1
    return [MemoryPartition(rows // count) for _ in range(count)]


def batches(partition: InputPartition, schema: StructType, seed: int) -> Iterator[pa.RecordBatch]:
    """Yield one batch in memory, again and again."""
    assert isinstance(partition, MemoryPartition)
    whole = _whole(schema.json(), seed)
    for start in range(0, partition.count, BATCH_ROWS):
        yield whole.slice(0, min(BATCH_ROWS, partition.count - start))


@lru_cache(maxsize=4)
def _whole(schema_json: str, seed: int) -> pa.RecordBatch:
    """Return the batch, which a worker makes once: what a small micro-batch costs is Spark's."""
    schema = StructType.fromJson(json.loads(schema_json))
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    return pa.record_batch([_column(field, seed) for field in arrow_schema], schema=arrow_schema)


def _column(field: pa.Field, seed: int) -> pa.Array:
    """Payloads, a queue's name, numbers, or nothing."""
    if field.name == "payload":
        return as_arrow(BATCH_ROWS, seed)
    if field.name == "queue":
        return pa.array(["queue"] * BATCH_ROWS)
    if field.name in ("id", "position", "time"):
        return pa.array(np.arange(BATCH_ROWS), pa.int64()).cast(field.type)
    if field.name in ("priority", "group", "delivery_count"):
        return pa.array(np.zeros(BATCH_ROWS, np.int32), field.type)
    return pa.nulls(BATCH_ROWS, field.type)


class MemoryReader(DataSourceReader):
    """The reader of one batch."""

    def __init__(self, schema: StructType, options: Any) -> None:
        self._schema, self._rows, self._seed = schema, int(options["rows"]), int(options["seed"])

    def partitions(self) -> list[InputPartition]:
        return shares(self._rows)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(partition, self._schema, self._seed)


class MemoryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of one size; an offset is how many there were."""

    def __init__(self, schema: StructType, options: Any) -> None:
        self._schema, self._rows, self._seed = schema, int(options["rows"]), int(options["seed"])
        self._batches = int(options["batches"])

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Do nothing: all micro-batches are available from the beginning."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"batch": min(start["batch"] + 1, self._batches)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return shares((end["batch"] - start["batch"]) * self._rows)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(partition, self._schema, self._seed)


class Discard(DataSource):
    """Takes what Spark writes and drops it."""

    @classmethod
    def name(cls) -> str:
        return "discard"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return Discarding()


class Discarding(DataSourceStreamArrowWriter):
    """Looks at each batch and no further."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: nothing was kept."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: nothing was kept."""
