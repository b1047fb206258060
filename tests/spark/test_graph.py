"""Graphs: components whose reads and writes commit together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quire.errors import InvalidArgument
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
