"""Spark as a user of a served store with the least rights: those of the queues of its query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import quire
from quire.spark_graphs import connection
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.queries import sink, stream
from tests.spark.served_store import served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "id bigint, name string"
REFUSED = "this needs the right|no queue"
LARGE = 3000  # rows, of which each task has a file


@pytest.fixture
def owned(store_path: str) -> Any:
    """A store that this process owns."""
    with quire.open(store_path) as opened:
        topic(opened, "in", "out", "secret")
        opened.create_queue("rows", kind="topic", schema=SCHEMA)
        yield opened
        assert opened.admin.verify().ok


def large_rows(spark: SparkSession) -> Any:
    """Rows of 100 KB in each task."""
    return spark.range(LARGE, numPartitions=2).selectExpr("repeat(string(id), 300) as payload")


def test_a_batch_needs_what_its_queues_need(
    spark: SparkSession, owned: Any, tmp_path: Path
) -> None:
    """`put` to write, `browse` to read, files of tasks and typed ones included; no more."""
    rights = "put queue:in; browse queue:out; put,browse queue:rows"
    with served(owned, tmp_path, rights) as url:
        large_rows(spark).write.format("quire").option("queue", "in").mode("append").save(url)
        rows = spark.range(LARGE).selectExpr("id", "string(id) as name")
        rows.write.format("quire").option("queue", "rows").mode("append").save(url)

        def read(queue: str) -> Any:
            return spark.read.format("quire").option("queue", queue).load(url)

        assert read("rows").selectExpr("sum(id)").first()[0] == LARGE * (LARGE - 1) // 2
        put_numbers(owned, "out", range(50))
        assert read("out").count() == 50

        def write(rows: Any, **options: str) -> None:
            rows.write.format("quire").options(**options).mode("append").save(url)

        calls: list[Callable[[], object]] = [
            lambda: read("in").count(),
            lambda: read("secret").count(),
            lambda: write(large_rows(spark), queue="out"),
            lambda: write(large_rows(spark).selectExpr("payload", "'secret' as queue")),
        ]
        for refused in calls:
            with pytest.raises(Exception, match=REFUSED):
                refused()
        connection.forget(connection.check_url(url))
    assert owned.queue("in").messages == LARGE
    assert (owned.queue("out").messages, owned.queue("secret").messages) == (50, 0)


def test_a_stream_needs_its_queues_and_its_place_in_the_ledger(
    spark: SparkSession, owned: Any, tmp_path: Path
) -> None:
    """`get` of what it reads, `put` where it writes, and the states that begin with `spark`."""
    put_numbers(owned, "in", range(300))
    rights = "get queue:in; put queue:out; put,browse state:spark*"
    with served(owned, tmp_path, rights) as url:
        place = SimpleNamespace(path=url)
        rows = stream(spark, place, "in", maxMessagesPerTrigger=100).selectExpr(
            "payload", "'out' as queue"
        )
        sink(rows, place, tmp_path / "c").trigger(availableNow=True).start().awaitTermination()
        connection.forget(connection.check_url(url))
    assert numbers_in(owned, "out") == Counter(range(300))
