"""A program that runs a graph with keyed states, for tests that kill it.

python -m tests.spark.state_driver STORE CONTROL

Numbers come to `in`, some of them again and again: `unique` hands each on once, `count` has sums of
them by their last digit, and `hold` puts each once more when its timer is due. The file `kill-at`
in the control directory says at which step of a run, a merge or a commit the program kills itself;
with `by-tasks` batches are read and written by tasks, as large ones are.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.keyed import keyed_merges, run_files, run_output
from quire.spark_graphs import Graph, StateRows, keyed
from quire.spark_graphs.graphs.functions import step_function
from quire.spark_graphs.graphs.steps.step_commit import StepCommit
from tests.keyed.conftest import SMALL_RUNS
from tests.kit.limits import limited
from tests.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEEN = keyed("seen", "number", "number bigint, at timestamp")
DIGITS = keyed("digits", "digit", "digit bigint, times bigint, total bigint")
NUMBER = "cast(cast(payload as string) as long) as number"


def make(spark: SparkSession, path: str) -> Graph:
    """in -> unique -> fresh -> count -> counted -> hold -> echo"""
    from pyspark.sql import functions as f

    graph = Graph("kills", spark, path)

    @graph.step("in", "fresh", state=SEEN, limit=25)
    def unique(rows: DataFrame, seen: StateRows) -> dict[str, DataFrame]:
        numbers = rows.selectExpr(NUMBER, "time").groupBy("number").agg(f.min("time").alias("at"))
        new = numbers.join(seen.rows(numbers).select("number"), "number", "left_anti")
        return {"fresh": new.selectExpr("cast(number as string) as payload"), "seen": new}

    @graph.step("fresh", "counted", state=DIGITS, limit=20)
    def count(rows: DataFrame, digits: StateRows) -> dict[str, DataFrame]:
        numbers = rows.selectExpr(NUMBER)
        by_digit = numbers.groupBy((f.col("number") % 10).alias("digit"))
        news = by_digit.agg(f.count("*").alias("more"), f.sum("number").alias("sum"))
        after = news.join(digits.rows(news), "digit", "left").selectExpr(
            "digit", "coalesce(times, 0L) + more as times", "coalesce(total, 0L) + sum as total"
        )
        return {"counted": rows.select("payload"), "digits": after}

    @graph.step("counted", "echo", state=HELD, limit=30)
    def hold(rows: DataFrame, held: StateRows) -> dict[str, DataFrame]:
        return {"held": rows.selectExpr(NUMBER, "time as _timer")}

    return graph


def fire(due: DataFrame, held: StateRows) -> dict[str, DataFrame]:
    """Put the numbers that are due, and forget them."""
    text = due.selectExpr("cast(number as string) as payload")
    return {"echo": text, "held": due.selectExpr("number", "true as _delete")}


HELD = keyed("held", "number", "number bigint", on_timer=fire, event_time="time")


def kill_at(last: int) -> None:
    """Have this process kill itself at so many steps from now."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps >= last:
            os.kill(os.getpid(), signal.SIGKILL)

    def at_steps(kind: Any, name: str) -> None:
        method: Callable[..., Any] = getattr(kind, name)

        def counted(*values: Any, **named: Any) -> Any:
            step()
            found = method(*values, **named)
            step()
            return found

        setattr(kind, name, counted)

    at_steps(run_output.RunOutput, "finish")
    at_steps(run_files.RunFiles, "put")
    at_steps(keyed_merges.KeyedMerges, "_merge")
    at_steps(StepCommit, "commit")


def main(store_path: str, control: str) -> None:
    """Run the graph until there is nothing to read."""
    session = start_session(Path(control))
    if (Path(control) / "by-tasks").exists():
        step_function.LOCAL_BYTES = 0  # type: ignore[attr-defined]
    with limited(SMALL_RUNS), make(session, store_path).start() as run:
        kill = Path(control) / "kill-at"
        if kill.exists():
            kill_at(int(kill.read_text()))
        run.drain(timeout=600)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
