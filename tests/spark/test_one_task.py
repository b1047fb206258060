"""Small batches of steps: one partition where Spark's own operators make what is returned."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from quire.libraries import pa
from quire.spark_graphs import Graph, StateRows, keyed
from quire.spark_graphs.graphs.spark.local_rows import local_frame
from quire.spark_graphs.graphs.spark.user_code import has_user_code
from tests.spark.numbered_queues import topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.cases(2, of_file=True)]

SHUFFLE = re.compile(r"\bExchange ")  # not that of a broadcast


def plan_of(rows: DataFrame) -> str:
    """How Spark makes the rows."""
    return str(rows._jdf.queryExecution().executedPlan().toString())


def run_once(spark: SparkSession, store: Any, call: Any, messages: list[bytes]) -> list[bytes]:
    """What a step puts for messages."""
    graph = Graph("small", spark, store.path)
    topic(store, "in", "out")
    graph.step("in", "out")(call)
    with graph.start(restart="never") as run:
        store.subscribe("out", "seen", start="earliest")
        store.put_many("in", messages)
        run.drain()
    return [each.payload for each in store.get_many("out/seen", 100)]


def test_a_small_batch_is_grouped_and_sorted_without_a_shuffle(
    spark: SparkSession, store: Any
) -> None:
    """A group, a join and an order are one task; all messages of a group are together."""
    from pyspark.sql import functions as f

    plans: list[str] = []

    def count(rows: DataFrame) -> DataFrame:
        counts = rows.groupBy("payload").agg(f.count("*").alias("n"))
        whole = rows.groupBy().agg(f.count("*").alias("all"))
        found = (
            counts.crossJoin(whole)
            .orderBy("payload")
            .selectExpr(
                "cast(concat(cast(payload as string), ' ', n, ' ', all) as binary) as payload"
            )
        )
        plans.append(plan_of(found))
        return found

    found = run_once(spark, store, count, [b"%d" % (number % 3) for number in range(20)])
    assert found == [b"0 7 20", b"1 7 20", b"2 6 20"]
    assert not SHUFFLE.search(plans[-1])


def test_code_of_the_author_has_all_cores(spark: SparkSession, store: Any) -> None:
    """Rows that a function of Python makes are shared by tasks, as it may take long for each."""
    from pyspark.sql import functions as f

    plans: list[str] = []

    def double(rows: DataFrame) -> DataFrame:
        twice = f.udf(lambda payload: bytes(payload) * 2, "binary")
        found = rows.select(twice("payload").alias("payload")).groupBy("payload").count()
        plans.append(plan_of(found))
        return found.select("payload")

    assert sorted(run_once(spark, store, double, [b"a", b"b", b"a"])) == [b"aa", b"bb"]
    assert SHUFFLE.search(plans[-1])


def test_what_counts_as_code_of_the_author(spark: SparkSession) -> None:
    """Functions of Python, of groups, of batches, and whatever is read from elsewhere."""
    from pyspark.sql import functions as f

    rows = local_frame(spark, pa.table({"id": [1, 2, 3]}), StructType().add("id", "long"))
    counts = rows.groupBy("id").count()
    assert not has_user_code(counts.join(rows, "id").orderBy("id"))
    same = f.udf(lambda x: x, "long")
    quick = f.pandas_udf(lambda x: x, "long")  # type: ignore[attr-defined]
    for each in (
        rows.select(same("id")).groupBy().count(),
        rows.select(quick("id")),
        rows.mapInArrow(lambda batches: batches, "id long").distinct(),
        rows.groupBy("id").applyInPandas(lambda some: some, "id long"),
        rows.groupBy("id").cogroup(rows.groupBy("id")).applyInArrow(lambda a, b: a, "id long"),
        rows.rdd.map(lambda row: row).toDF(rows.schema),
        rows.join(spark.range(3), "id", "left"),
    ):
        assert has_user_code(each)


def test_rows_of_a_state_are_joined_without_a_job_of_their_own(
    spark: SparkSession, store: Any
) -> None:
    """Neither a shuffle nor a broadcast: the join is in the one task."""
    plans: list[str] = []
    graph = Graph("small", spark, store.path)
    graph.queue("in", schema="key bigint")
    topic(store, "out")

    @graph.step("in", "out", state=keyed("seen", "key", "key bigint, number bigint"))
    def fresh(rows: DataFrame, seen: StateRows) -> dict[str, DataFrame]:
        known = seen.rows(rows)
        counts = rows.groupBy("key").count().join(known, "key", "left")
        after = counts.selectExpr("key", "coalesce(number, 0L) + count as number")
        new = rows.select("key").distinct().join(known, "key", "left_anti")
        plans.extend([plan_of(after), plan_of(new)])
        return {"out": new.selectExpr("cast(key as string) as payload"), "seen": after}

    with graph.start(restart="never") as run:
        store.subscribe("out", "seen", start="earliest")
        for numbers in ([1, 2, 2], [2, 3], [1, 1, 4]):
            store.put_many("in", [{"key": each} for each in numbers])
            run.drain()
    found = sorted(each.payload for each in store.get_many("out/seen", 100))
    assert found == [b"1", b"2", b"3", b"4"]
    assert not any("Exchange" in each for each in plans[-2:])
