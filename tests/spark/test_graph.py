"""Graphs: steps whose reads and writes are one transaction, whatever goes wrong in between."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from quire.errors import (
    InvalidArgument,
    PositionLost,
    QueueExists,
    QueueInUse,
    QueueNotFound,
    StepFailed,
)
from quire.graphs import ask_replay, requested_replays, set_paused
from quire.spark_graphs import Graph
from quire.spark_graphs.graphs import Phase
from quire.spark_graphs.graphs.functions import step_function
from quire.spark_graphs.graphs.steps.step_commit import StepCommit
from tests.kit.waiting import SECONDS, eventually
from tests.spark.numbered_queues import fill, numbers_in, put_numbers, topic
from tests.spark.queries import payloads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.cases(6, of_file=True), pytest.mark.at_server]

NUMBER = "cast(cast(payload as string) as long)"


def doubled(rows: DataFrame) -> DataFrame:
    """The same with each number doubled; what is no number is an error of Spark's."""
    return rows.selectExpr(f"cast({NUMBER} * 2 as string) as payload")


def copying(graph: Graph, reads: Any = "in", writes: Any = "out", **options: Any) -> Graph:
    """With a step that copies."""
    graph.step(reads, writes, name="copy", **options)(payloads)
    return graph


def test_steps_hand_on_through_queues(graph: Graph, store: Any, drained: Any) -> None:
    """One step splits, the next joins the halves; running again repeats nothing."""
    topic(store, "in", "odd", "even", "all")
    put_numbers(store, "in", range(50))

    @graph.step(reads="in", writes=["odd", "even"])
    def split(rows: DataFrame) -> dict[str, DataFrame]:
        return {
            "odd": rows.where(f"{NUMBER} % 2 = 1").select("payload"),
            "even": rows.where(f"{NUMBER} % 2 = 0").select("payload", "priority"),
        }

    @graph.step(reads=["odd", "even"], writes="all")
    def merge(odd: DataFrame, even: DataFrame) -> DataFrame:
        return odd.union(even.select(odd.columns)).select("payload")

    drained().stop()
    run = drained()
    assert numbers_in(store, "odd") == Counter(range(1, 50, 2))
    assert numbers_in(store, "even") == Counter(range(0, 50, 2))
    assert numbers_in(store, "all") == Counter(range(50))
    status = run.status()
    assert status.lag_messages == 0
    assert status.steps["merge"].number is not None
    assert store.integration.ledger("graph/shop/split") == status.steps["split"].number


def test_what_is_not_there_is_made(graph: Graph, store: Any) -> None:
    """Queues as they were declared, outputs as plain topics, and a subscription for each input."""
    graph.queue("in", capacity="1m", text="what comes")
    copying(graph, dead="in.dead")
    with graph.start():
        assert store.queue("in").capacity_bytes == 1 << 20
        assert store.queue("in").subscriptions == ("shop.copy",)
        assert store.queue("out").kind == "topic"
        assert store.queue("in.dead").kind == "work"
    again = Graph("shop", graph.spark, store.path)
    again.queue("in", capacity="2m")
    with pytest.raises(QueueExists, match="capacity"):
        copying(again).start()


def test_a_batch_ends_at_its_limit(graph: Graph, store: Any, drained: Any) -> None:
    """Of messages, and of bytes; the order of the messages stays."""
    topic(store, "in", "out", "bytes")
    put_numbers(store, "in", range(100))
    copying(graph, limit=30)
    graph.step("in", "bytes", name="by_bytes", limit="4k")(
        lambda rows: rows.selectExpr("repeat(cast(payload as string), 1) as payload")
    )
    run = drained()
    assert run.status().steps["copy"].batches == 4
    assert [int(p) for p in store.browse("out").payloads()] == list(range(100))
    assert numbers_in(store, "bytes") == Counter(range(100))


def test_a_limit_of_bytes(graph: Graph, store: Any, drained: Any) -> None:
    """About so many bytes, and one message at least."""
    topic(store, "in", "out")
    for _ in range(5):
        store.put_many("in", [b"9" * 1000] * 4)
    copying(graph, limit="8k")
    run = drained()
    assert run.status().steps["copy"].batches in (3, 4)
    run.stop()
    store.put("in", b"9" * 20_000)
    drained()
    assert store.queue("out").messages == 21


