"""A program that runs a graph of three steps, for tests that kill it.

python -m tests.spark.graph_driver STORE CONTROL [MASTER]

The control directory is that of doubles.py: `hold-before` and `hold-after` hold the commits of the
step `split`, which reports `holding`; `hold-write` holds its tasks, which report `writing`;
`slow-task` holds the one of them that comes first until the next attempt of it comes. With
`by-tasks` batches are read and written by tasks, as large ones are. While `stay` is there the graph
goes on when there is nothing to read, and `paused` tells whether all its steps are.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from quire.spark_graphs import Graph, Run
from quire.spark_graphs.graphs import Phase
from quire.spark_graphs.graphs.functions import step_function
from quire.spark_graphs.graphs.steps.step_commit import StepCommit
from tests.spark.doubles import Control
from tests.spark.session import LOCAL, start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OUTPUTS = ("sum", "odd", "even")
KEY = "graph/kills/split"


SPECULATIVE = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.task.duration.threshold": "1s",
}


def attempt() -> int:
    """Which one of its task the code that calls is in, from 0."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


def make(spark: SparkSession, path: str, control: str) -> Graph:
    """`in` is split, the halves are put together again, and a counter keeps the sum."""
    graph = Graph("kills", spark, path)

    def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        steering = Control(control)
        if (steering.path / "hold-write").exists():
            steering.write("writing", str(os.getpid()))
            steering.hold("hold-write")
        if steering.take("slow-task"):
            steering.report("slow")
            steering.hold("slow")
        elif attempt() > 0 and steering.take("slow"):
            steering.report("again")

    @graph.step("in", ["odd", "even"], limit=25)
    def split(rows: DataFrame) -> dict[str, DataFrame]:
        number = "cast(cast(payload as string) as long)"
        kept = rows.select("payload").mapInArrow(held, "payload binary")
        return {
            "odd": kept.where(f"{number} % 2 = 1"),
            "even": kept.where(f"{number} % 2 = 0"),
        }

    @graph.step(["odd", "even"], "all")
    def merge(odd: DataFrame, even: DataFrame) -> DataFrame:
        return odd.union(even).select("payload")

    @graph.step("all", "sum")
    def add(rows: DataFrame) -> DataFrame:
        state = graph.state("add")
        total = rows.selectExpr("sum(cast(cast(payload as string) as long))").first()
        state["sum"] = state.get("sum", 0) + (total[0] if total and total[0] else 0)
        return rows.select("payload")

    return graph


def steer(control: Control) -> None:
    """Have this process's commits of `split` held where the test wants it."""
    commit = StepCommit.commit

    def held(self: StepCommit) -> bool:
        is_split = KEY in self.records
        if is_split and (control.path / "hold-before").exists():
            control.report("holding")
            control.hold("hold-before")
        done = commit(self)
        if is_split:
            control.report(f"committed-{self.records[KEY]}")
            control.hold("hold-after")
        return done

    StepCommit.commit = held  # type: ignore[method-assign]


def stay(run: Run, control: Control) -> None:
    """Until the test wants the graph to end."""
    while (control.path / "stay").exists():
        if {step.phase for step in run.status().steps.values()} == {Phase.PAUSED}:
            control.report("paused")
        time.sleep(0.05)


def main(store_path: str, control: str, master: str = "") -> None:
    """Run the graph until there is nothing to read."""
    settings = SPECULATIVE if master.startswith("spark://") else None
    session = start_session(Path(control), master or LOCAL, settings)
    if (Path(control) / "by-tasks").exists():
        step_function.LOCAL_BYTES = 0  # type: ignore[attr-defined]
    steer(Control(control))
    with make(session, store_path, control).start() as run:
        stay(run, Control(control))
        run.drain(timeout=600)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
