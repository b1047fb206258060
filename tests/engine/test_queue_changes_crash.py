"""Purges, renames, aliases, moves, the store's switch: whole or not at all, after any failure."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from quire import dump
from quire.engine import EmbeddedStore as Store
from quire.engine.state.catalog import ALIAS, STORE, TYPES
from quire.errors import DiskFull, InvalidArgument, NobodyReads, QueueExists, QueueFull
from quire.file_dump.items import as_json
from tests.engine.crashing.definitions import CHANGES, view_changed, views_of
from tests.engine.workload import PATH, new_machine, open_store
from tests.kit.limits import Limits


def test_a_kill_loses_none_of_them(limits: Limits) -> None:
    """A kill after any step loses none of them."""
    limits(PURGED_AT_ONCE=3)
    expected = views_of(tuple(CHANGES.values()), view_changed)
    assert len({str(each) for each in expected}) == len(expected)
    env = new_machine(1)
    for change, view in zip(CHANGES.values(), expected[1:], strict=True):
        store = open_store(env)
        change(store)
        env = env.kill()
        store = open_store(env)
        assert view_changed(store) == view
        assert store.admin.verify().ok
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
