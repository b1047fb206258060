"""The catalog: typed entries, many with one commit, listed, bounded, and refused where unknown."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from quire import dump
from quire.engine import EmbeddedStore as Store
from quire.engine.records import format
from quire.engine.records.checkpoint_file import (
    IntegerRuns,
    list_checkpoints,
    read_checkpoint,
    write_checkpoint,
)
from quire.engine.state.catalog import QUEUE, SUBSCRIPTION, TYPES, CatalogChange, pack, unpack
from quire.errors import InvalidArgument, QueueExists, StoreCorrupt, StoreVersion
from quire.file_dump.items import Finding, as_json
from quire.journal import pack_record
from quire.limits import MAX_CATALOG_ENTRY_BYTES
from quire.reports.info import CatalogItem
from tests.engine.workload import PATH, new_machine, open_store


@pytest.mark.cases(8)
def test_many_queues_with_one_commit(os_store: Store) -> None:
    """Ten thousand names take one group of the journal; with one that is there, none is made."""
    store = os_store
    before = store._context.sequencer.groups
    names = [f"queue-{number:05}" for number in range(10_000)]
    made = store.admin.create_queues(names)
    assert store._context.sequencer.groups == before + 1
    assert [info.name for info in made] == names == [info.name for info in store.queues()]
    assert len(store.admin.catalog("queue")) == 10_000
    with pytest.raises(QueueExists, match="queue-00007"):
        store.admin.create_queues(["new", "queue-00007"])
    assert len(store.queues()) == 10_000


def test_each_queue_has_what_it_was_given(store: Store) -> None:
    """Names and mappings, in the order given; work queues have their subscriptions."""
    made = store.admin.create_queues(
        ["plain", {"name": "topic", "kind": "topic"}, {"name": "small", "capacity": 4096}]
    )
    assert [(info.name, info.kind, info.capacity_bytes) for info in made] == [
        ("plain", "work", 1 << 30),
        ("topic", "topic", 1 << 30),
        ("small", "work", 4096),
    ]
    store.put("plain", b"payload")
    with store.transaction() as txn:
        message = txn.get("plain")
        assert message is not None
        assert message.payload == b"payload"
    assert store.admin.create_queues([]) == []
    assert store.create_queue("next", kind="work").name == "next"


@pytest.mark.promise(13)
def test_one_bad_queue_refuses_them_all(store: Store) -> None:
    """One bad queue refuses them all, whatever is wrong with it."""
    bad: list[Any] = [
        "a/b", {"name": "a", "size": 1}, {"kind": "work"}, {"name": "a", "capacity": 1}, 1, None,
        ("name", "a"), {"name": "a", "data_file": 9}, "good",
    ]  # fmt: skip
    for one in bad:
        with pytest.raises((InvalidArgument, QueueExists)):
            store.admin.create_queues(["good", one])
        assert store.queues() == []
    assert store.admin.catalog() == []


def test_what_is_defined_is_listed(store: Store) -> None:
    """By type and number, also after a reopening; what was dropped is gone with what hung on it."""
    store.create_queue("topic", kind="topic", max_messages=5)
    store.create_queue("gone", kind="topic")
    store.subscribe("topic", "a")
    store.subscribe("gone", "b")
    store.drop_queue("gone")
    (queue,) = store.admin.catalog("queue")
    assert (queue.type, queue.key, queue.version) == ("queue", 1, 1)
    assert {"name": "topic", "kind": "topic", "max_messages": 5}.items() <= queue.body.items()
    assert store.admin.catalog() == [
        queue,
        CatalogItem("subscription", 1, 1, {"queue_id": 1, "name": "a", "start": 0}),
    ]
    queue.body["name"] = "changed"  # a copy
    assert store.queue("topic").name == store.admin.catalog("queue")[0].body["name"]
    with pytest.raises(InvalidArgument, match="queue, subscription"):
        store.admin.catalog("link")
    with pytest.raises(InvalidArgument):
        store.admin.catalog(["queue"])  # type: ignore[arg-type]


@pytest.mark.promise(9)
@pytest.mark.parametrize("name", [QUEUE, SUBSCRIPTION])
def test_each_type_has_a_limit(
    sim_store: Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """On how many there are, and on what one takes."""
    sim_store.create_queue("first", kind="topic")

    def define(*new: str) -> None:
        if name == QUEUE:
            sim_store.admin.create_queues(new)
        else:
            for one in new:
                sim_store.subscribe("first", one)

    define("a", "b")
    there = len(sim_store.admin.catalog(name))
    monkeypatch.setitem(TYPES, name, replace(TYPES[name], most=there + 1))
    define("c")
    with pytest.raises(InvalidArgument, match=f"{there + 1} entries .* at most {there + 1}"):
        define("d")
    monkeypatch.setitem(TYPES, name, replace(TYPES[name], most_bytes=100))
    with pytest.raises(InvalidArgument, match="at most 100"):
        define("x" * 200)
    assert len(sim_store.admin.catalog(name)) == there + 1
    sim_store.drop_queue("first")


def test_the_longest_names_are_below_the_limit() -> None:
    """With the largest numbers that there can be."""
    most = (1 << 64) - 1
    body = {
        "name": "x" * 200, "kind": "topic", "capacity": most, "max_messages": most,
        "created_us": most, "subscription_id": most, "data_file": most,
    }  # fmt: skip
    store = open_store(new_machine(0))
    packed = pack(store._context.state.durable, [CatalogChange(QUEUE, most, body)])
    assert len(packed) < MAX_CATALOG_ENTRY_BYTES
    assert unpack(packed, "here") == [CatalogChange(QUEUE, most, body)]


def test_more_than_a_group_of_the_journal_takes_is_refused() -> None:
    """With small segments; the store goes on."""
    with open_store(new_machine(0)) as store:
        with pytest.raises(InvalidArgument, match="fewer at once"):
            store.admin.create_queues(f"queue-{number}" for number in range(1000))
        assert len(store.admin.create_queues(f"queue-{number}" for number in range(100))) == 100
        assert store.admin.verify().ok


LATER = {
    "entry": pack_record(format.CATALOG, 0, b'[["link",1,{"every":60}]]'),
    "field": pack_record(format.CATALOG, 0, b'[["store",1,{"puts":true,"gets":true,"link":1}]]'),
    "kind": pack_record(99, 0, b"later"),
}


@pytest.mark.promise(10)
@pytest.mark.parametrize("what", LATER)
def test_what_a_newer_release_wrote_is_refused(what: str) -> None:
    """With clear words; a dump lists it, and calls it no damage."""
    env = new_machine(0)
    store = open_store(env)
    store.create_queue("topic", kind="topic")
    store._opened.journal.write_group([LATER[what]])
    store._lock.release()
    env = env.kill()
    with pytest.raises(StoreVersion, match=r"link.*newer|kind 99.*newer"):
        open_store(env)
    items = list(dump(PATH, env=env, queue="topic"))
    assert [item.damage for item in items if isinstance(item, Finding)] == [False]
    if what == "entry":
        listed = [as_json(i) for i in dump(PATH, env=env, journal=True) if i.item == "record"]
        assert listed[-1]["changes"][0]["type"] == "link"


@pytest.mark.promise(10)
@pytest.mark.parametrize("place", ["document", "queue", "subscription", "entry"])
def test_a_checkpoint_of_a_newer_release_is_refused(place: str) -> None:
    """By the name of what this release does not know, wherever in the checkpoint it stands."""
    env = new_machine(0)
    store = open_store(env)
    store.create_queue("topic", kind="topic")
    store.subscribe("topic", "all")
    store.admin.checkpoint()
    store.close()
    directory = f"{PATH}/checkpoint"
    read = read_checkpoint(env, directory, list_checkpoints(env, directory)[-1])
    document, numbers = read.document, IntegerRuns()
    numbers.add([number] for number in read.numbers)
    queue = document["queues"][0]
    holder = {
        "document": document,
        "queue": queue,
        "subscription": queue["subscriptions"][0],
        "entry": document["catalog"][0][3],
    }[place]
    holder["later"] = 1
    write_checkpoint(env, directory, read.store_id, read.lsn, document, numbers)
    with pytest.raises(StoreVersion, match=r"'later'.*newer"):
        open_store(env)


CONTRADICTIONS = {
    "there already": b'[["queue",2,{"name":"topic","kind":"topic","capacity":4096,'
    b'"max_messages":null,"created_us":1,"subscription_id":0,"data_file":0}]]',
    "no such queue": b'[["subscription",9,{"queue_id":7,"name":"a","start":0}]]',
    "no such entry": b'[["queue",9,null]]',
    "no field": b'[["queue",9,{"name":"a"}]]',
    "no change": b"[[1]]",
    "no JSON": b"[",
    "no object": b'[["queue",9,5]]',
}


@pytest.mark.promise(10)
@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_a_contradiction_is_damage(what: str) -> None:
    """A record that no release wrote is told with its place, by the recovery and by a dump."""
    env = new_machine(0)
    store = open_store(env)
    store.create_queue("topic", kind="topic")
    record = pack_record(format.CATALOG, 0, CONTRADICTIONS[what])
    store._opened.journal.write_group([record])
    store._lock.release()
    env = env.kill()
    with pytest.raises(StoreCorrupt, match="record at LSN"):
        open_store(env)
    findings = [item for item in dump(PATH, env=env, queue="topic") if isinstance(item, Finding)]
    assert [item.damage for item in findings] == [True]
