"""A program with the pipelines that a user of Spark has, for tests that kill it.

python -m tests.spark.pipelines STORE CHECKPOINTS CONTROL SECONDS

Five queries run one after another, over topics of JSON: duplicates are dropped within a watermark,
events are counted by windows, two streams are joined, `foreachBatch` writes to two queues, and a
stateful processor numbers what comes of each key. SECONDS is how long to wait for each query.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from tests.spark.queries import stream
from tests.spark.session import LOCAL, start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENT = "id long, key long, at long"
STATE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": STATE,
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    "spark.python.authenticate.socketTimeout": "300s",  # of workers on a machine with much to do
}
INPUTS = ("events", "orders", "payments")
OUTPUTS = ("unique", "windows", "joined", "small", "large", "numbered")
KEYS = 5
WINDOW_SECONDS = 60
FIRST_SECONDS = 60 * WINDOW_SECONDS  # of number 0: a row of second 0 is late for any watermark
CLOSING = 10**6  # ids from here on do nothing but move the watermark on
MOST = {"maxMessagesPerTrigger": "60"}


def event(number: int, at: int | None = None) -> bytes:
    """The JSON of a message."""
    seconds = FIRST_SECONDS + (number if at is None else at)
    return json.dumps({"id": number, "key": number % KEYS, "at": seconds}).encode()


class Numbering(StatefulProcessor):
    """Numbers the rows of a key, in whatever order they come."""

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "number long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        from pyspark.sql import Row

        number = self._count.get()[0] if self._count.exists() else 0
        for _ in rows:
            number += 1
            yield Row(payload=json.dumps({"key": key[0], "number": number}))
        self._count.update((number,))

    def close(self) -> None:
        """Nothing is held."""


class Pipelines:
    """The queries over one store."""

    def __init__(self, spark: SparkSession, path: str, checkpoints: str) -> None:
        self.spark, self.path, self.checkpoints = spark, path, checkpoints
        self.store = SimpleNamespace(path=path)

    def rows(self, queue: str, reader: str) -> DataFrame:
        """The events of a topic."""
        source = stream(self.spark, self.store, queue, subscription=reader, **MOST)
        parsed = source.select(f.from_json(f.col("payload").cast("string"), EVENT).alias("event"))
        return parsed.select("event.*", f.timestamp_seconds("event.at").alias("time"))

    def start(self, rows: DataFrame, name: str) -> Any:
        """A query to the queue of its name."""
        writer = rows.writeStream.format("quire").option("queue", name).option("path", self.path)
        return self.started(writer, name)

    def started(self, writer: Any, name: str) -> Any:
        """The query, until there is no more to read."""
        writer = writer.option("checkpointLocation", f"{self.checkpoints}/{name}")
        return writer.trigger(availableNow=True).start()

    def all(self) -> Iterator[Any]:
        """All queries; each is started when it is asked for."""
        unique = self.rows("events", "unique").withWatermark("time", "10 minutes")
        unique = unique.dropDuplicatesWithinWatermark(["id"])
        timed = self.rows("orders", "windows").withWatermark("time", "1 minute")
        windows = timed.groupBy(f.window("time", f"{WINDOW_SECONDS} seconds")).count()
        windows = windows.select(f.unix_timestamp("window.start").alias("start"), "count")
        orders = self.rows("orders", "joined").withWatermark("time", "1 minute").alias("o")
        payments = self.rows("payments", "joined").withWatermark("time", "1 minute").alias("p")
        within = "o.id = p.id and p.time between o.time and o.time + interval 1 minute"
        joined = orders.join(payments, f.expr(within)).select("o.id", "o.key")
        split = self.rows("orders", "split").writeStream.foreachBatch(self.split)
        by_key = self.rows("orders", "numbered").groupBy("key")
        numbered = by_key.transformWithState(Numbering(), "payload string", "append", "none")
        yield self.start(as_json(unique.select("id", "key")), "unique")
        yield self.start(as_json(windows), "windows")
        yield self.start(as_json(joined), "joined")
        yield self.start(numbered, "numbered")
        yield self.started(split, "split")

    def split(self, batch: DataFrame, number: int) -> None:
        """Small keys to one queue, large ones to another."""
        batch = as_json(batch.select("id", "key")).persist()
        for queue, where in (("small", "< 2"), ("large", ">= 2")):
            rows = batch.where(f"get_json_object(payload, '$.key') {where}")
            options = {"queue": queue, "txnAppId": "split", "txnVersion": str(number)}
            rows.write.format("quire").mode("append").options(**options).save(self.path)
        batch.unpersist()


def as_json(rows: DataFrame) -> DataFrame:
    """The rows as payloads."""
    return rows.select(f.to_json(f.struct("*")).alias("payload"))


def main(path: str, checkpoints: str, control: str, seconds: str) -> None:
    """Run all queries to the end of what there is. One that fails ends the program."""
    session = start_session(Path(control), LOCAL, SETTINGS)
    for query in Pipelines(session, path, checkpoints).all():
        assert query.awaitTermination(int(seconds)), query.status
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
