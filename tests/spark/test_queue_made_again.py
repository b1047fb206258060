"""A queue that is dropped and made again under a streaming query is lost data, never mistaken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import quire
from quire.errors import PositionLost
from quire.spark_graphs import connection, position_range
from quire.spark_graphs.options import read_options
from quire.spark_graphs.planning.retention import QueryRetention
from quire.spark_graphs.planning.stream_reader import StreamReader
from quire.spark_graphs.reading.message_batch import read_partition
from quire.spark_graphs.reading.partition import QuirePartition
from quire.spark_graphs.schema import source_schema
from tests.spark.numbered_queues import put_numbers
from tests.spark.queries import numbers_read

pytestmark = pytest.mark.at_server


ALL = ReadAllAvailable()
MADE_AGAIN = "'q' was dropped and made again"


@pytest.fixture
def store(store_path: str) -> Iterator[Any]:
    """A store with 10 messages in each of the topics `p` and `q`."""
    with quire.open(store_path) as opened:
        for queue in "pq":
            opened.create_queue(queue, kind="topic")
            opened.subscribe(queue, "s", start="earliest")
            put_numbers(opened, queue, range(10))
        yield opened
        report = opened.admin.verify()
        assert report.ok, report.findings
        connection.forget(store_path)


def make_again(store: Any) -> None:
    """Another `q`, with more messages; the first 5 are gone."""
    store.drop_queue("q")
    store.create_queue("q", kind="topic")
    store.subscribe("q", "s", start="earliest")
    put_numbers(store, "q", range(100, 130))
    with store.transaction() as txn:
        txn.read_to("q/s", 5)


def reader(store: Any, *, strict: bool, **options: str) -> StreamReader:
    """A reader as a new source process has it."""
    given = {"path": store.path, "subscribe": "p,q", "subscription": "s", **options}
    given["failOnDataLoss"] = str(strict).lower()
    return StreamReader(read_options(given, streaming=True), source_schema())


def test_it_is_an_error_wherever_the_query_looks(store: Any) -> None:
    """When the next micro-batch is planned, and when one that was planned before is read."""
    source = reader(store, strict=True)
    start = source.initialOffset()
    end = source.latestOffset(start, ALL)
    make_again(store)
    sources = source, reader(store, strict=True)
    for again in sources:
        with pytest.raises(PositionLost, match=MADE_AGAIN):
            again.partitions(start, end)
        again.stop()
    for again in sources:
        with pytest.raises(PositionLost, match=MADE_AGAIN):
            again.latestOffset(end, ALL)
        again.stop()


def test_a_lenient_query_begins_anew(store: Any) -> None:
    """In that queue alone, at the first message kept, in ranges that can be repeated."""
    source = reader(store, strict=False)
    start = source.initialOffset()
    end = source.latestOffset(start, ALL)
    make_again(store)
    assert numbers_read(source, start, end) == list(range(10))  # of `p`, of no other
    source.commit(end)
    assert {info.position for info in store.subscriptions("q")} == {5}
    put_numbers(store, "p", range(10, 12))
    later = source.latestOffset(end, ReadMaxRows(12))
    expected = [10, *range(105, 116)]
    assert numbers_read(source, end, later) == expected
    source.stop()
    source = reader(store, strict=False)
    assert numbers_read(source, end, later) == expected
    source.commit(later)
    assert {info.position for info in store.subscriptions("q")} == {16}
    last = source.latestOffset(later, ALL)
    assert numbers_read(source, later, last) == [11, *range(116, 130)]
    source.stop()
    # What was lost is in the log by now: the query may be strict again.
    assert numbers_read(reader(store, strict=True), later, last) == [11, *range(116, 130)]


def test_a_checkpoint_without_identities_goes_on(store: Any) -> None:
    """Of an older version: its offsets are taken as they are, and the next ones have the field."""
    source = reader(store, strict=True)
    start, end = source.initialOffset(), {"origin": {"p": 0, "q": 0}, "positions": {"p": 4, "q": 4}}
    assert numbers_read(source, start, end) == [*range(4), *range(4)]
    source.commit(end)
    assert {info.position for info in store.subscriptions("q")} == {4}
    later = source.latestOffset(end, ALL)
    made = {queue: store.queue(queue).created_us for queue in "pq"}
    assert later["created_us"] == made
    assert numbers_read(source, end, later) == [*range(4, 10), *range(4, 10)]
    make_again(store)
    with pytest.raises(PositionLost, match=MADE_AGAIN):
        source.latestOffset(later, ALL)


def test_a_task_does_not_find_its_messages_in_the_other_queue(store: Any) -> None:
    """Its places hold other bytes by now, and the positions are in the new queue too."""
    source = reader(store, strict=True, minPartitions="8")
    start = source.initialOffset()
    made = []
    for partition in source.partitions(start, source.latestOffset(start, ALL)):
        assert isinstance(partition, QuirePartition)
        wrong = [replace(item, piece=replace(item.piece, checksum=1)) for item in partition.pieces]
        made += [QuirePartition([item]) for item in wrong if item.queue == "q"]
    assert sum(rows(store, partition) for partition in made) == 10
    make_again(store)
    assert len(made) > 2  # pieces that were cut too
    for partition in made:
        with pytest.raises(PositionLost, match=MADE_AGAIN):
            rows(store, partition)


def rows(store: Any, partition: QuirePartition) -> int:
    """How many messages a task reads."""
    return sum(batch.num_rows for batch in read_partition(store.path, partition, source_schema()))


class Meddled:
    """The real thing, but for the methods that do something else first."""

    def __init__(self, real: Any, **methods: Any) -> None:
        self._real = real
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._real, name)


@pytest.mark.parametrize("strict", [True, False])
def test_made_again_just_before_the_lease(store: Any, strict: bool) -> None:
    """A lease goes by the queue's name: one of another queue is given back."""
    made = store.queue("q").created_us

    def lease(*args: Any, **options: Any) -> Any:
        make_again(store)
        return store.integration.lease_many(*args, **options)

    def leased() -> Any:
        meddled: Any = Meddled(store, integration=Meddled(store.integration, lease_many=lease))
        ranges, created = {"q": (6, 9)}, {"q": made}
        return position_range.lease(meddled, ranges, whole=strict, created_us=created)

    if strict:
        with pytest.raises(PositionLost, match=MADE_AGAIN):
            leased()
    else:
        assert leased() == []
    assert store.status()["leases"] == 0


