"""Steps in a run: where they begin, that they are waited for, and that they go on."""

from __future__ import annotations

import shlex
import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from quire.cli import main
from quire.errors import InvalidArgument, QueueFull, QueueInUse, StepFailed
from quire.graphs import set_paused
from quire.spark_graphs import Graph
from quire.spark_graphs.graphs import Phase
from tests.kit.waiting import SECONDS, eventually
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.queries import payloads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [
    pytest.mark.spark,
    pytest.mark.promise(2),
    pytest.mark.cases(5, of_file=True),
    pytest.mark.at_server,
]


KINDS = pytest.mark.parametrize("kind", ["plain", "streaming", "terminal"])
Copying = Callable[..., None]


@pytest.fixture
def copying(graph: Graph, store: Any) -> Copying:
    """Adds a step of a kind, from the queue `in` to the queue `out`."""

    def add(kind: str, function: Any = payloads, name: str = "copy", into: Any = graph) -> None:
        def take(rows: DataFrame, batch: int) -> None:
            found = [bytes(row.payload) for row in function(rows).collect()]
            store.put_many("out", found)

        if kind == "terminal":
            into.terminal("in", name=name)(take)
        else:
            into.step("in", "out", name=name, stateful=kind == "streaming")(function)

    return add


def test_no_step_begins_behind_another(graph: Graph, store: Any) -> None:
    """One plain step and three streaming ones of one queue: each gets all that is there."""
    store.create_queue("in", kind="topic")
    topic(store, "plain", "a", "b", "c")
    put_numbers(store, "in", range(100))
    graph.step("in", "plain", name="plain")(payloads)
    for name in ("a", "b", "c"):
        graph.step("in", name, name=name, stateful=True)(payloads)
    with graph.start() as run:
        assert len(store.queue("in").subscriptions) == 4
        run.drain(SECONDS)
        for name in ("plain", "a", "b", "c"):
            assert numbers_in(store, name) == Counter(range(100)), name
        assert store.queue("in").messages == 0
        assert run.status().lag_messages == 0


@pytest.mark.cases(3)
@KINDS
def test_a_step_pauses_and_goes_on(graph: Graph, store: Any, copying: Copying, kind: str) -> None:
    """As often as it is told to, in one run, and nothing is lost or twice."""
    topic(store, "in", "out")
    copying(kind)
    put_numbers(store, "in", range(5))
    with graph.start() as run:
        run.drain(SECONDS)
        for number in (5, 10):
            set_paused(store, "shop", "copy", True)
            eventually(lambda: run.status().steps["copy"].phase is Phase.PAUSED)
            put_numbers(store, "in", range(number, number + 5))
            with pytest.raises(StepFailed, match="paused and 5 messages behind"):
                run.drain(SECONDS)
            set_paused(store, "shop", "copy", False)
            eventually(lambda: run.status().steps["copy"].phase is not Phase.PAUSED)
            run.drain(SECONDS)
            assert numbers_in(store, "out") == Counter(range(number + 5))
        run.stop("copy")
        assert run.status().steps["copy"].phase is Phase.STOPPED
        put_numbers(store, "in", range(15, 20))
        with pytest.raises(StepFailed, match="stopped and 5 messages behind"):
            run.drain(SECONDS)
        run.resume("copy")
        run.drain(SECONDS)
        assert numbers_in(store, "out") == Counter(range(20))
        assert run.status().steps["copy"].last_error is None


@pytest.mark.cases(3)
@KINDS
def test_a_step_that_has_failed_tries_again(
    graph: Graph, store: Any, copying: Copying, kind: str
) -> None:
    """By itself, in the same run; from where its last commit stands."""
    topic(store, "in", "out")
    right = threading.Event()

    def parse(rows: DataFrame) -> DataFrame:
        text = "cast(cast(payload as string) as long)"
        if right.is_set():
            text = f"try_{text}"
        numbers = rows.selectExpr(f"cast(cast({text} as string) as binary) as payload")
        return numbers.where("payload is not null")

    copying(kind, parse, name="parse")
    put_numbers(store, "in", range(5))
    with graph.start() as run:
        run.drain(SECONDS)
        store.put("in", b"none")
        put_numbers(store, "in", range(5, 10))
        eventually(lambda: run.status().steps["parse"].retries > 1)
        assert "DATA_SOURCE_NOT_FOUND" not in str(run.status().steps["parse"].last_error)
        assert "CAST_INVALID_INPUT" in str(run.status().steps["parse"].last_error)
        right.set()
        run.drain(SECONDS)
        assert numbers_in(store, "out") == Counter(range(10))
        eventually(lambda: run.status().steps["parse"].retries == 0)


def test_a_paused_step_begins_where_the_graph_did(graph: Graph, store: Any) -> None:
    """What comes while it is paused from the start is kept for it, though others read on."""
    topic(store, "plain", "late")
    store.create_queue("in", kind="topic")
    graph.step("in", "plain", name="plain")(payloads)
    graph.step("in", "late", name="late", stateful=True)(payloads)
    graph.start(only="plain").stop()
    set_paused(store, "shop", "late", True)
    with graph.start() as run:
        put_numbers(store, "in", range(20))
        eventually(lambda: numbers_in(store, "plain") == Counter(range(20)))
        eventually(lambda: run.status().steps["plain"].lag_messages == 0)
        with pytest.raises(StepFailed, match="'late' is paused and 20 messages behind"):
            run.drain(SECONDS)
        set_paused(store, "shop", "late", False)
        eventually(lambda: run.status().steps["late"].phase is not Phase.PAUSED)
        run.drain(SECONDS)
    assert numbers_in(store, "late") == Counter(range(20))


