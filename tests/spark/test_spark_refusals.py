"""What cannot work is refused early, and said in the first line that a user sees."""

from __future__ import annotations

import contextlib
import os
import pickle
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_quire import DefaultSource
from quire.errors import InvalidArgument, QueueFull, QueueNotFound, StoreNotFound
from quire.spark_graphs import connection
from quire.spark_graphs.first_line import HIDE_TRACEBACK
from quire.spark_graphs.fragments.fragment_file import FragmentWriter
from quire.spark_graphs.options import read_options, write_options
from quire.spark_graphs.planning.stream_reader import StreamReader
from quire.spark_graphs.reading.partition import QuirePartition
from quire.spark_graphs.schema import source_schema
from quire.spark_graphs.source import QuireDataSource
from quire.spark_graphs.writing.sink_committer import FragmentCommitter
from quire.spark_graphs.writing.sink_writer import target_of, write_fragments
from quire.spark_graphs.writing.write_ledger import StreamLedger
from quire.testing import SimEnv
from tests.spark.checkpoint_logs import last_logged
from tests.spark.numbered_queues import put_numbers, topic
from tests.spark.queries import run_to_end, sink, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def first_line(error: pytest.ExceptionInfo[BaseException]) -> str:
    """What a user sees of an error, but for Spark's own line before it, if it has one."""
    lines = str(error.value).splitlines()
    return lines[1] if lines[0] == "An exception was thrown from the Python worker:" else lines[0]


def copied(spark: SparkSession, store: Any, checkpoint: Path, queue: str, **options: Any) -> None:
    """Copy `in` to a queue."""
    rows = stream(spark, store, "in", **options).select("payload")
    run_to_end(sink(rows, store, checkpoint, queue=queue).trigger(availableNow=True).start())


@pytest.mark.spark
def test_a_sink_queue_is_looked_for_when_the_write_is_planned(
    spark: SparkSession, store: Any, tmp_path: Path
) -> None:
    """No task runs for a queue that is not there, in streams and in batch writes."""
    topic(store, "in")
    put_numbers(store, "in", range(10))
    with pytest.raises(Exception, match="initialize Python data source writer") as error:
        copied(spark, store, tmp_path / "c", "nope")
    assert "has no queue 'nope'; create it first" in first_line(error)
    rows = spark.range(3).selectExpr("raise_error('a task ran') as payload")
    with pytest.raises(Exception, match="has no queue 'nope'") as error:
        rows.write.format("quire").mode("append").option("queue", "nope").save(store.path)
    assert "has no queue 'nope'; create it first" in first_line(error)


@pytest.mark.parametrize("source_class", [DefaultSource, QuireDataSource])
def test_a_table_of_a_catalog_is_refused_when_it_is_made(source_class: Any) -> None:
    """With the options that CREATE TABLE hands to `schema`, and to nothing else."""
    given = {"path": "/s", "queue": "q", "location": "file:/s", "owner": "me", "provider": "quire"}
    with pytest.raises(InvalidArgument, match="use CREATE TEMPORARY VIEW"):
        source_class(given).schema()
    assert "payload" in source_class({"owner": "me", "provider": "quire"}).schema().names


