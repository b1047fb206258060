"""Steps that fail with a share of their messages, on real Spark: exact, in limited batches."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from quire.spark_graphs import Graph
from quire.spark_graphs.graphs.status import Phase
from tests.kit.waiting import SECONDS, eventually
from tests.spark.numbered_queues import numbers_in, topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.cases(2, of_file=True), pytest.mark.at_server]

LIMIT = 10_000


def is_bad(number: int, share: float) -> bool:
    """Such a share of all numbers, evenly."""
    return int((number + 1) * share) > int(number * share)


def filled(spark: SparkSession, store: Any, rows: int, share: float, **options: Any) -> Graph:
    """A graph whose step doubles numbers, and so many messages of which some are none."""
    topic(store, "in", "out")
    store.put_many("in", [b"bad" if is_bad(n, share) else b"%d" % n for n in range(rows)])
    graph = Graph("g", spark, store.path)

    @graph.step("in", "out", dead="dead", limit=LIMIT, **options)
    def double(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("string(bigint(string(payload)) * 2) as payload")

    return graph


def check_exact(store: Any, rows: int, share: float) -> None:
    """Each message is where it belongs, once, and no commit is over the limit."""
    good = Counter(2 * n for n in range(rows) if not is_bad(n, share))
    assert numbers_in(store, "out") == good
    out = store.browse("out", max_messages=rows)
    dead = store.browse("dead", max_messages=rows)
    found = [int(each.attributes["quire.position"]) for each in dead]
    assert found == [n for n in range(rows) if is_bad(n, share)]
    assert max(Counter(each.time for each in (*out, *dead)).values()) <= LIMIT


@pytest.mark.parametrize(
    ("rows", "share"),
    [
        (2_000, 0.001),
        (120, 0.1),
        *(pytest.param(100_000, share, marks=pytest.mark.long) for share in (0.0001, 0.01, 0.1)),
    ],
)
def test_a_share_that_goes_on(
    spark: SparkSession, store: Any, capfd: Any, rows: int, share: float
) -> None:
    """Without a page of PySpark's for each message that was tried."""
    graph = filled(spark, store, rows, share)
    with graph.start() as run:
        run.drain(timeout=100 * SECONDS if rows > LIMIT else SECONDS)
        assert run.status().steps["double"].dead_letters == int(rows * share)
    check_exact(store, rows, share)
    assert "QueryContextLogger" not in capfd.readouterr().err


@pytest.mark.parametrize("rows", [120, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_broken_function_pauses(spark: SparkSession, store: Any, rows: int) -> None:
    """By default: nothing of the batch is put, and the status tells what it fails with."""
    graph = filled(spark, store, rows, 0.9, poison_time="10 min")  # in one go, on a slow machine
    phases = []
    with graph.start() as run:

        def phase() -> Phase:
            phases.append(run.status().steps["double"].phase)
            return phases[-1]

        eventually(lambda: phase() is Phase.PAUSED)
        told = str(run.status().steps["double"].last_error)
        broken = "the function is broken: it fails with 101 of the last 11"
        assert told.startswith(f"StepFailed: {broken}")
        assert "[CAST_INVALID_INPUT] The value 'bad'" in told.splitlines()[0]
        assert str(run.status()).count("the function is broken") == 1
    assert Phase.ISOLATING in phases
    assert (store.queue("out").messages, store.queue("dead").messages) == (0, 0)
    assert f"now: paused ({broken}" in graph.explain()


@pytest.mark.parametrize("rows", [120, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_broken_function_that_is_to_go_on(spark: SparkSession, store: Any, rows: int) -> None:
    """With a share of 1.0 all that fails is a dead letter."""
    graph = filled(spark, store, rows, 0.9, poison_share=1.0)
    with graph.start() as run:
        run.drain(timeout=100 * SECONDS if rows > LIMIT else SECONDS)
    check_exact(store, rows, 0.9)
