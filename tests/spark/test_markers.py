"""Batches that end behind markers, without Spark: the same ones in all inputs, or none yet."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from quire.errors import InvalidArgument, PositionLost
from quire.graphs import StepDefinition, awaited_markers, tell_awaited
from quire.graphs.graph_words import explain
from quire.spark_graphs import connection
from quire.spark_graphs.graphs.batches.batch_planner import Batch, Planner, release
from quire.spark_graphs.graphs.batches.markers import Markers
from quire.spark_graphs.graphs.batches.task_store import TaskStore
from quire.spark_graphs.graphs.definition import (
    UNLIMITED,
    Limit,
    check_step,
    described_as,
    limit_of,
)
from quire.spark_graphs.graphs.status import Phase
from quire.spark_graphs.reading.partition import QueuePiece
from tests.kit.limits import Limits, limited
from tests.kit.waiting import eventually
from tests.spark.numbered_queues import put_numbers, topic
from tests.spark.plain_work import runner_of, step
from tests.spark.test_step_runner import running

pytestmark = pytest.mark.at_server


DAY = "day"


def planner(store: Any, limit: Limit, *queues: str) -> Planner:
    """One whose batches end behind markers."""
    there = {info.name: info.created_us for info in store.queues(queues)}
    created_us = {queue: there[queue] for queue in queues}
    return Planner(created_us, limit, TaskStore(store.path, store.integration.store_id), marker=DAY)


def mark(store: Any, value: str, *queues: str) -> None:
    """Put a marker to queues, in one transaction."""
    with store.transaction() as txn:
        for queue in queues:
            txn.put(queue, b"0", attributes={DAY: value, "other": "x"})


def ends_of(store: Any, queues: Iterable[str]) -> dict[str, int]:
    """Where the queues end."""
    positions = store.integration.positions_many(list(queues))
    return {queue: end for queue, (_, end) in positions.items()}


def batches(store: Any, plan: Planner, queues: Sequence[str]) -> Iterator[Batch]:
    """One after the other, until there is none."""
    at = dict.fromkeys(queues, 0)
    while True:
        batch = plan.plan(store, at, ends_of(store, queues))
        if batch is None:
            return
        yield batch
        at = batch.ends
        release(store.path, batch)


@pytest.fixture(autouse=True)
def forgotten(store: Any) -> Iterator[None]:
    """No connection of this process outlives its store."""
    yield
    connection.forget(store.path)


def test_batches_end_behind_the_same_markers(store: Any, rng: random.Random) -> None:
    """Whatever is between them: single messages, many, large transactions, rows, packed or not."""
    queues = ["a", "b", "c"]
    topic(store, "a", "b")
    topic(store, "c", schema="n long")
    at = dict.fromkeys(queues, 0)
    cuts = []
    for day in range(12):
        for queue in rng.sample(queues, rng.randint(0, 3)):
            count = rng.choice([1, 3, 2000])
            rows: Any = [{"n": 1} if queue == "c" else b"9" * 50] * count
            with store.transaction(large=rng.random() < 0.3) as txn:
                for row in rows:
                    txn.put(queue, row, attributes={"other": DAY} if count == 3 else None)
            at[queue] += count
        for queue in rng.sample(queues, 3):
            value: Any = {"n": None} if queue == "c" else b""
            store.put(queue, value, attributes={DAY: str(day)})
            at[queue] += 1
        cuts.append(dict(at))
        if day == 7:
            store.admin.checkpoint()
    store.put("a", b"behind the last marker")
    plan = planner(store, UNLIMITED, *queues)
    assert [batch.ends for batch in batches(store, plan, queues)] == cuts
    assert plan.awaited is not None
    assert dict(plan.awaited.lacking) == {"a": "", "b": "", "c": ""}


def test_what_is_lacking_is_told(store: Any) -> None:
    """And a marker that one input never gets is passed over at the next that all have."""
    topic(store, "a", "b")
    plan = planner(store, UNLIMITED, "a", "b")
    at = {"a": 0, "b": 0}

    def now() -> Any:
        batch = plan.plan(store, at, ends_of(store, at))
        return batch.ends if batch is not None else dict(plan.awaited.lacking)  # type: ignore[union-attr]

    store.put("a", b"x")
    assert now() == {"a": "", "b": ""}
    mark(store, "mon", "a")
    assert now() == {"b": "mon"}
    mark(store, "tue", "b")
    assert now() == {"a": "tue", "b": "mon"}
    mark(store, "tue", "a")
    assert now() == {"a": 3, "b": 1}
    mark(store, "mon", "b")
    assert now() == {"a": 3, "b": 1}  # it came too late


def test_a_streamed_marker_is_found(store: Any) -> None:
    """A streamed marker is found without reading its payload."""
    topic(store, "a")
    store.put_stream("a", [b"x" * 1_000_000] * 3, attributes={DAY: "1"})
    plan = planner(store, UNLIMITED, "a")
    assert [batch.ends for batch in batches(store, plan, ["a"])] == [{"a": 1}]


def test_equal_values_go_in_their_order(store: Any) -> None:
    """Where all markers say the same, the first of one input belongs to the first of the other."""
    topic(store, "a", "b")
    for _ in range(3):
        mark(store, "", "a", "b")
        put_numbers(store, "b", range(5))
    plan = planner(store, UNLIMITED, "a", "b")
    found = [batch.ends for batch in batches(store, plan, ["a", "b"])]
    assert found == [{"a": 1, "b": 1}, {"a": 2, "b": 7}, {"a": 3, "b": 13}]


@pytest.mark.parametrize("limit", [Limit(1), Limit(2), Limit(7), Limit(size_bytes=1000)])
def test_a_limit_takes_it_in_parts(store: Any, limit: Limit) -> None:
    """No part has messages from both sides of a marker, and the last has those of all inputs."""
    topic(store, "a", "b")
    marked = []
    for day in range(3):
        put_numbers(store, "a", range(10), 3)
        put_numbers(store, "b", range(day * 5), 2)
        mark(store, str(day), "a", "b")
        marked.append(ends_of(store, ["a", "b"]))
    plan = planner(store, limit, "a", "b")
    found = list(batches(store, plan, ["a", "b"]))
    assert [batch.ends for batch in found if batch.ends in marked] == marked
    for batch in found:
        assert batch.messages <= max(limit.messages, 6)  # a transaction of one input, or two
        for before in marked:
            has_some = [queue for queue in before if batch.begins[queue] < batch.ends[queue]]
            from_before = [queue for queue in has_some if batch.begins[queue] < before[queue]]
            from_behind = [queue for queue in has_some if batch.ends[queue] > before[queue]]
            assert not (from_before and from_behind)
    assert len(found) > 3


class Counting(TaskStore, frozen=True, kw_only=True):
    """Counts how often it is looked at each position."""

    looked: Counter[int]

    def find(self, queue: str, pieces: Sequence[QueuePiece], attribute: str) -> Iterator[Any]:
        for each in pieces:
            begin = each.piece.first_position
            self.looked.update(range(begin, begin + each.piece.stop - each.piece.start))
        yield from super().find(queue, pieces, attribute)


def test_nothing_is_searched_twice(store: Any) -> None:
    """Message by message, and where one look does not go through all of it."""
    topic(store, "a")
    looked: Counter[int] = Counter()
    tasks = Counting(store.path, store.integration.store_id, looked=looked)
    found = Markers(DAY, {"a": store.queue("a").created_us}, tasks)
    for number in range(20):
        store.put("a", b"x")
        assert found.next(store, {"a": 0}, {"a": number + 1}) is None
        assert found.next(store, {"a": 0}, {"a": number + 1}) is None
        assert found.awaited is not None
        assert found.awaited.is_about({"a": (0, number + 1)})
        assert not found.awaited.is_about({"a": (0, number + 2)})
    assert set(looked.values()) == {1}
    with limited({"MARKER_LOOK_BYTES": 10_000, "STEP_PIECES": 40}):
        for _ in range(40):
            store.put_many("a", [b"x" * 500] * 5)
        mark(store, "1", "a")
        looks = 0
        while found.next(store, {"a": 0}, {"a": 221}) is None:
            looks += 1
            assert found.awaited is not None
            assert not found.awaited.is_complete
        assert looks > 3
        assert found.next(store, {"a": 0}, {"a": 221}) == {"a": 221}
        assert max(looked.values()) <= 3  # the rest of a lease, where a look ends in its middle
        assert found.next(store, {"a": 221}, {"a": 221}) is None
    assert found.next(store, {"a": 7}, {"a": 221}) == {"a": 221}  # a reset: from there on anew


def test_what_is_kept_is_bounded(store: Any, limits: Limits) -> None:
    """An input of which many markers wait is not searched on; where none can fit, that is told."""
    topic(store, "a", "b")
    limits(MARKERS_BYTES=1000, STEP_PIECES=4)
    for number in range(40):
        mark(store, f"a{number}", "a")
    plan = planner(store, UNLIMITED, "a", "b")
    at = {"a": 0, "b": 0}
    assert plan.plan(store, at, ends_of(store, at)) is None
    assert plan.awaited is not None
    assert plan.awaited.is_complete
    assert dict(plan.awaited.lacking) == {"b": "a0"}
    mark(store, "a3", "b")
    batch = plan.plan(store, at, ends_of(store, at))
    assert batch is not None
    assert batch.ends == {"a": 4, "b": 1}
    for number in range(40):
        mark(store, f"b{number}", "b")
    with pytest.raises(InvalidArgument, match="no value is in all of them"):
        plan.plan(store, batch.ends, ends_of(store, at))


def test_a_queue_that_was_made_again_is_refused(store: Any) -> None:
    """Its markers are others."""
    topic(store, "a")
    plan = planner(store, UNLIMITED, "a")
    store.drop_queue("a")
    topic(store, "a")
    mark(store, "1", "a")
    with pytest.raises(PositionLost, match="made again"):
        plan.plan(store, {"a": 0}, {"a": 1})


def test_too_many_places_are_refused(store: Any) -> None:
    """What has no limit but markers is not cut elsewhere."""
    topic(store, "a")
    for _ in range(30):
        store.put("a", b"x")
    mark(store, "1", "a")
    with limited({"MARKER_PIECES": 5, "FIRST_LOOK_MESSAGES": 10}):
        plan = planner(store, UNLIMITED, "a")
        with pytest.raises(InvalidArgument, match="give the step a `limit`"):
            plan.plan(store, {"a": 0}, {"a": 31})
        plan.shrink(3)
    batch = plan.plan(store, {"a": 0}, {"a": 31})
    assert batch is not None
    assert batch.messages == 31


def counted(*inputs: list[bytes]) -> dict[str, list[bytes]]:
    """One message for a batch: how much it had of each input."""
    return {"out": [b" ".join(b"%d" % len(each) for each in inputs)]}


def two(**options: Any) -> Any:
    """A step of two inputs."""
    return step(counted, reads=("in", "more"), marker=DAY, limit=UNLIMITED, **options)


def sizes(store: Any) -> list[bytes]:
    """What the batches had."""
    return list(store.browse("out/check").payloads())


def test_a_step_waits_for_markers_visibly(store: Any) -> None:
    """It says for which, and goes on when they come; what is behind them stays."""
    topic(store, "in", "more", "out")
    with running(store, two()) as runner:
        eventually(lambda: runner.tally.phase is Phase.IDLE)
        put_numbers(store, "in", range(5))
        mark(store, "mon", "in")
        eventually(lambda: awaited_markers(store, "g") == {"s": {"more": "mon"}})
        eventually(lambda: runner.tally.phase is Phase.ALIGNING)
        put_numbers(store, "more", range(3))
        put_numbers(store, "in", range(4))
        assert sizes(store) == []
        mark(store, "mon", "more")
        eventually(lambda: sizes(store) == [b"6 4"])
        eventually(lambda: runner.tally.phase is Phase.ALIGNING)
        mark(store, "tue", "in", "more")
        eventually(lambda: sizes(store) == [b"6 4", b"5 1"])
        eventually(lambda: runner.tally.phase is Phase.IDLE)
        assert runner.tally.awaited is None
        assert awaited_markers(store, "g") == {}


def test_what_a_killed_driver_has_waited_for_is_taken_back(store: Any) -> None:
    """The next one looks itself, and says what it finds."""
    topic(store, "in", "more", "out")
    put_numbers(store, "in", [1])
    mark(store, "mon", "in", "more")
    tell_awaited(store, "g", "s", {"more": "mon"})
    with running(store, two()):
        eventually(lambda: sizes(store) == [b"2 1"])
        assert awaited_markers(store, "g") == {}


def test_a_marker_may_be_poison_too(store: Any) -> None:
    """The batch ends where it would: the others are done, the marker is a dead letter."""
    topic(store, "in", "more", "out")

    def function(first: list[bytes], second: list[bytes]) -> dict[str, list[bytes]]:
        if b"bad" in first:
            raise ValueError("bad")
        return counted(first, second)

    put_numbers(store, "in", range(5))
    store.put("in", b"bad", attributes={DAY: "1"})
    mark(store, "1", "more")
    made = step(function, reads=("in", "more"), marker=DAY, limit=UNLIMITED, dead="dead")
    with running(store, made):
        eventually(lambda: store.queue("dead").messages == 1)
    assert sizes(store) == [b"5 1"]
    (letter,) = store.browse("dead")
    assert letter.attributes[DAY] == "1"


@pytest.mark.crash
@pytest.mark.promise(2)
def test_drivers_killed_cut_at_the_same_places(store: Any, rounds: int, rng: random.Random) -> None:
    """Each batch is what lies between markers, once, whoever has found them."""
    topic(store, "in", "more", "out")
    runner = runner_of(store, two())
    expected = []
    for day in range(max(3, rounds // 8)):
        for _ in range(5):
            counts = rng.randint(0, 4), rng.randint(0, 4)
            for queue, count in zip(("in", "more"), counts, strict=True):
                put_numbers(store, queue, range(count))
            mark(store, f"{day}", *rng.sample(["in", "more"], 2))
            expected.append(b"%d %d" % (counts[0] + 1, counts[1] + 1))
        process = os.fork()
        if process == 0:
            connection._stores.clear()
            runner._run()
            os._exit(1)
        time.sleep(rng.random() * 0.3)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        found = sizes(store)
        assert found == expected[: len(found)]
    with running(store, two()):
        eventually(lambda: len(sizes(store)) == len(expected))
    assert sizes(store) == expected


def test_a_step_says_where_its_batches_end() -> None:
    """In words; a definition that an earlier release has kept says nothing of markers."""

    def words(**options: Any) -> str:
        limit = limit_of(options.pop("limit", None), DAY)
        made = step(counted, reads=("in", "more"), marker=DAY, limit=limit, **options)
        return explain(described_as("g", {}, {"s": made}))

    assert "cuts: behind the next message with the attribute day, of one value in all" in words()
    assert "; before it in parts, each up to 10 messages or 256 MiB" in words(limit=10)
    assert StepDefinition("s", "step", ("in",)).marker is None


def test_what_is_no_marker_is_refused() -> None:
    """What is no marker is refused, and a streaming step has none."""
    for wrong in ("", 5, b"day", "a\nb", "\ud800", ["day"]):
        with pytest.raises(InvalidArgument, match="no attribute's name"):
            check_step(step(counted, marker=wrong))
    with pytest.raises(InvalidArgument, match="streaming query"):
        check_step(step(counted, marker=DAY, kind="streaming"))
    assert limit_of(None, DAY) == UNLIMITED
    assert limit_of("1m", DAY) == Limit(size_bytes=1 << 20)