@pytest.mark.spark
def test_statements_that_spark_hands_no_options_on_to(spark: SparkSession, store: Any) -> None:
    """CREATE TABLE leaves no table; a read of several directories says what one has."""
    options = f"OPTIONS (path '{store.path}', queue 'in')"
    with pytest.raises(Exception, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE orders USING quire {options}")
    assert not spark.catalog.tableExists("orders")
    with pytest.raises(Exception, match="a read is of one store: give load"):
        spark.read.format("quire").option("queue", "in").load([store.path, "/other"]).count()


def test_a_stream_over_a_missing_queue_is_to_make_a_topic(store: Any) -> None:
    """Since a work queue, which create_queue makes by default, is not streamed."""
    given = {"path": store.path, "queue": "nope", "subscription": "s"}
    stream: Any = QuireDataSource(given).streamReader(StructType([]))
    with pytest.raises(QueueNotFound, match=r"create_queue\('nope', kind=\"topic\"\)"):
        stream.initialOffset()
    stream.stop()
    batch: Any = QuireDataSource({"path": store.path, "queue": "nope"}).reader(StructType([]))
    with pytest.raises(QueueNotFound, match=r"create_queue\('nope'\)"):
        batch.partitions()
    connection.forget(store.path)


@pytest.mark.parametrize("source_class", [DefaultSource, QuireDataSource])
def test_only_where_a_write_is_planned(store: Any, source_class: Any) -> None:
    """Spark hands a pickled source to the commit; raised there, an error would not be shown."""
    options = {"path": store.path, "queue": "nope"}
    schema = StructType([StructField("payload", BinaryType())])
    planning = source_class(options)
    for writer in (planning.streamWriter, planning.writer):
        with pytest.raises(QueueNotFound, match="has no queue 'nope'; create it first"):
            writer(schema, False)
    planning.schema()
    pickle.loads(pickle.dumps(planning)).streamWriter(schema=schema, overwrite=False)
    connection.forget(store.path)


@pytest.mark.cases(2)
@pytest.mark.spark
def test_a_queue_that_is_dropped_before_the_commit_is_told_by_the_commit(
    spark: SparkSession, store: Any, tmp_path: Path
) -> None:
    """Here a task drops it."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(10))
    path = store.path

    def drop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with contextlib.suppress(QueueNotFound):
            connection.store_at(path).drop_queue("out")
        yield from batches

    rows = stream(spark, store, "in").select("payload").mapInArrow(drop, "payload binary")
    with pytest.raises(Exception, match="perform commit") as error:
        run_to_end(
            sink(rows, store, tmp_path / "c", queue="out").trigger(availableNow=True).start()
        )
    assert "has no queue 'out'; create it first" in first_line(error)


@pytest.mark.cases(2)
@pytest.mark.spark
def test_errors_are_told_in_the_first_line(spark: SparkSession, store: Any, tmp_path: Path) -> None:
    """Those of planning, of the source's process, of tasks and of the commit; traces follow."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(10))
    with pytest.raises(Exception, match="planned") as error:
        spark.read.format("quire").options(queue="in", planned="x").load(store.path).count()
    assert "InvalidArgument: unknown option 'planned'" in first_line(error)
    with pytest.raises(Exception, match="nope") as error:
        run_to_end(
            sink(stream(spark, store, "nope"), store, tmp_path / "a", queue="out")
            .trigger(availableNow=True)
            .start()
        )
    assert "has no topic 'nope'; create it first" in first_line(error)
    rows = stream(spark, store, "in").selectExpr("payload", "'no where' as queue")
    with pytest.raises(Exception, match="no where") as error:
        run_to_end(sink(rows, store, tmp_path / "b").trigger(availableNow=True).start())
    assert "InvalidArgument: queue name 'no where': use 1 to 200" in first_line(error)
    rows = stream(spark, store, "in").selectExpr("payload", "'nowhere' as queue")
    with pytest.raises(Exception, match="nowhere") as error:
        run_to_end(sink(rows, store, tmp_path / "d").trigger(availableNow=True).start())
    assert "has no queue 'nowhere'; create it first" in first_line(error)
    assert "Traceback (most recent call last)" in str(error.value)
    rows = spark.range(3).selectExpr("cast(null as string) as payload")
    with pytest.raises(Exception, match="null") as error:
        rows.write.format("quire").mode("append").option("queue", "out").save(store.path)
    assert first_line(error).startswith("quire.errors.InvalidArgument: column 'payload' is null")


def test_outside_of_sparks_workers_errors_are_as_ever() -> None:
    """Nothing is added to them, and Spark's switch is left alone."""
    reader = StreamReader(
        read_options({"path": "/not/here", "queue": "q"}, streaming=True), source_schema()
    )
    with pytest.raises(StoreNotFound) as error:
        reader.initialOffset()
    assert not hasattr(error.value, "__notes__")
    assert HIDE_TRACEBACK not in os.environ


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    ("options", "count", "size", "limit"),
    [
        ({"max_messages": 10}, 11, 10, "11 messages and 286 bytes: it holds 10 messages at most"),
        ({"capacity": 100_000}, 10, 50_000, "it holds 100000 bytes at most"),
        ({"capacity": 4_096}, 5_000, 1, "it holds 4096 bytes at most"),
    ],
)
def test_a_batch_larger_than_its_queue_is_refused_at_once(
    store: Any, options: dict[str, Any], count: int, size: int, limit: str
) -> None:
    """Also where the queue is not empty; no file is left, and other queues get nothing."""
    topic(store, "small", **options)
    topic(store, "other")
    store.put("small", b"1")
    writer = FragmentWriter(store.path, store.integration.store_id)
    writer.add(pa.record_batch({"payload": [b"1"]}), {"other": 1})
    for start in range(0, count, 2):
        payloads = [b"x" * size] * min(2, count - start)
        writer.add(pa.record_batch({"payload": payloads}), {"small": len(payloads)})
    with pytest.raises(QueueFull, match="can never hold this batch") as error:
        FragmentCommitter(store.path, StreamLedger("a", 0), 60.0).commit(writer.finish())
    assert limit in str(error.value)
    assert "no room came within" not in str(error.value)
    assert store.queue("other").messages == 0
    assert list(Path(store.path, "ltds").iterdir()) == []
    connection.forget(store.path)


