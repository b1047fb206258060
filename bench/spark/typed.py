"""Typed queues in Spark: flights repeated to ten million rows, beside Parquet, bytes and Kafka.

A year of flights from New York (the demo's), with all its columns, is repeated as a Parquet file
that is not compressed. All writes read it and write it again: to Parquet, to a typed queue; and as
one JSON document a row to a queue of bytes and to Kafka, for which a tenth of the rows is enough.
All reads parse what they read into columns, which go to Spark's own `noop` sink. The sides take
turns in one session; the first turn warms up and does not count, and of the others each side's best
does: whatever else runs on the machine only ever adds to it. What reading the source takes is in
all writes.

The floor is a data source in Python that hands over the same columns from memory, in as many tasks
and in batches of as many rows, and does nothing else: no read through such a source is faster.
"""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import quire
from bench.figure import BenchmarkSetting, Figure, Result, Table, at_least
from bench.rivals.kafka_broker import with_kafka
from bench.spark.row_sides import (
    BytesQueue,
    Floor,
    KafkaTopic,
    KafkaTransactions,
    Parquet,
    RowSide,
    TypedQueue,
)
from bench.spark.spark_session import start_session
from demo import flights

__all__ = ["run"]

TURNS = 3
COLUMN = "distance"
FEWER = 10
TARGETS = {"Parquet": 0.5, "bytes, JSON": 1, "Kafka, JSON": 5, "Kafka, JSON, transactions": 5}


def run(setting: BenchmarkSetting) -> list[Result]:
    """Rows per second of each side, and ratios."""
    broker, settings, note = with_kafka(setting.folder)
    spark = start_session(settings)
    try:
        sides, left_out = _sides(spark, setting, None if broker is None else broker.address)
        count = setting.scaled(10_000_000, 500_000)
        counts = dict.fromkeys(sides, count)
        counts.update({name: count // FEWER for name in sides if "JSON" in name})
        turns = setting.scaled(TURNS, 1)
        written, read = _turns(sides, turns)
        rows: dict[str, tuple[float, float]] = {
            name: (counts[name] / written[name], counts[name] / read[name]) for name in sides
        }
        return [
            Table(
                "rows of flights",
                ["side", "rows", "written, rows/s", "read, rows/s"],
                [[name, counts[name], *rates] for name, rates in rows.items()],
                f"{note} {left_out}".strip(),
            ),
            *_ratios(rows),
            *_parts(sides, count, turns),
        ]
    finally:
        spark.stop()
        if broker is not None:
            broker.stop()


def _sides(
    spark: Any, setting: BenchmarkSetting, broker: str | None
) -> tuple[dict[str, RowSide], str]:
    """Return the sides by their names; and those that are left out."""
    count = setting.scaled(10_000_000, 500_000)
    folder, note = setting.folder, ""
    year = _flights()
    table = pa.concat_tables([year] * -(-count // year.num_rows)).slice(0, count)
    source, few = str(folder / "source.parquet"), str(folder / "few.parquet")
    _write_parquet(table, source)
    _write_parquet(table.slice(0, count // FEWER), few)
    sides: dict[str, RowSide] = {
        "Parquet": Parquet(spark, source, str(folder / "copy.parquet")),
        "typed": TypedQueue(spark, source, str(folder / "typed"), table.schema),
        "bytes, JSON": BytesQueue(spark, few, str(folder / "bytes")),
    }
    if broker is not None:
        sides["Kafka, JSON"] = KafkaTopic(spark, few, broker)
        try:
            sides["Kafka, JSON, transactions"] = KafkaTransactions(spark, few, broker)
        except FileNotFoundError as error:
            note = f"Without Kafka's transactions: {error}."
    return sides, note


def _flights() -> pa.Table:
    """Return all columns, in types that a typed queue has."""
    import pyarrow.csv as csv

    with zipfile.ZipFile(flights.table("flights")) as archive:
        [name] = archive.namelist()
        with archive.open(name) as file:
            return csv.read_csv(file).drop_columns(["time_hour"])


def _write_parquet(table: pa.Table, path: str) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path, compression="none", row_group_size=1 << 20)


def _turns(sides: dict[str, RowSide], turns: int) -> tuple[dict[str, float], dict[str, float]]:
    """Each side's best seconds of writing, and of reading."""
    written: dict[str, list[float]] = {name: [] for name in sides}
    read: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(1 + turns):
        for name, side in sides.items():
            side.prepare()
            times = _seconds(side.write), _seconds(lambda side=side: _drop(side.read()))  # type: ignore[misc]
            if turn:
                written[name].append(times[0])
                read[name].append(times[1])
    return _best(written), _best(read)


def _best(taken: dict[str, list[float]]) -> dict[str, float]:
    return {name: min(times) for name, times in taken.items()}


def _seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _drop(frame: Any) -> None:
    frame.write.format("noop").mode("append").save()


def _ratios(rows: dict[str, tuple[float, float]]) -> list[Result]:
    results: list[Result] = []
    for index, done in enumerate(("written", "read")):
        for other, target in TARGETS.items():
            if other in rows:
                name = f"rows per second {done}: typed to {other}"
                ratio = rows["typed"][index] / rows[other][index]
                results.append(Figure(name, ratio, "times", at_least(target)))
        for other in ("Kafka, JSON", "Kafka, JSON, transactions"):
            if other in rows:
                name = f"rows per second {done}: bytes, JSON to {other}"
                ratio = rows["bytes, JSON"][index] / rows[other][index]
                results.append(Figure(name, ratio, "times", at_least(1)))
    return results


def _parts(sides: dict[str, RowSide], count: int, turns: int) -> list[Result]:
    """Reads beside the floor; of one column, and of few rows."""
    typed, parquet = sides["typed"], sides["Parquet"]
    assert isinstance(typed, TypedQueue)
    floor = Floor(typed, count)
    with quire.open(typed.place) as store:
        few = f"_meta.position >= {store.queue('rows').end_position - count // 100}"
    reads: dict[str, Callable[[], Any]] = {
        "one column read: Parquet": lambda: parquet.read().select(COLUMN),
        "one column read: typed": lambda: typed.read(columns=COLUMN),
        "one column read: floor": floor.reading(columns=COLUMN),
        "all columns read: typed": typed.read,
        "all columns read: floor": floor.reading(),
        "few": lambda: typed.read(where=few),
    }
    taken: dict[str, list[float]] = {name: [] for name in reads}
    for turn in range(1 + turns):
        for name, read in reads.items():
            seconds = _seconds(lambda read=read: _drop(read()))  # type: ignore[misc]
            if turn:
                taken[name].append(seconds)
    best = _best(taken)
    few_seconds = best.pop("few")
    one, whole = (f"{words} read: " for words in ("one column", "all columns"))
    ratio = best[f"{one}Parquet"] / best[f"{one}typed"]
    return [
        *(Figure(name, count / seconds, "rows/s") for name, seconds in best.items()),
        Figure(f"{one}typed to Parquet", ratio, "times", at_least(TARGETS["Parquet"])),
        *(
            Figure(f"{words}typed to floor", best[f"{words}floor"] / best[f"{words}typed"], "times")
            for words in (one, whole)
        ),
        Figure("the last hundredth read: typed", few_seconds * 1000, "ms"),
    ]
