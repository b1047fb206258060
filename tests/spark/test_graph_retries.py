"""Work of a step that Spark does more than once: what is done counts once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quire.spark_graphs import Graph
from quire.spark_graphs.graphs.functions import step_function
from tests.kit.waiting import SECONDS, eventually
from tests.spark.doubles import EagerFiles, SteeredFiles
from tests.spark.numbered_queues import numbers_in, put_numbers, topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.promise(2), pytest.mark.at_server]


@pytest.fixture
def graph(
    spark: SparkSession,
    store: Any,
    control: Path,
    files: type[SteeredFiles],
    monkeypatch: pytest.MonkeyPatch,
) -> Graph:
    """One whose batches are read and written by tasks that the test steers."""
    monkeypatch.setattr(step_function, "LOCAL_BYTES", 0)
    found = Graph("shop", spark, store.path)
    found._tasks = lambda: files(store.path, store.integration.store_id, control=str(control))  # type: ignore[method-assign]
    topic(store, "in", "out")
    put_numbers(store, "in", range(60))
    return found


@pytest.mark.cases(2)
@pytest.mark.parametrize("files", [SteeredFiles, EagerFiles])
def test_a_task_that_is_tried_again(
    graph: Graph, store: Any, control: Path, files: type[SteeredFiles]
) -> None:
    """It had written all its fragments; those of the other attempt count.

    The same with a canary, whose tasks put what they write by themselves.
    """
    graph.step("in", "out", name="copy")(lambda rows: rows.select("payload"))
    (control / "fail-task").touch()
    with graph.start() as run:
        run.drain(timeout=SECONDS)
        assert run.status().steps["copy"].retries == 0
        assert run.status().steps["copy"].batches == 1
    assert not (control / "fail-task").exists()
    exact = numbers_in(store, "out") == Counter(range(60))
    assert exact == (files is SteeredFiles)


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.parametrize("files", [SteeredFiles])
def test_a_stage_that_is_run_again(
    graph: Graph, store: Any, control: Path, spark: SparkSession
) -> None:
    """Its shuffle's files are lost while tasks write: messages are read again, and count once."""

    @graph.step("in", "out")
    def shuffle(rows: DataFrame) -> DataFrame:
        return rows.select("payload").repartition(4, "payload")

    (control / "hold-write").touch()
    with graph.start() as run:
        eventually((control / "writing").exists)
        reads = len((control / "read").read_text().split())
        directory = spark.sparkContext.getConf().get("spark.local.dir")
        assert directory is not None
        for path in Path(directory).rglob("shuffle_*"):
            path.unlink()
        (control / "hold-write").unlink()
        run.drain(timeout=SECONDS)
        assert run.status().steps["shuffle"].retries == 0
        assert len((control / "read").read_text().split()) > reads
    assert numbers_in(store, "out") == Counter(range(60))
