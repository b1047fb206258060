"""Small micro-batches: what each costs beside a sink that drops its rows, and what a start costs.

A stream of 1,000 rows for each micro-batch goes from memory to Quire and to the sink `discard`, in
turns, in one Spark session; a figure is the median of the micro-batches after the first, as Spark's
progress has them. A start is what a query from one queue to another spends outside its
micro-batches, from `start()` to its end; the best of several, in turns with one whose source and
sink do nothing.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import quire
from bench.figure import Figure, Result, Setting, Table, at_most
from bench.spark import start_session

__all__ = ["run"]

ROWS = 1_000
TURNS = 3
STARTS = 4
PARTS = ("triggerExecution", "latestOffset", "queryPlanning", "walCommit", "addBatch",
         "commitOffsets")  # fmt: skip

Durations = list[dict[str, float]]  # of micro-batches, in milliseconds, by part


def run(setting: Setting) -> list[Result]:
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


def _batches(spark: Any, path: Path, setting: Setting) -> list[Result]:
    found: dict[str, Durations] = {"quire": [], "discard": []}
    for turn in range(1 + TURNS):
        for sink, durations in found.items():
            source = spark.readStream.format("memory").option("rows", ROWS)
            source = source.option("batches", setting.scaled(20, 4)).option("seed", setting.seed)
            taken = _run(source.load(), sink, path, setting)[0]
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


def _starts(spark: Any, path: Path, setting: Setting) -> list[Result]:
    """Of one micro-batch from queue to queue; and from memory to nowhere, which is the floor."""
    outside: dict[str, list[float]] = {"Quire": [], "memory and a sink that drops": []}
    for _ in range(STARTS):
        for way, taken in outside.items():
            if way == "Quire":
                with quire.open(str(path)) as store, store.transaction() as transaction:
                    transaction.put_many("in", [b"x" * 100] * ROWS)
                source = spark.readStream.format("quire").option("queue", "in")
                source = source.option("subscription", "start").load(str(path)).select("payload")
            else:
                source = spark.readStream.format("memory").option("rows", ROWS)
                source = source.option("batches", 1).option("seed", setting.seed).load()
            sink = "quire" if way == "Quire" else "discard"
            durations, seconds = _run(source, sink, path, setting)
            taken.append(1_000 * seconds - sum(each[PARTS[0]] for each in durations))
    words = "start and end of a query, outside its micro-batches"
    quire_ms, floor_ms = (min(taken[1:]) for taken in outside.values())
    return [
        Figure(f"{words}: first", outside["Quire"][0], "ms"),
        Figure(words, quire_ms, "ms"),
        Figure(f"{words}: from memory to nowhere", floor_ms, "ms"),
        Figure(f"{words}: Quire to that", quire_ms / floor_ms, "times"),
    ]


def _run(rows: Any, sink: str, path: Path, setting: Setting) -> tuple[Durations, float]:
    """A query's micro-batches that had rows, and its seconds from start to end."""
    writer = rows.writeStream.format(sink).trigger(availableNow=True)
    checkpoint = setting.folder / f"checkpoint-{time.time_ns()}"
    writer = writer.option("checkpointLocation", str(checkpoint))
    if sink == "quire":
        writer = writer.option("path", str(path)).option("queue", "out")
    began = time.perf_counter()
    query = writer.start()
    query.awaitTermination()
    seconds = time.perf_counter() - began
    return [dict(each.durationMs) for each in query.recentProgress if each.numInputRows], seconds
