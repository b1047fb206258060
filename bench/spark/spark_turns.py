"""Two checkouts' Quire under Spark: what reads, writes and starts cost beside what they did before.

See two_checkouts.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import quire
from bench.figure import BenchmarkSetting, Result
from bench.measuring import two_checkouts
from bench.spark import spark_session

__all__ = ["run", "session"]

TURNS = 9
START_ROWS = 1_000
OPERATIONS = {
    "all": ("batch read, all columns", 1.0),
    "payload": ("batch read, payload alone", 1.0),
    "write": ("stream write", 1.0),
    "start": ("start and end of a query, outside its micro-batches", 0.5),
}


def run(setting: BenchmarkSetting) -> list[Result]:
    """The ratios of time and of processor time, now to before."""
    rows = setting.scaled(1_000_000, 200_000)
    title = f"{rows:,} rows"
    return two_checkouts.compare(setting, "spark.spark_turns", OPERATIONS, rows, TURNS, title)


def session(folder: Path, rows: int, seed: int) -> two_checkouts.CheckoutSession:
    """Return one side's session: a store with the rows, and a Spark session."""
    path = folder / "store"
    spark_session.fill(path, rows, seed)
    with quire.open(str(path)) as store:
        store.create_queue("few", kind="topic")
    return _DataSourceSession(spark_session.start_session(), path, rows, seed)


class _DataSourceSession:
    """The operations in one Spark session."""

    def __init__(self, spark: Any, path: Path, rows: int, seed: int) -> None:
        from quire.spark_graphs.schema import source_schema

        self._spark, self._path, self._rows, self._seed = spark, path, rows, seed
        self.operations: dict[str, Callable[[], float]] = {
            "all": lambda: self._read(source_schema()),
            "payload": lambda: self._read("payload binary"),
            "write": self._write,
            "start": self._start,
        }

    def stop(self) -> None:
        self._spark.stop()

    def _read(self, schema: Any) -> float:
        rows = self._spark.read.format("quire").schema(schema).option("path", str(self._path))
        begin = time.perf_counter()
        rows.option("queue", "full").load().write.format("noop").mode("append").save()
        return time.perf_counter() - begin

    def _write(self) -> float:
        """Seconds of a whole micro-batch after the first."""
        source = spark_session.from_memory(self._spark, self._rows, 2, self._seed)
        durations, _ = spark_session.run_query(source, "quire", self._path, "sink")
        return durations[-1]["triggerExecution"] / 1_000

    def _start(self) -> float:
        """Seconds outside the micro-batches of a query that has one."""
        with quire.open(str(self._path)) as store, store.transaction() as transaction:
            transaction.put_many("few", [b"x" * 100] * START_ROWS)
        source = self._spark.readStream.format("quire").option("queue", "few")
        source = source.option("subscription", "start").load(str(self._path)).select("payload")
        durations, seconds = spark_session.run_query(source, "quire", self._path, "sink")
        return seconds - sum(each["triggerExecution"] for each in durations) / 1_000
