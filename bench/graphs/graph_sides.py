"""1,000 messages from one queue to another in a Spark session: by a query, by a step of a graph."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import quire

__all__ = ["ROWS", "WARM_UP", "Sides", "query", "quire_query", "quire_step"]

ROWS = 1_000
WARM_UP = 2  # micro-batches, or jobs, that do not count
CAPACITY_BYTES = 8 << 30


class Sides:
    """The store and the session of a measurement."""

    def __init__(self, spark: Any, folder: Path, batches: int, broker: str | None) -> None:
        self.spark, self.folder, self.broker = spark, folder, broker
        self.batches = batches + WARM_UP
        self.path = str(folder / "store")
        self._names = 0
        with quire.open(self.path):
            pass

    def name(self) -> str:
        """A new one, for a topic, a queue or a checkpoint."""
        self._names += 1
        return f"name-{self._names}"

    def queue(self) -> str:
        """A new one, which keeps what is put."""
        name = self.name()
        with quire.open(self.path) as store:
            store.create_queue(name, kind="topic", capacity=CAPACITY_BYTES)
            store.subscribe(name, "keep")
        return name

    def fill(self, queue: str, batches: int) -> None:
        """Put the messages of so many batches."""
        with quire.open(self.path) as store:
            for _ in range(batches):
                with store.transaction() as transaction:
                    transaction.put_many(queue, [b"x" * 100] * ROWS)

    def kafka(self, frame: Any) -> Any:
        """Return its reader or writer, with the broker's address."""
        return frame.format("kafka").option("kafka.bootstrap.servers", self.broker)


def quire_query(sides: Sides) -> list[float]:
    source, target = sides.queue(), sides.queue()
    sides.fill(source, sides.batches)
    rows = sides.spark.readStream.format("quire").option("queue", source)
    rows = rows.option("subscription", "copy").option("startingOffsets", "earliest")
    rows = rows.option("maxMessagesPerTrigger", ROWS).load(sides.path).select("payload")
    writer = rows.writeStream.format("quire").option("path", sides.path).option("queue", target)
    return query(sides, writer)


def quire_step(sides: Sides) -> list[float]:
    """Return the time of a batch, as its share of the time that the step needs for all."""
    from quire.spark_graphs import Graph

    source, target = sides.queue(), sides.queue()
    graph = Graph(sides.name(), sides.spark, sides.path)

    @graph.step(reads=source, writes=target, limit=ROWS)
    def copy(rows: Any) -> Any:
        return rows.select("payload")

    with graph.start(restart="never") as run:
        sides.fill(source, WARM_UP)
        run.drain()
        sides.fill(source, sides.batches - WARM_UP)
        begin = time.perf_counter()
        run.drain()
        return [1_000 * (time.perf_counter() - begin) / (sides.batches - WARM_UP)]


def query(sides: Sides, writer: Any) -> list[float]:
    """The milliseconds of each micro-batch of a query that takes what is there."""
    checkpoint = sides.folder / sides.name()
    running = (
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    )
    running.awaitTermination()
    batches = [each for each in running.recentProgress if each.numInputRows]
    return [float(each.durationMs["triggerExecution"]) for each in batches][WARM_UP:]
