"""Small micro-batches: what each costs beside a sink that drops its rows, and what a start costs.

A stream of 1,000 rows for each micro-batch goes from memory to Quire and to the sink `discard`, in
turns, in one Spark session; a figure is the median of the micro-batches after the first, as Spark's
progress has them. A start is what a query from one queue to another spends outside its
micro-batches, from `start()` to its end; the best of several, in turns with one whose source and
sink do nothing.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import quire
from bench.figure import BenchmarkSetting, Figure, Result, Table, at_most
from bench.spark.spark_session import Durations, from_memory, run_query, start_session

__all__ = ["run"]

ROWS = 1_000
TURNS = 3
STARTS = 4
PARTS = ("triggerExecution", "latestOffset", "queryPlanning", "walCommit", "addBatch",
         "commitOffsets")  # fmt: skip


def run(setting: BenchmarkSetting) -> list[Result]:
    """Milliseconds of a micro-batch and of a start."""
    path = setting.folder / "store"
    with quire.open(str(path)) as store:
        store.create_queue("in", kind="topic")
        store.create_queue("out", kind="topic")
        store.subscribe("out", "keep")
    spark = start_session()
    try:
        return [*_batches(spark, path, setting), *_starts(spark, path, setting)]
    finally:
        spark.stop()


def _batches(spark: Any, path: Path, setting: BenchmarkSetting) -> list[Result]:
    found: dict[str, Durations] = {"quire": [], "discard": []}
    for turn in range(1 + TURNS):
        for sink, durations in found.items():
            source = from_memory(spark, ROWS, setting.scaled(20, 4), setting.seed)
            taken, _ = run_query(source, sink, path, "out")
            if turn:
                durations += taken[1:]
    medians = {
        sink: {part: median(each.get(part, 0.0) for each in durations) for part in PARTS}
        for sink, durations in found.items()
    }
    ratio = medians["quire"][PARTS[0]] / medians["discard"][PARTS[0]]
    words = f"micro-batch of {ROWS:,} rows"
    return [
        Figure(f"{words}: Quire", medians["quire"][PARTS[0]], "ms"),
        Figure(f"{words}: a sink that drops them", medians["discard"][PARTS[0]], "ms"),
        Figure(f"{words}: Quire to that", ratio, "times", at_most(1.1)),
        Table(
            f"Parts of a {words}, ms",
            ["part", *medians],
            [[part, *(f"{medians[sink][part]:.0f}" for sink in medians)] for part in PARTS],
        ),
    ]


def _starts(spark: Any, path: Path, setting: BenchmarkSetting) -> list[Result]:
    """Return the starts of a micro-batch from queue to queue; and from memory to nowhere, which is
    the floor.
    """
    outside: dict[str, list[float]] = {"Quire": [], "memory and a sink that drops": []}
    for _ in range(STARTS):
        for way, taken in outside.items():
            if way == "Quire":
                with quire.open(str(path)) as store, store.transaction() as transaction:
                    transaction.put_many("in", [b"x" * 100] * ROWS)
                source = spark.readStream.format("quire").option("queue", "in")
                source = source.option("subscription", "start").load(str(path)).select("payload")
            else:
                source = from_memory(spark, ROWS, 1, setting.seed)
            sink = "quire" if way == "Quire" else "discard"
            durations, seconds = run_query(source, sink, path, "out")
            taken.append(1_000 * seconds - sum(each[PARTS[0]] for each in durations))
    words = "start and end of a query, outside its micro-batches"
    quire_ms, floor_ms = (min(taken[1:]) for taken in outside.values())
    return [
        Figure(f"{words}: first", outside["Quire"][0], "ms"),
        Figure(words, quire_ms, "ms"),
        Figure(f"{words}: from memory to nowhere", floor_ms, "ms"),
        Figure(f"{words}: Quire to that", quire_ms / floor_ms, "times"),
    ]
