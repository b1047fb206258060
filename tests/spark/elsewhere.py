"""A program of Spark on hosts that have none of a store's files: `python -m tests.spark.elsewhere`.

It reads, writes, streams and runs a graph by the URL of a server, and looks for its token wherever
Spark shows or notes something. What it prints at the end is how many messages came through.
"""

from __future__ import annotations

import os
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGES = (
    "/jobs/", "/stages/", "/environment/", "/executors/", "/SQL/", "/SQL/execution/?id=0",
    "/StreamingQuery/", "/api/v1/applications/{}/environment", "/api/v1/applications/{}/sql",
    "/api/v1/applications/{}/executors", "/api/v1/applications/{}/jobs",
)  # fmt: skip
NUMBERS = 20_000


def look(spark: SparkSession, rows: DataFrame, token: str, url: str) -> None:
    """See that the token is in no page, plan or command line, and that the URL is where it may."""
    context = spark.sparkContext
    shown = {"plan": rows._jdf.queryExecution().toString()}
    for page in PAGES:
        address = f"{context.uiWebUrl}{page.format(context.applicationId)}"
        with urllib.request.urlopen(address, timeout=60) as answer:
            shown[page] = answer.read().decode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            shown[str(process)] = (process / "cmdline").read_text(errors="replace")
        except OSError:
            continue  # it has ended
    found = [name for name, text in shown.items() if token in text]
    assert not found, found
    assert any("spark.executorEnv.QUIRE_TOKEN" in text for text in shown.values())  # redacted
    assert any(url in text for text in shown.values()), "the search sees nothing"


def main(master: str, url: str, directory: str) -> None:
    """Do it."""
    from quire.spark_graphs import Graph

    token = os.environ["QUIRE_TOKEN"]
    events = Path(directory, "events")
    events.mkdir()
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
    }
    # As an administrator may: what a program sets itself PySpark puts on a command line.
    defaults = Path(directory, "conf", "spark-defaults.conf")
    defaults.parent.mkdir()
    defaults.write_text(f"spark.executorEnv.QUIRE_TOKEN {token}\n")
    os.environ["SPARK_CONF_DIR"] = str(defaults.parent)
    spark = start_session(Path(directory), master, settings)
    defaults.unlink()

    def read(queue: str) -> DataFrame:
        return spark.read.format("quire").option("queue", queue).load(url)

    numbers = spark.range(NUMBERS, numPartitions=4).selectExpr(
        "cast(concat(id, ':', repeat('x', 300)) as binary) as payload"
    )
    numbers.write.format("quire").option("queue", "in").mode("append").save(url)
    rows = read("in")
    assert rows.selectExpr("count(distinct payload)").first()[0] == NUMBERS  # type: ignore[index]
    given = {"queue": "in", "subscription": "spark", "startingOffsets": "earliest"}
    stream = spark.readStream.format("quire").options(**given).load(url).select("payload")
    query = (
        stream.writeStream.format("quire")
        .option("queue", "middle")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start(url)
    )
    query.awaitTermination()
    graph = Graph("elsewhere", spark, url)

    @graph.step("middle", "out")
    def copy(rows: DataFrame) -> DataFrame:
        return rows.select("payload")

    with graph.start() as run:
        run.drain(timeout=300)
    look(spark, rows, token, url.rstrip("/"))
    found = read("out").selectExpr("count(*)", "count(distinct payload)").first()
    spark.stop()
    print("CAME", *found, flush=True)  # type: ignore[misc]


if __name__ == "__main__":
    main(*sys.argv[1:])
