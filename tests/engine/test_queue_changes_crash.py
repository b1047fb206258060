"""Purges, renames, aliases, moves, the store's switch: whole or not at all, after any failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from quire import dump
from quire.engine import EmbeddedStore as Store
from quire.engine.state.catalog import ALIAS, STORE, TYPES
from quire.errors import DiskFull, InvalidArgument, NobodyReads, QueueExists, QueueFull
from quire.file_dump.items import as_json
from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import PATH, all_of, new_machine, open_store
from tests.kit.limits import Limits

Step = Callable[[Store], object]


def move(store: Store, source: str, queue: str) -> None:
    """Two messages, and one more that is put."""
    with store.transaction() as txn:
        txn.move(source, queue, 2)
        txn.put(queue, b"beside")


def kept(store: Store) -> None:
    """Messages, and some that all have read."""
    store.subscribe("kept", "a")
    with store.transaction() as txn:
        for queue in ("work", "kept"):
            txn.put_many(queue, [b"%d" % number for number in range(7)])
    with store.transaction() as txn:
        txn.get_many("kept/a", 4)


def held(store: Store) -> None:
    """A large message, so that a file of a large transaction is the queue's."""
    store.subscribe("topic", "a")
    with store.transaction(large=True) as txn:
        txn.put_many("topic", [b"x" * 9000] * 2)


STEPS: list[Step] = [
    lambda store: store.admin.create_queues(
        [
            {"name": "dead", "kind": "work"},
            {"name": "work", "kind": "work", "dead_letter": "dead", "max_deliveries": 3},
            {"name": "topic", "kind": "topic"},
            {"name": "kept", "kind": "topic", "keep_forever": True},
        ]
    ),
    kept,
    held,
    lambda store: store.admin.create_alias("w", "work"),
    lambda store: store.admin.rename_queue("dead", "letters"),
    lambda store: move(store, "w", "letters"),
    lambda store: store.admin.checkpoint(),
    lambda store: store.admin.rename_queue("topic", "news"),
    lambda store: store.admin.create_alias("dead", "letters"),
    lambda store: store.admin.purge("news"),
    lambda store: store.admin.create_alias("w", "letters", replace=True),
    lambda store: store.admin.switch(puts=False, gets=False),
    lambda store: store.admin.purge("work"),
    lambda store: store.admin.drop_alias("dead"),
    lambda store: store.admin.switch(gets=True),
    lambda store: store.admin.checkpoint(),
    lambda store: store.admin.switch(puts=True, gets=True),
    lambda store: store.admin.rename_queue("letters", "dead"),
    lambda store: store.admin.purge("kept"),
]


def view(store: Store) -> dict[str, Any]:
    """What is to be seen of all that."""
    shown: dict[str, Any] = {
        info.name: (info.id, store.browse(info.name).payloads(), info.dead_letter)
        for info in store.queues()
    }
    report = store.admin.verify()
    assert report.ok, report.findings
    return {**shown, "aliases": store.admin.aliases(), "switch": store.admin.switch()}


def views(limits: Limits) -> list[dict[str, Any]]:
    """Before the first step, and after each."""
    limits(PURGED_AT_ONCE=3)
    with open_store(new_machine(0)) as store:
        seen = [view(store)]
        for step in STEPS:
            step(store)
            seen.append(view(store))
    return seen