def test_several_inputs_end_at_one_point(graph: Graph, store: Any, drained: Any) -> None:
    """Of a transaction that has put to both, a batch has both messages, also where it is cut."""
    topic(store, "left", "right", "out")
    for number in range(40):
        with store.transaction() as txn:
            txn.put("left", b"%d" % number)
            if number % 4 == 0:
                txn.put_many("right", [b"%d" % number] * 3)
    seen = []

    @graph.step(["left", "right"], "out", limit=13)
    def pair(left: DataFrame, right: DataFrame) -> DataFrame:
        found = [{int(row.payload) for row in rows.collect()} for rows in (left, right)]
        seen.append(found)
        return left.select("payload")

    drained()
    seen = [pair for pair in seen if pair[0] or pair[1]]
    assert len(seen) > 3
    for left, right in seen:
        assert right == {number for number in left if number % 4 == 0}
    assert numbers_in(store, "out") == Counter(range(40))


def test_a_step_writes_only_what_it_names(graph: Graph, store: Any) -> None:
    """A row for another queue fails the batch, and nothing of it is written."""
    topic(store, "in", "a", "b", "c")
    put_numbers(store, "in", range(5))
    graph.step("in", ["a", "b"], name="stray")(
        lambda rows: rows.selectExpr("payload", "if(position = 4, 'c', 'a') as queue")
    )
    with graph.start(restart="never") as run:
        with pytest.raises(StepFailed, match="does not write queue c"):
            run.drain()
        assert run.wait(SECONDS)
        assert run.status().steps["stray"].phase is Phase.FAILED
    assert numbers_in(store, "a", "b", "c") == Counter()


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (lambda rows: rows.select("nope"), "step 'wrong': Spark cannot plan it.*nope"),
        (lambda rows: rows.select("position"), "step 'wrong': .* 'payload' .* is missing"),
        (lambda rows: rows.selectExpr("1 as payload"), "must be binary or string"),
        (lambda rows: {"other": rows}, "rows for other; it writes out"),
        (lambda rows: 7, "return a DataFrame"),
    ],
)
def test_what_a_function_returns_is_checked_before_anything_runs(
    graph: Graph, store: Any, function: Any, advice: str
) -> None:
    """And nothing is made then."""
    graph.queue("in")
    graph.step("in", "out", name="wrong")(function)
    with pytest.raises(InvalidArgument, match=advice):
        graph.start()
    assert store.queues() == []


def test_an_input_that_cannot_be_read_by_position(graph: Graph, store: Any) -> None:
    """It is refused with the reason, whether it is there or the graph would make it."""
    copying(graph).queue("in", kind="work")
    with pytest.raises(InvalidArgument, match="is a work queue"):
        graph.start()
    assert store.queues() == []
    store.create_queue("in", kind="work")
    with pytest.raises(InvalidArgument, match="is a work queue"):
        copying(Graph("other", graph.spark, store.path)).start()
    assert [info.name for info in store.queues()] == ["in"]


def test_what_else_is_refused(graph: Graph, store: Any) -> None:
    """Queues that nobody writes, topics for dead letters, steps that there are not."""
    with pytest.raises(QueueNotFound, match="no step writes"):
        copying(graph).start()
    store.create_queue("in", kind="topic")
    store.create_queue("letters", kind="topic")
    with pytest.raises(InvalidArgument, match="is a topic"):
        copying(Graph("g", graph.spark, store.path), dead="letters").start()
    with pytest.raises(InvalidArgument, match="has no step 'nope'"):
        graph.start(only=["nope"])


def test_one_run_at_a_time(graph: Graph, store: Any) -> None:
    """A second run of the same steps is refused while the first goes on; then it may start."""
    topic(store, "in", "out")
    with copying(graph).start(), pytest.raises(QueueInUse):
        graph.start()
    graph.start().stop()


def test_a_terminal_takes_messages_out(graph: Graph, store: Any, drained: Any) -> None:
    """It is called with each batch and its number, and the batch counts as read when it returns."""
    topic(store, "in")
    put_numbers(store, "in", range(25))
    seen: dict[int, list[int]] = {}
    failures = [ValueError("not today")]

    @graph.terminal("in", limit=10)
    def take(rows: DataFrame, batch: int) -> None:
        seen[batch] = [int(row.payload) for row in rows.select("payload").collect()]
        if batch == 1 and failures:
            raise failures.pop()

    run = drained()
    assert [number for batch in seen.values() for number in batch] == list(range(25))
    assert list(seen) == [0, 1, 2]
    assert "not today" in str(run.status().steps["take"].last_error)


