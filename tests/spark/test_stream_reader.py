"""The streaming reader by itself, as Spark's source process calls it, without a session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

import quire
from quire.errors import PositionLost
from quire.spark_graphs import connection
from quire.spark_graphs.options import read_options
from quire.spark_graphs.partition import QuirePartition
from quire.spark_graphs.schema import source_schema
from quire.spark_graphs.stream_reader import StreamReader
from tests.spark.kit import put_numbers

ALL = ReadAllAvailable()


@pytest.fixture
def store(store_path: str) -> Iterator[Any]:
    """A store with 100 messages in `q`."""
    with quire.open(store_path) as opened:
        opened.create_queue("q", kind="topic")
        opened.subscribe("q", "other", start="earliest")
        put_numbers(opened, "q", range(100))
        yield opened
        connection.forget(store_path)


def reader(store: Any, **options: str) -> StreamReader:
    """A reader as a new source process has it."""
    given = {"path": store.path, "queue": "q", "subscription": "s", **options}
    return StreamReader(read_options(given, streaming=True), source_schema())


def numbers(source: StreamReader, start: Any, end: Any) -> list[int]:
    """What the tasks of a micro-batch read."""
    found = []
    for partition in source.partitions(start, end):
        assert isinstance(partition, QuirePartition)
        for batch in source.read(partition):
            found += [int(payload) for payload in batch.column("payload").to_pylist()]
    return found


def test_the_initial_offset_is_one_answer(store: Any) -> None:
    """Spark asks twice; the same reader says the same, and so does the next process."""
    source = reader(store)
    first = source.initialOffset()
    made = store.queue("q").created_us
    assert first == {"origin": {"q": 100}, "positions": {"q": 100}, "created_us": {"q": made}}
    put_numbers(store, "q", range(100, 110))
    assert source.initialOffset() == first
    assert reader(store).initialOffset() == first


def test_nothing_new_is_the_same_offset(store: Any) -> None:
    """Spark compares the texts, and runs no micro-batch."""
    source = reader(store)
    start = source.initialOffset()
    assert json.dumps(source.latestOffset(start, ALL)) == json.dumps(start)


@pytest.mark.parametrize(
    ("options", "limit"),
    [({}, ALL), ({"maxMessagesPerTrigger": "30"}, ReadMaxRows(30))],
)
def test_the_limit_is_that_of_the_option(
    store: Any, options: dict[str, str], limit: ReadLimit
) -> None:
    """A micro-batch takes as much as it may."""
    source = reader(store, startingOffsets="earliest", **options)
    assert source.getDefaultReadLimit() == limit
    end = source.latestOffset(source.initialOffset(), limit)
    assert end["positions"] == {"q": 100 if limit == ALL else 30}
    reported = source.reportLatestOffset()
    assert reported is not None
    assert reported["lag"] == {"q": 0 if limit == ALL else 70}


def test_a_query_that_takes_what_is_there_ends(store: Any) -> None:
    """With Trigger.AvailableNow later messages wait for the next run."""
    source = reader(store, startingOffsets="earliest")
    source.prepareForTriggerAvailableNow()
    put_numbers(store, "q", range(100, 110))
    end = source.latestOffset(source.initialOffset(), ALL)
    assert end["positions"] == {"q": 100}
    assert source.latestOffset(end, ALL) == end
    assert source.reportLatestOffset() == {
        "origin": {},
        "positions": {"q": 100},
        "lag": {"q": 0},
    }


def test_a_micro_batch_is_leased_until_it_is_committed(store: Any) -> None:
    """Its messages stay, and stay where they are, and then the subscription lets them go."""
    source = reader(store, startingOffsets="earliest")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxRows(40))
    assert numbers(source, start, end) == list(range(40))
    assert store.status()["leases"] == 1
    source.commit(end)
    assert store.status()["leases"] == 0
    assert {info.name: info.position for info in store.subscriptions("q")} == {"s": 40, "other": 0}
    later = source.latestOffset(end, ALL)
    assert numbers(source, end, later) == list(range(40, 100))


def test_a_process_that_starts_again_repeats_the_first_range(store: Any) -> None:
    """Whatever the initial offset is by then, the origin is in the end offset."""
    end = reader(store, startingOffsets='{"q": 60}').initialOffset()
    end["positions"]["q"] = 80
    store.unsubscribe("q", "s")
    source = reader(store, startingOffsets="latest")
    assert numbers(source, source.initialOffset(), end) == list(range(60, 80))


def test_reversed_and_lost_ranges_raise(store: Any) -> None:
    """And with failOnDataLoss=false they shrink to what is there."""
    store.subscribe("q", "s", start="earliest")
    with store.transaction() as txn:
        txn.read_to("q/s", 30)
        txn.read_to("q/other", 30)
    strict, lenient = reader(store), reader(store, failOnDataLoss="false")

    def offset(position: int) -> dict[str, dict[str, int]]:
        return {"origin": {"q": 0}, "positions": {"q": position}}

    for start, end, rest in (
        (10, 50, range(30, 50)),
        (50, 40, range(30, 40)),
        (90, 150, range(90, 100)),
    ):
        with pytest.raises(PositionLost):
            strict.partitions(offset(start), offset(end))
        assert numbers(lenient, offset(start), offset(end)) == list(rest)
    assert numbers(strict, offset(30), offset(100)) == list(range(30, 100))
