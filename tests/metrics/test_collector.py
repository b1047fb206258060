"""The metrics of a store: what they say is what the store says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import quire
from quire.engine import EmbeddedStore as Store
from quire.errors import InvalidArgument
from quire.metrics import ALERT_RULES, collector, folding
from quire.metrics.families import COUNTER, FAMILIES, HISTOGRAMS
from quire.metrics.folding import OTHER, folded
from quire.opening import open as open_store
from tests.behaviour.forms import AnyStore
from tests.metrics.scraping import collected, number
from tests.source_tree import ROOT

FORMS_WITH_STATUS = ["embedded", "joined", "elected", "network"]


@pytest.mark.parametrize("store", FORMS_WITH_STATUS, indirect=True)
def test_states_of_messages(store: AnyStore) -> None:
    """Every message that is not read is in one state; joined stores tell the same."""
    store.create_queue("orders", kind="work")
    store.create_queue("news", kind="topic")
    store.subscribe("news", "a")
    store.subscribe("news", "b")
    for payload in (b"1", b"2", b"3", b"4", b"5"):
        store.put("orders", payload)
        store.put("news", payload)
    store.get("orders")
    store.get("news/a")
    with store.transaction() as txn:
        txn.get("orders")
        found = collected(collector(store))
        assert number(found, "quire_up") == 1
        assert number(found, "quire_transactions", state="open") == 1
        states = {
            state: number(found, "quire_queue_messages", queue="orders", state=state)
            for state in ("waiting", "in_flight", "delayed", "spent")
        }
        assert states == {"waiting": 3, "in_flight": 1, "delayed": 0, "spent": 0}
        txn.rollback()
    found = collected(collector(store))
    assert number(found, "quire_queue_put_messages_total", queue="orders") == 5
    assert number(found, "quire_queue_read_messages_total", queue="orders") == 1
    assert number(found, "quire_queue_messages", queue="news", state="kept") == 5
    waiting = {
        name: number(
            found, "quire_subscription_messages", queue="news", subscription=name, state="waiting"
        )
        for name in ("a", "b")
    }
    assert waiting == {"a": 4, "b": 5}
    read = number(found, "quire_subscription_read_messages_total", queue="news", subscription="a")
    assert read == 1
    assert number(found, "quire_queue_used_bytes", queue="orders") > 0


def test_histograms(store_path: str) -> None:
    """Groups always; times with the option alone. Each count is in one bucket."""
    with open_store(store_path, share=False) as store:
        store.create_queue("q", kind="work")
        found = collected(collector(store))
        assert ("quire_commit_seconds_count", ()) not in found
        commits = store.status()["commits"]
        assert number(found, "quire_group_commits_count") == commits
        assert number(found, "quire_group_commits_bucket", le="1") == commits
    with open_store(store_path, share=False, timings=True) as store:
        for _ in range(100):
            store.put("q", b"x")
        store.put("q", b"x", durable=False)
        store.sync()
        found = collected(collector(store))
        for name in ("quire_commit_seconds", "quire_sync_seconds"):
            assert number(found, f"{name}_count") >= 6
            assert number(found, f"{name}_bucket", le="+Inf") == number(found, f"{name}_count")
            assert number(found, f"{name}_sum") > 0


def test_labels_are_bounded(store_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond the bound is one, and nothing is lost: sums are as before."""
    with open_store(store_path, share=False) as store:
        store.create_queue("late", kind="topic")
        for n in range(9):
            store.create_queue(f"q{9 - n}", kind="work", capacity=1 << 20)
            store.put(f"q{9 - n}", b"x" * n)
        for n in range(6):
            store.subscribe("late", f"s{n}")
        whole = folded(store.status())
        monkeypatch.setattr(folding, "LABELED_QUEUES", 4)
        monkeypatch.setattr(folding, "LABELED_SUBSCRIPTIONS", 2)
        part = folded(store.status())
        found = collected(collector(store))
        assert [queue["queue"] for queue in part["queues"]] == ["late", "q9", "q8", "q7", OTHER]
        assert len(part["subscriptions"]) == 3
        for name in ("used_bytes", "capacity_bytes", "put_messages"):
            assert sum(q[name] for q in part["queues"]) == sum(q[name] for q in whole["queues"])
        assert number(found, "quire_folded", label="queue") == 6
        assert number(found, "quire_folded", label="subscription") == 4
        assert number(found, "quire_queue_messages", queue=OTHER, state="waiting") == 6


