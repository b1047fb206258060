"""How Spark finds the format."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from quire.spark_graphs import connection
from quire.spark_graphs.last_release import LastRelease
from quire.spark_graphs.options import read_options
from quire.spark_graphs.planning.stream_reader import StreamReader
from quire.spark_graphs.schema import source_schema
from tests.kit.waiting import SECONDS, eventually
from tests.spark.numbered_queues import numbers_in, position, put_numbers, topic
from tests.spark.queries import sink, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_spark_finds_the_format_by_itself(spark: SparkSession, store: Any) -> None:
    """Through the top-level module `pyspark_quire`, without a registration."""
    topic(store, "q")
    assert spark.read.format("QUIRE").option("queue", "q").load(store.path).count() == 0


@pytest.mark.spark
def test_a_session_can_register_it(spark: SparkSession, store: Any) -> None:
    """For workers that do not have Quire installed when the look-up runs."""
    from quire.spark_graphs import register

    topic(store, "q")
    session = spark.newSession()
    register(session)
    assert session.read.format("quire").option("queue", "q").load(store.path).count() == 0


def test_the_module_that_spark_imports_is_cheap() -> None:
    """It brings in the connector only when the format is used."""
    script = (
        "import sys, pyspark_quire; pyspark_quire.DefaultSource.name();"
        "assert not [m for m in sys.modules if m == 'quire' or m.startswith('quire.')]"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)


def test_what_a_worker_imports_is_light() -> None:
    """Each of Spark's workers imports it: neither the engine nor pandas, which take the longest."""
    code = (
        "import sys, quire.spark_graphs.source, quire.remote;"
        "print({'quire.engine', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_without_pyspark_the_module_is_silent(tmp_path: Path) -> None:
    """A module that raises would disable the look-up of every data source."""
    (tmp_path / "pyspark.py").write_text("raise ImportError('no pyspark here')")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import pyspark_quire"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_what_a_query_has_committed_last_is_released(store: Any) -> None:
    """By what its progress says, in the words that Spark has from the source; and no further."""
    topic(store, "in")
    put_numbers(store, "in", range(10))
    given = {"path": store.path, "queue": "in", "subscription": "s"}
    reader = StreamReader(
        read_options({**given, "startingOffsets": "earliest"}, streaming=True), source_schema()
    )
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(6))
    reader.partitions(start, end)
    listener, run, other = LastRelease(), uuid.uuid4(), uuid.uuid4()

    def event(run: uuid.UUID, end: Any, latest: Any) -> Any:
        source = SimpleNamespace(endOffset=json.dumps(end), latestOffset=json.dumps(latest))
        return SimpleNamespace(progress=SimpleNamespace(runId=run, sources=[source]), runId=run)

    listener.onQueryProgress(event(run, end, reader.reportLatestOffset()))
    listener.onQueryProgress(event(other, {"7": 7}, None))  # of another kind of source
    assert position(store, "in", "s") == 0
    reader.stop()
    for each in (other, run, run):
        listener.onQueryTerminated(event(each, None, None))
    assert position(store, "in", "s") == 6
    assert not listener._sources
    connection.forget(store.path)


@pytest.mark.cases(8)
@pytest.mark.spark
def test_a_registered_session_releases_the_last_micro_batch(
    spark: SparkSession, store: Any, tmp_path: Path
) -> None:
    """Of `Trigger.Once`, whose source is asked for nothing more; its progress names the store."""
    from quire.spark_graphs import register

    topic(store, "in", "out")
    put_numbers(store, "in", range(10))
    session = spark.newSession()
    register(session)
    rows = stream(session, store, "in")
    query = sink(rows, store, tmp_path / "c", queue="out").trigger(once=True).start()
    assert query.awaitTermination(SECONDS)
    eventually(lambda: position(store, "in", "spark") == 10)
    assert numbers_in(store, "out") == Counter(range(10))
    progress: Any = query.lastProgress
    shown = json.loads(progress["sources"][0]["latestOffset"])
    assert (shown["store"], shown["lag"]) == (store.path, {"in": 0})
    # The next one has its subscription at once, and a program that knows the store may end.
    put_numbers(store, "in", range(10, 20))
    again = sink(rows, store, tmp_path / "c", queue="out").trigger(once=True).start()
    assert again.awaitTermination(SECONDS)
    assert numbers_in(store, "out") == Counter(range(20))
    eventually(lambda: position(store, "in", "spark") == 20)