@pytest.mark.parametrize("strict", [True, False])
def test_made_again_or_lost_since_the_queues_were_seen(store: Any, strict: bool) -> None:
    """What was seen a moment ago is not looked at again: the lease tells of changes."""
    given = {"path": store.path, "queue": "q", "subscription": "s", "failOnDataLoss": str(strict)}
    retention = QueryRetention(read_options(given, streaming=True))
    end = retention.start(store).moved_to({"q": 9})
    seen = {"q": store.queue("q")}
    ranges = {"q": (6, 9)}
    assert position_range.are_in(ranges, seen)
    assert not position_range.are_in({"q": (6, seen["q"].end_position + 1)}, seen)
    assert not position_range.are_in({"other": (0, 1)}, seen)
    make_again(store)
    if strict:
        with pytest.raises(PositionLost, match=MADE_AGAIN):
            retention.lease(store, ranges, end.created_us, seen)
    else:
        assert retention.lease(store, ranges, end.created_us, seen) == []
    assert store.status()["leases"] == 0
    retention.end()


def test_made_again_just_before_the_subscription_moves(store: Any) -> None:
    """It goes by names too: what it would pass over in the new queue stays unread."""
    given = {"path": store.path, "queue": "q", "subscription": "s"}
    retention = QueryRetention(read_options(given, streaming=True))
    end = retention.start(store).moved_to({"q": 9})
    calls: list[str] = []

    @contextmanager
    def transaction() -> Iterator[Any]:
        with store.transaction() as txn:

            def read_to_many(positions: dict[str, int]) -> dict[str, int]:
                make_again(store)
                calls.extend(positions)
                return dict(txn.integration.read_to_many(positions))

            yield Meddled(txn, integration=Meddled(txn.integration, read_to_many=read_to_many))

    meddled: Any = Meddled(store, transaction=transaction)
    retention._advance(meddled, end)
    assert calls == ["q/s"]
    assert [info.position for info in store.subscriptions("q")] == [5]