def test_a_number_that_is_committed_has_no_effect_again(
    graph: Graph, store: Any, drained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else has committed the batch meanwhile: it is given up whole, and the next begun."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(10))
    once = [True]
    commit = StepCommit.commit

    def raced(self: StepCommit) -> bool:
        if once and self.records.get("graph/shop/copy") == 0:
            once.clear()
            with store.transaction() as txn:
                self.enter(store, txn)
        return commit(self)

    monkeypatch.setattr(StepCommit, "commit", raced)
    copying(graph)
    drained()
    put_numbers(store, "in", range(10, 20))
    eventually(lambda: numbers_in(store, "out") == Counter(range(20)))


def test_poison_goes_to_the_dead_letters(graph: Graph, store: Any, drained: Any) -> None:
    """Only the messages that the step fails with, with the reason, beside the rest of the batch."""
    topic(store, "in", "out")
    bad = {3: b"three"}
    for number in range(8):
        store.put("in", bad.get(number, b"%d" % number), attributes={"n": str(number)})
    graph.step("in", "out", name="double", dead="in.dead")(doubled)
    run = drained()
    assert numbers_in(store, "out") == Counter(2 * n for n in range(8) if n not in bad)
    letters = list(store.browse("in.dead"))
    assert [letter.payload for letter in letters] == list(bad.values())
    said = letters[0].attributes
    assert said["n"] == "3"
    assert said["quire.queue"] == "in"
    assert said["quire.position"] == "3"
    assert said["quire.step"] == "shop/double"
    assert said["quire.batch"] == "0"
    assert "CAST_INVALID_INPUT" in said["quire.reason"]
    assert "Traceback" in said["quire.trace"]
    status = run.status().steps["double"]
    assert (status.dead_letters, status.batches, status.messages_out) == (1, 1, 7)


def test_dead_letters_are_put_back(graph: Graph, store: Any) -> None:
    """Those of the step, once its function is right; those of others stay, and what fails again."""
    topic(store, "in", "out")
    store.put_many("in", [b"1", b"two"])
    words = {"two": "2"}
    right = threading.Event()

    @graph.step("in", "out", dead="dead")
    def double(rows: DataFrame) -> DataFrame:
        known = words if right.is_set() else {}
        text = "cast(payload as string)"
        for word, number in known.items():
            text = f"replace({text}, '{word}', '{number}')"
        return rows.selectExpr(f"cast(cast({text} as long) * 2 as string) as payload")

    with graph.start() as run:
        run.drain(timeout=SECONDS)
        store.put("dead", b"of nobody")
        assert numbers_in(store, "out") == Counter([2])
        right.set()
        assert run.replay("dead", step="double") == 1
        assert numbers_in(store, "out") == Counter([2, 4])
        assert store.browse("dead").payloads() == [b"of nobody"]
        with pytest.raises(InvalidArgument, match="no step"):
            run.replay("dead", step="nope")
        put_numbers(store, "in", [5])
        run.drain(timeout=SECONDS)
    assert numbers_in(store, "out") == Counter([2, 4, 10])


def test_what_fails_without_any_message_is_no_poison(graph: Graph, store: Any) -> None:
    """The function itself is wrong: no message goes to the dead letters."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(8))

    @graph.step("in", "out", dead="dead")
    def wrong(rows: DataFrame) -> DataFrame:
        raise KeyError("a column of another table")

    with graph.start() as run:
        eventually(lambda: run.status().steps["wrong"].retries > 1)
        assert "another table" in str(run.status().steps["wrong"].last_error)
        assert run.status().lag_messages == 8
    assert store.queue("dead").messages == 0


def test_a_full_output_makes_its_step_wait(graph: Graph, store: Any) -> None:
    """Visibly, while others go on; with room it goes on, and nothing is lost or twice."""
    topic(store, "in", "other")
    topic(store, "out", capacity=8192)
    before = fill(store, "out")
    put_numbers(store, "in", range(20))
    copying(graph)
    graph.step("in", "other", name="beside")(payloads)
    with graph.start() as run:
        eventually(lambda: run.status().steps["copy"].phase is Phase.WAITING)
        status = run.status()
        assert status.steps["copy"].full == ("out",)
        assert status.queues["out"].is_full
        assert status.steps["copy"].lag_messages == 20
        eventually(lambda: numbers_in(store, "other") == Counter(range(20)))
        eventually(
            lambda: store.admin.transactions() == []
        )  # the other step's has ended by then, too
        with store.transaction() as txn:
            assert len(txn.get_many("out/check")) == before
        run.drain(timeout=SECONDS)
        assert run.status().steps["copy"].full == ()
    assert numbers_in(store, "out") == Counter(range(20))


def test_a_batch_that_no_room_is_enough_for_is_made_smaller(
    graph: Graph, store: Any, drained: Any
) -> None:
    """A queue that takes ten messages gets them ten at a time, as they are read."""
    topic(store, "in")
    store.create_queue("out", kind="topic", max_messages=10)
    store.subscribe("out", "reader")
    put_numbers(store, "in", range(35))
    found: list[int] = []

    @graph.terminal("out")
    def read(rows: DataFrame, batch: int) -> None:
        found.extend(int(row.payload) for row in rows.collect())

    copying(graph)
    reader = threading.Thread(
        target=lambda: [store.get("out/reader", timeout=SECONDS) for _ in range(35)]
    )
    reader.start()
    drained()
    reader.join()
    assert found == list(range(35))


def test_a_step_stops_and_goes_on(graph: Graph, store: Any) -> None:
    """What comes while it is stopped waits; `drain` says that nobody reads it."""
    topic(store, "in", "out")
    with copying(graph).start() as run:
        run.stop("copy")
        put_numbers(store, "in", range(3))
        assert run.status().steps["copy"].phase is Phase.STOPPED
        with pytest.raises(StepFailed, match="stopped and 3 messages behind"):
            run.drain()
        with graph.start() as other:  # a step that is stopped is let go of
            other.drain(timeout=SECONDS)
            with pytest.raises(QueueInUse, match="runs already"):
                run.resume("copy")
        assert graph.reset("copy") == {"in": 0}
        run.resume("copy")
        run.drain(timeout=SECONDS)
        assert numbers_in(store, "out") == Counter([*range(3)] * 2)
        with pytest.raises(QueueInUse, match="stop it first"):
            graph.reset("copy")
    with pytest.raises(InvalidArgument, match="start the graph again"):
        run.resume("copy")


def test_a_stop_ends_a_job(graph: Graph, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the batch is written. (What travels with a job Spark may compute as it plans.)"""
    monkeypatch.setattr(step_function, "LOCAL_BYTES", 0)
    topic(store, "in", "out")
    put_numbers(store, "in", range(3))
    graph.step("in", "out", name="slow")(
        lambda rows: rows.selectExpr(
            "if(java_method('java.lang.Thread', 'sleep', 60000L) is null, payload, payload) "
            "as payload"
        )
    )
    with graph.start() as run:
        eventually(lambda: run.status().steps["slow"].phase is Phase.RUNNING)
        run.stop("slow")
        assert run.status().steps["slow"].phase is Phase.STOPPED
    assert numbers_in(store, "out") == Counter()


def test_a_backfill_has_its_effect_once(graph: Graph, store: Any) -> None:
    """By positions or times; repeated it does nothing, and the step's own batches are others."""
    topic(store, "in", "out", "again")
    for number in range(30):
        put_numbers(store, "in", [number])
    copying(graph, limit=7)
    assert graph.backfill("copy", 5, 20, to={"out": "again"}) == 15
    assert numbers_in(store, "again") == Counter(range(5, 20))
    assert graph.backfill("copy", 5, 20, to={"out": "again"}) == 0
    assert graph.backfill("copy", 5, 20, to={"out": "again"}, name="once-more") == 15
    assert graph.backfill("copy", 5, 20, to={"out": "elsewhere"}) == 15
    assert store.queue("elsewhere").end_position == 15
    times = [message.time / 1e6 for message in store.browse("in")]
    span = [datetime.fromtimestamp(times[25], UTC), times[28]]
    assert graph.backfill("copy", *span, to={"out": "again"}) == 3
    assert numbers_in(store, "again") == Counter([*range(5, 20), *range(5, 20), *range(25, 28)])
    with graph.start() as run:
        run.drain(timeout=SECONDS)
    assert numbers_in(store, "out") == Counter(range(30))
    with pytest.raises(InvalidArgument, match="does not write nope"):
        graph.backfill("copy", to={"nope": "out"})
    with pytest.raises(InvalidArgument, match="before it begins"):
        graph.backfill("copy", 9, 3)
    store.get_many("in/check", 10)
    with pytest.raises(PositionLost):
        graph.backfill("copy", 0, 20, name="late")


def test_a_step_keeps_values(graph: Graph, store: Any, drained: Any) -> None:
    """As of the batch's beginning, changed by its commit, and not by an attempt that fails."""
    topic(store, "in", "out")
    failures = [OSError("once")]

    @graph.step("in", "out", limit=10)
    def count(rows: DataFrame) -> DataFrame:
        state = graph.state("count")
        before = state.get("count", 0)
        state["count"] = before + rows.count()
        state[f"batch {len(state)}"] = {"from": before}
        if before and failures:
            raise failures.pop()
        return rows.select("payload")

    put_numbers(store, "in", range(25))
    drained().stop()
    assert dict(graph.state("count")) == {
        "count": 25,
        "batch 1": {"from": 0},
        "batch 2": {"from": 10},
        "batch 3": {"from": 20},
    }
    with pytest.raises(InvalidArgument, match="own function only"):
        graph.state("count")["count"] = 0
    with pytest.raises(InvalidArgument, match="no step 'nope'"):
        graph.state("nope")
    put_numbers(store, "in", range(25, 30))
    drained()
    assert graph.state("count")["count"] == 30
    assert numbers_in(store, "out") == Counter(range(30))


def test_a_step_pauses_by_a_word_in_the_store(graph: Graph, store: Any) -> None:
    """Which outlives the run, and may be given by any process."""
    topic(store, "in", "out")

    def say(value: bytes | None) -> None:
        with store.transaction() as txn:
            txn.set_value("graph.shop", "pause/copy", value)

    say(b"true")
    with copying(graph).start() as run:
        put_numbers(store, "in", range(3))
        eventually(lambda: run.status().steps["copy"].phase is Phase.PAUSED)
        with pytest.raises(StepFailed, match="paused and 3 messages behind"):
            run.drain()
        say(None)
        eventually(lambda: numbers_in(store, "out") == Counter(range(3)))


def test_replay_pause_and_reset_by_words_in_the_store(graph: Graph, store: Any) -> None:
    """As the command line gives them; a step that was reset reads all again, with other values."""
    graph.queue("in", keep_forever=True)
    topic(store, "out")
    right = threading.Event()

    @graph.step("in", "out", dead="dead")
    def double(rows: DataFrame) -> DataFrame:
        state = graph.state("double")
        state["batches"] = state.get("batches", 0) + 1
        if right.is_set():
            rows = rows.selectExpr("replace(cast(payload as string), 'two', '2') as payload")
        return doubled(rows)

    with graph.start() as run:
        store.put_many("in", [b"1", b"two"])
        run.drain(timeout=SECONDS)
        right.set()
        ask_replay(store, "shop", "double")
        eventually(lambda: requested_replays(store, "shop") == {})
        assert numbers_in(store, "out") == Counter([2, 4])
        set_paused(store, "shop", "double", True)
        eventually(lambda: run.status().steps["double"].phase is Phase.PAUSED)
        put_numbers(store, "in", [5])
        with pytest.raises(QueueInUse):
            graph.reset("double")
        set_paused(store, "shop", "double", False)
        eventually(lambda: numbers_in(store, "out") == Counter([2, 4, 10]))
    assert graph.state("double")["batches"] == 3
    assert graph.reset("double") == {"in": 0}
    assert len(graph.state("double")) == 0
    with graph.start() as run:
        run.drain(timeout=SECONDS)
    assert numbers_in(store, "out") == Counter([2, 4, 10] * 2)
    assert graph.state("double")["batches"] == 1


@pytest.mark.cases(2)
def test_a_streaming_step_beside_others(graph: Graph, store: Any, drained: Any) -> None:
    """What Spark keeps is in its checkpoint, also over restarts of the graph."""
    topic(store, "in", "half", "out")
    graph.step("in", "half", name="first")(payloads)

    @graph.step("half", "out", stateful=True)
    def distinct(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("cast(payload as string) as payload").dropDuplicates(["payload"])

    put_numbers(store, "in", [1, 2, 2, 3])
    drained().stop()
    put_numbers(store, "in", [3, 4])
    run = drained()
    assert numbers_in(store, "out") == Counter([1, 2, 3, 4])
    status = run.status()
    assert status.steps["distinct"].kind == "streaming"
    assert status.steps["distinct"].phase is Phase.IDLE
    assert numbers_in(store, "half") == Counter([1, 2, 2, 3, 3, 4])


def test_a_graph_tells_how_it_is(graph: Graph, store: Any, drained: Any) -> None:
    """As a value, as JSON, and in words."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(12))
    copying(graph, limit=5)
    run = drained(restart="never")
    found = run.status()
    step = found.steps["copy"]
    assert (step.batches, step.number, step.messages_in, step.messages_out) == (3, 2, 12, 12)
    assert step.rate_in > 0
    assert found.queues["out"].messages == 12
    assert json.loads(json.dumps(found.to_json()))["steps"]["copy"]["lag_messages"] == 0
    assert "copy: idle, 0 messages behind" in str(found)
    run.stop("copy")
    put_numbers(store, "in", range(7))
    behind = run.status().steps["copy"]
    assert (behind.lag_messages, behind.inputs[0].position) == (7, 12)
    assert behind.lag_seconds > 0
    assert behind.lag_bytes > 0


def test_batches_end_behind_markers(graph: Graph, store: Any, drained: Any) -> None:
    """A marker that another step hands on, too; the rest waits visibly, and a backfill takes it."""
    topic(store, "in", "inner", "more", "out", "again")
    graph.step("in", "inner", name="hand_on")(lambda rows: rows.select("payload", "attributes"))
    graph.step(["inner", "more"], "out", name="count", marker="day")(
        lambda first, second: first.union(second.select(first.columns)).selectExpr(
            "concat_ws('', count(*), max(attributes['day'])) as payload"
        )
    )
    put_numbers(store, "in", range(4))
    put_numbers(store, "more", range(2))
    for queue in ("in", "more"):
        store.put(queue, b"", attributes={"day": " mon"})
    put_numbers(store, "in", range(3))
    store.put("more", b"", attributes={"day": " tue"})
    run = drained()
    assert store.browse("out").payloads() == [b"8 mon"]
    eventually(lambda: run.status().steps["count"].phase is Phase.ALIGNING)
    step = run.status().steps["count"]
    assert (step.phase, step.lag_messages) == (Phase.ALIGNING, 4)
    assert step.awaits == {"inner": " tue"}
    assert "waits for marker  tue in inner" in str(run.status())
    assert run.status().to_json()["steps"]["count"]["awaits"] == {"inner": " tue"}
    store.put("in", b"", attributes={"day": " tue"})
    run.drain(timeout=SECONDS)
    put_numbers(store, "in", range(5))
    run.drain(timeout=SECONDS)
    assert store.browse("out").payloads() == [b"8 mon", b"5 tue"]
    assert graph.backfill("count", to={"out": "again"}) == 18
    assert store.browse("again").payloads() == [b"8 mon", b"5 tue", b"5"]


def test_an_error_of_a_worker_is_told_in_the_first_line(graph: Graph, store: Any) -> None:
    """What Spark hands on begins with a traceback: the status begins with the error itself."""
    topic(store, "in", "out")
    store.put("in", b"x")

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if batch.num_rows:
                raise ValueError("no such year")
            yield batch

    @graph.step("in", "out")
    def parse(rows: DataFrame) -> DataFrame:
        return rows.select("payload").mapInArrow(read, "payload binary")

    with graph.start(restart="never") as run:
        with pytest.raises(StepFailed, match="behind: ValueError: no such year"):
            run.drain(SECONDS)
        status = run.status()
        first = str(status.steps["parse"].last_error).splitlines()[0]
        assert first == "ValueError: no such year"
        assert "parse: failed, 1 messages behind" in str(status)
        assert "ValueError: no such year" in str(status)
        assert "Traceback" in str(status.steps["parse"].last_error)