def test_steps_that_are_started_later_begin_with_the_graph(graph: Graph, store: Any) -> None:
    """`only` starts some of a graph's steps; the others have their subscriptions all the same."""
    topic(store, "out", "streamed")
    seen: list[int] = []
    graph.queue("in")
    graph.step("in", "out", name="copy")(payloads)
    graph.step("in", "streamed", name="stream", stateful=True)(payloads)

    @graph.terminal("in")
    def take(rows: DataFrame, batch: int) -> None:
        seen.extend(int(row.payload) for row in rows.collect())

    with graph.start(only="copy") as run:
        put_numbers(store, "in", range(10))
        run.drain(SECONDS)
    assert store.queue("in").messages == 10
    with graph.start(only=["stream", "take"]) as run:
        run.drain(SECONDS)
    assert seen == list(range(10))
    assert numbers_in(store, "out") == numbers_in(store, "streamed") == Counter(range(10))
    assert store.queue("in").messages == 0


def test_a_queue_that_is_read_twice_is_drained_twice(graph: Graph, store: Any) -> None:
    """Both streams of it are waited for."""
    topic(store, "out")
    graph.queue("in")

    @graph.step(["in", "in"], "out", stateful=True)
    def twice(one: DataFrame, other: DataFrame) -> DataFrame:
        return one.select("payload").union(other.select("payload"))

    with graph.start() as run:
        assert store.queue("in").subscriptions == ("shop.twice", "shop.twice.2")
        put_numbers(store, "in", range(10))
        run.drain(SECONDS)
        assert numbers_in(store, "out") == Counter([*range(10)] * 2)
        assert store.queue("in").messages == 0


def test_a_streaming_step_ends_with_any_error(graph: Graph, store: Any) -> None:
    """Also with one that no program expects: it is told, and not taken for a stop."""
    topic(store, "in", "out")
    fails = threading.Event()

    @graph.step("in", "out", stateful=True)
    def leaves(rows: DataFrame) -> DataFrame:
        if fails.is_set():
            raise SystemExit("the function has left")
        return rows.select("payload")

    with graph.start(restart="never") as run:
        set_paused(store, "shop", "leaves", True)
        eventually(lambda: run.status().steps["leaves"].phase is Phase.PAUSED)
        fails.set()
        set_paused(store, "shop", "leaves", False)
        assert run.wait(SECONDS)
        step = run.status().steps["leaves"]
        assert step.phase is Phase.FAILED
        assert "the function has left" in str(step.last_error)
        with pytest.raises(StepFailed, match="the function has left"):
            run.drain(SECONDS)


def test_steps_that_have_another_name(
    graph: Graph,
    store: Any,
    copying: Copying,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What they leave behind is told at the start; the commands that are told end it."""
    store.create_queue("in", kind="topic", max_messages=30)
    topic(store, "out")
    kinds = ("plain", "streaming", "terminal")
    for kind in kinds:
        copying(kind, name=kind)
    with graph.start() as run:
        put_numbers(store, "in", range(10))
        run.drain(SECONDS)
    assert "is of no step" not in caplog.text
    put_numbers(store, "in", range(10, 15))
    other = Graph("shop", graph.spark, store.path)
    for kind in kinds:
        copying(kind, name=f"{kind}-2", into=other)
    with other.start() as run:
        told = [record.message for record in caplog.records if "is of no step" in record.message]
        assert len(told) == 3
        assert all("keeps 5 messages" in line for line in told)
        assert set(told) == {f"graph shop: {line}" for line in shown(other)}
        run.drain(SECONDS)
        assert numbers_in(store, "out") == Counter([*range(15)] * 3)
        put_numbers(store, "in", range(15, 40))
        run.drain(SECONDS)
        with pytest.raises(QueueFull):
            store.put("in", b"40")
        for line in told:
            command = shlex.split(line.partition("it ends with: ")[2])
            assert main(command[1:]) == 0
        put_numbers(store, "in", range(40, 50))
        run.drain(SECONDS)
    assert shown(other) == []
    assert numbers_in(store, "out") == Counter([*range(50)] * 3)


def shown(graph: Graph) -> list[str]:
    """What the graph's words say of subscriptions that it has left behind."""
    return [line for line in graph.explain().splitlines() if "is of no step" in line]


def test_a_streaming_step_runs_once_at_a_time(graph: Graph, store: Any, copying: Copying) -> None:
    """A second run is refused while the first goes on, also while the step is paused."""
    topic(store, "in", "out")
    copying("streaming")
    with graph.start() as run:
        set_paused(store, "shop", "copy", True)
        eventually(lambda: run.status().steps["copy"].phase is Phase.PAUSED)
        with pytest.raises(QueueInUse, match="runs already"):
            graph.start()
    graph.start().stop()


def test_options_that_are_the_steps_own(graph: Graph) -> None:
    """What a step says of its sources itself cannot be said anew."""
    for name in ("queue", "subscription", "subscribePattern", "path", "checkpointLocation"):
        with pytest.raises(InvalidArgument, match=f"option '{name}' is the step's own"):
            graph.step("in", "out", name="s", stateful=True, options={name.upper(): "x"})(payloads)
