"""What the environment has to have beside PySpark: for Spark Connect, and for state in Python."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.queries import run_to_end, sink, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def test_spark_connect(store: Any, tmp_path: Path) -> None:
    """A client reads, writes and runs a graph in a server, which finds the format by itself."""
    topic(store, "in", "out")
    command = [sys.executable, "-W", "ignore", "-m", "tests.spark.connect_client"]
    ended = subprocess.run(
        [*command, store.path, str(tmp_path / "checkpoints")],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.split()[-2:] == ["copied", "10"]
    assert numbers_in(store, "out") == Counter(range(10))


def test_transform_with_state(spark: SparkSession, store: Any, tmp_path: Path) -> None:
    """State in Python: each message goes on with the sum of its group so far, over restarts too."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import (
        StatefulProcessor,
        StatefulProcessorHandle,
        ValueState,
    )

    class Sums(StatefulProcessor):
        total: ValueState

        def init(self, handle: StatefulProcessorHandle) -> None:
            self.total = handle.getValueState("total", "total long")

        def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Row]:  # noqa: N802
            (total,) = self.total.get() or (0,)
            for row in rows:
                total += int(row.payload)
            self.total.update((total,))
            yield Row(payload=str(total))

        def close(self) -> None:
            """Nothing is held."""

    topic(store, "in", "out")
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    session.conf.set("spark.sql.shuffle.partitions", "1")
    for numbers in (range(5), range(5, 8)):
        put_numbers(store, "in", numbers)
        sums = (
            stream(session, store, "in")
            .selectExpr("payload", "cast(payload as string) % 2 as parity")
            .groupBy("parity")
            .transformWithState(Sums(), "payload string", "append", "none")
        )
        writer = sink(sums, store, tmp_path / "c", queue="out")
        run_to_end(writer.trigger(availableNow=True).start())
    evens, odds = [0 + 2 + 4, 0 + 2 + 4 + 6], [1 + 3, 1 + 3 + 5 + 7]
    assert numbers_in(store, "out") == Counter([*evens, *odds])
