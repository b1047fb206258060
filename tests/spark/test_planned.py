"""A micro-batch that is planned anew is the one that was planned: the source by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import quire
from quire.engine import EmbeddedStore
from quire.errors import DiskFull, QueueFull
from quire.spark_graphs import connection
from quire.spark_graphs.checkpoint.offsets import Offset
from quire.spark_graphs.checkpoint.planned_ends import PlannedEnds
from quire.spark_graphs.options import read_options
from quire.spark_graphs.planning.stream_reader import StreamReader
from quire.spark_graphs.schema import source_schema
from quire.testing import SimEnv
from tests.spark.numbered_queues import put_numbers

pytestmark = pytest.mark.at_server


ALL = ReadAllAvailable()
GIVEN = {"subscribe": "p,q", "subscription": "s", "startingOffsets": "earliest"}


@pytest.fixture
def store(store_path: str) -> Iterator[Any]:
    """A store with 10 messages in each of the topics `p` and `q`."""
    with quire.open(store_path) as opened:
        for queue in "pq":
            opened.create_queue(queue, kind="topic")
            put_numbers(opened, queue, range(0))
            opened.subscribe(queue, "keep", start="earliest")
            put_numbers(opened, queue, range(10))
        yield opened
        connection.forget(store_path)


_running: list[StreamReader] = []


def reader(store: Any, **options: str) -> StreamReader:
    """A reader as a new source process has it; the one before has ended."""
    given = {"path": store.path, **GIVEN, **options}
    while _running:
        _running.pop().stop()
    source = StreamReader(read_options(given, streaming=True), source_schema())
    _running.append(source)
    return source


def plan(source: StreamReader, start: Any, limit: Any = ALL) -> Any:
    """One micro-batch, up to where its tasks begin."""
    end = source.latestOffset(start, limit)
    source.partitions(start, end)
    return end


def ends(offset: Any) -> tuple[int, int]:
    """How far it is in `p` and `q`."""
    return offset["positions"]["p"], offset["positions"]["q"]


def test_it_ends_where_it_ended(store: Any) -> None:
    """In all queues, also in one that it did not read; what comes after it is planned freely."""
    source = reader(store)
    start = source.initialOffset()
    first = plan(source, start)
    put_numbers(store, "p", range(10, 15))
    second = plan(source, first)
    assert ends(second) == (15, 10)
    for queue in "pq":
        put_numbers(store, queue, range(50))
    again = reader(store)
    assert again.latestOffset(first, ALL) == second
    assert plan(again, first) == second
    third = again.latestOffset(second, ALL)
    assert ends(third) == (65, 60)
    # What was planned and not run, as nothing asked for its partitions, is planned freely too.
    assert ends(reader(store).latestOffset(second, ReadMaxRows(50))) != ends(third)


def test_what_never_was_one_micro_batch_is_planned_freely(store: Any) -> None:
    """More than the limit; a start that is in the middle of it, in one queue behind its end."""
    source = reader(store)
    start = source.initialOffset()
    end = plan(source, start)
    assert sum(ends(reader(store).latestOffset(start, ReadMaxRows(8)))) == 8
    assert ends(end) == (10, 10)
    put_numbers(store, "p", range(10, 20))
    ahead = Offset.from_json(end).moved_to({"p": 12, "q": 5}).to_json()
    assert ends(reader(store).latestOffset(ahead, ALL)) == (20, 10)


def test_another_subscription_and_another_queue_know_nothing(store: Any) -> None:
    """The ends are of one subscription of queues as they were made."""
    source = reader(store)
    plan(source, source.initialOffset())
    put_numbers(store, "p", range(10, 20))
    other = reader(store, subscription="t")
    assert ends(other.latestOffset(other.initialOffset(), ALL)) == (20, 10)
    for queue in "pq":
        store.drop_queue(queue)
        store.create_queue(queue, kind="topic")
        store.subscribe(queue, "keep", start="earliest")
        put_numbers(store, queue, range(30))
    again = reader(store)
    assert ends(again.latestOffset(again.initialOffset(), ALL)) == (30, 30)


def test_queries_that_follow_one_another_do_not_stop_one_another(store: Any) -> None:
    """One had planned further; the next goes on, though the ledger takes no lower end."""
    slow = reader(store)
    start = slow.initialOffset()
    middle = plan(slow, start, ReadMaxRows(4))
    fast = reader(store)
    plan(fast, start)
    fast.stop()  # and `slow`, which knows nothing of it, goes on
    assert ends(plan(slow, middle, ReadMaxRows(4))) == (4, 4)
    assert sum(ends(plan(slow, slow.latestOffset(middle, ReadMaxRows(6)), ALL))) == 20


def test_a_full_disk_stops_no_query() -> None:
    """A query that drains a store is what makes room in it."""
    env = SimEnv(7, capacity_bytes=6 << 20)
    small: dict[str, Any] = {"segment_bytes": 1 << 20, "grow_bytes": 1 << 18}
    with EmbeddedStore.open("/store", env=env, background=False, **small) as store:
        store.create_queue("q", kind="work")

        def fill() -> None:
            for _ in range(100_000):
                store.put("q", b"x" * 1000)

        with pytest.raises((DiskFull, QueueFull)):
            fill()
        with pytest.raises(DiskFull), store.transaction() as txn:
            txn.enter("key", 1)
        connection._stores[os.getpid(), "/store"] = store  # type: ignore[assignment]
        try:
            planned = PlannedEnds(read_options({"path": "/store", "queue": "q"}, streaming=True))
            begin = Offset.initial({"q": 0}, {"q": store.queue("q").created_us})
            planned.remember(begin, begin.moved_to({"q": 5}))
        finally:
            del connection._stores[os.getpid(), "/store"]
