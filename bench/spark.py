"""Spark over Quire, beside Spark over memory: a batch read, and a stream write.

Reads and writes of both sides take turns in one Spark session; the first turn warms up and does not
count. A read goes to Spark's own `noop` sink, a write comes from the source in memory.

With `--before`, another checkout's Quire does the same beside this one's (spark_turns.py).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import quire
from bench import spark_turns
from bench.figure import Figure, Result, Setting, at_least
from bench.payloads import as_arrow

__all__ = ["Durations", "fill", "from_memory", "run", "run_query", "start_session"]

TURNS = 5
CHUNK = 100_000  # messages in a transaction that fills the queue to read
CAPACITY_BYTES = 8 << 30
COLUMNS = {"all columns": None, "payload alone": "payload binary"}
TARGET = 0.6

Durations = list[dict[str, float]]  # of micro-batches, in milliseconds, by part


def run(setting: Setting) -> list[Result]:
    """Rows per second on both sides, and the ratios; or beside another checkout's Quire."""
    if setting.before is not None:
        return spark_turns.run(setting)
    rows = setting.scaled(4_000_000, 400_000)
    path = setting.folder / "store"
    fill(path, rows, setting.seed)
    spark = start_session()
    try:
        return [*_read(spark, path, rows, setting), *_write(spark, path, rows, setting)]
    finally:
        spark.stop()


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

    from bench.arrow_memory import Discard, Memory

    root = str(Path(__file__).resolve().parents[1])
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


def _read(spark: Any, path: Path, rows: int, setting: Setting) -> list[Figure]:
    from quire.spark_graphs.schema import source_schema

    figures = []
    for words, schema in COLUMNS.items():
        columns = schema or source_schema()
        ours = spark.read.format("quire").schema(columns).option("path", str(path))
        ours = ours.option("queue", "full").load()
        memory = spark.read.format("memory").schema(columns)
        memory = memory.option("rows", rows).option("seed", setting.seed).load()
        seconds = _turns(_drop, [ours, memory])
        figures += _compare(f"batch read, {words}", rows, seconds)
    return figures


def _drop(frame: Any) -> float:
    begin = time.perf_counter()
    frame.write.format("noop").mode("append").save()
    return time.perf_counter() - begin


def _write(spark: Any, path: Path, rows: int, setting: Setting) -> list[Figure]:
    def stream(sink: str) -> float:
        """Seconds of a whole micro-batch after the first, as Spark's progress has them."""
        source = from_memory(spark, rows, 2, setting.seed)
        durations, _ = run_query(source, sink, path, "sink")
        return durations[-1]["triggerExecution"] / 1_000

    return _compare("stream write", rows, _turns(stream, ["quire", "discard"]))


def _turns(measure: Any, sides: list[Any]) -> list[float]:
    """Each side's best seconds: whatever else runs on the machine only ever adds to them."""
    taken: list[list[float]] = [[] for _ in sides]
    for turn in range(1 + TURNS):
        for times, side in zip(taken, sides, strict=True):
            seconds = measure(side)
            if turn:
                times.append(seconds)
    return [min(times) for times in taken]


def _compare(words: str, rows: int, seconds: list[float]) -> list[Figure]:
    ours, memory = (rows / taken for taken in seconds)
    return [
        Figure(f"{words}: Quire", ours, "rows/s"),
        Figure(f"{words}: memory", memory, "rows/s"),
        Figure(f"{words}: Quire to memory", ours / memory, "times", at_least(TARGET)),
    ]
