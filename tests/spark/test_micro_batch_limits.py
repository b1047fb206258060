"""When a micro-batch begins and how far it goes: rows, bytes, and waiting for more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import quire
from quire.errors import PositionLost
from quire.spark_graphs import connection
from quire.spark_graphs.options import read_options
from quire.spark_graphs.planning.batch_pace import MicroBatchPace
from quire.spark_graphs.planning.stream_reader import StreamReader
from quire.spark_graphs.schema import source_schema
from quire.testing import SimEnv
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.queries import run_to_end, sink, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.at_server


MIB = 1 << 20


@pytest.fixture
def store(store_path: str) -> Iterator[Any]:
    """A store with two topics."""
    with quire.open(store_path) as opened:
        topic(opened, "a", "b", "out")
        yield opened
        connection.forget(store_path)
        assert opened.admin.verify().ok


def reader(store: Any, queues: str = "a", **options: str) -> StreamReader:
    """A reader from the first message on, as a source process has it."""
    given = {"path": store.path, "subscribe": queues, "subscription": "s", **options}
    return StreamReader(
        read_options({**given, "startingOffsets": "earliest"}, streaming=True), source_schema()
    )


def micro_batches(source: StreamReader) -> list[dict[str, int]]:
    """How many messages of each queue the micro-batches take, until there is no more."""
    found: list[dict[str, int]] = []
    start = source.initialOffset()
    while True:
        end = source.latestOffset(start, source.getDefaultReadLimit())
        if end == start:
            return found
        before, after = start["positions"], end["positions"]
        found.append({queue: after[queue] - before[queue] for queue in after})
        start = end


def put_large(store: Any, queue: str, count: int, size: int, at_once: int) -> None:
    """Put messages of a size, `at_once` in a block."""
    for _ in range(count // at_once):
        with store.transaction() as txn:
            txn.put_many(queue, [b"x" * size] * at_once)


@pytest.mark.parametrize("at_once", [1, 10, 40])
def test_a_micro_batch_has_about_so_many_bytes(store: Any, at_once: int) -> None:
    """Whether the messages came one by one or in blocks, and also from inside a block."""
    put_large(store, "a", 40, 100_000, at_once)
    sizes = [batch["a"] for batch in micro_batches(reader(store, maxBytesPerTrigger="1m"))]
    assert sum(sizes) == 40
    assert all(9 <= size <= 10 for size in sizes[:-1]), sizes


def test_a_large_transactions_file_tells_its_mean(store: Any) -> None:
    """Its pieces do not say how long they are; the file does."""
    with store.transaction(large=True) as txn:
        for _ in range(4):
            txn.put_many("a", [b"x" * 100_000] * 50)
    sizes = [batch["a"] for batch in micro_batches(reader(store, maxBytesPerTrigger="5m"))]
    assert sum(sizes) == 200
    assert all(50 <= size <= 53 for size in sizes[:-1]), sizes


@pytest.mark.cases(8)
def test_small_messages_are_many(store: Any) -> None:
    """The limit looks at more and more places until it is full."""
    put_large(store, "a", 30_000, 100, 10_000)
    put_large(store, "a", 2_000, 100, 1)
    sizes = [batch["a"] for batch in micro_batches(reader(store, maxBytesPerTrigger="1m"))]
    assert sum(sizes) == 32_000
    assert all(6_000 <= size <= 10_600 for size in sizes[:-1]), sizes


def test_a_message_larger_than_the_limit_is_taken(store: Any) -> None:
    """One from each queue at least, so that the query goes on."""
    put_large(store, "a", 3, MIB, 1)
    put_large(store, "b", 3, MIB, 1)
    batches = micro_batches(reader(store, "a,b", maxBytesPerTrigger="1k"))
    assert batches == [{"a": 1, "b": 1}] * 3


def test_the_bytes_are_those_of_all_queues(store: Any) -> None:
    """In proportion to what waits; and the limit of messages holds beside it."""
    put_large(store, "a", 20, 100_000, 5)
    put_large(store, "b", 20, 100_000, 5)
    batches = micro_batches(reader(store, "a,b", maxBytesPerTrigger="1m"))
    assert sum(batch["a"] for batch in batches) == sum(batch["b"] for batch in batches) == 20
    assert all(8 <= sum(batch.values()) <= 11 for batch in batches[:-1]), batches
    both = {"maxBytesPerTrigger": "1m", "maxOffsetsPerTrigger": "4"}
    assert micro_batches(reader(store, "a,b", subscription="t", **both)) == [{"a": 2, "b": 2}] * 10


def test_who_wants_all_gets_all(store: Any) -> None:
    """Trigger.Once asks for everything, whatever the limits are."""
    put_large(store, "a", 20, 100_000, 5)
    source = reader(store, maxBytesPerTrigger="1m", minOffsetsPerTrigger="100")
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    assert end["positions"] == {"a": 20}


def test_a_micro_batch_waits_for_enough() -> None:
    """Not the first one; the others until there is enough, or the delay is over."""
    env = SimEnv(seed=1)
    options = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "60s"}
    given = {"path": "/s", "queue": "q", "subscription": "s", **options}
    pace = MicroBatchPace(read_options(given, streaming=True), env)
    assert not pace.is_due(0)
    assert pace.is_due(1)
    assert not pace.is_due(9)
    assert pace.is_due(10)
    env.sleep(59)
    assert not pace.is_due(9)
    env.sleep(1)
    assert not pace.is_due(0)
    assert pace.is_due(1)
    assert not pace.is_due(1)


def test_waiting_is_the_offset_as_it_was(store: Any) -> None:
    """Spark sees nothing new; the lag in the progress tells what waits."""
    source = reader(store, minOffsetsPerTrigger="10")
    put_numbers(store, "a", range(3))
    start = source.latestOffset(source.initialOffset(), source.getDefaultReadLimit())
    assert start["positions"] == {"a": 3}
    put_numbers(store, "a", range(3, 9))
    assert source.latestOffset(start, source.getDefaultReadLimit()) == start
    reported = source.reportLatestOffset()
    assert reported is not None
    assert reported["lag"] == {"a": 6}
    put_numbers(store, "a", range(9, 13))
    end = source.latestOffset(start, source.getDefaultReadLimit())
    assert end["positions"] == {"a": 13}


@pytest.mark.parametrize("limits", [{"minOffsetsPerTrigger": "10"}, {"maxBytesPerTrigger": "1k"}])
def test_lost_messages_are_not_waited_for(store: Any, limits: dict[str, str]) -> None:
    """An end before the start is planned at once, whatever the limits are, and is an error then."""
    put_numbers(store, "a", range(20))
    source = reader(store, **limits)
    start = source.initialOffset()
    start = source.latestOffset(start, source.getDefaultReadLimit())
    beyond = {**start, "positions": {"a": 25}}
    end = source.latestOffset(beyond, source.getDefaultReadLimit())
    assert end["positions"] == {"a": 20}
    with pytest.raises(PositionLost, match="runs backwards"):
        source.partitions(beyond, end)


@pytest.mark.spark
def test_spark_keeps_to_the_limits_and_shows_the_lag(
    spark: SparkSession, store: Any, tmp_path: Path
) -> None:
    """Trigger.AvailableNow takes all that is there, in micro-batches of so many bytes."""
    put_numbers(store, "a", range(100), at_once=5)
    rows = stream(spark, store, "a", maxBytesPerTrigger="2k", minOffsetsPerTrigger="90")
    query = sink(rows, store, tmp_path / "c", queue="out").trigger(availableNow=True).start()
    run_to_end(query)
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    sizes = [size for size in sizes if size]
    assert len(sizes) > 1
    lags = [progress["sources"][0]["latestOffset"] for progress in query.recentProgress]
    assert f'"lag": {{"a": {100 - sizes[0]}}}' in str(lags[0])
    assert '"lag": {"a": 0}' in str(lags[-1])
    assert sum(numbers_in(store, "out").values()) == 100
