"""Two checkouts' Quire: from queue to queue by Spark, and a graph's start, beside those before.

A step and a streaming query take 1,000 messages at a time; what counts is the time of such a batch.
See two_checkouts.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import quire
from bench.figure import BenchmarkSetting, Result
from bench.graphs.graph_sides import Sides, quire_query, quire_step
from bench.measuring import two_checkouts
from bench.spark.spark_session import start_session

__all__ = ["run", "session"]

TURNS = 7
STEPS = 8
OPERATIONS = {
    "step": ("1,000 messages by a step", 1.0),
    "query": ("1,000 messages by a streaming query", 1.0),
    "start": (f"start of a graph of {STEPS} steps, one message through all, and end", 1.0),
}


def run(setting: BenchmarkSetting) -> list[Result]:
    """The ratios of time and of processor time, now to before."""
    batches = setting.scaled(20, 4)
    title = f"a batch of {batches}; processor time of them all"
    return two_checkouts.compare(setting, "graphs.graph_turns", OPERATIONS, batches, TURNS, title)


def session(folder: Path, batches: int, seed: int) -> two_checkouts.CheckoutSession:
    """Return one side's session: a store, and a Spark session."""
    return _GraphSession(start_session(), folder, batches)


class _GraphSession:
    """The operations in one Spark session."""

    def __init__(self, spark: Any, folder: Path, batches: int) -> None:
        self._spark = spark
        self._sides = sides = Sides(spark, folder, batches, None)
        self.operations: dict[str, Callable[[], float]] = {
            "step": lambda: median(quire_step(sides)) / 1_000,
            "query": lambda: median(quire_query(sides)) / 1_000,
            "start": self._start,
        }

    def stop(self) -> None:
        self._spark.stop()

    def _start(self) -> float:
        """Seconds."""
        from quire.spark_graphs import Graph

        path = self._sides.path
        graph = Graph(self._sides.name(), self._spark, path)
        queues = [self._sides.name() for _ in range(STEPS + 1)]
        graph.queue(queues[0])
        for number in range(STEPS):

            @graph.step(queues[number], queues[number + 1], name=f"step-{number}")
            def copy(rows: Any) -> Any:
                return rows.select("payload")

        begin = time.perf_counter()
        with graph.start() as run:
            with quire.open(path) as store:
                store.put(queues[0], b"through all of them")
            run.drain(timeout=300)
        return time.perf_counter() - begin
