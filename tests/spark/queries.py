"""Streaming queries over a store, and what their tasks read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.spark_graphs.reading.partition import QuirePartition
from tests.kit.waiting import SECONDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from quire.spark_graphs.planning.stream_reader import StreamReader


def stream(
    spark: SparkSession, store: Any, queue: str, *, format: str = "quire", **options: Any
) -> DataFrame:
    """The queue as a stream, from its first message."""
    given = {"subscription": "spark", "startingOffsets": "earliest", **options}
    return spark.readStream.format(format).options(queue=queue, **given).load(store.path)


def sink(
    rows: DataFrame, store: Any, checkpoint: Path, format: str = "quire", **options: Any
) -> DataStreamWriter:
    """A writer of the rows into the store."""
    return (
        rows.writeStream.format(format)
        .option("checkpointLocation", str(checkpoint))
        .option("path", store.path)
        .options(**options)
    )


def spread(rows: DataFrame, *queues: str) -> DataFrame:
    """The payloads, dealt out over queues by the number in them."""
    from pyspark.sql import functions as f

    number = f.col("payload").cast("string").cast("long") % len(queues)
    names = f.array(*[f.lit(name) for name in queues])
    return rows.select("payload", f.element_at(names, (number + 1).cast("int")).alias("queue"))


def payloads(rows: DataFrame) -> DataFrame:
    """The function of a step that copies."""
    return rows.select("payload")


def run_to_end(query: StreamingQuery) -> None:
    """Wait for a query with Trigger.AvailableNow; raises what it failed with."""
    ended = query.awaitTermination(SECONDS)
    if not ended:
        query.stop()
        raise AssertionError("the query did not end in time")


def numbers_read(source: StreamReader, start: Any, end: Any) -> list[int]:
    """What the tasks of a micro-batch read."""
    found = []
    for partition in source.partitions(start, end):
        assert isinstance(partition, QuirePartition)
        for batch in source.read(partition):
            found += [int(payload) for payload in batch.column("payload").to_pylist()]
    return found
