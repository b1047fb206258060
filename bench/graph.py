"""Between two queues by Spark: Quire beside Spark's Kafka connector, and beside an empty job.

All in one Spark session, in turns. First what 1,000 messages cost from one queue to another; of
queries it is the median of the micro-batches after the first two, as Spark's progress has them, of
a step its share of the time for all of them.
Then tables of rows, written and read as JSON, to Kafka and to queues; the best of several turns.

Kafka is one broker on this machine with one partition a topic, and syncs nothing; Quire's commits
are durable. Kafka's producers are told to gather more than they do by default. Its connector has
no transactions: where they are on, tasks write by a client of Kafka's in Python (confluent-kafka),
each in one transaction, and reads are of what is committed. What is not to be had is left out, and
named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import quire
from bench.figure import Figure, Result, Setting, Table, at_most
from bench.kafka_broker import CONNECTOR, Broker, jars
from bench.spark import start_session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["run"]

ROWS = 1_000
WARM_UP = 2  # micro-batches, or jobs, that do not count
TURNS = 3
CAPACITY_BYTES = 8 << 30
MESSAGE = "cast(repeat('x', 100) as binary)"
# A row whose JSON has about 100 bytes.
COLUMNS = "id long, account int, amount double, note string"
VALUES = ("id", "cast(id % 1000 as int) as account", "id / 7 as amount", "repeat('x', 34) as note")
GATHERING = {"kafka.linger.ms": "20", "kafka.batch.size": "1048576"}

Seconds = dict[str, float]  # by side


def run(setting: Setting) -> list[Result]:
    """Milliseconds for 1,000 messages, rows per second of tables, and the ratios."""
    notes: list[str] = []
    broker, settings = _kafka(setting.folder, notes)
    spark = start_session(settings)
    try:
        sides = _Sides(spark, setting, None if broker is None else broker.address)
        return [*_steps(sides), *_tables(sides, notes)]
    finally:
        spark.stop()
        if broker is not None:
            broker.stop()


def _kafka(folder: Path, notes: list[str]) -> tuple[Broker | None, dict[str, str]]:
    """A running broker, and what the session needs for the connector."""
    try:
        broker = Broker(folder / "broker")
        found = jars(folder / "connector", CONNECTOR, alone=True)
    except FileNotFoundError as error:
        notes.append(f"Without Kafka: {error}.")
        return None, {}
    return broker, {"spark.jars": ",".join(map(str, found))}


class _Sides:
    """What every measurement needs."""

    def __init__(self, spark: Any, setting: Setting, broker: str | None) -> None:
        self.spark, self.setting, self.broker = spark, setting, broker
        self.batches = setting.scaled(20, 4) + WARM_UP
        self.path = str(setting.folder / "store")
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
            store.create_queue(name, capacity=CAPACITY_BYTES)
            store.subscribe(name, "keep")
        return name

    def fill(self, queue: str, batches: int) -> None:
        """Put the messages of so many batches."""
        with quire.open(self.path) as store:
            for _ in range(batches):
                with store.transaction() as transaction:
                    transaction.put_many(queue, [b"x" * 100] * ROWS)

    def kafka(self, frame: Any) -> Any:
        """Its reader or writer, with the broker's address."""
        return frame.format("kafka").option("kafka.bootstrap.servers", self.broker)


def _steps(sides: _Sides) -> list[Result]:
    """1,000 messages from one queue to another."""
    ways: dict[str, Callable[[_Sides], list[float]]] = {
        "empty Spark job": _empty_job,
        "empty Spark job with a task in Python": _python_job,
        "Quire's streaming query": _quire_query,
        "Quire's step of a graph": _quire_step,
    }
    if sides.broker is not None:
        ways["Kafka connector's streaming query"] = _kafka_query
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(TURNS):
        for way, measure in ways.items():
            taken[way] += measure(sides)
    medians = {way: median(times) for way, times in taken.items()}
    figures: list[Result] = [
        Figure(f"{ROWS:,} messages: {way}", ms, "ms") for way, ms in medians.items()
    ]
    kafka = medians.get("Kafka connector's streaming query")
    if kafka is not None:
        for words, way, goal in (
            ("query", "Quire's streaming query", None),
            ("step", "Quire's step of a graph", at_most(1)),
        ):
            name = f"{ROWS:,} messages: Quire's {words} to Kafka's query"
            figures.append(Figure(name, medians[way] / kafka, "times", goal))
    return figures


def _empty_job(sides: _Sides) -> list[float]:
    return _jobs(sides, sides.spark.range(0, ROWS, 1, 1))


def _python_job(sides: _Sides) -> list[float]:
    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    return _jobs(sides, sides.spark.range(0, ROWS, 1, 1).mapInArrow(same, "id long"))


def _jobs(sides: _Sides, rows: Any) -> list[float]:
    times = []
    for _ in range(sides.batches):
        begin = time.perf_counter()
        rows.write.format("noop").mode("append").save()
        times.append(1_000 * (time.perf_counter() - begin))
    return times[WARM_UP:]


def _quire_query(sides: _Sides) -> list[float]:
    source, target = sides.queue(), sides.queue()
    sides.fill(source, sides.batches)
    rows = sides.spark.readStream.format("quire").option("queue", source)
    rows = rows.option("subscription", "copy").option("startingOffsets", "earliest")
    rows = rows.option("maxMessagesPerTrigger", ROWS).load(sides.path).select("payload")
    writer = rows.writeStream.format("quire").option("path", sides.path).option("queue", target)
    return _query(sides, writer)


