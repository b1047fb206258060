"""Tries each feature of the Spark connector once, with the PySpark that runs this program.

python -m tests.spark.version_probe DIRECTORY [FEATURE ...]

It prints one line of JSON for each feature, {"feature": ..., "result": ...}, with "yes" or the
first line of the error. scripts/test_spark_versions.py runs it with several releases.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import quire
from tests.spark.session import spark_home

WORDS: Final = "id bigint, amount double"
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class Probe:
    """A session, a store, and a directory for checkpoints."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = str(directory / "store")
        with quire.open(self.path) as store:
            for name in ("in", "out", "copies", "batches", "streamed"):
                store.create_queue(name, kind="topic")
            for name in ("rows", "steps"):
                store.create_queue(name, kind="topic", schema=WORDS)
            for queue in store.queues():
                store.subscribe(queue.name, "check")  # what one feature has read stays for the next
        os.environ["SPARK_HOME"] = str(spark_home(directory))
        builder = SparkSession.builder.master("local[2]").config(map={**SETTINGS})
        self.spark = builder.config(
            "spark.sql.warehouse.dir", str(directory / "warehouse")
        ).getOrCreate()
        self.spark.sparkContext.setLogLevel("OFF")

    def read(self, queue: str, **options: str) -> Any:
        """A batch read of a queue."""
        return self.spark.read.format("quire").options(queue=queue, **options).load(self.path)

    def write(self, rows: Any, queue: str, **options: str) -> None:
        """A batch write to a queue."""
        writer = rows.write.format("quire").mode("append").options(queue=queue, **options)
        writer.save(self.path)

    def run(self, writer: Any, name: str) -> None:
        """A streaming query to the end of what there is."""
        writer = writer.option("checkpointLocation", str(self.directory / name))
        if name != "batches":
            writer = writer.format("quire").option("path", self.path)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(300)

    def files(self, name: str) -> Any:
        """A stream of a source of Spark's own, with the numbers from 0 to 9."""
        directory = self.directory / f"files-{name}"
        directory.mkdir()
        (directory / "1.json").write_text("".join(f'{{"payload": "{n}"}}\n' for n in range(10)))
        return self.spark.readStream.schema("payload string").json(str(directory))


def numbers(rows: Any) -> list[int]:
    """The payloads."""
    return sorted(int(bytes(row.payload)) for row in rows.select("payload").collect())


def batches(probe: Probe) -> None:
    """A write and a read of messages of bytes, found by the format's name."""
    probe.write(probe.spark.range(10).selectExpr("string(id) as payload"), "in")
    assert numbers(probe.read("in")) == list(range(10))
    assert numbers(probe.read("in", where="position >= 7")) == [7, 8, 9]


def typed_batches(probe: Probe) -> None:
    """The same of a typed queue."""
    probe.write(probe.spark.range(10).selectExpr("id", "id / 2D as amount"), "rows")
    rows = probe.read("rows", columns="id, _meta.position, _meta.time", where="amount > 3")
    assert sorted(row.id for row in rows.collect()) == [7, 8, 9]
    assert rows.where("_meta.time > timestamp '2020-01-01 00:00:00'").count() == 3


def stream_sink(probe: Probe) -> None:
    """A query that writes, from a source of Spark's own; repeated, it writes nothing again."""
    rows = probe.files("sink")
    probe.run(rows.writeStream.option("queue", "out"), "sink")
    for path in (probe.directory / "sink" / "commits").iterdir():
        path.unlink()
    probe.run(rows.writeStream.option("queue", "out"), "sink")
    assert numbers(probe.read("out")) == list(range(10))


def foreach_batch(probe: Probe) -> None:
    """Writes inside `foreachBatch`, to two queues by one version."""

    def write(batch: Any, number: int) -> None:
        for queue in ("copies", "batches"):
            probe.write(batch, queue, txnAppId="probe", txnVersion=str(number))

    probe.run(probe.files("foreach").writeStream.foreachBatch(write), "batches")
    assert numbers(probe.read("copies")) == numbers(probe.read("batches")) == list(range(10))


def stream_source(probe: Probe) -> None:
    """A query that reads a topic, with a limit and a restart."""
    options = {"queue": "in", "subscription": "probe", "startingOffsets": "earliest"}
    options["maxMessagesPerTrigger"] = "4"
    rows = probe.spark.readStream.format("quire").options(**options).load(probe.path)
    written = rows.select("payload").writeStream.option("queue", "streamed")
    for _ in range(2):
        probe.run(written, "source")
    assert numbers(probe.read("streamed")) == list(range(10))


def graph_steps(probe: Probe) -> None:
    """A step of a graph, with DataFrames of a typed queue."""
    graph = quire_graph(probe, "steps")

    @graph.step(reads="rows", writes="steps")
    def large(rows: Any) -> Any:
        return rows.where("amount > 3")

    drain(graph)
    assert sorted(row.id for row in probe.read("steps").collect()) == [7, 8, 9]


def graph_streams(probe: Probe) -> None:
    """A streaming step of a graph, with a window."""
    graph = quire_graph(probe, "streams")

    @graph.step(reads="rows", writes="windows", watermark="1 minute")
    def counted(rows: Any) -> Any:
        found = rows.dropDuplicatesWithinWatermark(["id"])
        return found.select(f.col("id").cast("string").alias("payload"))

    drain(graph)
    assert numbers(probe.read("windows")) == list(range(10))


def quire_graph(probe: Probe, name: str) -> Any:
    """A graph over the store."""
    from quire.spark_graphs import Graph

    return Graph(name, probe.spark, probe.path)


def drain(graph: Any) -> None:
    """Run a graph until its inputs are empty."""
    run = graph.start()
    try:
        run.drain(timeout=300)
    finally:
        run.stop()


FEATURES: Final[dict[str, Callable[[Probe], None]]] = {
    "batch reads and writes": batches,
    "typed queues": typed_batches,
    "the streaming sink": stream_sink,
    "`foreachBatch` with `txnAppId`": foreach_batch,
    "the streaming source": stream_source,
    "graphs": graph_steps,
    "streaming steps of graphs": graph_streams,
}


def main(directory: str, *names: str) -> None:
    """Try them in their order: later ones read what earlier ones have written."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    probe = Probe(Path(directory))
    for name in names or FEATURES:
        try:
            FEATURES[name](probe)
            result = "yes"
        except Exception as error:
            result = reason(error)
            if "PROBE_VERBOSE" in os.environ:
                raise
        print(json.dumps({"feature": name, "result": result}), flush=True)
    print(json.dumps({"feature": "PySpark", "result": pyspark.__version__}), flush=True)
    probe.spark.stop()


def reason(error: Exception) -> str:
    """What is wrong: the release that is needed, or the first line of the error."""
    needed = re.search(r"needs PySpark [\d.]+", str(error))
    return needed[0] if needed else f"{type(error).__name__}: {error}".partition("\n")[0][:300]


if __name__ == "__main__":
    main(*sys.argv[1:])
