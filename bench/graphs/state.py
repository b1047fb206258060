"""A step of a graph that remembers sums by key, beside Spark's own state: batches of 1,000 rows.

Three million keys are there already, each with 90 bytes beside its sum. Then batches of 1,000 rows
of random keys: by a step whose state they are, by a step that reads and puts the same rows and
remembers nothing, by transformWithState on RocksDB, and by Spark's own aggregation on RocksDB. The
steps commit durably with what they put; the queries read files of Parquet and put to a sink that
does nothing. Each way is one session's; the median is of the batches after twelve that do not
count. Loading three million keys takes transformWithState ten minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import quire
from bench.figure import BenchmarkSetting, Result, Table
from bench.spark.spark_session import start_session
from quire import keyed as plain

__all__ = ["run"]

KEYS = 3_000_000
OWN_KEYS = 3_000_000
LOADED = 200_000  # in a transaction
ROWS = 1_000
WARM_UP, BATCHES = 12, 5  # until the JVM has compiled most of it
NOTE_BYTES = 90
PARTS = 2  # of Spark's state
STATE = "key bigint, total bigint, note string"
PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": PROVIDER,
    "spark.sql.shuffle.partitions": str(PARTS),
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


def run(setting: BenchmarkSetting) -> list[Result]:
    """Milliseconds of a batch, by each of the ways."""
    keys = setting.scaled(KEYS, 20_000)
    rng = np.random.default_rng(setting.seed)
    drawn = [rng.integers(0, keys, ROWS) for _ in range(WARM_UP + BATCHES)]
    path = str(setting.folder / "store")
    state_bytes = _load(path, rng.permutation(keys))
    spark = start_session(SETTINGS)
    ways: dict[str, Callable[[], list[float]]] = {
        f"step with a state of {keys:,} keys": lambda: _step(spark, path, drawn, remembers=True),
        "step that remembers nothing": lambda: _step(spark, path, drawn, remembers=False),
        f"transformWithState on RocksDB, {keys:,} keys": lambda: _query(
            spark, setting.folder / "own", keys, drawn, _transformed
        ),
        f"Spark's aggregation on RocksDB, {keys:,} keys": lambda: _query(
            spark, setting.folder / "sums", keys, drawn, _aggregated
        ),
    }
    try:
        rows: list[list[float | str]] = []
        for way, measure in ways.items():
            times = measure()
            rows.append([way, median(times), min(times), max(times)])
    finally:
        spark.stop()
    note = f"the state takes {state_bytes / 1e6:,.0f} MB on the disk"
    return [Table(f"{ROWS:,} rows of random keys", ["way", "ms", "least", "most"], rows, note)]


def _load(path: str, keys: Any) -> int:
    """Fill the state; its bytes."""
    note = "x" * NOTE_BYTES
    with quire.open(path) as store:
        state = plain.open_state(store, "totals", "key", STATE)
        for start in range(0, len(keys), LOADED):
            some = keys[start : start + LOADED]
            batch = pa.RecordBatch.from_pydict(
                {"key": some, "total": np.zeros(len(some), np.int64), "note": [note] * len(some)}
            )
            with store.transaction() as txn, state.within(txn) as rows:
                rows.put(batch)
        return sum(each.size for each in state.runs())


def _step(spark: Any, path: str, drawn: list[Any], *, remembers: bool) -> list[float]:
    """Batch after batch, each from its put to its commit."""
    from pyspark.sql import functions as f

    from quire.spark_graphs import Graph, keyed

    name = "with" if remembers else "without"
    graph = Graph(name, spark, path)
    graph.queue(f"in-{name}", schema="key bigint, amount bigint")
    totals = keyed("totals", "key", STATE)

    def summed(rows: Any) -> Any:
        return rows.groupBy("key").agg(f.sum("amount").alias("amount"))

    def add(rows: Any, totals: Any) -> Any:
        news = summed(rows)
        after = news.join(totals.rows(rows), "key", "left").selectExpr(
            "key", "coalesce(total, 0L) + amount as total", "note"
        )
        return {
            f"out-{name}": after.selectExpr("cast(total as string) as payload"),
            "totals": after,
        }

    def forget(rows: Any) -> Any:
        return summed(rows).selectExpr("cast(amount as string) as payload")

    options: dict[str, Any] = {"reads": f"in-{name}", "writes": f"out-{name}", "limit": ROWS}
    if remembers:
        graph.step(**options, state=totals)(add)
    else:
        graph.step(**options)(forget)
    times = []
    with graph.start(restart="never") as run, quire.open(path) as store:
        store.subscribe(f"out-{name}", "keep")
        for keys in drawn:
            rows = pa.RecordBatch.from_pydict({"key": keys, "amount": np.ones(ROWS, np.int64)})
            begin = time.perf_counter()
            store.put_many(f"in-{name}", rows)
            run.drain()
            times.append(1_000 * (time.perf_counter() - begin))
        assert run.status().steps["add" if remembers else "forget"].batches == len(drawn)
    return times[WARM_UP:]


def _query(
    spark: Any, folder: Path, keys: int, drawn: list[Any], shape: Callable[[Any], Any]
) -> list[float]:
    """The micro-batches of a query: one for all keys, then those that are measured."""
    files = folder / "in"
    files.mkdir(parents=True)
    note = "x" * NOTE_BYTES

    def write(name: str, some: Any) -> None:
        rows = {"key": some, "amount": np.zeros(len(some), np.int64), "note": [note] * len(some)}
        pq.write_table(pa.table(rows), files / f"{name}.parquet")
        time.sleep(0.01)  # files are taken in the order of their times

    write("0", np.arange(keys))
    for number, some in enumerate(drawn, 1):
        write(str(number), some % keys)
    source = spark.readStream.schema("key bigint, amount bigint, note string")
    rows = shape(source.option("maxFilesPerTrigger", 1).parquet(str(files)))
    writer = rows.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    query.awaitTermination()
    batches = [each for each in query.recentProgress if each.numInputRows]
    assert len(batches) == len(drawn) + 1
    return [float(each.durationMs["triggerExecution"]) for each in batches][1 + WARM_UP :]


def _aggregated(rows: Any) -> Any:
    from pyspark.sql import functions as f

    return rows.groupBy("key").agg(f.sum("amount"), f.first("note"))


def _transformed(rows: Any) -> Any:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Totals(StatefulProcessor):
        """A sum for each key, with its note."""

        def init(self, handle: Any) -> None:
            self._total = handle.getValueState("total", "total bigint, note string")

        def handleInputRows(  # noqa: N802 - Spark's name
            self,
            key: Any,
            rows: Any,
            timerValues: Any,  # noqa: N803
        ) -> Iterator[Any]:
            from pyspark.sql import Row

            total, note = self._total.get() if self._total.exists() else (0, "x" * NOTE_BYTES)
            total += sum(row.amount for row in rows)
            self._total.update((total, note))
            yield Row(key=key[0], total=total)

        def close(self) -> None:
            """Nothing is open."""

    return rows.groupBy("key").transformWithState(
        Totals(), "key bigint, total bigint", "Update", "None"
    )
