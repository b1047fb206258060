"""Timers of a step's states: by event time and by the clock, each of them once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from quire.errors import InvalidArgument
from quire.graphs import event_times
from quire.spark_graphs import Graph, StateRows, keyed
from quire.spark_graphs.graphs.functions.step_function import StepWork
from quire.spark_graphs.graphs.steps.step_runner import StepRunner
from tests.kit.waiting import SECONDS, eventually
from tests.spark.numbered_queues import topic
from tests.spark.test_step_states import BY_TASKS, keys_in, tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.cases(3, of_file=True), pytest.mark.at_server]

CLICKS = "user string, at timestamp"
SESSIONS = "user string, first timestamp, last timestamp, clicks bigint"
GAP, DELAY = 10, 5  # seconds


def sessions(graph: Graph, limit: int) -> None:
    """A step that puts a session when no click has followed its last one for a while."""
    from pyspark.sql import functions as f

    graph.queue("clicks", schema=CLICKS)

    def close(due: DataFrame, open: StateRows) -> dict[str, DataFrame]:
        text = "concat_ws(' ', user, unix_seconds(first), unix_seconds(last), clicks) as payload"
        return {"ended": due.selectExpr(text), "open": due.selectExpr("user", "true as _delete")}

    state = keyed("open", "user", SESSIONS, on_timer=close, event_time="at", delay=DELAY)

    @graph.step("clicks", "ended", state=state, limit=limit)
    def gather(clicks: DataFrame, open: StateRows) -> dict[str, DataFrame]:
        news = clicks.groupBy("user").agg(
            f.min("at").alias("a"), f.max("at").alias("b"), f.count("*").alias("n")
        )
        rows = news.join(open.rows(news), "user", "left").selectExpr(
            "user",
            "least(a, first) as first",
            "greatest(b, last) as last",
            "n + coalesce(clicks, 0L) as clicks",
        )
        return {"open": rows.selectExpr("*", f"last + interval {GAP} seconds as _timer")}


def click(user: str, second: int) -> dict[str, Any]:
    """A row of the queue."""
    return {"user": user, "at": datetime.fromtimestamp(second, UTC)}


class Sessions:
    """The model: what the step makes of batches, one after another."""

    def __init__(self) -> None:
        self.open: dict[str, tuple[int, int, int]] = {}
        self.ended: Counter[bytes] = Counter()
        self._latest = 0

    def batch(self, clicks: Iterable[tuple[str, int]]) -> None:
        """Add clicks, then end what is due."""
        for user, second in clicks:
            first, last, count = self.open.get(user, (second, second, 0))
            self.open[user] = min(first, second), max(last, second), count + 1
            self._latest = max(self._latest, second)
        for user, (first, last, count) in list(self.open.items()):
            if last + GAP <= self._latest - DELAY:
                self.ended[b"%s %d %d %d" % (user.encode(), first, last, count)] += 1
                del self.open[user]


def play(store: Any, run: Any, rng: random.Random, batches: int, size: int) -> Sessions:
    """Put clicks, some late and some repeated, and have each batch done before the next."""
    model, now, before = Sessions(), 1000, list[tuple[str, int]]()
    for _ in range(batches):
        clicks = []
        for _ in range(size):
            now += rng.randrange(3)
            clicks.append((f"u{rng.randrange(12)}", now - rng.choice([0, 0, 0, 3, 30])))
        clicks += rng.sample(before, min(len(before), size // 5))
        store.put_many("clicks", [click(*each) for each in clicks])
        run.drain(timeout=SECONDS)
        model.batch(clicks)
        before = clicks
    return model


@BY_TASKS
def test_sessions_end_by_event_time(
    graph: Graph,
    store: Any,
    monkeypatch: pytest.MonkeyPatch,
    rng: random.Random,
    by_tasks: bool,
) -> None:
    """As a model has them, over late and repeated clicks, and over a new start of the graph."""
    tasks(monkeypatch, by_tasks)
    topic(store, "ended")
    topic(store, "clicks", schema=CLICKS)
    sessions(graph, 1000)
    with graph.start() as run:
        model = play(store, run, rng, 5, 20)
        found = Counter(store.browse("ended/check", max_messages=10_000).payloads())
        assert found == model.ended
    with graph.start() as run:
        run.drain(timeout=SECONDS)
        number = run.status().steps["gather"].number
        store.put_many("clicks", [click("late", 2000), click("u0", 1)])
        run.drain(timeout=SECONDS)
        later = run.status().steps["gather"].number
    assert number is not None
    assert later is not None
    assert later == number + 1 + bool(model.open)
    model.batch([("late", 2000), ("u0", 1)])
    assert Counter(store.browse("ended/check", max_messages=10_000).payloads()) == model.ended
    assert event_times(store, "shop", "gather") == {"open": {"clicks": 2000 * 1_000_000}}
    graph.reset("gather", to="latest")
    assert event_times(store, "shop", "gather") == {}


def test_many_rows_are_due_in_several_batches(graph: Graph, store: Any) -> None:
    """As many at once as the step's limit says; all of them once."""
    topic(store, "ended")
    topic(store, "clicks", schema=CLICKS)
    sessions(graph, 7)
    store.put_many("clicks", [click(f"u{number}", 100) for number in range(20)])
    with graph.start() as run:
        run.drain(timeout=SECONDS)
        store.put("clicks", click("last", 1000))
        run.drain(timeout=SECONDS)
        status = run.status().steps["gather"]
    found = Counter(store.browse("ended/check", max_messages=100).payloads())
    assert found == Counter(b"u%d 100 100 1" % number for number in range(20))
    assert status.batches == 3 + 1 + 3


