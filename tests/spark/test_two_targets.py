"""Writes of one identity to several queues, and queries that have one checkpoint between them."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.checkpoint_logs import last_logged
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.queries import run_to_end, sink, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.promise(2),
    pytest.mark.cases(6, of_file=True),
    pytest.mark.at_server,
]


def copy_of(store: Any, spark: SparkSession, checkpoint: Path, subscription: str, to: str) -> None:
    """A query from `in`, a subscription and a target of its own, until there is no more."""
    rows = stream(spark, store, "in", subscription=subscription, maxMessagesPerTrigger=50)
    written = sink(rows.select("payload"), store, checkpoint, queue=to)
    run_to_end(written.trigger(availableNow=True).start())


@pytest.mark.parametrize("planned", [False, True])
def test_queries_with_copies_of_one_checkpoint(
    spark: SparkSession, store: Any, tmp_path: Path, planned: bool
) -> None:
    """Blue and green: each writes what it reads, whichever is first, and a planned batch too."""
    topic(store, "in", "blue", "green")
    put_numbers(store, "in", range(100))
    store.subscribe("in", "green", start="earliest")
    copy_of(store, spark, tmp_path / "blue", "blue", "blue")
    if planned:  # as a stop during the commit leaves it
        last = last_logged(tmp_path / "blue", "commits")
        for path in (tmp_path / "blue" / "commits").glob(f"*{last}*"):
            path.unlink()
    shutil.copytree(tmp_path / "blue", tmp_path / "green")
    put_numbers(store, "in", range(100, 300))
    first, second = ("green", "blue") if planned else ("blue", "green")
    copy_of(store, spark, tmp_path / first, first, first)
    copy_of(store, spark, tmp_path / second, second, second)
    assert numbers_in(store, "blue") == Counter(range(300))
    assert numbers_in(store, "green") == Counter(range(50 if planned else 100, 300))


@pytest.mark.cases(2)
def test_a_foreach_batch_with_two_targets(spark: SparkSession, store: Any, tmp_path: Path) -> None:
    """One `txnAppId`, the micro-batch's number as version, and a queue each; repeated, too.

    A second write to a queue under that version is refused, and so is a new checkpoint.
    """
    topic(store, "in", "small", "large")
    put_numbers(store, "in", range(100))

    def write(batch: DataFrame, batch_id: int) -> None:
        batch = batch.select("payload").persist()
        for queue, where in (("small", "< 50"), ("large", ">= 50")):
            rows = batch.where(f"int(string(payload)) {where}")
            options = {"queue": queue, "txnAppId": "app", "txnVersion": str(batch_id)}
            rows.write.format("quire").options(**options).mode("append").save(store.path)
        batch.unpersist()

    def run(function: Any, checkpoint: str) -> None:
        rows = stream(spark, store, "in", subscription=checkpoint, maxMessagesPerTrigger=50)
        written = rows.writeStream.foreachBatch(function)
        written = written.option("checkpointLocation", str(tmp_path / checkpoint))
        run_to_end(written.trigger(availableNow=True).start())

    def check() -> None:
        assert numbers_in(store, "small") == Counter(range(50))
        assert numbers_in(store, "large") == Counter(range(50, 100))

    run(write, "c")
    check()
    last = last_logged(tmp_path / "c", "commits")
    for path in (tmp_path / "c" / "commits").glob(f"*{last}*"):
        path.unlink()
    run(write, "c")
    check()
    with pytest.raises(Exception, match="by a query with another checkpoint than this one"):
        run(write, "new")

    def twice(batch: DataFrame, batch_id: int) -> None:
        for offset in (0, 1000):
            rows = batch.selectExpr(f"string(int(string(payload)) + {offset}) as payload")
            options = {"queue": "small", "txnAppId": "twice", "txnVersion": str(batch_id)}
            rows.write.format("quire").options(**options).mode("append").save(store.path)

    with pytest.raises(Exception, match="with other rows than these"):
        run(twice, "twice")
    assert numbers_in(store, "small") == Counter([*range(50)] * 2)
