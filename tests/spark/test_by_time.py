"""Reads that begin or end by time, as with Spark's Kafka connector; and which queues have no order
by which Spark could read them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import quire
from quire.errors import InvalidArgument, PositionLost
from quire.spark_graphs import connection
from quire.spark_graphs.by_time import ByTime
from quire.spark_graphs.limits import LAST_TIME_MS
from quire.spark_graphs.options import read_options
from quire.spark_graphs.planning.batch_reader import BatchReader
from quire.spark_graphs.planning.stream_reader import StreamReader
from quire.spark_graphs.reading.partition import QuirePartition
from quire.spark_graphs.schema import source_schema
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.queries import run_to_end, sink, stream

pytestmark = pytest.mark.at_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BASE = {"path": "/store", "queue": "orders"}
BY_QUEUE = "startingOffsetsByTimestamp"
STRATEGY = "startingOffsetsByTimestampStrategy"
ALL = ReadAllAvailable()


@pytest.fixture
def store(store_path: str) -> Iterator[Any]:
    """Three commits of ten messages, some milliseconds apart, in `q`; one in `other`."""
    with quire.open(store_path) as opened:
        topic(opened, "q", "other", keep_forever=True)
        for start in (0, 10, 20):
            put_numbers(opened, "q", range(start, start + 10))
            time.sleep(0.003)
        put_numbers(opened, "other", range(5))
        time.sleep(0.003)
        yield opened
        connection.forget(store_path)


def time_ms(store: Any, queue: str, position: int) -> int:
    """The last millisecond that the message's commit is not before."""
    return int(list(store.browse(f"{queue}/check"))[position].time) // 1_000


def reader(store: Any, **options: Any) -> StreamReader:
    """A reader as a new source process has it."""
    given = {"path": store.path, "queue": "q", "subscription": "s", **options}
    return StreamReader(read_options(given, streaming=True), source_schema())


def first(store: Any, **options: Any) -> int:
    """Where a new query begins in `q`."""
    source = reader(store, **options)
    try:
        return source.initialOffset()["positions"]["q"]
    finally:
        source.stop()


def batch(store: Any, **options: Any) -> list[int]:
    """What a batch read finds."""
    given = {"path": store.path, "queue": "q", **options}
    source = BatchReader(read_options(given, streaming=False), source_schema())
    return [
        int(payload)
        for partition in source.partitions()
        for rows in source.read(partition)
        for payload in rows.column("payload").to_pylist()
    ]


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"startingTimestamp": "yesterday"}, "give the milliseconds since 1970"),
        ({"startingTimestamp": "-1"}, "give the milliseconds since 1970"),
        ({"startingTimestamp": str(LAST_TIME_MS + 1)}, "give the milliseconds since 1970"),
        ({BY_QUEUE: "5"}, "the milliseconds since 1970 of each queue"),
        ({BY_QUEUE: "{"}, "the milliseconds since 1970 of each queue"),
        ({BY_QUEUE: '{"orders": true}'}, "the milliseconds since 1970 of each queue"),
        ({BY_QUEUE: '{"orders": {"0": 5}}'}, "the milliseconds since 1970 of each queue"),
        ({BY_QUEUE: '{"others": 5}'}, "a time for each of orders, but gives others"),
        ({STRATEGY: "latest"}, "give one of them with it"),
        ({"startingTimestamp": "5", STRATEGY: "earliest"}, "must be error or latest"),
        ({"startingTimestamp": "5", BY_QUEUE: "{}"}, "a time for each of orders, but gives none"),
        ({"startingTimestamp": "5", "startingOffsets": "soon"}, "give earliest, latest"),
    ],
)
def test_wrong_times_say_what_to_change(options: dict[str, str], advice: str) -> None:
    """Options that do not count, since another goes before them, are checked too."""
    for streaming in (True, False):
        with pytest.raises(InvalidArgument, match=re.escape(advice)):
            read_options({**BASE, **options}, streaming=streaming)