def _quire_step(sides: _Sides) -> list[float]:
    """What a batch takes of the time that the step needs for all."""
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


def _kafka_query(sides: _Sides) -> list[float]:
    source, target = sides.name(), sides.name()
    rows = sides.spark.range(0, ROWS * sides.batches, 1, 1).selectExpr(f"{MESSAGE} as value")
    sides.kafka(rows.write).options(**GATHERING).option("topic", source).save()
    rows = sides.kafka(sides.spark.readStream).option("subscribe", source)
    rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", ROWS)
    writer = sides.kafka(rows.load().select("value").writeStream).option("topic", target)
    return _query(sides, writer)


def _query(sides: _Sides, writer: Any) -> list[float]:
    """The milliseconds of each micro-batch of a query that takes what is there."""
    checkpoint = sides.setting.folder / sides.name()
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [each for each in query.recentProgress if each.numInputRows]
    return [float(each.durationMs["triggerExecution"]) for each in batches][WARM_UP:]


def _tables(sides: _Sides, notes: list[str]) -> list[Result]:
    """Rows as JSON: written to a new topic or queue each turn, and read from the last one."""
    count = sides.setting.scaled(2_000_000, 100_000)
    rows = sides.spark.range(0, count, 1, 4).selectExpr(*VALUES).cache()
    rows.count()
    ways: dict[str, _Way] = {"Quire, JSON": _QuireJson(sides)}
    if sides.broker is not None:
        ways["Kafka, JSON"] = _KafkaJson(sides)
        try:
            ways["Kafka, JSON, transactions"] = _KafkaTransactions(sides)
        except FileNotFoundError as error:
            notes.append(f"Without Kafka's transactions: {error}.")
    written: dict[str, list[float]] = {way: [] for way in ways}
    read: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(1 + TURNS):
        for name, way in ways.items():
            times = _seconds(lambda way=way: way.write(rows)), _seconds(way.read)  # type: ignore[misc]
            if turn:
                written[name].append(times[0])
                read[name].append(times[1])
    rows.unpersist()
    best = {name: (min(written[name]), min(read[name])) for name in ways}
    table = Table(
        f"{count:,} rows of about 100 bytes of JSON, rows/s",
        ["way", "written", "read"],
        [[name, count / write, count / reading] for name, (write, reading) in best.items()],
        " ".join(notes),
    )
    return [table, *_ratios(best)]


def _ratios(best: dict[str, tuple[float, float]]) -> list[Result]:
    kafka = best.get("Kafka, JSON")
    if kafka is None:
        return []
    ours = best["Quire, JSON"]
    return [
        Figure(f"rows {done} as JSON: Kafka's time to Quire's", kafka[n] / ours[n], "times")
        for n, done in enumerate(("written", "read"))
    ]


def _seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


class _Way:
    """How rows are written and read again."""

    def __init__(self, sides: _Sides) -> None:
        self.sides = sides
        self.last = ""

    def write(self, rows: Any) -> None:
        raise NotImplementedError

    def read(self) -> None:
        raise NotImplementedError


class _QuireJson(_Way):
    """Bytes in queues."""

    def write(self, rows: Any) -> None:
        self.last = self.sides.queue()
        writer = rows.selectExpr("to_json(struct(*)) as payload").write.format("quire")
        writer.mode("append").option("queue", self.last).save(self.sides.path)

    def read(self) -> None:
        rows = self.sides.spark.read.format("quire").schema("payload binary")
        _parsed(rows.option("queue", self.last).load(self.sides.path), "payload")


class _KafkaJson(_Way):
    """By Spark's connector, which has no transactions."""

    def write(self, rows: Any) -> None:
        self.last = self.sides.name()
        writer = self.sides.kafka(rows.selectExpr("to_json(struct(*)) as value").write)
        writer.options(**GATHERING).option("topic", self.last).save()

    def read(self) -> None:
        rows = self.sides.kafka(self.sides.spark.read).option("minPartitions", 2)
        _parsed(rows.option("subscribe", self.last).load(), "value")


class _KafkaTransactions(_Way):
    """Each task by a producer with a transaction; read is what is committed."""

    def __init__(self, sides: _Sides) -> None:
        """Raises FileNotFoundError without the client."""
        super().__init__(sides)
        if find_spec("confluent_kafka") is None:
            raise FileNotFoundError("confluent-kafka is not installed")

    def write(self, rows: Any) -> None:
        self.last = topic = self.sides.name()
        broker = self.sides.broker

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

        json = rows.selectExpr("to_json(struct(*)) as value")
        json.mapInArrow(send, "value string").write.format("noop").mode("append").save()

    def read(self) -> None:
        rows = self.sides.kafka(self.sides.spark.read).option("minPartitions", 2)
        rows = rows.option("kafka.isolation.level", "read_committed")
        _parsed(rows.option("subscribe", self.last).load(), "value")


def _parsed(rows: Any, column: str) -> None:
    """The columns, which nobody takes."""
    from pyspark.sql import functions as f

    parsed = rows.select(f.from_json(f.col(column).cast("string"), COLUMNS).alias("row"))
    parsed.select("row.*").write.format("noop").mode("append").save()
