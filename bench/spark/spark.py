"""Spark over Quire, beside Spark over memory and over Parquet: a batch read, and a stream write.

Reads and writes of both sides take turns in one Spark session; the first turn warms up and does not
count. A read goes to Spark's own `noop` sink, a write comes from the source in memory.

With `--before`, another checkout's Quire does the same beside this one's (spark_turns.py).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench.figure import BenchmarkSetting, Figure, Result, at_least, at_most
from bench.spark import spark_turns
from bench.spark.spark_session import fill, from_memory, run_query, start_session

__all__ = ["run"]

TURNS = 5
COLUMNS = {"all columns": None, "payload alone": "payload binary"}
TARGET = 0.6
TO_PARQUET = 1.5


def run(setting: BenchmarkSetting) -> list[Result]:
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


def _read(spark: Any, path: Path, rows: int, setting: BenchmarkSetting) -> list[Figure]:
    from quire.spark_graphs.schema import source_schema

    figures = []
    for words, schema in COLUMNS.items():
        columns = schema or source_schema()
        ours = spark.read.format("quire").schema(columns).option("path", str(path))
        ours = ours.option("queue", "full").load()
        memory = spark.read.format("memory").schema(columns)
        memory = memory.option("rows", rows).option("seed", setting.seed).load()
        files = str(path.with_name(f"parquet {words}"))
        ours.write.option("compression", "uncompressed").parquet(files)
        *seconds, parquet = _turns(_drop, [ours, memory, spark.read.parquet(files)])
        figures += _compare(f"batch read, {words}", rows, seconds)
        figures += [
            Figure(
                f"batch read, {words}: {side}'s time to Parquet's", taken / parquet, "times", goal
            )
            for side, taken, goal in zip(
                ("Quire", "memory"), seconds, (at_most(TO_PARQUET), None), strict=True
            )
        ]
    return figures


def _drop(frame: Any) -> float:
    begin = time.perf_counter()
    frame.write.format("noop").mode("append").save()
    return time.perf_counter() - begin


def _write(spark: Any, path: Path, rows: int, setting: BenchmarkSetting) -> list[Figure]:
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