def test_what_only_one_kind_of_read_has() -> None:
    """A stream has no end; a pattern has no names; a read does not end before it begins."""
    for name in ("endingTimestamp", "endingOffsetsByTimestamp"):
        with pytest.raises(InvalidArgument, match=f"'{name}' belongs to a batch read"):
            read_options({**BASE, name: "5"}, streaming=True)
    pattern = {"path": "/s", "subscribePattern": ".*"}
    with pytest.raises(InvalidArgument, match="for all queues, by 'startingTimestamp'"):
        read_options({**pattern, BY_QUEUE: '{"a": 5}'}, streaming=True)
    for begin in ({"startingTimestamp": "6"}, {BY_QUEUE: '{"orders": 6}'}):
        for end in ({"endingTimestamp": "5"}, {"endingOffsetsByTimestamp": '{"orders": 5}'}):
            with pytest.raises(InvalidArgument, match="which is before it: exchange them"):
                read_options({**BASE, **begin, **end}, streaming=False)


def test_which_option_goes_before_which() -> None:
    """A time for all queues, then times by queue, then offsets, on both ends."""
    options = {"startingOffsets": "earliest", "endingOffsets": '{"orders": 9}'}
    read = read_options({**BASE, **options, BY_QUEUE: '{"orders": 6}'}, streaming=False)
    assert read.starting == ByTime(BY_QUEUE, {"orders": 6}, or_latest=False)
    assert read.ending == {"orders": 9}
    options |= {BY_QUEUE: '{"orders": 6}', "startingTimestamp": "7", STRATEGY: "Latest"}
    options |= {"endingOffsetsByTimestamp": '{"orders": 8}'}
    read = read_options({**BASE, **options}, streaming=False)
    assert read.starting == ByTime("startingTimestamp", 7, or_latest=True)
    assert read.ending == ByTime("endingOffsetsByTimestamp", {"orders": 8})
    read = read_options({**BASE, **options, "endingTimestamp": "9"}, streaming=False)
    assert read.ending == ByTime("endingTimestamp", 9)


def test_a_stream_begins_at_a_time(store: Any) -> None:
    """With the first message of then or later, whatever the subscription has read before."""
    assert first(store) == 30
    assert first(store, startingTimestamp="0") == 0
    assert first(store, startingTimestamp=str(time_ms(store, "q", 10))) == 10
    assert first(store, startingTimestamp=str(time_ms(store, "q", 10) + 1)) == 20
    by_queue = json.dumps({"q": time_ms(store, "q", 20)})
    assert first(store, **{BY_QUEUE: by_queue, "startingOffsets": "earliest"}) == 20
    each = {"q": time_ms(store, "q", 10), "other": 0}
    source = reader(store, queue="other", subscription="new", startingTimestamp="0")
    assert source.initialOffset()["positions"] == {"other": 0}
    source.stop()
    given = {"path": store.path, "subscribe": "q,other", BY_QUEUE: json.dumps(each)}
    options = read_options({**given, "subscription": "both"}, streaming=True)
    both = StreamReader(options, source_schema())
    start = both.initialOffset()
    assert start["positions"] == {"other": 0, "q": 10}
    end = both.latestOffset(start, ALL)
    found = [
        int(payload)
        for partition in both.partitions(start, end)
        if isinstance(partition, QuirePartition)
        for rows in both.read(partition)
        for payload in rows.column("payload").to_pylist()
    ]
    assert found == [*range(5), *range(10, 30)]
    both.stop()


def test_no_message_is_as_new_as_that(store: Any) -> None:
    """An error by default, and nothing is made; or the next message that comes."""
    late = str(time_ms(store, "q", 29) + 1)
    with pytest.raises(InvalidArgument, match=r"'q' has no message of 20.* or later, which is"):
        first(store, startingTimestamp=late)
    with pytest.raises(InvalidArgument, match=f"set the option {STRATEGY} to latest"):
        batch(store, **{BY_QUEUE: json.dumps({"q": LAST_TIME_MS})})
    assert store.queue("q").subscriptions == ("check",)
    later: dict[str, Any] = {"startingTimestamp": late, STRATEGY: "latest"}
    assert batch(store, **later) == []
    source = reader(store, **later)
    start = source.initialOffset()
    assert start["positions"] == {"q": 30}
    put_numbers(store, "q", range(30, 33))
    assert source.latestOffset(start, ALL)["positions"] == {"q": 33}
    source.stop()