def test_a_timer_of_the_clock(graph: Graph, store: Any) -> None:
    """The step wakes for it, though nothing comes; a row whose function returns nothing stays."""
    topic(store, "in", "fired")

    def fire(due: DataFrame, waiting: StateRows) -> dict[str, DataFrame]:
        return {"fired": due.selectExpr("cast(number as string) as payload")}

    state = keyed("waiting", "number", "number bigint", on_timer=fire)

    @graph.step("in", "fired", state=state)
    def wait(rows: DataFrame, waiting: StateRows) -> dict[str, DataFrame]:
        number = "cast(cast(payload as string) as bigint) as number"
        due = "if(payload = cast('3' as binary), null, time + interval 500 milliseconds) as _timer"
        return {"waiting": rows.selectExpr(number, due)}

    with graph.start() as run:
        store.put_many("in", [b"1", b"2", b"3"])
        eventually(lambda: len(store.browse("fired/check")) == 2, SECONDS)
        run.drain(timeout=SECONDS)
        assert run.status().steps["wait"].batches in (2, 3)
        store.put("in", b"4")  # the only one that there is
        eventually(lambda: len(store.browse("fired/check")) == 3, SECONDS)
    assert sorted(store.browse("fired/check").payloads()) == [b"1", b"2", b"4"]
    assert keys_in(store, "waiting") == {1, 2, 3, 4}


