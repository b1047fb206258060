"""A program that runs a graph of three steps, for tests that kill it.

python -m tests.spark.graph_driver STORE CONTROL [MASTER]

The control directory is that of doubles.py: `hold-before` and `hold-after` hold the commits of the
step `split`, which reports `holding`; `hold-write` holds its tasks, which report `writing`. With
`by-tasks` batches are read and written by tasks, as large ones are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from quire.spark_graphs import Graph
from quire.spark_graphs.graphs import work
from quire.spark_graphs.graphs.step_commit import StepCommit
from tests.spark.doubles import Control
from tests.spark.session import LOCAL, start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OUTPUTS = ("sum", "odd", "even")
KEY = "graph/kills/split"


def make(spark: SparkSession, path: str, control: str) -> Graph:
    """`in` is split, the halves are put together again, and a counter keeps the sum."""
    graph = Graph("kills", spark, path)

    def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        steering = Control(control)
        if (steering.path / "hold-write").exists():
            steering.write("writing", str(os.getpid()))
            steering.hold("hold-write")

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


def main(store_path: str, control: str, master: str = "") -> None:
    """Run the graph until there is nothing to read."""
    session = start_session(Path(control), master or LOCAL)
    if (Path(control) / "by-tasks").exists():
        work.LOCAL_BYTES = 0  # type: ignore[attr-defined]
    steer(Control(control))
    with make(session, store_path, control).start() as run:
        run.drain(timeout=240)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
