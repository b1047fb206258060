"""The programs of docs/state.md do what the page says."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quire import keyed as states
from quire.spark_graphs import Graph, connection, keyed
from tests.kit.waiting import SECONDS, eventually
from tests.source_tree import ROOT
from tests.spark.numbered_queues import topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_states_of_the_page_may_be_described() -> None:
    """Each `keyed(...)` that stands there."""
    page = (ROOT / "docs" / "state.md").read_text()
    lines = re.findall(r"^\w+ = keyed\(.*$", page, re.MULTILINE)
    assert len(lines) == 4
    exec("\n".join(lines), {"keyed": keyed, "remind": lambda due, waiting: None})


@pytest.mark.spark
def test_the_program_of_the_page(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is run as it stands there, in the session of the tests; the step has twenty lines."""
    page = (ROOT / "docs" / "state.md").read_text()
    block = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    printed = re.search(r"^It prints `(.*?)`\.$", page, re.MULTILINE)
    assert block is not None
    assert printed is not None
    monkeypatch.chdir(tmp_path)
    exec(block[1], {})
    connection.forget("shop.quire")
    assert capsys.readouterr().out.strip() == printed[1]
    assert len(block[1].partition("\nwith g.start()")[0].splitlines()) <= 20


@pytest.mark.spark
def test_an_order_that_is_not_paid(graph: Graph, store: Any) -> None:
    """As the page has it: paid in the same batch, later, and not at all."""
    page = (ROOT / "docs" / "state.md").read_text()
    block = re.search(r"^```python\n(def remind.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert block is not None
    for queue in ("orders", "payments"):
        graph.queue(queue, schema="order_id string, at timestamp")
    exec(block[1], {"g": graph, "keyed": keyed})
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def put(queue: str, *orders: str, minute: int) -> None:
        at = moment + timedelta(minutes=minute)
        store.put_many(queue, [{"order_id": order, "at": at} for order in orders])

    topic(store, "reminders")
    with graph.start() as run:
        put("orders", "a", "b", "c", minute=0)
        put("payments", "a", minute=1)
        run.drain(timeout=SECONDS)
        put("payments", "b", minute=29)
        put("orders", "d", minute=29)
        run.drain(timeout=SECONDS)
        assert store.browse("reminders/check").payloads() == []
        put("payments", "none", minute=30)
        put("orders", "e", minute=31)
        run.drain(timeout=SECONDS)
        eventually(lambda: store.browse("reminders/check").payloads() == [b"c"])
    rows = states.open_state(store, "waiting").rows()
    assert sorted(row["order_id"] for batch in rows for row in batch.to_pylist()) == ["d", "e"]
