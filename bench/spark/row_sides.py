"""Places that rows go to from Spark and come back from: files, queues, Kafka.

Kafka is one broker on this machine with one partition a topic, and syncs nothing; Quire's commits
are durable. Its connector has no transactions: where they are on, tasks write by a client of
Kafka's in Python (confluent-kafka), each in one transaction, and reads are of what is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import quire
from bench.rivals.kafka_broker import GATHERING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BytesQueue",
    "Floor",
    "KafkaTopic",
    "KafkaTransactions",
    "Parquet",
    "RowSide",
    "TypedQueue",
]

CAPACITY_BYTES = 64 << 30


class RowSide:
    """A place for the rows of one Parquet file. Each write is to an empty place."""

    def __init__(self, spark: Any, source: str, place: str) -> None:
        self.spark, self.source, self.place = spark, source, place
        self.rows = spark.read.parquet(source)

    def prepare(self) -> None:
        """Make the place empty; it is not timed."""

    def write(self) -> None:
        """Read the source, and write all of it."""
        raise NotImplementedError

    def read(self) -> Any:
        """Read the rows that were written last, with their columns."""
        raise NotImplementedError


def _empty_queue(path: str, **properties: Any) -> None:
    with quire.open(path) as store:
        if store.queues():
            store.admin.purge("rows")
        else:
            store.create_queue("rows", "work", CAPACITY_BYTES, **properties)
        store.admin.checkpoint()


class Parquet(RowSide):
    """Files that are not compressed."""

    def write(self) -> None:
        writer = self.rows.write.mode("overwrite").option("compression", "uncompressed")
        writer.parquet(self.place)

    def read(self) -> Any:
        return self.spark.read.parquet(self.place)


class TypedQueue(RowSide):
    """A queue with the columns of the rows, in a store of its own."""

    def __init__(self, spark: Any, source: str, place: str, schema: pa.Schema) -> None:
        super().__init__(spark, source, place)
        self._schema = schema

    def prepare(self) -> None:
        _empty_queue(self.place, schema=self._schema)

    def write(self) -> None:
        writer = self.rows.write.format("quire").mode("append")
        writer.option("queue", "rows").save(self.place)

    def read(self, **options: str) -> Any:
        """`options`: further ones of the data source."""
        reader = self.spark.read.format("quire").options(queue="rows", **options)
        return reader.load(self.place)


class Floor:
    """The least time that a queue's rows take where nothing reads them: see memory_rows.py.

    With as many tasks, and batches of as many rows, as a read of the queue has.
    """

    def __init__(self, queue: TypedQueue, count: int) -> None:
        """The queue has been written, with so many rows."""
        from bench.spark.memory_rows import MemoryRows

        queue.spark.dataSource.register(MemoryRows)
        self._queue, self._count = queue, count

    def reading(self, **options: str) -> Callable[[], Any]:
        """Return a function that makes a DataFrame as `TypedQueue.read` does."""
        from quire.spark_graphs.source import QuireDataSource

        queue = self._queue
        schema = queue.read(**options).schema
        source = QuireDataSource({"path": queue.place, "queue": "rows", **options})
        reader = source.reader(schema)
        tasks = reader.partitions()
        batch = next(iter(reader.read(tasks[0])))
        read = queue.spark.read.format("memory_rows").schema(schema)
        read = read.options(file=queue.source, rows=self._count, tasks=len(tasks))
        load: Callable[[], Any] = read.option("batch_rows", batch.num_rows).load
        return load


class _Json(RowSide):
    """Rows as JSON documents, a message each."""

    def __init__(self, spark: Any, source: str, place: str) -> None:
        from pyspark.sql import functions as f

        super().__init__(spark, source, place)
        names = self.rows.columns
        self.documents = self.rows.select(f.to_json(f.struct(*names)).alias("value"))

    def parsed(self, frame: Any, column: str) -> Any:
        """The rows again."""
        from pyspark.sql import functions as f

        text = f.col(column).cast("string")
        return frame.select(f.from_json(text, self.rows.schema).alias("row")).select("row.*")


class BytesQueue(_Json):
    """A queue of bytes, in a store of its own."""

    def prepare(self) -> None:
        _empty_queue(self.place)

    def write(self) -> None:
        rows = self.documents.selectExpr("cast(value as binary) as payload")
        rows.write.format("quire").mode("append").option("queue", "rows").save(self.place)

    def read(self) -> Any:
        reader = self.spark.read.format("quire").options(queue="rows", columns="payload")
        return self.parsed(reader.load(self.place), "payload")


class KafkaTopic(_Json):
    """A topic, by Spark's connector.

    The place is the broker's address; each write is to a new topic.
    """

    isolation = "read_uncommitted"
    topic = ""

    def prepare(self) -> None:
        count = int(self.topic.rpartition("-")[2] or 0)
        self.topic = f"{type(self).__name__}-{count + 1}"

    def write(self) -> None:
        writer = self.documents.write.format("kafka").options(**GATHERING)
        writer.option("kafka.bootstrap.servers", self.place).option("topic", self.topic).save()

    def read(self) -> Any:
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.place)
        reader = reader.option("minPartitions", 2).option("subscribe", self.topic)
        return self.parsed(reader.option("kafka.isolation.level", self.isolation).load(), "value")


class KafkaTransactions(KafkaTopic):
    """Each task by a producer with a transaction; read is what is committed."""

    isolation = "read_committed"

    def __init__(self, spark: Any, source: str, place: str) -> None:
        """Connect. Raises FileNotFoundError without the client."""
        if find_spec("confluent_kafka") is None:
            raise FileNotFoundError("confluent-kafka is not installed")
        super().__init__(spark, source, place)

    def write(self) -> None:
        broker, topic = self.place, self.topic

        def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            producer = import_module("confluent_kafka").Producer(
                {
                    "bootstrap.servers": broker,
                    "transactional.id": f"{topic}-{context.partitionId()}",
                    "linger.ms": 20,
                    "batch.size": 1 << 20,
                    "queue.buffering.max.messages": 1_000_000,
                    "retry.backoff.ms": 1,  # of the waits between transactions, too
                }
            )
            producer.init_transactions()
            producer.begin_transaction()
            for batch in batches:
                for value in batch.column(0).to_pylist():
                    producer.produce(topic, value)
                producer.poll(0)
            producer.commit_transaction()
            yield from ()

        sent = self.documents.mapInArrow(send, "value string")
        sent.write.format("noop").mode("append").save()
