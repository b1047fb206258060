"""Between two queues by Spark: Quire beside Spark's Kafka connector, and beside what does nothing.

What 1,000 messages cost from one queue to another, all in one Spark session, in turns. Of queries
it is the median of the micro-batches after the first two, as Spark's progress has them, of a step
its share of the time for all of them. Before that, what a graph costs while nothing happens
(idle_graph.py). With `--before`, another checkout's Quire does the same beside this one's
(graph_turns.py).

Kafka is one broker on this machine with one partition a topic, and syncs nothing; Quire's commits
are durable. Without Maven, which fetches Kafka, its side is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.figure import BenchmarkSetting, Figure, Result, Table, at_most
from bench.graphs import graph_turns, idle_graph
from bench.graphs.graph_sides import ROWS, WARM_UP, Sides, query, quire_query, quire_step
from bench.rivals.kafka_broker import GATHERING, with_kafka
from bench.spark.spark_session import from_memory, start_session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["run"]

TURNS = 3
EMPTY_QUERY = "streaming query whose source and sink in Python do nothing"
MESSAGE = "cast(repeat('x', 100) as binary)"


def run(setting: BenchmarkSetting) -> list[Result]:
    """An idle graph, milliseconds for 1,000 messages, and the ratios; or beside a checkout's."""
    if setting.before is not None:
        return graph_turns.run(setting)
    broker, settings, note = with_kafka(setting.folder)
    spark = start_session(settings)
    try:
        address = None if broker is None else broker.address
        sides = Sides(spark, setting.folder, setting.scaled(20, 4), address)
        return [*idle_graph.measure(spark, setting), *_steps(sides, note)]
    finally:
        spark.stop()
        if broker is not None:
            broker.stop()


def _steps(sides: Sides, note: str) -> list[Result]:
    """1,000 messages from one queue to another."""
    ways: dict[str, Callable[[Sides], list[float]]] = {
        "empty Spark job": _empty_job,
        "empty Spark job with a task in Python": _python_job,
        EMPTY_QUERY: _empty_query,
        "Quire's streaming query": quire_query,
        "Quire's step of a graph": quire_step,
    }
    if sides.broker is not None:
        ways["Kafka connector's streaming query"] = _kafka_query
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(TURNS):
        for way, measure in ways.items():
            taken[way] += measure(sides)
    medians = {way: median(times) for way, times in taken.items()}
    rows: list[list[float | str]] = [[way, ms] for way, ms in medians.items()]
    results: list[Result] = [Table(f"{ROWS:,} messages", ["way", "ms"], rows, note)]
    kafka = medians.get("Kafka connector's streaming query")
    if kafka is not None:
        for words, way, goal in (
            ("Quire's query", "Quire's streaming query", at_most(1.15)),
            ("floor, a query that does nothing in Python,", EMPTY_QUERY, None),
            ("Quire's step", "Quire's step of a graph", at_most(1)),
        ):
            name = f"{ROWS:,} messages: {words} to Kafka's query"
            results.append(Figure(name, medians[way] / kafka, "times", goal))
    return results


def _empty_query(sides: Sides) -> list[float]:
    rows = from_memory(sides.spark, ROWS, sides.batches, 1)
    return query(sides, rows.writeStream.format("discard"))


def _empty_job(sides: Sides) -> list[float]:
    return _jobs(sides, sides.spark.range(0, ROWS, 1, 1))


def _python_job(sides: Sides) -> list[float]:
    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    return _jobs(sides, sides.spark.range(0, ROWS, 1, 1).mapInArrow(same, "id long"))


def _jobs(sides: Sides, rows: Any) -> list[float]:
    times = []
    for _ in range(sides.batches):
        begin = time.perf_counter()
        rows.write.format("noop").mode("append").save()
        times.append(1_000 * (time.perf_counter() - begin))
    return times[WARM_UP:]


def _kafka_query(sides: Sides) -> list[float]:
    source, target = sides.name(), sides.name()
    rows = sides.spark.range(0, ROWS * sides.batches, 1, 1).selectExpr(f"{MESSAGE} as value")
    sides.kafka(rows.write).options(**GATHERING).option("topic", source).save()
    rows = sides.kafka(sides.spark.readStream).option("subscribe", source)
    rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", ROWS)
    writer = sides.kafka(rows.load().select("value").writeStream).option("topic", target)
    return query(sides, writer)
