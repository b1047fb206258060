"""A Spark session for benchmarks, a store that it reads and writes, and its streaming queries."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import quire
from bench.measuring.payloads import as_arrow

__all__ = ["Durations", "fill", "from_memory", "run_query", "start_session"]

CHUNK = 100_000  # messages in a transaction that fills the queue to read
CAPACITY_BYTES = 8 << 30

Durations = list[dict[str, float]]  # of micro-batches, in milliseconds, by part


def fill(path: Path, rows: int, seed: int) -> None:
    """Make a store with messages in `full`, and `sink`; both keep what is put."""
    payloads = as_arrow(CHUNK, seed)
    with quire.open(str(path)) as store:
        store.create_queue("full", kind="topic", capacity=CAPACITY_BYTES)
        store.subscribe("full", "keep", start="earliest")
        store.create_queue("sink", kind="topic", capacity=CAPACITY_BYTES)
        store.subscribe("sink", "keep", start="earliest")
        for _ in range(rows // CHUNK):
            with store.transaction() as transaction:
                transaction.put_many("full", payloads)


def start_session(settings: Mapping[str, str] | None = None) -> Any:
    """A session on two cores, quiet, with the sources of `arrow_memory`, and further settings."""
    from pyspark.sql import SparkSession

    from bench.spark.arrow_memory import Discard, Memory

    root = str(Path(__file__).resolve().parents[2])
    # What is named already goes first: the workers' Quire is that of this process.
    named = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), root]
    os.environ["PYTHONPATH"] = os.pathsep.join(named)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder: Any = SparkSession.builder
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
        **(settings or {}),
    }.items():
        builder = builder.config(name, value)
    spark = builder.master("local[2]").appName("quire-bench").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Memory)
    spark.dataSource.register(Discard)
    return spark


def from_memory(spark: Any, rows: int, batches: int, seed: int) -> Any:
    """A stream of so many micro-batches of so many rows each."""
    source = spark.readStream.format("memory").option("rows", rows)
    return source.option("batches", batches).option("seed", seed).load()


def run_query(rows: Any, sink: str, path: Path, queue: str) -> tuple[Durations, float]:
    """A query's micro-batches that had rows, and its seconds from start to end.

    The sink `quire` puts the rows into the queue of the store at the path; another does not care.
    """
    writer = rows.writeStream.format(sink).trigger(availableNow=True)
    checkpoint = path.with_name(f"checkpoint-{time.time_ns()}")
    writer = writer.option("checkpointLocation", str(checkpoint))
    if sink == "quire":
        writer = writer.option("path", str(path)).option("queue", queue)
    began = time.perf_counter()
    query = writer.start()
    query.awaitTermination()
    seconds = time.perf_counter() - began
    return [dict(each.durationMs) for each in query.recentProgress if each.numInputRows], seconds
