"""Messages told apart by trials of one plan in the driver: the same as by trials of the step."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as f

from quire.spark_graphs.graphs.batches.batch_inputs import LoadedMessages, Near, arrow_columns
from quire.spark_graphs.graphs.batches.task_store import TaskStore
from quire.spark_graphs.graphs.failures.poison import (
    FailsOf,
    KnownPoison,
    SelectedRows,
    find_poison,
)
from quire.spark_graphs.graphs.functions.step_function import StepWork
from quire.spark_graphs.graphs.preparing import prepare
from quire.spark_graphs.graphs.steps.step_runner import StepRunner
from quire.spark_graphs.graphs.steps.trials import Ended
from tests.spark.numbered_queues import topic
from tests.spark.plain_work import GRAPH, step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.cases(6, of_file=True)]

NUMBER = "bigint(string(payload))"
DOUBLED = f"string({NUMBER} * 2) as payload"
TOO_LONG = f"case when {NUMBER} = 7 then null else payload end as payload"  # which no writer takes


def held(queue: str, payloads: list[bytes]) -> LoadedMessages:
    """Messages as a batch has them in memory."""
    rows = [{"queue": queue, "position": n, "payload": each} for n, each in enumerate(payloads)]
    nullable = pa.schema([field.with_nullable(True) for field in arrow_columns(None)])
    return LoadedMessages(queue, pa.Table.from_pylist(rows, schema=nullable))


def runner_of(spark: SparkSession, store: Any, function: Any, **options: Any) -> StepRunner:
    """A runner of a step of the function, with the queues that it needs; it is not started."""
    made = step(function, dead="dead", **options)
    found = prepare(store, GRAPH, [made], {})
    return StepRunner(
        StepWork(made, spark, TaskStore(store.path, store.integration.store_id)),
        {queue: found[queue].created_us for queue in made.inputs},
        graph=GRAPH,
        path=store.path,
        spark=spark,
        restart="never",
        notify=lambda: None,
    )


class Trials:
    """How many there were, of the step and of its plans."""

    def __init__(self, runner: StepRunner, inputs: list[LoadedMessages]) -> None:
        near = [Near(each) for each in inputs]
        self._fails, self._plan = runner.trials.fails(near, 0), runner.trials.plan(near, 0)
        self._counts = [each.count for each in inputs]
        self.of_step = self.of_plan = 0

    def fails(self, selection: SelectedRows) -> Exception | None:
        """Of the step."""
        self.of_step += 1
        return self._fails(selection)

    def plan(self, index: int, run: tuple[int, int]) -> FailsOf | None:
        """Its trials."""
        found = self._plan(index, run)
        if found is None:
            return None

        def fails(begin: int, end: int) -> Exception | None:
            self.of_plan += 1
            return found(begin, end)

        return fails

    def told(self, planned: bool) -> list[tuple[int, int, str]]:
        """What is at fault, with the reasons."""
        plan = self.plan if planned else None
        told = find_poison(self._counts, self.fails, lambda telling: False, KnownPoison(), plan)
        assert told.rows == sum(self._counts)
        return [(each.index, each.number, each.reason) for each in told.poison]


def payloads(rng: random.Random, count: int, share: float) -> list[bytes]:
    """Numbers, and what is none."""
    return [
        b"bad %d" % n if rng.random() < share else b"%d" % rng.randrange(8) for n in range(count)
    ]


def joined(rows: DataFrame) -> DataFrame:
    """With a table of all numbers there are."""
    known = rows.sparkSession.range(10).withColumnRenamed("id", "known")
    return rows.join(f.broadcast(known), f.expr(f"{NUMBER} = known")).select("payload")


def counted(rows: DataFrame) -> DataFrame:
    """Which asks how many there are."""
    return rows.selectExpr(f"string({NUMBER} + {rows.count()}) as payload")


def counted_if_possible(rows: DataFrame) -> DataFrame:
    """Which fails with all where it is not answered."""
    try:
        rows.count()
    except Py4JJavaError:
        return rows.selectExpr("string(bigint(queue)) as payload")
    return rows.selectExpr(DOUBLED)


def subquery(rows: DataFrame) -> DataFrame:
    """With a number that is of all rows."""
    rows.createOrReplaceTempView("rows_of_a_test")
    return rows.sparkSession.sql(
        f"select string({NUMBER} + (select count(*) from rows_of_a_test)) as payload "
        "from rows_of_a_test"
    )


PLANNED: dict[str, Callable[[DataFrame], Any]] = {
    "project": lambda rows: rows.selectExpr(DOUBLED),
    "filter": lambda rows: rows.where(f"{NUMBER} > 3").select("payload"),
    "several": lambda rows: (
        rows.where("payload != '5'")
        .withColumn("n", f.expr(NUMBER))
        .where("n > 1")
        .selectExpr("string(10 / (n - 4)) as payload")
    ),
    "explode": lambda rows: (
        rows.select(f.explode(f.expr(f"sequence(0, {NUMBER})")).alias("n"))
        .where("n % 2 = 0")
        .selectExpr("string(n) as payload")
    ),
    "two outputs": lambda rows: {
        "out": rows.selectExpr(DOUBLED),
        "other": rows.selectExpr("string(1 / (length(payload) - 5)) as payload"),
    },
    "refused by the writer": lambda rows: rows.selectExpr(TOO_LONG),
}
TRIED: dict[str, Callable[[DataFrame], Any]] = {
    "group": lambda rows: (
        rows.groupBy(f.expr(NUMBER).alias("n")).count().selectExpr("string(n) as payload")
    ),
    "limit": lambda rows: rows.selectExpr(DOUBLED).limit(1000),
    "sort": lambda rows: rows.selectExpr(DOUBLED).sortWithinPartitions("payload"),
    "union": lambda rows: rows.selectExpr(DOUBLED).union(rows.select("payload")),
    "join": joined,
    "count": counted,
    "subquery": subquery,
}


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", PLANNED)
def test_the_same_is_at_fault(
    spark: SparkSession, store: Any, rng: random.Random, name: str
) -> None:
    """With the same reasons."""
    topic(store, "in", "out", "other")
    function = PLANNED[name]
    runner = runner_of(spark, store, function, writes=("out", "other")[: 1 + (name[0:3] == "two")])
    given = payloads(rng, 25, 0.1)
    given[rng.randrange(25)] = b"bad"
    trials = Trials(runner, [held("in", given)])
    found = trials.told(planned=True)
    assert trials.of_plan > 0
    assert found == trials.told(planned=False)
    bad = {n for n, each in enumerate(given) if each.startswith(b"bad")}
    assert bad <= {number for _, number, _ in found}


@pytest.mark.parametrize("name", TRIED)
def test_what_is_no_plan_of_single_rows(spark: SparkSession, store: Any, name: str) -> None:
    """It is tried by the step itself; so is what asks Spark for something, and gets no answer."""
    topic(store, "in", "out")
    runner = runner_of(spark, store, TRIED[name])
    plan = runner.trials.plan([Near(held("in", [b"1", b"2"] * 20))], 0)
    assert plan(0, (0, 40)) is None


def test_an_answer_that_is_missed(spark: SparkSession, store: Any) -> None:
    """A function that goes on without it has another plan, which the step itself refutes."""
    topic(store, "in", "out")
    runner = runner_of(spark, store, counted_if_possible)
    given = [b"bad" if n == 30 else b"%d" % n for n in range(40)]
    trials = Trials(runner, [held("in", given)])
    assert [number for _, number, _ in trials.told(planned=True)] == [30]
    assert trials.of_plan > 0


@pytest.mark.cases(2)
def test_several_inputs(spark: SparkSession, store: Any, rng: random.Random) -> None:
    """Each has rows where the others have none."""
    topic(store, "in", "more", "out")
    runner = runner_of(
        spark,
        store,
        lambda rows, more: rows.select("payload").union(more.select("payload")).selectExpr(DOUBLED),
        reads=("in", "more"),
    )
    inputs = [held(queue, [*payloads(rng, 20, 0.1), b"bad"]) for queue in ("in", "more")]
    trials = Trials(runner, inputs)
    found = trials.told(planned=True)
    assert found == trials.told(planned=False)
    assert {index for index, _, _ in found} == {0, 1}
    assert trials.of_plan > 0


def test_nothing_of_it_stays(spark: SparkSession, store: Any) -> None:
    """The thread's jobs are its own again; and trials of a step that is told to stop end."""
    topic(store, "in", "out")
    context = spark.sparkContext
    runner = runner_of(spark, store, PLANNED["project"])
    plan = runner.trials.plan([Near(held("in", [b"1", b"bad"] * 10))], 0)
    trials = []
    for group in (None, "a group"):
        context._jsc.setLocalProperty("spark.jobGroup.id", group)
        trials.append(plan(0, (0, 20)))
        assert context.getLocalProperty("spark.jobGroup.id") == group
        assert spark.range(3).count() == 3
    context._jsc.setLocalProperty("spark.jobGroup.id", None)
    for trial in trials:
        assert trial is not None
        assert trial(0, 1) is None
        assert "CAST_INVALID_INPUT" in str(trial(0, 2))
    runner.stop()
    assert trial is not None
    with pytest.raises(Ended):
        trial(0, 1)
