"""The streaming reader by itself, as Spark's source process calls it, without a session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

import quire
from quire import archive
from quire.errors import InvalidArgument, PositionLost, QueueInUse
from quire.spark_graphs import connection
from quire.spark_graphs.options import read_options
from quire.spark_graphs.planning.stream_reader import StreamReader
from quire.spark_graphs.schema import source_schema
from tests.kit.limits import Limits
from tests.spark.numbered_queues import position, put_numbers
from tests.spark.queries import numbers_read

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
    given = {"path": store.path, "subscription": "s", **options}
    if "subscribe" not in given:
        given.setdefault("queue", "q")
    return StreamReader(read_options(given, streaming=True), source_schema())


def test_the_initial_offset_is_one_answer(store: Any) -> None:
    """Spark asks twice; the same reader says the same, and so does the next process."""
    source = reader(store)
    first = source.initialOffset()
    made = store.queue("q").created_us
    parts = {"origin": {"q": 100}, "positions": {"q": 100}, "created_us": {"q": made}}
    assert first == {**parts, "subscription": {"s": 1}}
    put_numbers(store, "q", range(100, 110))
    assert source.initialOffset() == first
    source.stop()
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


def test_a_checkpoint_is_refused_that_is_beyond_a_restored_store(
    store: Any, tmp_path: Path
) -> None:
    """The query had come further than the point of the restore; where it had not, it goes on."""
    source = reader(store, startingOffsets="earliest")
    early = source.latestOffset(source.initialOffset(), ALL)
    place, restored = str(tmp_path / "archive"), str(tmp_path / "restored")
    archive.backup(store, place)
    put_numbers(store, "q", range(100, 110))
    late = source.latestOffset(early, ALL)
    source.stop()
    archive.restore(place, restored)
    with quire.open(restored, create=False) as older:
        again = reader(older, startingOffsets="earliest")
        end = again.latestOffset(late, ALL)
        with pytest.raises(PositionLost, match="restored as of an earlier point"):
            again.partitions(late, end)
        again.stop()
        put_numbers(older, "q", range(100, 103))
        again = reader(older, startingOffsets="earliest")
        end = again.latestOffset(early, ALL)
        assert numbers_read(again, early, end) == [*range(100, 103)]
        again.stop()
        connection.forget(restored)


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
        "store": store.path,
        "subscription": {"s": 1},
    }


def test_a_micro_batch_is_leased_until_it_is_committed(store: Any) -> None:
    """Its messages stay, and stay where they are, and then the subscription lets them go."""
    source = reader(store, startingOffsets="earliest")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxRows(40))
    assert numbers_read(source, start, end) == list(range(40))
    assert store.status()["leases"] == 1
    source.commit(end)
    assert store.status()["leases"] == 0
    assert {info.name: info.position for info in store.subscriptions("q")} == {"s": 40, "other": 0}
    later = source.latestOffset(end, ALL)
    assert numbers_read(source, end, later) == list(range(40, 100))


def test_a_process_that_starts_again_repeats_the_first_range(store: Any) -> None:
    """Whatever the initial offset is by then, the origin is in the end offset."""
    end = reader(store, startingOffsets='{"q": 60}').initialOffset()
    end["positions"]["q"] = 80
    store.unsubscribe("q", "s")
    source = reader(store, startingOffsets="latest")
    assert numbers_read(source, source.initialOffset(), end) == list(range(60, 80))


def test_reversed_and_lost_ranges_raise(store: Any) -> None:
    """And with failOnDataLoss=false they shrink to what is there."""
    for name in ("s", "t"):
        store.subscribe("q", name, start="earliest")
    with store.transaction() as txn:
        for name in ("s", "t", "other"):
            txn.read_to(f"q/{name}", 30)
    strict = reader(store)
    lenient = reader(store, subscription="t", failOnDataLoss="false")

    def offset(position: int) -> dict[str, dict[str, int]]:
        return {"origin": {"q": 0}, "positions": {"q": position}}

    for start, end, rest in (
        (10, 50, range(30, 50)),
        (50, 40, range(30, 40)),
        (90, 150, range(90, 100)),
    ):
        with pytest.raises(PositionLost, match="in a power failure"):
            strict.partitions(offset(start), offset(end))
        assert numbers_read(lenient, offset(start), offset(end)) == list(rest)
    assert numbers_read(strict, offset(30), offset(100)) == list(range(30, 100))


def test_what_is_committed_is_released_without_another_micro_batch(store: Any) -> None:
    """Where the next look starts is committed; that there is nothing new does not matter."""
    source = reader(store, startingOffsets="earliest")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxRows(40))
    assert position(store, "q", "s") == 0
    assert numbers_read(source, start, end) == list(range(40))
    assert source.latestOffset(end, ReadMaxRows(0))["positions"] == {"q": 40}
    assert position(store, "q", "s") == 40
    assert store.status()["leases"] == 0


def test_nothing_is_released_where_a_query_begins(store: Any) -> None:
    """A position that was given by mistake costs nothing before a micro-batch is committed."""
    store.subscribe("q", "s", start="earliest")
    source = reader(store, startingOffsets='{"q": 60}')
    start = source.initialOffset()
    end = source.latestOffset(start, ALL)
    source.partitions(start, end)
    assert position(store, "q", "s") == 0
    source.latestOffset(end, ALL)
    assert position(store, "q", "s") == 100


def test_a_start_before_what_is_released(store: Any) -> None:
    """A checkpoint that was restored or lost its end: an error, or all messages, never a part."""
    source = reader(store, startingOffsets="earliest")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxRows(40))
    source.latestOffset(end, ALL)
    source.stop()
    again = reader(store)
    assert numbers_read(again, start, end) == list(range(40))  # another subscription keeps them
    with store.transaction() as txn:
        txn.read_to("q/other", 10)
    later = again.latestOffset(start, ALL)
    for stop in (end, later):
        with pytest.raises(PositionLost, match="in a power failure"):
            again.partitions(start, stop)
    assert position(store, "q", "s") == 40


def test_nothing_is_released_before_the_checkpoint_is_durable(store: Any, tmp_path: Path) -> None:
    """Where it is said to be, there has to be one, whose files can be synced."""
    checkpoint = tmp_path / "checkpoint"
    source = reader(store, startingOffsets="earliest", checkpointLocation=str(checkpoint))
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxRows(40))
    source.partitions(start, end)
    for call in (lambda: source.latestOffset(end, ALL), lambda: source.commit(end)):
        with pytest.raises(InvalidArgument, match="no query has its checkpoint"):
            call()
        assert position(store, "q", "s") == 0
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True)
        (checkpoint / log / "0").write_text("an entry")
    source.latestOffset(end, ALL)
    assert position(store, "q", "s") == 40


def test_a_subscription_has_one_source_at_a_time(store: Any, limits: Limits) -> None:
    """Wherever the second one begins; another queue, or another subscription, is free."""
    limits(HOLD_PATIENCE_SECONDS=0.2)
    store.create_queue("r", kind="topic")
    one, two = (reader(store, startingOffsets="earliest") for _ in range(2))
    start = one.initialOffset()
    end = one.latestOffset(start, ReadMaxRows(40))
    both = reader(store, subscribe="r,q")
    for call in (
        two.initialOffset,
        lambda: two.latestOffset(start, ALL),
        lambda: two.latestOffset(end, ALL),
        lambda: two.partitions(start, end),
        lambda: two.commit(end),
        both.initialOffset,
    ):
        with pytest.raises(QueueInUse, match="streamed by subscription 's' already"):
            call()
    assert position(store, "q", "s") == 0
    assert reader(store, queue="r").initialOffset()["positions"] == {"r": 0}
    assert reader(store, subscription="t").initialOffset()["positions"] == {"q": 100}
    one.stop()
    assert two.initialOffset() == start


def test_a_work_queue_is_not_streamed(store: Any) -> None:
    """Not by a query that an earlier release has let start, either; nothing is taken from it."""
    store.create_queue("w", kind="work")
    put_numbers(store, "w", range(10))
    start = {"origin": {"w": 0}, "positions": {"w": 0}}
    end = {"origin": {"w": 0}, "positions": {"w": 10}}
    for given in ({}, {"subscription": "s"}):
        source = StreamReader(
            read_options({"path": store.path, "queue": "w", **given}, streaming=True),
            source_schema(),
        )
        calls: list[Any] = [
            source.initialOffset,
            lambda source=source: source.latestOffset(end, ALL),
            lambda source=source: source.partitions(start, end),
            lambda source=source: source.commit(end),
        ]
        for call in calls:
            with pytest.raises(InvalidArgument, match="'w' is a work queue"):
                call()
    assert store.queue("w").messages == 10
