"""What is found by what it is, and who hears of it under a name, over power failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from quire import Template
from quire.engine import EmbeddedStore as Store
from quire.interface.transaction import Transaction
from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import all_of, new_machine, open_store

Step = Callable[[Store], object]
RED = "colour = 'red'"


@pytest.fixture(autouse=True)
def _indexed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with many messages: few that are new would be looked at."""
    monkeypatch.setattr("quire.engine.finding.attribute_index.LATE_INDEXED", 0)


# What is found, removed and held -----------------------------------------------------------------


def make(store: Store) -> None:
    """All queues, with one commit."""
    store.admin.create_queues(
        [
            {"name": "found", "kind": "work", "indexed": ["colour"]},
            {"name": "asked", "kind": "topic"},
            {"name": "out", "kind": "work"},
        ]
    )


def subscribe(store: Store) -> None:
    """With one commit."""
    store.subscribe("asked", "red", where=RED)


def fill(store: Store) -> None:
    """Red ones and blue ones, by turns, some of which go to the data file."""
    with store.transaction() as txn:
        for n in range(8):
            pairs = {"colour": "blue" if n % 2 else "red", "n": str(n)}
            for name in ("found", "asked"):
                txn.put(name, b"%d" % n * (1 + n % 3 * 2000), attributes=pairs)


def key_of(store: Store, source: str, n: int) -> int:
    """The id of a message by its number."""
    with store.transaction() as txn:
        [described] = txn.describe(source, where=f"n = '{n}'")
    return described.id


def take_by_id(store: Store) -> None:
    """One out of the midst, and its payload goes on."""
    key = key_of(store, "found", 3)
    with store.transaction() as txn:
        found = txn.get("found", id=key)
        assert found is not None
        txn.put("out", found.payload[:1])


def remove(txn: Transaction, store: Store, n: int) -> None:
    """One of the queue by its id, and one of the subscription."""
    assert txn.remove("found", key_of(store, "found", n))
    assert txn.remove("asked/red", key_of(store, "asked/red", n))


def remove_two(store: Store) -> None:
    """With a transaction that also puts."""
    with store.transaction() as txn:
        remove(txn, store, 4)
        txn.put("out", b"removed")


def prepare_a_removal(store: Store) -> None:
    """What is removed stays until that is decided."""
    with store.transaction() as txn:
        remove(txn, store, 6)
        assert txn.get("found", where=RED) is not None
        txn.prepare("x")


def remove_and_regret(store: Store) -> None:
    """Nothing of it has happened."""
    with store.transaction() as txn:
        remove(txn, store, 2)
        txn.rollback()


def hold(store: Store) -> None:
    """What was held stays, and is not delivered once more."""
    key = key_of(store, "found", 5)
    with store.transaction() as txn:
        assert txn.read("found", id=key, hold=True) is not None
        assert txn.read("found", where=RED, hold=True) is not None
        txn.put("out", b"held")


def take_by_condition(store: Store) -> None:
    """By an index, and by a selector of a subscription with one."""
    with store.transaction() as txn:
        blue = txn.get("found", where=Template(attributes={"colour": "blue"}))
        assert blue is not None
        assert txn.get("asked/red", where="n >= 2") is not None
        txn.put("out", b"blue")


STEPS: list[Step] = [
    make,
    subscribe,
    fill,
    take_by_id,
    remove_two,
    lambda store: store._maintenance.step(),
    hold,
    prepare_a_removal,
    lambda store: store.admin.checkpoint(),
    remove_and_regret,
    lambda store: store.prepared.commit("x"),
    take_by_condition,
    lambda store: store.admin.checkpoint(),
    hold,
]


def view(store: Store) -> dict[str, Any]:
    """What is there and may be got, what of it was delivered, and what a selector asks for."""
    store._maintenance.step()  # what it does not ask for is read by then, if it was not
    names = [info.name for info in store.queues() if info.kind == "work"]
    queues: dict[str, Any] = {name: store.browse(name).payloads() for name in names}
    if "asked" in {info.name for info in store.queues()}:
        queues["asked"] = store.queue("asked").messages
        for each in store.subscriptions("asked"):
            queues[each.name] = each.where, each.pending, store.browse("asked/red").payloads()
    for name in names:
        with store.transaction() as txn:
            got = txn.get_many(name)
            queues[name] += [(each.payload[:1], each.delivery_count) for each in got]
            txn.rollback()
    return {"prepared": [info.xid for info in store.prepared.list()], **queues}


def views() -> list[dict[str, Any]]:
    """Before the first step, and after each."""
    seen = []
    for number in range(len(STEPS) + 1):  # anew, as a look counts as a delivery
        with open_store(new_machine(0)) as store:
            for step in STEPS[:number]:
                step(store)
            seen.append(view(store))
    assert seen[-1]["found"][3:] == [(b"2", 1), (b"5", 1), (b"7", 1)]
    return seen


@pytest.mark.crash
@pytest.mark.promise(1, 2, 7)
def test_promise_1_2_7_power_failure_while_messages_are_found(seed: int, spread: int) -> None:
    """Removed, taken and held by id and by conditions: each step is whole, or not there."""
    expected = views()

    def check(env: SimEnv, done: list[int]) -> None:
        if not env.exists("/disk"):
            env.make_directory("/disk")
        with open_store(env) as store:
            assert view(store) in expected[len(done) : len(done) + 2]
            assert store.admin.verify().ok

    assert enumerate_crashes(all_of(STEPS), check, list, seed=seed, rounds=1, every=spread) > 20


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
        listened, check, HeardSoFar, seed=seed, rounds=1, every=spread,
        new_env=lambda _: base.kill(),
    ) > 20  # fmt: skip
