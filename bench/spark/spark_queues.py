"""The cost of many queues for a Spark query, as its output, as its input, and while nothing
happens.

Writes to so many queues take turns in one Spark session, one task each; the first turn warms up and
does not count. The planning of a source is measured without Spark, by its own calls, which Spark
makes for each micro-batch; the store has an owner of its own. What an idle query costs is the
processor time of all processes, Spark's and the store's, beyond that of the session without it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import quire
from bench.figure import BenchmarkSetting, Figure, at_most
from bench.measuring.processor_time import processor_seconds
from bench.spark.spark_session import start_session

__all__ = ["run"]

TURNS = 5
ROWS = 20_000
OUTPUTS = (1, 10, 100, 1_000)
INPUTS = 1_000
IDLE_QUEUES = 50
QUERY = "idle"


def run(setting: BenchmarkSetting) -> list[Figure]:
    """The three costs."""
    path = setting.folder / "store"
    names = [f"q{n}" for n in range(max(*OUTPUTS, INPUTS))]
    with quire.open(str(path)) as store:
        store.admin.create_queues([{"name": name, "kind": "topic"} for name in names])
    figures = _plan(path, names[:INPUTS])
    spark = start_session()
    try:
        return [*_write(spark, path), *figures, *_idle(spark, path, setting)]
    finally:
        spark.stop()


def _write(spark: Any, path: Path) -> list[Figure]:
    """Write one task's rows over so many queues."""
    best = dict.fromkeys(OUTPUTS, float("inf"))
    for turn in range(1 + TURNS):
        for queues in OUTPUTS:
            rows = spark.range(0, ROWS, 1, 1).selectExpr(
                "cast(repeat('x', 100) as binary) as payload",
                f"concat('q', cast(id % {queues} as string)) as queue",
            )
            begin = time.perf_counter()
            rows.write.format("quire").mode("append").save(str(path))
            if turn:
                best[queues] = min(best[queues], time.perf_counter() - begin)
    figures = [
        Figure(f"write of a task to {queues:,} queues", 1_000 * seconds, "ms")
        for queues, seconds in best.items()
    ]
    ratio = best[OUTPUTS[-1]] / best[OUTPUTS[0]]
    return [*figures, Figure("1,000 output queues to one", ratio, "times", at_most(2))]


def _plan(path: Path, names: list[str]) -> list[Figure]:
    """The calls for one micro-batch over many queues, each of which has messages."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from quire.spark_graphs import connection
    from quire.spark_graphs.options import read_options
    from quire.spark_graphs.planning.stream_reader import StreamReader
    from quire.spark_graphs.schema import source_schema

    options = {"path": str(path), "subscribe": ",".join(names), "subscription": "s"}
    reader = StreamReader(read_options(options, streaming=True), source_schema())
    store = connection.store_at(str(path))
    begin = time.perf_counter()
    start: Any = reader.initialOffset()
    seconds = {"start": time.perf_counter() - begin}
    best: dict[str, float] = {}
    for _ in range(TURNS):
        with store.transaction() as transaction:
            for name in names:
                transaction.put_many(name, [b"x" * 100] * 10)
        times = [time.perf_counter()]
        end = reader.latestOffset(start, ReadAllAvailable())
        times.append(time.perf_counter())
        reader.partitions(start, end)
        times.append(time.perf_counter())
        reader.commit(end)
        times.append(time.perf_counter())
        start = end
        for n, call in enumerate(("latestOffset", "partitions", "commit")):
            best[call] = min(best.get(call, times[-1]), times[n + 1] - times[n])
    connection.forget(str(path))
    words = f"source of {len(names):,} queues"
    return [
        *(Figure(f"{words}: {c}", 1_000 * s, "ms") for c, s in (seconds | best).items()),
        Figure(f"{words}: a micro-batch planned", 1_000 * sum(best.values()), "ms", at_most(200)),
    ]


def _idle(spark: Any, path: Path, setting: BenchmarkSetting) -> list[Figure]:
    """Processor time of a session, and with a query that has nothing to do."""
    queues = ",".join(f"q{n}" for n in range(IDLE_QUEUES))
    source = spark.readStream.format("quire").option("subscribe", queues)
    source = source.option("subscription", QUERY).load(str(path))
    writer = source.writeStream.format("noop").queryName(QUERY)
    writer = writer.option("checkpointLocation", str(setting.folder / "checkpoint"))
    seconds = setting.scaled(20, 5)
    shares = []
    for query in (None, writer):
        running = None if query is None else query.start()
        if running is not None:
            running.processAllAvailable()
        time.sleep(5.0)  # what Spark does when something has begun or ended is done
        begin = processor_seconds(path)
        time.sleep(seconds)
        shares.append(100 * (processor_seconds(path) - begin) / seconds)
        if running is not None:
            running.stop()
    return [
        Figure("idle session", shares[0], "% of a core"),
        Figure(f"idle query over {IDLE_QUEUES} queues", shares[1] - shares[0], "% of a core",
               at_most(2)),
    ]  # fmt: skip
