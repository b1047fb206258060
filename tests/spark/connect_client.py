"""A program of a client of Spark Connect, whose server it starts: reads, writes and streams.

python -m tests.spark.connect_client STORE CHECKPOINTS
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from quire.spark_graphs import Graph
from tests.kit.waiting import SECONDS
from tests.spark.session import ROOT, SETTINGS


def start_session() -> SparkSession:
    """A session of a server on this machine, which lives as long as this process."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.remote("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(store_path: str, checkpoints: str) -> None:
    """Write 0 to 9 to `in`, copy `in` to `out` by a graph, and print how many `out` has."""
    session = start_session()
    rows = session.range(10).selectExpr("cast(id as string) as payload")
    rows.write.format("quire").mode("append").option("queue", "in").save(store_path)
    graph = Graph("copies", session, store_path, checkpoints)
    graph.step("in", "half", name="copy")(lambda rows: rows.select("payload"))
    graph.step("half", "out", name="stream", stateful=True)(lambda rows: rows.select("payload"))
    with graph.start() as run:
        run.drain(timeout=SECONDS)
    print("copied", session.read.format("quire").option("queue", "out").load(store_path).count())
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
