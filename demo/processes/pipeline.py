"""The Spark driver: a graph of three steps, from `departures` to `enriched`, `delays` and `alerts`.

A batch of a step is one transaction over what it reads and what it writes. After any failure, of
the owner of the store or of this process and its JVM, each step goes on behind its last commit:
exactly once, and without a checkpoint of Spark.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from demo import store
from demo.flights import LATE_MINUTES, VERY_LATE_MINUTES
from demo.processes import joins
from demo.processes.finish import Finish
from demo.timeline import Timeline
from quire.errors import QuireError
from quire.spark_graphs import Graph, Run

__all__ = ["flights_graph", "run", "session"]

# For a JVM that lives a minute: the first compiler alone, which took 16 s of processor time to warm
# up where both took 27, and the collector without threads of its own.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
TRIGGER = "500 ms"
LOOK_SECONDS = 1.0

WHO = ("flight_id", "scheduled", "carrier", "flight", "origin", "dest")  # a passenger would know


def session() -> SparkSession:
    """Spark on two cores of this machine."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
    }
    builder: Any = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.master("local[2]").appName("quire-demo").getOrCreate()
    return spark


def flights_graph(path: Path, most: int, spark: SparkSession) -> Graph:
    """The graph over the store at the path; a batch has `most` messages at most."""
    graph = Graph(store.GRAPH, spark, str(path))
    reference = joins.load_reference(spark)

    @graph.step(reads="departures", writes="enriched", limit=most, trigger=TRIGGER)
    def enrich(departures: DataFrame) -> DataFrame:
        return joins.enriched(departures, reference)

    @graph.step(reads="enriched", writes="delays", limit=most, trigger=TRIGGER)
    def late(flights: DataFrame) -> DataFrame:
        return flights.where(F.col("delay") > LATE_MINUTES)

    @graph.step(reads="enriched", writes=store.ALERTS, limit=most, trigger=TRIGGER)
    def warn(flights: DataFrame) -> DataFrame:
        very_late = F.col("delay") > VERY_LATE_MINUTES
        reason = F.when(F.col("cancelled"), "cancelled").when(very_late, "very late")
        alerts = flights.withColumn("reason", reason).where("reason is not null")
        return alerts.select(*WHO, "delay", "reason")

    return graph


def run(graph: Graph, finish: Finish, timeline: Timeline) -> None:
    """Run the graph until the end is asked for and all is written."""
    with graph.start() as started:
        timeline.add("ready")
        noted = dict.fromkeys(graph.steps, 0)
        while not finish.wait(LOOK_SECONDS):
            _note(started, noted, timeline)
        started.drain()
        _note(started, noted, timeline)


def _note(started: Run, noted: dict[str, int], timeline: Timeline) -> None:
    """Write down the batches that were committed since the last look."""
    try:
        status = started.status()
    except QuireError as error:  # the owner is gone; its successor is asked next time
        timeline.add("lost", error=repr(error))
        return
    for name, step in status.steps.items():
        if step.batches > noted[name]:
            seconds = step.last_batch_seconds
            timeline.add("batches", step=name, number=step.number, seconds=seconds)
            noted[name] = step.batches
        if step.last_error and step.retries:
            timeline.add("failed", step=name, error=step.last_error[:2000])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.processes.pipeline", description=__doc__)
    parser.add_argument("folder", type=Path, help="the demo's folder")
    parser.add_argument("--most", type=int, required=True, help="messages in a batch")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    finish, timeline = Finish(), Timeline(folder, "spark")
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    run(flights_graph(folder / "store", arguments.most, spark), finish, timeline)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