def test_a_batch_read_between_two_times(store: Any) -> None:
    """From the first message of the one to before the first message of the other."""
    middle, end = (str(time_ms(store, "q", position)) for position in (10, 20))
    assert batch(store, startingTimestamp=middle) == list(range(10, 30))
    assert batch(store, startingTimestamp=middle, endingTimestamp=end) == list(range(10, 20))
    assert batch(store, endingTimestamp=middle) == list(range(10))
    assert batch(store, startingTimestamp=end, endingTimestamp=end) == []
    assert batch(store, endingTimestamp="0") == []
    assert batch(store, endingTimestamp=str(LAST_TIME_MS)) == list(range(30))
    by_queue = json.dumps({"q": int(end)})
    assert batch(store, endingOffsetsByTimestamp=by_queue) == list(range(20))
    assert batch(store, endingOffsetsByTimestamp=by_queue, startingOffsets='{"q": 15}') == [
        *range(15, 20)
    ]


def test_a_read_by_time_is_of_what_is_left(store: Any) -> None:
    """As one from earliest: consumers may take messages meanwhile."""
    store.create_queue("w", kind="work")
    put_numbers(store, "w", range(20), at_once=1)
    with store.transaction() as txn:
        txn.get_many("w", 4)
    waiting = store.transaction()
    waiting.get_many("w", 3)
    with store.transaction() as txn:
        txn.get_many("w", 3)
    assert batch(store, queue="w", startingTimestamp="0") == [4, 5, 6, *range(10, 20)]
    with pytest.raises(PositionLost, match="consumers have taken the others"):
        batch(store, queue="w", startingOffsets='{"w": 5}')
    waiting.rollback()


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"order": "priority"}, "'p' has priorities, .* in the order of their commits, whatever"),
        ({"order": {"sequence": "seq"}}, "'p' has the order .*sequence.* order of their commits"),
        ({"timed": True}, "'p' is timed, .* before they are due, and after they have expired"),
        ({"keep_latest": "n"}, "'p' keeps the latest message of each 'n', .* would go meanwhile"),
    ],
)
def test_queues_without_an_order_of_positions(
    store: Any, properties: dict[str, Any], reason: str
) -> None:
    """No stream of them, and no read from a position; a read of what is there looks at them."""
    topic(store, "p", **properties)
    put_numbers(store, "p", range(5))
    for starting in ({"startingOffsets": "earliest"}, {"startingTimestamp": "0"}):
        with pytest.raises(InvalidArgument, match=reason):
            reader(store, queue="p", **starting).initialOffset()
        assert batch(store, queue="p", **starting) == list(range(5))
    assert store.queue("p").subscriptions == ("check",)
    for lossy in ("true", "false"):
        with pytest.raises(InvalidArgument, match=reason):
            batch(store, queue="p", startingOffsets='{"p": 2}', failOnDataLoss=lossy)
    options = {"path": store.path, "subscribePattern": "p|other", "subscription": "s"}
    found = StreamReader(read_options(options, streaming=True), source_schema())
    assert set(found.initialOffset()["positions"]) == {"other"}
    found.stop()


def test_a_queue_that_gets_priorities_while_it_is_streamed(store: Any) -> None:
    """The next micro-batch fails with the reason; without them it goes on."""
    source = reader(store, startingOffsets="earliest")
    start = source.initialOffset()
    store.alter_queue("q", order="priority")
    end = source.latestOffset(start, ALL)
    with pytest.raises(InvalidArgument, match="'q' has priorities"):
        source.partitions(start, end)
    store.alter_queue("q", order="commit")
    assert source.partitions(start, end)
    source.stop()


@pytest.mark.cases(8)
@pytest.mark.spark
def test_spark_reads_by_time(spark: SparkSession, store: Any, tmp_path: Path) -> None:
    """A stream and a batch read; the reason of a refusal is in the first line."""
    topic(store, "out")
    middle, end = (str(time_ms(store, "q", position)) for position in (10, 20))
    rows = stream(spark, store, "q", startingTimestamp=middle).select("payload")
    for _ in range(2):  # a query that is restarted goes on
        run_to_end(
            sink(rows, store, tmp_path / "c", queue="out").trigger(availableNow=True).start()
        )
    assert sorted(numbers_in(store, "out").elements()) == list(range(10, 30))
    read = spark.read.format("quire").options(queue="q")
    between = read.options(startingTimestamp=middle, endingTimestamp=end).load(store.path)
    assert sorted(int(row.payload) for row in between.collect()) == list(range(10, 20))
    late = spark.readStream.format("quire").options(queue="q", subscription="late")
    rows = late.option("startingTimestamp", str(LAST_TIME_MS)).load(store.path)
    with pytest.raises(Exception, match="has no message of 9999-12-31"):
        run_to_end(
            sink(rows, store, tmp_path / "d", queue="out").trigger(availableNow=True).start()
        )