def is_between(found: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> bool:
    """A purge takes several commits: what it has removed so far came first."""
    if found.keys() != before.keys() or before.keys() != after.keys():
        return False
    for name, now in found.items():
        if now == before[name]:
            continue
        if name in ("aliases", "switch") or after[name][1]:
            return False
        payloads = now[1]
        if payloads != before[name][1][len(before[name][1]) - len(payloads) :]:
            return False
    return True


run = all_of(STEPS)


def test_each_is_whole_after_a_power_failure(seed: int, limits: Limits) -> None:
    """At every call of the engine; and the store goes on from there."""
    seen = views(limits)
    assert len({str(each) for each in seen}) == len(seen) - 2  # two are checkpoints

    def check(env: SimEnv, done: list[int]) -> None:
        if not env.exists("/disk"):
            env.make_directory("/disk")
        with open_store(env) as store:
            found, at = view(store), len(done)
            allowed = seen[at : at + 2]
            is_purge = at in (9, 12, 18)
            assert found in allowed or (is_purge and is_between(found, *allowed)), (found, at)
            store.admin.switch(puts=True, gets=True)
            store.create_queue("more", kind="work")
            store.admin.create_alias("one-more", "more")
            store.put("one-more", b"m")
            assert store.admin.purge("more") == 1
        with open_store(env) as store:
            assert store.admin.aliases()["one-more"] == "more"

    assert enumerate_crashes(run, check, list, seed=seed, rounds=1, every=3) > 100


def test_a_kill_loses_none_of_them(limits: Limits) -> None:
    """A kill after any step loses none of them."""
    seen = views(limits)
    env = new_machine(1)
    for number, step in enumerate(STEPS):
        store = open_store(env)
        step(store)
        env = env.kill()
        store = open_store(env)
        assert view(store) == seen[number + 1]
        env = env.kill()


def test_a_dump_shows_them() -> None:
    """From the journal alone, and from a checkpoint."""
    env = new_machine(2)
    store = open_store(env)
    store.create_queue("q", kind="work")
    store.admin.create_alias("a", "q")
    store.admin.rename_queue("q", "r")
    env = env.kill()
    names = {as_json(item).get("name") for item in dump(PATH, env=env)}
    assert "r" in names
    assert "q" not in names
    with open_store(env) as store:
        store.admin.checkpoint()
    names = {as_json(item).get("name") for item in dump(PATH, env=env)}
    assert "r" in names


def test_names_of_one_record() -> None:
    """A queue that takes dead letters of others: they name it anew, or nothing is renamed."""
    with open_store(new_machine(3)) as store:
        store.create_queue("dead", kind="topic")
        store.admin.create_queues(
            [{"name": f"q{n}", "max_deliveries": 2, "dead_letter": "dead"} for n in range(50)]
        )
        store.admin.rename_queue("dead", "letters")
        assert {store.queue(f"q{n}").dead_letter for n in range(50)} == {"letters"}
        versions = {item.key: item.version for item in store.admin.catalog("queue")}
        assert set(versions.values()) == {2}
        with pytest.raises(QueueExists):
            store.admin.rename_queue("letters", "q1")


@pytest.mark.promise(9)
def test_aliases_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of their own; one that is dropped makes room."""
    monkeypatch.setitem(TYPES, ALIAS, replace(TYPES[ALIAS], most=2))
    with open_store(new_machine(4)) as store:
        store.create_queue("q", kind="topic")
        store.admin.create_alias("a", "q")
        store.admin.create_alias("b", "q")
        with pytest.raises(InvalidArgument, match="at most 2"):
            store.admin.create_alias("c", "q")
        store.admin.drop_alias("a")
        store.admin.create_alias("c", "q")
        numbers = [item.key for item in store.admin.catalog("alias")]
        store.admin.drop_alias("c")
        store.admin.create_alias("c", "q")
        assert numbers != [item.key for item in store.admin.catalog("alias")]  # none comes twice
        assert [item.type for item in store.admin.catalog(STORE)] == []


def fill(store: Store) -> None:
    """Until the disk has no room."""
    while True:
        for queue in ("work", "topic"):
            store.put(queue, b"x" * 5000)


def test_a_full_disk_is_purged(seed: int) -> None:
    """A queue, and a topic that nobody reads; and the store is stopped no more."""
    env = new_machine(seed)
    with open_store(env) as store:
        store.create_queue("work", kind="work")
        store.create_queue("topic", kind="topic")
        store.admin.switch(puts=False)
        store.admin.switch(puts=True, gets=True)
        env.capacity_bytes = env.used_bytes() + 200_000
        with pytest.warns(NobodyReads), pytest.raises((DiskFull, QueueFull)):
            fill(store)
        counts = [store.queue(queue).messages for queue in ("work", "topic")]
        assert [store.admin.purge(queue) for queue in ("work", "topic")] == counts
        assert min(counts) > 0
        store.admin.checkpoint()
        store.put("work", b"m")
    with open_store(env) as store:
        assert store.browse("work").payloads() == [b"m"]
        assert store.queue("topic").messages == 0


def test_a_purge_in_steps(limits: Limits) -> None:
    """Each message counts once, whoever waits for it; what is prepared stays."""
    limits(PURGED_AT_ONCE=5)
    with open_store(new_machine(5)) as store:
        store.create_queue("t", kind="topic")
        for name in ("a", "b", "c"):
            store.subscribe("t", name)
        store.put_many("t", [b"%d" % n for n in range(20)])
        prepared = store.transaction()
        assert len(prepared.get_many("t/a", 2)) == 2
        prepared.put("t", b"prepared")
        prepared.prepare("x")
        with store.transaction() as txn:
            txn.get_many("t/b", 10)
        assert store.admin.purge("t") == 20
        assert [s.pending for s in store.subscriptions("t")] == [2, 0, 0]
        prepared.rollback()
        assert store.browse("t/a").payloads() == [b"0", b"1"]
