"""The cost of a graph while nothing happens: processor time of all processes.

The driver, its JVM, Spark's workers and the store's owner count, in one session: first at rest
without a graph, then with one whose steps stand in a row and have all done a batch.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench.figure import BenchmarkSetting, Figure, at_most
from bench.measuring.processor_time import processor_seconds

__all__ = ["measure"]

STEPS = 20
SETTLING_SECONDS = 5.0  # in which what Spark does when something has begun or ended is done


def measure(spark: Any, setting: BenchmarkSetting) -> list[Figure]:
    """Shares of a core."""
    from quire.spark_graphs import Graph

    path = setting.folder / "idle"
    seconds = setting.scaled(60, 10)
    alone = _share(path, seconds)
    graph = Graph("idle", spark, str(path))
    graph.queue("q0")
    for number in range(STEPS):
        trigger = "500 ms" if number % 2 else None

        @graph.step(f"q{number}", f"q{number + 1}", name=f"step-{number}", trigger=trigger)
        def copy(rows: Any) -> Any:
            return rows.select("payload")

    with graph.start() as run:
        _put(path, b"once through all of them")
        run.drain(timeout=300)
        assert all(step.batches for step in run.status().steps.values())
        together = _share(path, seconds)
    return [
        Figure("idle session", alone, "% of a core"),
        Figure(f"idle session with a graph of {STEPS} steps", together, "% of a core", at_most(5)),
        Figure(f"idle graph of {STEPS} steps alone", together - alone, "% of a core"),
    ]


def _put(path: Path, payload: bytes) -> None:
    from quire.opening import open_or_serve

    with open_or_serve(str(path)) as store:
        store.put("q0", payload)


def _share(path: Path, seconds: int) -> float:
    time.sleep(SETTLING_SECONDS)
    begin = processor_seconds(path)
    time.sleep(seconds)
    return 100 * (processor_seconds(path) - begin) / seconds
