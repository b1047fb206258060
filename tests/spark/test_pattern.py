"""subscribePattern: the topics that a stream reads are those that a pattern finds, by and by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import quire
from quire.errors import PositionLost, QueueInUse, QueueNotFound
from quire.spark_graphs import connection
from quire.spark_graphs.options import read_options
from quire.spark_graphs.planning.stream_reader import StreamReader
from quire.spark_graphs.schema import source_schema
from tests.kit.limits import Limits
from tests.kit.waiting import eventually
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.queries import numbers_read, sink

pytestmark = pytest.mark.at_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = ReadAllAvailable()


@pytest.fixture
def store(store_path: str) -> Iterator[Any]:
    """A store with a topic that the pattern finds, and queues that it does not."""
    with quire.open(store_path) as opened:
        topic(opened, "in-a", "out", "not-in-a")
        opened.create_queue("in-work", kind="work")
        put_numbers(opened, "in-a", range(10))
        put_numbers(opened, "not-in-a", range(900, 910))
        yield opened
        connection.forget(store_path)
        assert opened.admin.verify().ok


def reader(store: Any, pattern: str = "in-.*", **options: str) -> StreamReader:
    """A reader as a new source process has it."""
    given = {"path": store.path, "subscribePattern": pattern, "subscription": "s", **options}
    return StreamReader(
        read_options({"startingOffsets": "earliest", **given}, streaming=True), source_schema()
    )


def test_a_topic_made_later_joins_from_its_first_message(store: Any) -> None:
    """With startingOffsets=latest too, and its subscription keeps what comes."""
    source = reader(store, startingOffsets="latest")
    start = source.initialOffset()
    assert start["positions"] == {"in-a": 10}
    topic(store, "in-b")
    put_numbers(store, "in-b", range(20, 25))
    end = source.latestOffset(start, ALL)
    assert end["positions"] == {"in-a": 10, "in-b": 5}
    assert "s" in store.queue("in-b").subscriptions
    assert numbers_read(source, start, end) == list(range(20, 25))
    # The same micro-batch, repeated by a process that begins with both.
    source.stop()
    source = reader(store)
    assert numbers_read(source, start, end) == list(range(20, 25))
    put_numbers(store, "in-b", range(25, 27))
    assert numbers_read(source, end, source.latestOffset(end, ALL)) == [25, 26]


def test_a_topic_that_joins_is_held(store: Any, limits: Limits) -> None:
    """By one reader of a subscription, as those are that a query begins with, until it ends."""
    limits(HOLD_PATIENCE_SECONDS=0.2)
    source, other = reader(store), reader(store, "in-b")
    start = source.initialOffset()
    topic(store, "in-b")
    source.latestOffset(start, ALL)
    with pytest.raises(QueueInUse, match="queue 'in-b' is being streamed by subscription 's'"):
        other.initialOffset()
    source.stop()
    assert other.initialOffset()["positions"] == {"in-b": 0}


def test_an_empty_topic_joins_once(store: Any) -> None:
    """The offset changes once, and then stays the same."""
    source = reader(store)
    start = source.latestOffset(source.initialOffset(), ALL)
    topic(store, "in-b")
    end = source.latestOffset(start, ALL)
    assert end["origin"] == {"in-a": 0, "in-b": 0}
    assert numbers_read(source, start, end) == []
    assert source.latestOffset(end, ALL) == end


def test_a_topic_that_goes_is_lost_data(store: Any) -> None:
    """An error, or with failOnDataLoss=false the query goes on without it."""
    topic(store, "in-b")
    strict = reader(store)
    start = strict.initialOffset()
    store.drop_queue("in-a")
    put_numbers(store, "in-b", range(3))
    with pytest.raises(PositionLost, match="'in-a', which this query has read by its pattern"):
        strict.latestOffset(start, ALL)
    strict.stop()
    lenient = reader(store, failOnDataLoss="false")
    end = lenient.latestOffset(start, ALL)
    assert end["positions"] == {"in-b": 3}
    assert numbers_read(lenient, start, end) == [0, 1, 2]
    # Made again with its name it joins as any other.
    topic(store, "in-a")
    put_numbers(store, "in-a", range(70, 75))
    later = lenient.latestOffset(end, ALL)
    assert numbers_read(lenient, end, later) == list(range(70, 75))


@pytest.mark.parametrize("kind", [None, "work"])
def test_a_topic_that_goes_under_a_planned_micro_batch(
    store: Any, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The same rule as for one that goes between two, and both say which topic it was.

    So it is where a work queue has its name since.
    """
    topic(store, "in-b")
    put_numbers(store, "in-b", range(3))
    strict = reader(store)
    start = strict.initialOffset()
    end = strict.latestOffset(start, ALL)
    strict.stop()
    store.drop_queue("in-a")
    if kind is not None:
        store.create_queue("in-a", kind=kind)
    strict = reader(store)
    with pytest.raises(PositionLost, match="'in-a', which this query has read by its pattern"):
        strict.partitions(start, end)
    strict.stop()
    lenient = reader(store, failOnDataLoss="false")
    assert numbers_read(lenient, start, end) == [0, 1, 2]
    assert "queue 'in-a', which this query has read by its pattern" in caplog.text
    put_numbers(store, "in-b", range(3, 5))
    later = lenient.latestOffset(end, ALL)
    assert later["positions"] == {"in-b": 5}
    assert numbers_read(lenient, end, later) == [3, 4]


def test_a_pattern_that_finds_nothing_is_refused(store: Any) -> None:
    """At the start of the query: it is a wrong pattern as a rule; a part of a name is no match."""
    for pattern in ("orders-.*", "in", "in-work"):
        with pytest.raises(QueueNotFound, match="the whole name has to match"):
            reader(store, pattern).initialOffset()


@pytest.mark.cases(2)
@pytest.mark.spark
def test_a_running_query_reads_topics_made_later(
    spark: SparkSession, store: Any, tmp_path: Path
) -> None:
    """And a batch read with the same pattern finds them as well, and work queues too."""
    rows = (
        spark.readStream.format("quire")
        .options(subscribePattern="in-.*", subscription="s", startingOffsets="earliest")
        .load(store.path)
    )
    query = sink(rows, store, tmp_path / "c", queue="out").start()
    eventually(partial(has_come, query, store, Counter(range(10))))
    topic(store, "in-b")
    put_numbers(store, "in-b", range(10, 20))
    eventually(partial(has_come, query, store, Counter(range(20))))
    query.stop()
    put_numbers(store, "in-work", range(20, 25))
    batch = spark.read.format("quire").option("subscribePattern", "in-.*").load(store.path)
    assert batch.count() == 25


def has_come(query: Any, store: Any, expected: Counter[int]) -> bool:
    """Whether a running query has written what it should."""
    assert query.isActive, query.exception()
    return numbers_in(store, "out") == expected
