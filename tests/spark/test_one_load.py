"""Which of the sources of one load a source is, without Spark."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from quire.errors import InvalidArgument, QueueInUse
from quire.spark_graphs.checkpoint.offsets import Offset
from quire.spark_graphs.options import ReadOptions, read_options
from quire.spark_graphs.planning.one_load import LoadTurn, is_source
from quire.spark_graphs.planning.stream_reader import StreamReader
from quire.spark_graphs.schema import source_schema
from tests.kit.limits import Limits

pytestmark = pytest.mark.at_server


LOAD, OTHER = 1, 2


@pytest.fixture
def options(store: Any, limits: Limits) -> ReadOptions:
    """Of a stream of `in` by `spark`; nobody waits for another reader's end."""
    limits(HOLD_PATIENCE_SECONDS=0.0)
    store.create_queue("in", kind="topic")
    given = {"path": store.path, "queue": "in", "subscription": "spark"}
    return read_options({**given, "startingOffsets": "earliest"}, streaming=True)


def names(turns: list[LoadTurn]) -> list[str | None]:
    """Of their subscriptions."""
    return [turn.options().subscription for turn in turns]


def test_sources_of_one_load_have_numbers(options: ReadOptions) -> None:
    """The first has the load's own subscription; those of another load count for themselves."""
    turns = [LoadTurn(options, LOAD) for _ in range(3)]
    other = LoadTurn(options, OTHER)
    assert names(turns) == ["spark", "spark.source2", "spark.source3"]
    assert names([other]) == ["spark"]
    assert [turn.options().source for turn in turns] == [1, 2, 3]


def test_a_source_of_another_query_is_refused(options: ReadOptions) -> None:
    """YOL1: it is made when another one of its load has been asked already."""
    turns = [LoadTurn(options, LOAD) for _ in range(2)]
    turns[1].begin()
    turns[1].begin()  # twice is once
    with pytest.raises(QueueInUse, match="already"):
        LoadTurn(options, LOAD)
    turns[0].begin()
    for turn in turns:
        turn.end()
    assert names([LoadTurn(options, LOAD)]) == ["spark"]


def test_numbers_are_as_before_when_the_query_begins_again(options: ReadOptions) -> None:
    """YOL4: none is given while a source of the query before is there, whichever ends first."""
    for first, last in ((0, 1), (1, 0)):
        turns = [LoadTurn(options, LOAD) for _ in range(2)]
        for turn in turns:
            turn.begin()
        turns[first].end()
        with pytest.raises(QueueInUse):
            LoadTurn(options, LOAD)
        turns[last].end()
        again = [LoadTurn(options, LOAD) for _ in range(2)]
        assert names(again) == ["spark", "spark.source2"]
        for turn in again:
            turn.end()


def test_there_are_not_too_many(options: ReadOptions, limits: Limits) -> None:
    """It is an error that says so."""
    limits(MAX_SOURCES_OF_A_LOAD=2)
    turns = [LoadTurn(options, LOAD) for _ in range(2)]
    with pytest.raises(QueueInUse):
        LoadTurn(options, LOAD)
    assert names(turns) == ["spark", "spark.source2"]


def test_each_source_keeps_to_its_subscription(options: ReadOptions, store: Any) -> None:
    """YOL3: its offsets say whose they are, and are refused by another."""
    store.subscribe("in", "spark", start="earliest")
    store.put_many("in", [b"%d" % number for number in range(10)])
    readers = [
        StreamReader(options, source_schema(), turn=turn)
        for turn in [LoadTurn(options, LOAD) for _ in range(2)]
    ]
    one, two = (reader.initialOffset() for reader in readers)
    assert (one.get("source"), two["source"]) == (None, {"number": 2})
    limit = readers[0].getDefaultReadLimit()
    ends = [reader.latestOffset(one, limit) for reader in readers[:1]]
    ends.append(readers[1].latestOffset(two, limit))
    assert [Offset.from_json(end).source for end in ends] == [1, 2]
    for begin, end, reader in zip((one, two), ends, readers, strict=True):
        assert reader.partitions(begin, end)
    with pytest.raises(InvalidArgument, match="source 2 of its load"):
        readers[0].latestOffset(ends[1], limit)
    with pytest.raises(InvalidArgument, match="source 1 of its load"):
        readers[1].partitions(two, ends[0])
    readers[1].latestOffset(ends[1], limit)
    found = {info.name: info.position for info in store.subscriptions("in")}
    assert found == {"spark": 0, "spark.source2": 10}
    for reader in readers:
        reader.stop()


def test_an_offset_says_whose_it_is() -> None:
    """YO5, through all that makes others of it; that of a first source looks as ever."""
    start = Offset({"q": 0}, {"q": 1}, {"q": 5}, 3)
    now = Offset({"q": 0}, {"q": 9, "r": 4}, {"q": 5, "r": 6})
    for offset in (start.moved_to({"q": 2}), start.beginning_at({"r": 1})):
        assert Offset.from_json(offset.to_json()).source == 3
    assert start.in_queues_of(replace(now, origin={"q": 0, "r": 4}, positions={"q": 9})).source == 3
    assert set(replace(start, source=1).to_json()) == {"origin", "positions", "created_us"}


def test_this_is_no_source() -> None:
    """Readers are made by planners, too, and by tests."""
    assert not is_source()
