"""Typed queues in Spark: flights repeated to ten million rows, beside Parquet and bytes.

A year of flights from New York (the demo's), with all its columns, is repeated as a Parquet file
that is not compressed. All writes read it and write it again: to Parquet, to a typed queue, and to
a queue of bytes as one JSON document a row. All reads go to Spark's own `noop` sink. The sides take
turns in one session; the first turn warms up and does not count. What reading the source takes is
in all writes.
"""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import quire
from bench.figure import Figure, Setting, at_least
from bench.spark import start_session
from demo import flights

__all__ = ["run"]

TURNS = 3
CAPACITY_BYTES = 64 << 30
TARGET = 0.5


def run(setting: Setting) -> list[Figure]:
    """Rows per second of each side, and ratios."""
    rows = setting.scaled(10_000_000, 500_000)
    spark = start_session()
    try:
        bench = _Bench(spark, setting.folder, rows)
        figures = bench.writes(setting.scaled(TURNS, 1))
        return figures + bench.reads(setting.scaled(TURNS, 1))
    finally:
        spark.stop()


class _Bench:
    """The source, and the places where it is written to."""

    def __init__(self, spark: Any, folder: Path, rows: int) -> None:
        from pyspark.sql import functions as f

        self._spark = spark
        self._rows = rows
        self._store = str(folder / "store")
        self._source = str(folder / "source.parquet")
        self._copy = str(folder / "copy.parquet")
        year = _flights()
        table = pa.concat_tables([year] * -(-rows // year.num_rows)).slice(0, rows)
        _write_parquet(table, self._source)
        self._frame = spark.read.parquet(self._source)
        names = self._frame.columns
        self._json = self._frame.select(f.to_json(f.struct(*names)).cast("binary").alias("payload"))
        with quire.open(self._store) as store:
            store.create_queue("typed", "work", CAPACITY_BYTES, schema=table.schema)
            store.create_queue("bytes", "work", CAPACITY_BYTES)

    def writes(self, turns: int) -> list[Figure]:
        """Each side writes all rows."""

        def parquet() -> None:
            writer = self._frame.write.mode("overwrite").option("compression", "uncompressed")
            writer.parquet(self._copy)

        def to(queue: str, frame: Any) -> None:
            frame.write.format("quire").mode("append").option("queue", queue).save(self._store)

        sides: dict[str, Callable[[], None]] = {
            "Parquet": parquet,
            "typed": lambda: to("typed", self._frame),
            "bytes": lambda: to("bytes", self._json),
        }
        return _compare("write", self._rows, _turns(sides, turns, self._purge))

    def _purge(self) -> None:
        """So that each write finds empty queues; the last one's rows stay to be read."""
        with quire.open(self._store) as store:
            for name in ("typed", "bytes"):
                store.purge(name)
            store.checkpoint()

    def reads(self, turns: int) -> list[Figure]:
        """Each side reads all rows; then those of one column, and few of them."""
        from pyspark.sql import functions as f

        spark = self._spark

        def quire_frame(queue: str, **options: str) -> Any:
            reader = spark.read.format("quire").options(queue=queue, **options)
            return reader.load(self._store)

        schema = self._frame.schema
        parsed = quire_frame("bytes", columns="payload").select(
            f.from_json(f.col("payload").cast("string"), schema).alias("row")
        )
        copy = spark.read.parquet(self._copy)
        figures = _compare(
            "read",
            self._rows,
            _turns(
                {
                    "Parquet": lambda: _drop(copy),
                    "typed": lambda: _drop(quire_frame("typed")),
                    "bytes": lambda: _drop(parsed.select("row.*")),
                },
                turns,
            ),
        )
        few = f"_meta.position >= {self._rows * 99 // 100}"
        some = _turns(
            {
                "Parquet": lambda: _drop(copy.select("distance")),
                "typed": lambda: _drop(quire_frame("typed", columns="distance")),
            },
            turns,
        )
        figures += _compare("read, one column", self._rows, some)
        end = _turns({"typed": lambda: _drop(quire_frame("typed", where=few))}, turns)
        figures.append(Figure("read, the last hundredth: typed", end["typed"] * 1000, "ms"))
        return figures


def _flights() -> pa.Table:
    """All columns, in types that a typed queue has."""
    import pyarrow.csv as csv

    with zipfile.ZipFile(flights.table("flights")) as archive:
        [name] = archive.namelist()
        with archive.open(name) as file:
            return csv.read_csv(file).drop_columns(["time_hour"])


def _write_parquet(table: pa.Table, path: str) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path, compression="none", row_group_size=1 << 20)


def _drop(frame: Any) -> None:
    frame.write.format("noop").mode("append").save()


def _turns(
    sides: dict[str, Callable[[], None]],
    turns: int,
    before: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Each side's best seconds: whatever else runs on the machine only ever adds to them."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(1 + turns):
        before()
        for name, side in sides.items():
            begin = time.perf_counter()
            side()
            if turn:
                taken[name].append(time.perf_counter() - begin)
    return {name: min(times) for name, times in taken.items()}


def _compare(words: str, rows: int, seconds: dict[str, float]) -> list[Figure]:
    figures = [Figure(f"{words}: {name}", rows / took, "rows/s") for name, took in seconds.items()]
    parquet = seconds["Parquet"] / seconds["typed"]
    figures.append(Figure(f"{words}: typed to Parquet", parquet, "times", at_least(TARGET)))
    if "bytes" in seconds:
        ratio = seconds["bytes"] / seconds["typed"]
        figures.append(Figure(f"{words}: typed to bytes and JSON", ratio, "times", at_least(1)))
    return figures
