"""Graphs: components whose writes commit together, once, whatever is repeated."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from quire.errors import InvalidArgument, QueueNotFound
from quire.spark_graphs import Graph
from tests.spark.kit import numbers_in, put_numbers, run_to_end, topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EARLIEST = {"startingOffsets": "earliest"}


@pytest.mark.spark
def test_components_hand_on_through_queues(spark: SparkSession, store: Any, tmp_path: Path) -> None:
    """One component splits, the next joins the halves; running again repeats nothing."""
    topic(store, "in", "odd", "even", "all")
    put_numbers(store, "in", range(50))
    graph = Graph(store.path, str(tmp_path / "checkpoints"))

    @graph.component(["in"], ["odd", "even"], options=EARLIEST)
    def split(rows: DataFrame) -> dict[str, DataFrame]:
        number = rows.payload.cast("string").cast("long")
        return {
            "odd": rows.where(number % 2 == 1).select("payload"),
            "even": rows.where(number % 2 == 0).select("payload", "priority"),
        }

    @graph.component(["odd", "even"], ["all"], options=EARLIEST)
    def merge(odd: DataFrame, even: DataFrame) -> DataFrame:
        return odd.union(even).select("payload")

    for _ in range(2):
        for name in ("split", "merge"):  # one after the other, so that each sees all of its input
            one = Graph(store.path, graph.checkpoints)
            one.components[name] = graph.components[name]
            for query in one.start(spark, availableNow=True):
                run_to_end(query)
    assert numbers_in(store, "odd") == Counter(range(1, 50, 2))
    assert numbers_in(store, "even") == Counter(range(0, 50, 2))
    assert numbers_in(store, "all") == Counter(range(50))


@pytest.mark.spark
def test_a_component_writes_only_what_it_names(
    spark: SparkSession, store: Any, tmp_path: Path
) -> None:
    """A row for another queue fails the step, and nothing of it is written."""
    topic(store, "in", "a", "b", "c")
    put_numbers(store, "in", range(5))
    graph = Graph(store.path, str(tmp_path / "checkpoints"))

    @graph.component(["in"], ["a", "b"], options=EARLIEST)
    def stray(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("payload", "if(position = 4, 'c', 'a') as queue")

    (query,) = graph.start(spark, availableNow=True)
    with pytest.raises(Exception, match="does not write queue c"):
        run_to_end(query)
    assert numbers_in(store, "a", "b", "c") == Counter()


def test_a_component_is_checked_when_it_is_added() -> None:
    """Names are unique, and a component reads and writes something."""
    graph = Graph("/store", "/checkpoints")
    graph.component(["a"], ["b"], name="one")(lambda rows: rows)
    with pytest.raises(InvalidArgument, match="already"):
        graph.component(["a"], ["b"], name="one")(lambda rows: rows)
    with pytest.raises(InvalidArgument, match="queues to write"):
        graph.component(["a"], [], name="two")(lambda rows: rows)


def copying(store: Any, checkpoints: Path, **second: Any) -> Graph:
    """A graph of two components, of which the second one may have something wrong."""
    graph = Graph(store.path, str(checkpoints))
    graph.component(["in"], ["a"], name="first", options=EARLIEST)(
        lambda rows: rows.select("payload")
    )
    given = {"reads": ["a"], "writes": ["b"], "name": "second", "options": EARLIEST, **second}
    function = given.pop("function", lambda rows: rows.select("payload"))
    graph.component(given.pop("reads"), given.pop("writes"), **given)(function)
    return graph


@pytest.mark.spark
@pytest.mark.parametrize(
    ("second", "error", "advice"),
    [
        ({"reads": ["nope"]}, QueueNotFound, "has no queue 'nope'; create it first"),
        ({"writes": ["nope"]}, QueueNotFound, "has no queue 'nope'; create it first"),
        ({"reads": ["work"]}, InvalidArgument, "'second' reads 'work', which is a work queue"),
        ({"options": {"maxMessages": "3"}}, InvalidArgument, "unknown option 'maxMessages'"),
        ({"function": lambda rows: rows}, None, ""),
        ({"function": lambda rows: rows.select("position")}, InvalidArgument, "'payload'"),
        ({"function": lambda rows: rows.select("nope")}, AnalysisException, "nope"),
    ],
)
def test_a_graph_starts_as_a_whole_or_not_at_all(
    spark: SparkSession, store: Any, tmp_path: Path, second: dict[str, Any], error: Any, advice: str
) -> None:
    """What is wrong with one component is told before a query of any runs."""
    topic(store, "in", "a", "b")
    store.create_queue("work", kind="work")
    graph = copying(store, tmp_path / "checkpoints", **second)
    if error is None:  # the case that must not be refused
        for query in graph.start(spark, availableNow=True):
            run_to_end(query)
        return
    with pytest.raises(error, match=advice):
        graph.start(spark, availableNow=True)
    assert spark.streams.active == []
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.spark
def test_what_was_started_is_stopped_where_spark_refuses_the_next(
    spark: SparkSession, store: Any, tmp_path: Path
) -> None:
    """Here it cannot make the checkpoint of the second component, and then its name is taken."""
    topic(store, "in", "a", "b")
    graph = copying(store, tmp_path / "checkpoints")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "second").touch()
    with pytest.raises(Exception, match="second"):
        graph.start(spark)
    assert spark.streams.active == []
    (tmp_path / "checkpoints" / "second").unlink()
    started = graph.start(spark)
    try:
        with pytest.raises(InvalidArgument, match="'first' is running in this session"):
            graph.start(spark)
        assert len(spark.streams.active) == 2
    finally:
        for query in started:
            query.stop()
