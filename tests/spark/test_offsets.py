"""Offsets of the streaming source: canonical, with the origin inside, and shared out fairly."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.errors import InvalidArgument
from quire.spark_graphs.checkpoint.offsets import Offset, admit, ranges


def test_an_offset_is_the_same_text_whatever_the_order() -> None:
    """Spark compares offsets as strings (YO1)."""
    one = Offset({"b": 1, "a": 2}, {"b": 3, "a": 4}, {"b": 5, "a": 6})
    two = Offset({"a": 2, "b": 1}, {"a": 4, "b": 3}, {"a": 6, "b": 5})
    assert json.dumps(one.to_json()) == json.dumps(two.to_json())
    assert Offset.from_json(json.loads(json.dumps(one.to_json()))) == two


def test_a_repeated_first_batch_begins_at_its_origin() -> None:
    """The batch-0 trap: by the second start the initial offset has moved on (YO2)."""
    end = Offset({"q": 100}, {"q": 150})
    assert ranges(Offset.initial({"q": 500}), end) == {"q": (100, 150)}
    assert ranges(Offset.initial({"q": 100}), end) == {"q": (100, 150)}


def test_later_batches_begin_where_the_one_before_ended() -> None:
    """The origin is carried on unchanged."""
    first = Offset({"q": 100}, {"q": 150})
    assert ranges(first, first.moved_to({"q": 170})) == {"q": (150, 170)}


def test_a_queue_made_again_begins_at_its_origin() -> None:
    """The others go on; the range is in the end offset, so that it can be repeated (YO2, YO4)."""
    start = Offset({"a": 10, "b": 0}, {"a": 50, "b": 60}, {"a": 1, "b": 2})
    now = Offset({"a": 40, "b": 7}, {"a": 70, "b": 90}, {"a": 1, "b": 3})
    assert start.remade(now) == ["b"]
    end = start.in_queues_of(now).moved_to(now.positions)
    assert end == Offset({"a": 10, "b": 7}, {"a": 70, "b": 90}, {"a": 1, "b": 3})
    assert ranges(start, end) == {"a": (50, 70), "b": (7, 90)}
    # As the first micro-batch it is repeated after an initial offset of the new queue.
    first = Offset.initial({"a": 10, "b": 5}, {"a": 1, "b": 2})
    again = Offset.initial({"a": 10, "b": 30}, {"a": 1, "b": 3})
    end = first.in_queues_of(now).moved_to(now.positions)
    assert ranges(first, end) == ranges(again, end) == {"a": (10, 70), "b": (7, 90)}
    # Both begin at 0, and yet the positions of one say nothing about the other.
    old = Offset({"b": 0}, {"b": 60}, {"b": 2})
    assert ranges(old, Offset({"b": 0}, {"b": 90}, {"b": 3})) == {"b": (0, 90)}


def test_an_offset_of_an_older_checkpoint_is_taken_as_it_is() -> None:
    """It does not know its queues; what follows it does (YO4)."""
    old = Offset.from_json({"origin": {"q": 5}, "positions": {"q": 50}})
    assert old.to_json() == {"origin": {"q": 5}, "positions": {"q": 50}}
    now = Offset({"q": 0}, {"q": 90}, {"q": 7})
    assert old.remade(now) == now.remade(old) == []
    end = old.in_queues_of(now).moved_to(now.positions)
    assert end.to_json() == {
        "created_us": {"q": 7},
        "origin": {"q": 5},
        "positions": {"q": 90},
    }
    assert Offset.from_json(json.loads(json.dumps(end.to_json()))) == end
    assert ranges(old, end) == {"q": (50, 90)}


def test_a_reversed_range_is_not_hidden() -> None:
    """Spark does not see an end below the start; whoever leases the range must."""
    start = Offset({"q": 0}, {"q": 150})
    assert ranges(start, start.moved_to({"q": 5})) == {"q": (150, 5)}


@pytest.mark.parametrize(
    "value",
    [
        *(None, 5, {}, {"origin": {}}, {"origin": {}, "positions": [1]}),
        {"origin": {}, "positions": {}, "created_us": {"q": "now"}},
        {"origin": {}, "positions": {}, "created_us": 7},
    ],
)
def test_a_strange_offset_is_refused(value: object) -> None:
    """A checkpoint of another source is no reason to guess."""
    with pytest.raises(InvalidArgument, match="not one of format 'quire'"):
        Offset.from_json(value)


def test_other_queues_than_the_checkpoint_knows_are_refused() -> None:
    """A query that was given other queues needs a new checkpoint."""
    with pytest.raises(InvalidArgument, match="new checkpoint"):
        ranges(Offset({"a": 0}, {"a": 1}), Offset({"a": 0}, {"b": 1}))


QUEUES = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 100), min_size=1)


@given(start=QUEUES, limit=st.integers(1, 300), more=st.integers(0, 10**6))
def test_admission_is_exact_and_fair(start: dict[str, int], limit: int, more: int) -> None:
    """Neither more than the limit nor less than possible, and something from each queue (YO3)."""
    waiting = {queue: more * (1 + number) % 97 for number, queue in enumerate(start)}
    available = {queue: start[queue] + count for queue, count in waiting.items()}
    ends = admit(start, available, limit)
    taken = {queue: ends[queue] - start[queue] for queue in start}
    assert all(0 <= taken[queue] <= waiting[queue] for queue in start)
    assert sum(taken.values()) == min(limit, sum(waiting.values()))
    if limit >= len(start):
        assert all(taken[queue] for queue in start if waiting[queue])


@pytest.mark.parametrize("limit", [None, 1, 100])
def test_an_end_behind_the_start_is_not_hidden(limit: int | None) -> None:
    """A queue that is shorter than what was read of it has lost messages."""
    assert admit({"a": 5, "b": 9}, {"a": 7, "b": 2}, limit)["b"] == 2
