"""A graph whose Spark is killed: a plain step, a streaming one and a terminal, each of a queue.

`make` is what `quire graph run` takes. As a program it runs the graph itself, kills Spark, and
tells as JSON what its run says then:

python -m tests.spark.ended_graph STORE
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from quire.errors import QuireError
from quire.spark_graphs import Graph
from tests.kit.waiting import SECONDS
from tests.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STEPS = ("copy", "stream", "take")


def make(path: str) -> Graph:
    """The graph, in a session of its own."""
    graph = Graph("ended", start_session(Path(path).parent / "spark"), path)
    graph.step("in", "copied", name="copy")(lambda rows: rows.select("payload"))
    graph.step("in", "streamed", name="stream", stateful=True)(lambda rows: rows.select("payload"))

    @graph.terminal("in")
    def take(rows: DataFrame, batch: int) -> None:
        if rows.where("cast(payload as string) = 'hold'").count():
            threading.Event().wait()  # in Python alone, where no end of Spark is seen

    return graph


def java() -> psutil.Process:
    """The JVM of this process."""
    return next(child for child in psutil.Process().children(True) if child.name() == "java")


def said(action: Any) -> str:
    """The error that it raises."""
    try:
        action()
    except QuireError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def main(path: str) -> None:
    """Until the run has seen that Spark is gone."""
    run = make(path).start()
    run.drain(SECONDS)
    java().kill()
    has_ended = run.wait(SECONDS)
    steps = run.status().steps
    print(
        json.dumps(
            {
                "has_ended": has_ended,
                "phases": {name: step.phase.value for name, step in steps.items()},
                "errors": {name: step.last_error for name, step in steps.items()},
                "drain": said(run.drain),
                "resume": said(lambda: run.resume("copy")),
                "stop": said(run.stop),
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