def test_a_timer_whose_function_fails_is_tried_again(
    graph: Graph, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the batch is there, and then all of it once."""
    topic(store, "ended")
    topic(store, "clicks", schema=CLICKS)
    sessions(graph, 100)
    commit, failures = StepRunner._commit, [2]

    def failing(self: StepRunner, batch: Any, number: int, result: Any, *more: Any) -> bool:
        if batch.inputs[0].due is not None and failures[0]:
            failures[0] -= 1
            raise RuntimeError("in vain")
        return commit(self, batch, number, result, *more)

    monkeypatch.setattr(StepRunner, "_commit", failing)
    store.put_many("clicks", [click("a", 100), click("b", 1000)])
    with graph.start() as run:
        run.drain(timeout=SECONDS)
    assert failures == [0]
    assert store.browse("ended/check").payloads() == [b"a 100 100 1"]
    assert keys_in(store, "open") == {"b"}


def test_what_timers_bring_is_too_much_for_the_driver(
    graph: Graph, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written by tasks then."""
    topic(store, "ended")
    topic(store, "clicks", schema=CLICKS)
    sessions(graph, 100)
    refused: list[int] = []
    here = StepWork._here

    def refuse(self: StepWork, outputs: Any, *more: Any) -> Any:
        if "ended" in outputs:
            refused.append(1)
            raise RuntimeError("results are bigger than spark.driver.maxResultSize (1.0 GiB)")
        return here(self, outputs, *more)

    monkeypatch.setattr(StepWork, "_here", refuse)
    store.put_many("clicks", [click("ada", 100), click("bob", 1000)])
    with graph.start() as run:
        run.drain(timeout=SECONDS)
    assert store.browse("ended/check").payloads() == [b"ada 100 100 1"]
    assert refused == [1]
    assert keys_in(store, "open") == {"bob"}


def test_timers_of_dead_letters_that_are_put_back(graph: Graph, store: Any) -> None:
    """The step looks after them, though nothing comes."""
    topic(store, "in", "fired")
    number = "cast(payload as bigint) as number"
    broken = [True]

    def fire(due: DataFrame, waiting: StateRows) -> dict[str, DataFrame]:
        return {"fired": due.selectExpr("cast(number as string) as payload")}

    state = keyed("waiting", "number", "number bigint", on_timer=fire)

    @graph.step("in", "fired", state=state, dead="bad")
    def wait(rows: DataFrame, waiting: StateRows) -> dict[str, DataFrame]:
        text = rows.selectExpr("cast(payload as string) as payload", "time as _timer")
        whole = f"if(payload = 'x', '{'y' if broken[0] else '7'}', payload) as payload"
        return {"waiting": text.selectExpr(whole, "_timer").selectExpr(number, "_timer")}

    with graph.start() as run:
        store.put_many("in", [b"1", b"x"])
        run.drain(timeout=SECONDS)
        eventually(lambda: len(store.browse("fired/check")) == 1, SECONDS)
        broken[0] = False
        assert run.replay("bad", "wait") == 1
        eventually(lambda: len(store.browse("fired/check")) == 2, SECONDS)
    assert sorted(store.browse("fired/check").payloads()) == [b"1", b"7"]


def test_event_time_of_messages_that_are_put_back(graph: Graph, store: Any) -> None:
    """A message that was a dead letter moves event time once it is put back."""
    topic(store, "ended")
    topic(store, "clicks", schema=CLICKS)
    broken = [True]

    def close(due: DataFrame, open: StateRows) -> dict[str, DataFrame]:
        return {"ended": due.selectExpr("user as payload")}

    state = keyed("open", "user", "user string", on_timer=close, event_time="at")

    @graph.step("clicks", "ended", state=state, dead="bad", poison_share=1.0)
    def gather(clicks: DataFrame, open: StateRows) -> dict[str, DataFrame]:
        bad = "user = 'bad'" if broken[0] else "false"
        user = f"if({bad}, string(raise_error('bad')), user) as user"
        return {"open": clicks.selectExpr(user, "at + interval 10 seconds as _timer")}

    with graph.start() as run:
        store.put_many("clicks", [click("ada", 5)])
        run.drain(timeout=SECONDS)
        store.put_many("clicks", [click("bad", 15)])
        run.drain(timeout=SECONDS)
        assert (store.queue("bad").messages, store.queue("ended").messages) == (1, 0)
    broken[0] = False
    with graph.start() as run:
        assert run.replay("bad", "gather") == 1
        eventually(lambda: store.browse("ended/check").payloads() == [b"ada"], SECONDS)
    assert event_times(store, "shop", "gather") == {"open": {"clicks": 15_000_000}}


def test_timers_that_are_refused(graph: Graph, store: Any) -> None:
    """When they are described, or before the graph starts."""

    def none(due: DataFrame, other: StateRows) -> None:
        """Nothing."""

    with pytest.raises(InvalidArgument, match="on_timer"):
        keyed("a", "id", "id bigint", event_time="time")
    with pytest.raises(InvalidArgument, match="delay"):
        keyed("a", "id", "id bigint", on_timer=none, event_time="time", delay="soon")
    with pytest.raises(InvalidArgument, match="give `event_time`, too"):
        keyed("a", "id", "id bigint", on_timer=none, delay="5 min")
    for delay in ("90 minutes", "5400s", timedelta(minutes=90), 5400):
        timed = keyed("a", "id", "id bigint", on_timer=none, event_time="time", delay=delay)
        assert timed.delay_us == 5_400_000_000
    with pytest.raises(InvalidArgument, match="_timer"):
        keyed("a", "id", "id bigint, _timer timestamp")
    graph.queue("in")
    with pytest.raises(InvalidArgument, match="rows that are due"):
        graph.step("in", state=keyed("a", "id", "id bigint", on_timer=lambda due: None), name="s")(
            lambda rows, a: None
        )

    @graph.step("in", state=keyed("plain", "id", "id bigint"))
    def early(rows: DataFrame, plain: StateRows) -> DataFrame:
        return rows.selectExpr("id", "time as _timer")

    with pytest.raises(InvalidArgument, match="on_timer"):
        graph.start()