def test_ten_thousand_queues(store_path: str) -> None:
    """A scrape has no more series for them, and no name twice."""
    status: dict[str, Any]
    with open_store(store_path, share=False) as store:
        store.create_queue("q", kind="work")
        status = store.status()
    queue, reader = status["queues"][0], status["subscriptions"][0]
    names = [f"q{n}" for n in range(10_000)]
    status["queues"] = [queue | {"name": name, "id": n} for n, name in enumerate(names)]
    status["subscriptions"] = [reader | {"queue": name} for name in names]

    class Many:
        role = "owner"

        def status(self) -> dict[str, Any]:
            return status

    found = collected(collector(Many()))
    assert len(found) < 6000
    assert number(found, "quire_folded", label="queue") == 9500


def test_a_store_that_cannot_tell(store_path: str) -> None:
    """A closed one is down, and no scrape raises; what is no store is refused."""
    with open_store(store_path) as store:
        made = collector(store)
        assert number(collected(made), "quire_up") == 1
    assert collected(made) == {("quire_up", ()): 0}
    with pytest.raises(InvalidArgument, match="give an open store"):
        collector("shop.quire")  # type: ignore[arg-type]


def test_a_failed_store_tells(store_path: str) -> None:
    """Reads go on, and so do scrapes."""
    with open_store(store_path, share=False) as store:
        assert isinstance(store, Store)
        store.create_queue("q", kind="work")
        store._context.sequencer.fail(OSError("the disk is gone"))
        found = collected(collector(store))
        assert (number(found, "quire_up"), number(found, "quire_failed")) == (1, 1)


def test_a_user_without_admin_tells_of_limits_alone(store_path: str) -> None:
    """What such a user's status has; nothing else is missed."""
    use = {"used": 1, "limit": None, "refused": 2}

    class OfUser:
        role = "joined"

        def status(self) -> dict[str, Any]:
            return {"sharing": {"limits": {"users": {"anna": {"connections": use}}}}}

    found = collected(collector(OfUser()))
    assert number(found, "quire_user_limit_used", user="anna", limit="connections") == 1
    assert number(found, "quire_user_limit_refused_total", user="anna", limit="connections") == 2
    assert ("quire_user_limit", (("limit", "connections"), ("user", "anna"))) not in found


def test_names_are_as_prometheus_has_them() -> None:
    """Prefix, unit, `_total` of counters; each with its help, and on the page."""
    page = (ROOT / "docs" / "operations.md").read_text()
    names = [family.name for family in (*FAMILIES, *HISTOGRAMS)]
    assert len(set(names)) == len(names)
    for family in FAMILIES:
        assert re.fullmatch(r"quire_[a-z_]+", family.name)
        assert family.name.endswith("_total") == (family.kind == COUNTER), family.name
        for unit in ("bytes", "seconds"):
            if unit in family.name:
                assert family.name.removesuffix("_total").endswith(unit), family.name
    for row in (*FAMILIES, *HISTOGRAMS):
        assert len(row.help) > 10
        assert f"`{row.name}`" in page, row.name


def test_alert_rules_are_of_metrics_that_there_are() -> None:
    """Each rule names some, and is on the page, with what to do."""
    rules = Path(ALERT_RULES).read_text()
    page = (ROOT / "docs" / "operations.md").read_text()
    names = {family.name for family in FAMILIES} | {"quire_up"}
    expressions = re.findall(r"expr: (?:>\n)?(.*?)\n +(?:for|labels):", rules, re.DOTALL)
    alerts = re.findall(r"- alert: (\w+)", rules)
    assert len(expressions) == len(alerts) == len(set(alerts)) > 10
    for expression in expressions:
        found = set(re.findall(r"quire_\w+", expression))
        assert found
        assert found <= names, expression
    for alert in alerts:
        assert f"`{alert}`" in page


def test_promtool_finds_nothing_wrong(store_path: str) -> None:
    """`promtool check metrics` on what a store says."""
    promtool = which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    with open_store(store_path, timings=True) as store:
        store.create_queue("q", kind="work")
        registry = CollectorRegistry()
        registry.register(collector(store))
        text = generate_latest(registry)
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_without_prometheus_client(store_path: str) -> None:
    """The error says what to install; nothing of Quire has loaded it before."""
    lines = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "import quire\n"
        f"with quire.open({store_path!r}) as store:\n"
        "    import quire.metrics\n"
        "    try:\n        quire.metrics.collector(store)\n"
        "    except quire.InvalidArgument as error:\n        print(error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", lines], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "pip install 'quire-mq[metrics]'" in told.stdout
    assert quire.__version__