def test_a_batch_that_fits_waits_for_room(store: Any) -> None:
    """As before: a full queue may be emptied."""
    topic(store, "small", max_messages=10)
    put_numbers(store, "small", range(5))
    writer = FragmentWriter(store.path, store.integration.store_id)
    writer.add(pa.record_batch({"payload": [b"1"] * 10}), {"small": 10})
    env = SimEnv(seed=1)
    before = env.monotonic()
    with pytest.raises(QueueFull, match="no room came within 60 seconds"):
        FragmentCommitter(store.path, StreamLedger("a", 0), 60.0, env).commit(writer.finish())
    assert env.monotonic() - before > 59
    connection.forget(store.path)


@pytest.mark.cases(2)
@pytest.mark.spark
def test_spark_shows_that_a_batch_is_larger_than_its_queue(
    spark: SparkSession, store: Any, tmp_path: Path
) -> None:
    """In the first line; with a limit on the source and a new checkpoint it goes through."""
    topic(store, "in")
    store.create_queue("small", kind="work", max_messages=6)
    put_numbers(store, "in", range(10))
    with pytest.raises(Exception, match="can never hold") as error:
        copied(spark, store, tmp_path / "a", "small")
    assert "queue 'small' can never hold this batch of 10 messages" in first_line(error)
    assert last_logged(tmp_path / "a", "commits") is None


def test_a_task_without_the_stores_files_says_host_and_path(store: Any, tmp_path: Path) -> None:
    """As an executor on a host that does not have the store's directory; what it reads is a plan
    that was made where the store is."""
    topic(store, "in")
    put_numbers(store, "in", range(10))
    given = {"path": store.path, "queue": "in", "subscription": "s", "startingOffsets": "earliest"}
    source = StreamReader(read_options(given, streaming=True), source_schema())
    start = source.initialOffset()
    end = source.latestOffset(start, source.getDefaultReadLimit())
    (partition,) = source.partitions(start, end)
    assert isinstance(partition, QuirePartition)
    elsewhere = str(tmp_path / "elsewhere")
    there = StreamReader(
        read_options({**given, "path": elsewhere}, streaming=True), source_schema()
    )
    told = f"host '{platform.node()}' does not see the files of the store {elsewhere}, .* put the"
    with pytest.raises(StoreNotFound, match=told):
        list(there.read(partition))
    rows = pa.record_batch({"payload": [b"x" * 1000] * 1000})
    options = write_options({"path": elsewhere, "queue": "in"}, streaming=True)
    with pytest.raises(StoreNotFound, match=told):
        write_fragments(iter([rows]), options, target_of(store))
    connection.forget(store.path)


@pytest.mark.spark
def test_spark_shows_which_executor_has_no_files(
    spark: SparkSession, store: Any, control: Path
) -> None:
    """In the first line of the failed job."""
    topic(store, "in")
    put_numbers(store, "in", range(10))
    elsewhere = str(control / "elsewhere")
    rows = spark.read.format("quire_elsewhere").options(queue="in", elsewhere=elsewhere)
    with pytest.raises(Exception, match="does not see") as error:
        rows.load(store.path).count()
    assert f"'{platform.node()}' does not see the files of the store {elsewhere}" in first_line(
        error
    )
