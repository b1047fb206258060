"""The Spark driver: one streaming query from `departures/ops` to three queues.

Each micro-batch is one compound commit over `enriched`, `delays` and `alerts`. The checkpoint says
which departures a batch holds, the store's ledger whether it is there already: after any failure,
of the owner of the store or of this process and its JVM, the query goes on exactly once.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from demo import store
from demo.finish import Finish
from demo.route import Reference, load_reference, route
from demo.timeline import Timeline

__all__ = ["run", "session"]

# For a JVM that lives a minute: the first compiler alone, which took 16 s of processor time to warm
# up where both took 27, and the collector without threads of its own.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
TRIGGER = "500 milliseconds"
LOOK_SECONDS = 1.0
FAILURES = 10  # of the query, before the process gives up


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


def run(folder: Path, most: int, spark: SparkSession, finish: Finish, timeline: Timeline) -> None:
    """Run the query, again after each failure, until the end is asked for and all is written."""
    reference = load_reference(spark)
    failures = 0
    while failures < FAILURES:
        timeline.add("query")
        query = start(folder, most, spark, reference)
        try:
            if _follow(query, finish, timeline):
                return
        except StreamingQueryException as error:
            timeline.add("failed", error=str(error)[:2000])
            failures += 1
    raise SystemExit(f"the query failed {failures} times; see {folder / 'pipeline.log'}")


def start(folder: Path, most: int, spark: SparkSession, reference: Reference) -> Any:
    """The running query, from where its checkpoint left off; `most` departures at a time."""
    departures = (
        spark.readStream.format("quire")
        .option("path", str(folder / "store"))
        .option("queue", "departures")
        .option("subscription", store.OPS)
        .option("startingOffsets", "earliest")
        .option("maxMessagesPerTrigger", most)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .load()
    )
    return (
        route(departures, reference)
        .writeStream.format("quire")
        .option("path", str(folder / "store"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime=TRIGGER)
        .start()
    )


def _follow(query: Any, finish: Finish, timeline: Timeline) -> bool:
    """Note the batches of a query; whether it was brought to its end."""
    ready = False
    noted = -1
    while True:
        asked = finish.wait(LOOK_SECONDS)
        if asked:
            query.processAllAvailable()
        if not ready and query.lastProgress is not None:
            ready = True
            timeline.add("ready")
        for progress in query.recentProgress:
            if progress.batchId > noted and progress.numInputRows:
                noted = progress.batchId
                timeline.add("batch", **_figures(progress))
        if asked:
            query.stop()
            return True
        if not query.isActive:
            query.awaitTermination(0)  # raises what ended it


def _figures(progress: Any) -> dict[str, Any]:
    return {
        "batch": progress.batchId,
        "began": progress.timestamp,
        "departures": progress.numInputRows,
        "milliseconds": dict(progress.durationMs),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.pipeline", description=__doc__)
    parser.add_argument("folder", type=Path, help="the demo's folder")
    parser.add_argument("--most", type=int, required=True, help="departures in a micro-batch")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    finish, timeline = Finish(), Timeline(folder, "spark")
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    run(folder, arguments.most, spark, finish, timeline)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
