"""Who listens under a name, over power failures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import new_machine, open_store

RED = "colour = 'red'"


@pytest.fixture(autouse=True)
def _indexed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with many messages: few that are new would be looked at."""
    monkeypatch.setattr("quire.engine.finding.attribute_index.LATE_INDEXED", 0)


# Who hears ---------------------------------------------------------------------------------------


@dataclass
class HeardSoFar:
    """What was acknowledged, and what was told."""

    put: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    is_there: bool = False  # the registration
    told: dict[str, list[int]] = field(default_factory=lambda: {"puts": [], "removals": []})


LISTENERS: dict[str, dict[str, Any]] = {
    "puts": {"source": "found", "where": RED},
    "removals": {"source": "found", "on": "removal"},
}


def listen(store: Store, heard: HeardSoFar) -> None:
    """Tell what there is to the listeners with a name."""
    for name, asked in LISTENERS.items():
        with store.listeners.add(name=name, **asked) as listener:
            while (notice := listener.get(0)) is not None:
                assert not notice.missed
                heard.told[name] += notice.ids


def put(store: Store, heard: HeardSoFar, n: int) -> None:
    """A red one and a blue one."""
    with store.transaction() as txn:
        puts = [txn.put("found", b"%d" % n, attributes={"colour": c}) for c in ("red", "blue")]
    heard.put += map(int, puts)


def listened(env: SimEnv, heard: HeardSoFar) -> None:
    """Two of each, a checkpoint between them, and one of the first is removed."""
    store = open_store(env)
    for name, asked in LISTENERS.items():
        store.listeners.add(name=name, **asked).close()
    put(store, heard, 0)  # which is synced, and so what was before is
    heard.is_there = True
    listen(store, heard)
    with store.transaction() as txn:
        assert txn.remove("found", heard.put[1])
    heard.removed.append(heard.put[1])
    listen(store, heard)
    store.admin.checkpoint()
    put(store, heard, 1)
    listen(store, heard)
    store.close()


@pytest.mark.crash
@pytest.mark.promise(1, 14)
def test_promise_1_14_power_failure_while_somebody_listens(seed: int, spread: int) -> None:
    """What was told was committed, what was not told is told after it; a backlog is told anew."""
    base = new_machine(seed)
    with open_store(base) as store:
        store.create_queue("found", indexed=["colour"])

    def check(env: SimEnv, heard: HeardSoFar) -> None:
        with open_store(env) as store:
            left = list(store.browse("found"))
            ids = [each.id for each in left]
            reds = [each.id for each in left if each.attributes["colour"] == "red"]
            assert set(heard.put) - set(ids) <= {*heard.put[1:2]}
            assert set(heard.told["puts"]) <= {*ids, *heard.put}
            assert heard.is_there <= (len(store.listeners.list()) == 2)
            names = {each.name for each in store.listeners.list()}
            now = HeardSoFar()
            before = heard.told["puts"]
            with store.listeners.add(name="puts", **LISTENERS["puts"]) as listener:
                while (notice := listener.get(0)) is not None:
                    now.told["puts"] += notice.ids
            assert set(reds) - set(before) <= set(now.told["puts"]) <= set(reds)
            assert len(set(now.told["puts"])) == len(now.told["puts"])
            missed = 0
            with store.listeners.add(name="removals", **LISTENERS["removals"]) as listener:
                while (notice := listener.get(0)) is not None:
                    assert notice.missed is not None
                    missed += notice.missed  # the owner that knew them is gone
                    now.told["removals"] += notice.ids
            gone = {*heard.put[1:2]} - set(ids)
            assert now.told["removals"] == []
            if "removals" in names and not heard.told["removals"]:
                assert missed == len(gone)
            with store.listeners.add("found") as listener:
                backlog = listener.get(0)
                assert ([] if backlog is None else backlog.ids) == ids
                late = store.put("found", b"late", attributes={"colour": "red"})
                following = listener.get(0)
                assert following is not None
                assert following.ids == [late]
            assert store.admin.verify().ok

    assert enumerate_crashes(
        listened, check, HeardSoFar, seed=seed, rounds=1, every=(spread + 1) // 2,  # few calls
        new_env=lambda _: base.kill(),
    ) > 20  # fmt: skip
