"""Rows that are due, in Spark: those that fail are dead letters, and are put back."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from quire.cli import main
from quire.messages.typed_message import row_of_payload
from quire.spark_graphs import Graph, StateRows, keyed
from quire.spark_graphs.graphs.failures.driver_plan import plan_in_driver
from quire.spark_graphs.graphs.steps import trials
from tests.kit.waiting import SECONDS, eventually
from tests.spark.numbered_queues import numbers_in, topic
from tests.spark.served_store import directory
from tests.spark.test_step_states import keys_in, tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.cases(2, of_file=True), pytest.mark.at_server]

ITEMS = "id bigint, text string, at timestamp"


def closing(graph: Graph, limit: int, broken: list[bool], *, in_python: bool) -> None:
    """A step that puts the text of a row as a number when event time is beyond the row's."""
    from pyspark.sql import functions as f

    checked = f.udf(lambda text: str(int(text)), "string")

    def close(due: DataFrame, open: StateRows) -> dict[str, DataFrame]:
        text = f.regexp_replace("text", "x", "y" if broken[0] else "")
        number = checked(text) if in_python else text.cast("bigint").cast("string")
        return {
            "closed": due.select(number.alias("payload")),
            "open": due.selectExpr("id", "true as _delete"),
        }

    graph.queue("items", schema=ITEMS)
    state = keyed("open", "id", "id bigint, text string", on_timer=close, event_time="at", delay=1)

    @graph.step("items", "closed", state=state, dead="bad", limit=limit, poison_share=1.0)
    def keep(items: DataFrame, open: StateRows) -> dict[str, DataFrame]:
        return {"open": items.selectExpr("id", "text", "at as _timer")}


def item(number: int, text: str, second: int) -> dict[str, Any]:
    """A row of the queue."""
    return {"id": number, "text": text, "at": datetime.fromtimestamp(second, UTC)}


@pytest.mark.parametrize(("by_tasks", "in_python"), [(False, False), (False, True), (True, False)])
def test_rows_that_fail_among_others(
    graph: Graph,
    store: Any,
    monkeypatch: pytest.MonkeyPatch,
    rng: random.Random,
    by_tasks: bool,
    in_python: bool,
) -> None:
    """All others have gone once, by a plan and without; with the function mended these go, too."""
    tasks(monkeypatch, by_tasks)
    topic(store, "closed")
    topic(store, "items", schema=ITEMS)
    broken = [True]
    closing(graph, 1000, broken, in_python=in_python)
    planned: list[bool] = []

    def plan(*arguments: Any) -> Any:
        found = plan_in_driver(*arguments)
        planned.append(found is not None)
        return found

    monkeypatch.setattr(trials, "plan_in_driver", plan)
    numbers = range(4 if by_tasks else 40)  # a trial by tasks takes a second
    bad = set(rng.sample(numbers, 1 if by_tasks else 3))
    rows = [item(n, f"x{n}" if n in bad else str(n), rng.randrange(100)) for n in numbers]
    with graph.start() as run:
        store.put_many("items", [*rows, item(99, "x99", 1000)])
        run.drain(timeout=3 * SECONDS)
        assert numbers_in(store, "closed") == Counter(set(numbers) - bad)
        assert keys_in(store, "open") == bad | {99}
        letters = list(store.browse("bad"))
        found = [row_of_payload(each.payload).to_pylist()[0] for each in letters]
        assert Counter(row["id"] for row in found) == Counter(bad)
        assert all(row["text"] == f"x{row['id']}" for row in found)
        for row, each in zip(found, letters, strict=True):
            time = rows[row["id"]]["at"].timestamp() * 1_000_000
            assert each.attributes["quire.timer"] == str(int(time))
            assert each.attributes["quire.state"] == "open"
            assert each.attributes["quire.step"] == "shop/keep"
        assert run.status().steps["keep"].dead_letters == len(bad)
        assert any(planned) is (not in_python and not by_tasks)
        broken[0] = False
        assert run.replay("bad", "keep") == len(bad)
        run.drain(timeout=SECONDS)
        eventually(lambda: numbers_in(store, "closed") == Counter(numbers), SECONDS)
        run.drain(timeout=SECONDS)
    assert numbers_in(store, "closed") == Counter(numbers)
    assert keys_in(store, "open") == {99}
    assert store.queue("bad").messages == 0


def test_commands_for_rows_that_fail(
    graph: Graph, store: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """They show the letters, have them put back through the step, and leave them where they are."""
    topic(store, "closed")
    topic(store, "items", schema=ITEMS)
    broken = [True]
    closing(graph, 100, broken, in_python=False)

    def quire(*words: str) -> str:
        capsys.readouterr()
        assert main([*words]) in (0, 3)
        return capsys.readouterr().out

    path = directory(store)
    store.put_many("items", [item(1, "x1", 10), item(2, "2", 10), item(3, "3", 1000)])
    with graph.start() as run:
        run.drain(timeout=SECONDS)
        assert "1 dead letters" in quire("graph", "show", path, "shop")
        assert "quire.state" in quire("browse", path, "bad", "--json")
        quire("redrive", path, "bad")
        assert store.queue("bad").messages == 1
        broken[0] = False
        quire("graph", "replay", path, "shop", "keep")
        eventually(lambda: numbers_in(store, "closed") == Counter([1, 2]), SECONDS)
    assert store.queue("bad").messages == 0
