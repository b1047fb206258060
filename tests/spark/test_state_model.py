"""Steps that remember, beside a model of them: dedup, counts, sums, sessions, a joined table."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from quire.spark_graphs import Graph, StateRows, keyed
from quire.spark_graphs.graphs.functions import step_function
from tests.kit.waiting import SECONDS
from tests.spark.numbered_queues import topic
from tests.spark.test_step_states import keys_in, rows_in
from tests.spark.test_step_timers import DELAY, GAP, Sessions, sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.at_server]

EVENTS = "id bigint, user string, amount bigint, at timestamp"
NAMES = "user string, name string"
SEEN = keyed("seen", "id", "id bigint")
COUNTS = keyed("counts", "user", "user string, events bigint")
SUMS = keyed("sums", "user", "user string, total bigint")
TABLE = keyed("names", "user", NAMES)
USERS = 40
Event = tuple[int, str, int, int]  # id, user, amount, second


def pipeline(graph: Graph, limit: int) -> None:
    """events -> unique -> clicks, totals and bills; names -> a table."""
    from pyspark.sql import functions as f

    graph.queue("events", schema=EVENTS)
    graph.queue("unique", schema=EVENTS)
    graph.queue("changes", schema=NAMES)
    sessions(graph, limit)

    @graph.step("events", ["unique", "clicks"], state=SEEN, limit=limit)
    def dedup(events: DataFrame, seen: StateRows) -> dict[str, DataFrame]:
        once = events.dropDuplicates(["id"]).drop("_meta")
        new = once.join(seen.rows(once), "id", "left_anti")
        return {"unique": new, "clicks": new.select("user", "at"), "seen": new.select("id")}

    @graph.step("unique", state=[COUNTS, SUMS], limit=limit)
    def totals(events: DataFrame, counts: StateRows, sums: StateRows) -> dict[str, DataFrame]:
        own = events.groupBy("user").agg(f.count("*").alias("n"), f.sum("amount").alias("a"))
        both = own.join(counts.rows(own), "user", "left").join(sums.rows(own), "user", "left")
        return {
            "counts": both.selectExpr("user", "n + coalesce(events, 0L) as events"),
            "sums": both.selectExpr("user", "a + coalesce(total, 0L) as total"),
        }

    @graph.step("changes", state=TABLE)
    def known(changes: DataFrame, names: StateRows) -> DataFrame:
        return changes.select("user", "name")

    @graph.step("unique", "bills", tables=TABLE, limit=limit)
    def bill(events: DataFrame, names: StateRows) -> DataFrame:
        joined = events.join(names.rows(events), "user", "left")
        return joined.selectExpr("concat(id, ' ', coalesce(name, 'nobody')) as payload")


class Model:
    """What the steps make of the events, in Python."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.counts: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        self.names: dict[str, str] = {}
        self.bills: Counter[bytes] = Counter()
        self.sessions = Sessions()

    def add(self, events: list[Event]) -> None:
        """A round of events, of which each counts the first time."""
        new = []
        for id, user, amount, second in events:
            if id not in self.seen:
                self.seen.add(id)
                new.append((user, second))
                self.counts[user] += 1
                self.sums[user] += amount
                self.bills[b"%d %s" % (id, self.names.get(user, "nobody").encode())] += 1
        self.sessions.batch(new)


def compare(store: Any, rng: random.Random, rounds: int, size: int, graph: Graph) -> None:
    """Put so many rounds of events, late and repeated ones among them; then look at all."""
    model, now, before, number = Model(), 10_000, list[Event](), 0
    with graph.start() as run:
        for _ in range(rounds):
            changed = {f"u{rng.randrange(USERS)}": f"n{rng.randrange(1000)}" for _ in range(3)}
            store.put_many("changes", [{"user": u, "name": n} for u, n in changed.items()])
            run.drain(timeout=20 * SECONDS)
            model.names |= changed
            events: list[Event] = []
            for _ in range(size):
                now += rng.random() < 40 / size
                second = now - rng.choice([0, 0, 0, DELAY, 2 * GAP])
                events.append((number, f"u{rng.randrange(USERS)}", rng.randrange(100), second))
                number += 1
            events += rng.sample(before, min(len(before), size // 10))
            events += rng.sample(events, size // 10)
            rng.shuffle(events)
            rows = [
                {"id": id, "user": user, "amount": a, "at": datetime.fromtimestamp(s, UTC)}
                for id, user, a, s in dict.fromkeys(events)
            ]
            with store.transaction() as txn:
                txn.put_many("events", rows)
                txn.put_many("events", rows[: size // 10])
            run.drain(timeout=20 * SECONDS)
            model.add(events)
            before = events
    assert keys_in(store, "seen") == model.seen
    assert rows_in(store, "counts") == model.counts
    assert rows_in(store, "sums") == model.sums
    assert rows_in(store, "names") == model.names
    ended = store.browse("ended/check", max_messages=1_000_000).payloads()
    assert Counter(ended) == model.sessions.ended
    assert keys_in(store, "open") == model.sessions.open.keys()
    bills = store.browse("bills/check", max_messages=1_000_000).payloads()
    assert Counter(bills) == model.bills


def queues(store: Any) -> None:
    """What the graph reads, and what is looked at in the end."""
    topic(store, "ended", "bills")
    topic(store, "changes", schema=NAMES)
    store.create_queue("events", kind="topic", schema=EVENTS)
    store.create_queue("unique", kind="topic", schema=EVENTS)


@pytest.mark.cases(2)
@pytest.mark.parametrize("by_tasks", [False, True])
def test_a_few_thousand_events(
    graph: Graph, store: Any, rng: random.Random, monkeypatch: pytest.MonkeyPatch, by_tasks: bool
) -> None:
    """In the driver, and by tasks."""
    if by_tasks:
        monkeypatch.setattr(step_function, "LOCAL_BYTES", 0)
    queues(store)
    pipeline(graph, 100_000)
    rounds, size = (2, 200) if by_tasks else (4, 500)
    compare(store, rng, rounds, size, graph)


@pytest.mark.long
def test_half_a_million_events(graph: Graph, store: Any, rng: random.Random) -> None:
    """Batches by tasks, each of some megabytes."""
    queues(store)
    pipeline(graph, 100_000)
    compare(store, rng, 25, 20_000, graph)
