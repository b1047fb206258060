"""Dumps: what the files hold in words, of sound and damaged stores, with an owner and without."""

from __future__ import annotations

import errno
import json
import random
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import dump
from quire.checksum import checksum
from quire.engine import EmbeddedStore as Store
from quire.engine.records.checkpoint_file import IntegerRuns, read_checkpoint, write_checkpoint
from quire.errors import InvalidArgument, QueueNotFound, QuireError, StoreFailed, StoreNotFound
from quire.file_dump.items import Finding, Item, as_json
from quire.file_dump.words import in_words
from quire.journal import GROUP_HEADER_BYTES, pack_record
from quire.journal.format import unpack_group_header
from quire.testing import SimEnv
from tests.engine.workload import PATH, Oracle, Workload, new_machine, open_store

GOLDEN_FILES = Path(__file__).parent / "golden"  # written by golden/write.py
GOLDEN: dict[str, dict[str, Any]] = {
    "journal": {"journal": True},
    "topic": {"queue": "topic"},
    "work": {"queue": "work", "messages": True, "start": 299},
}
EVERYTHING: list[dict[str, Any]] = [
    {},
    {"journal": True},
    {"queue": "topic", "messages": True},
    {"queue": "work", "messages": True},
    {"pages": True},
    {"checkpoint": True},
]


def story(env: SimEnv, *, seal: bool = True, read: bool = True) -> Store:
    """A store with a record of each kind in each place; the last of them in the journal."""
    store = open_store(env, page_size=4096)
    store.create_queue("topic", kind="topic", capacity=1 << 24)
    store.create_queue("work", kind="work")
    store.subscribe("topic", "all")
    for number in range(3):
        store.put("topic", b"single %d" % number)
    with store.transaction() as txn:
        txn.put_many("topic", [b"data %d" % number * 200 for number in range(10)])
        txn.enter("key", 7)
    with store.transaction(large=True) as txn:
        txn.put_many("work", [b"large %d" % number * 12 for number in range(300)])
    if seal:
        store.admin.checkpoint()
    with store.transaction() as txn:
        if read:
            txn.get_many("topic/all", max_messages=3)
        header = {"priority": 7, "sender": "s", "attributes": {"k": "v"}}
        txn.put_moved("work", b"\x1b[31m", header)
        txn.put("topic", b"tail")
        txn.enter("key", 8)
    return store


@pytest.fixture
def env() -> SimEnv:
    """A machine with the store of the story, closed."""
    env = new_machine(0)
    story(env).close()
    return env


def lines(env: SimEnv, **choices: Any) -> list[str]:
    """The dump in words."""
    return [line for item in dump(PATH, env=env, **choices) for line in in_words(item)]


def golden(name: str) -> list[str]:
    """The lines that are expected."""
    return (GOLDEN_FILES / f"dump_{name}.txt").read_text(encoding="utf-8").splitlines()


def damages(items: list[Item]) -> list[Finding]:
    """The findings that tell of damage."""
    return [item for item in items if isinstance(item, Finding) and item.damage]


def all_items(env: SimEnv) -> list[Item]:
    """Every list of the store, each item turned into words and JSON too."""
    items: list[Item] = []
    for choices in EVERYTHING:
        try:
            items += dump(PATH, env=env, **choices)
        except QueueNotFound:  # its definition is what was damaged
            continue
    for item in items:
        assert all(line.isprintable() for line in in_words(item))
        json.dumps(as_json(item))
    return items


# Sound stores -------------------------------------------------------------------------------------


def test_the_journal_in_words(env: SimEnv) -> None:
    """Each record with its place, kind, transaction, queues, places, reads, ledger entries."""
    shown = lines(env, journal=True)
    assert shown == golden("journal")


def test_a_queue_in_words(env: SimEnv) -> None:
    """Sealed records with their record page, then those of the journal between OPEN and COMMIT."""
    assert lines(env, queue="topic") == golden("topic")
    assert lines(env, **GOLDEN["work"]) == golden("work")
    assert lines(env, queue="#2") == lines(env, queue="work")


def test_pages_in_words(env: SimEnv) -> None:
    """Every page has one use, and the list has no gap."""
    shown = [as_json(item) for item in dump(PATH, env=env, pages=True)]
    pages = [item for item in shown if item["item"] == "pages"]
    assert [item["first"] for item in pages[1:]] == [
        item["first"] + item["pages"] for item in pages[:-1]
    ]
    assert {item["use"] for item in pages} == {"header", "records", "block", "free", "other"}
    (file,) = [item for item in shown if item["item"] == "file"]
    assert (file["messages"], file["queue"]) == (300, "work")


def test_the_summary_names_everything(env: SimEnv) -> None:
    """Store, checkpoint, journal, queues, subscriptions, large files and the ledger."""
    kinds = [item.item for item in dump(PATH, env=env)]
    assert kinds == [
        "store", "checkpoint", "journal", "queue", "subscription", "queue", "subscription", "file",
        "ledger",
    ]  # fmt: skip
    assert lines(env)[-1] == "ledger: key 'key', version 8"
    assert lines(env, checkpoint=True)[-1] == "ledger: key 'key', version 7"


def test_transactions_in_doubt(env: SimEnv) -> None:
    """What is prepared has no place in the queue before it is decided."""
    with open_store(env) as store:
        for xid in ("one", "two", "three"):
            txn = store.transaction()
            txn.put("topic", xid.encode())
            txn.prepare(xid)
        store.prepared.rollback("two")
        store.prepared.commit("three")
    shown = lines(env, journal=True)
    for kind, xid in (
        ("PREPARE", "one"),
        ("ROLLBACK_PREPARED", "two"),
        ("COMMIT_PREPARED", "three"),
    ):
        (line,) = [line for line in shown if f", {kind}, " in line and f"xid {xid!r}" in line]
        assert "1 message" in line
    for _ in range(2):
        rows = [as_json(item) for item in dump(PATH, env=env, queue="topic")]
        records = [
            (row["name"], row["position"], row["xid"])
            for row in rows
            if row["item"] == "queue_record"
        ]
        assert records[-3:] == [
            ("OPEN", None, "one"), ("MESSAGES", None, "one"), ("PREPARE", None, "one"),
        ]  # fmt: skip
        assert ("MESSAGES", 14, None) in records or ("MESSAGES", 13, None) in records
        (doubt,) = [item for item in dump(PATH, env=env) if item.item == "prepared"]
        assert in_words(doubt)[0].startswith("prepared: xid 'one', prepared 2023-")
        assert in_words(doubt)[0].endswith("1 message, queues 'topic', taken 0")
        with open_store(env) as store:
            store.admin.checkpoint()


def prepare(store: Store, xid: str, *, large: bool = False) -> None:
    """A transaction in doubt, with five messages for each of the two queues."""
    txn = store.transaction(large=large)
    for queue in ("topic", "work"):
        txn.put_many(queue, [xid.encode() * (1000 if large else 100)] * 5)
    txn.prepare(xid)


def held_pages(env: SimEnv, xid: str) -> list[dict[str, Any]]:
    """What the list of pages calls the transaction's; every page there has one use."""
    pages = [as_json(item) for item in dump(PATH, env=env, pages=True) if item.item == "pages"]
    assert [p["first"] for p in pages[1:]] == [p["first"] + p["pages"] for p in pages[:-1]]
    held = [page for page in pages if page["xid"] == xid]
    assert all(page["use"] == "prepared" for page in held)
    return held


def test_pages_of_transactions_in_doubt(env: SimEnv) -> None:
    """They are named by its xid, told by the journal or by a checkpoint, until it is decided."""
    with open_store(env) as store:
        for xid in ("one", "two"):
            prepare(store, xid)
    for _ in range(2):
        for xid in ("one", "two"):
            held = held_pages(env, xid)
            assert [(p["queue"], p["messages"], p["position"]) for p in held] == [
                ("topic", 5, None), ("work", 5, None),
            ]  # fmt: skip
            records = [
                as_json(item)
                for queue in ("topic", "work")
                for item in dump(PATH, env=env, queue=queue)
                if item.item == "queue_record"
            ]
            places = [r["place"] for r in records if r["xid"] == xid and r["place"]]
            assert [place["page"] for place in places] == [page["first"] for page in held]
            (line,) = [
                line
                for line in lines(env, pages=True)
                if line.startswith(f"data/0.dat, page {held[0]['first']}, ")
            ]
            assert ", use prepared, queue #1 'topic', no position, 5 messages, " in line
            assert line.endswith(f"xid {xid!r}")
        with open_store(env) as store:
            store.admin.checkpoint()
    with open_store(env) as store:
        store.prepared.commit("one")
        store.prepared.rollback("two")
        assert not held_pages(env, "one")
        assert not held_pages(env, "two")


def test_large_files_of_transactions_in_doubt(env: SimEnv) -> None:
    """They are named by its xid too; when it is committed, they are their queue's."""
    with open_store(env) as store:
        prepare(store, "one", large=True)
    files = [as_json(item) for item in dump(PATH, env=env, pages=True) if item.item == "file"]
    assert sorted((f["messages"], f["queue"], f["xid"]) for f in files if f["xid"]) == [
        (5, "topic", "one"), (5, "work", "one"),
    ]  # fmt: skip
    shown = [line for line in lines(env, pages=True) if line.startswith("ltds/")]
    of_it = [line for line in shown if line.endswith(", xid 'one'")]
    assert sum(", queue '" in line for line in of_it) == len(of_it) == 2
    with open_store(env) as store:
        store.prepared.commit("one")
    files = [as_json(item) for item in dump(PATH, env=env, pages=True) if item.item == "file"]
    assert sorted((f["messages"], f["queue"], f["xid"]) for f in files) == [
        (5, "topic", None), (5, "work", None), (300, "work", None),
    ]  # fmt: skip


def test_limits_and_starts(env: SimEnv) -> None:
    """A list begins where it is asked to, and says that there is more."""
    journal = list(dump(PATH, env=env, journal=True))
    last = as_json(journal[-1])
    assert list(dump(PATH, env=env, journal=True, start=last["lsn"])) == journal[-1:]
    *first, more = dump(PATH, env=env, journal=True, limit=2)
    assert first == journal[:2]
    assert in_words(more) == ["note: there is more: only 2 were asked for"]
    messages = [
        as_json(item) for item in dump(PATH, env=env, queue="work", messages=True, start=298)
    ]
    assert [m["position"] for m in messages if m["item"] == "message"] == [298, 299, 300]


@pytest.mark.promise(13)
def test_wrong_arguments(env: SimEnv) -> None:
    """Refused with what to do."""
    with pytest.raises(StoreNotFound):
        dump("/nowhere", env=env)
    with pytest.raises(QueueNotFound, match="give one of 'topic', 'work'"):
        list(dump(PATH, env=env, queue="none"))
    for wrong in ({"limit": 0}, {"start": -1}, {"messages": True}, {"limit": True}):
        with pytest.raises(InvalidArgument):
            dump(PATH, env=env, **wrong)


def test_a_store_that_may_not_be_read(env: SimEnv) -> None:
    """It is there: the error says what is in the way, not that there is none."""
    env.fail("list_directory", PATH, error=PermissionError(errno.EACCES, "Permission denied"))
    with pytest.raises(StoreFailed, match=r"Permission denied.*as its user"):
        dump(PATH, env=env)


def test_nothing_is_changed(env: SimEnv) -> None:
    """A dump neither writes nor creates nor locks; also while the store is open, or was cut off."""
    store = open_store(env)
    store.put("topic", b"open")
    calls = env.calls.last_number
    assert not damages(all_items(env))
    assert env.calls.last_number == calls
    crashed = env.kill()
    calls, content = crashed.calls.last_number, {p: crashed.contents(p) for p in crashed.files()}
    assert not damages(all_items(crashed))
    assert crashed.calls.last_number == calls
    assert content == {path: crashed.contents(path) for path in crashed.files()}
    assert not crashed.locks


def test_a_dump_says_what_the_store_says(seed: int, rounds: int) -> None:
    """After random work and a crash: positions, payloads, what is read, as the store has them."""
    for n in range(max(rounds // 5, 3)):
        env = SimEnv(seed + n)
        Workload(seed + n, steps=60)(env, Oracle())
        crashed = env.kill()
        told: dict[tuple[str, str], Any] = {}
        for item in dump(PATH, env=crashed):
            assert not isinstance(item, Finding) or not item.damage, in_words(item)
            value = as_json(item)
            told[item.item, value.get("name", "")] = value
        payloads: dict[str, list[tuple[int, int]]] = {}
        names = [name for kind, name in told if kind == "queue"]
        for name in names:
            payloads[name] = [
                (item["id"], item["payload_bytes"])
                for item in map(as_json, dump(PATH, env=crashed, queue=name, messages=True))
                if item["item"] == "message" and not item["released"]
            ]
        with open_store(crashed) as store:
            assert sorted(names) == [info.name for info in store.queues()]
            for info in store.queues():
                queue = told["queue", info.name]
                assert queue["end_position"] == info.end_position
                assert queue["end_position"] - queue["released"] == info.messages
                kept = store.browse(info.name, max_messages=1_000_000)
                assert payloads[info.name] == [(int(m.id), len(m.payload)) for m in kept]


# Damage -------------------------------------------------------------------------------------------


def test_a_torn_tail_is_no_damage(env: SimEnv) -> None:
    """What was never acknowledged is told, and nothing is lost."""
    whole = lines(env, journal=True)
    (journal,) = [as_json(item) for item in dump(PATH, env=env) if item.item == "journal"]
    end = journal["end_lsn"]
    store = open_store(env)
    store.put("topic", b"x" * 5000)
    torn = env.kill()
    path = f"{PATH}/journal/{end // (64 << 10):016x}.log"
    offset = end % (64 << 10)
    assert torn.contents(path)[offset + 4096 :].strip(b"\0")
    torn.corrupt(path, offset + 4096 + 200, 0xFF)
    shown = lines(torn, journal=True)
    assert shown[: len(whole)] == whole
    assert shown[-1].startswith("note: ")
    assert "never acknowledged" in shown[-1]


def test_a_damaged_group_costs_its_records_alone(env: SimEnv) -> None:
    """The dump names file, offset and loss, and goes on with the next group."""
    records = [as_json(item) for item in dump(PATH, env=env, journal=True)]
    victim = records[-4]
    env.corrupt(f"{PATH}/{victim['file']}", victim["offset"] + 20)
    items = list(dump(PATH, env=env, journal=True))
    (finding,) = damages(items)
    assert finding.file == victim["file"]
    assert finding.lsn == victim["group_lsn"]
    assert "no valid group here" in finding.message
    assert finding.lost
    left = [as_json(item) for item in items if not isinstance(item, Finding)]
    assert left == [record for record in records if record != victim]


def test_a_damaged_group_below_the_checkpoint(env: SimEnv) -> None:
    """A segment that is still there though recovery needs none of it is pinned: it is damage."""
    store = open_store(env)
    store.put("topic", b"leased")
    position = store.queue("topic").end_position - 1
    store.integration.lease("topic", position, position + 1)
    leased = as_json(list(dump(PATH, env=env, journal=True))[-1])
    for _ in range(2):
        for number in range(20):  # into the next segment
            store.put("topic", b"more %d" % number)
        store.admin.checkpoint()
    (checkpoint,) = [as_json(item) for item in dump(PATH, env=env) if item.item == "checkpoint"]
    assert leased["offset"] == leased["lsn"] % (64 << 10)
    assert leased["lsn"] // (64 << 10) < checkpoint["restart_lsn"] // (64 << 10)
    assert not damages(list(dump(PATH, env=env, journal=True)))
    env.corrupt(f"{PATH}/{leased['file']}", leased["offset"] + 20)
    (finding,) = damages(list(dump(PATH, env=env, journal=True)))
    assert finding.lsn == leased["group_lsn"]
    assert finding.lost


def test_positions_behind_damage_are_told_as_uncertain() -> None:
    """Nobody knows how many messages the lost record had: positions are those at least."""
    env = new_machine(0)
    store = story(env, seal=False)
    store.close()
    records = [as_json(item) for item in dump(PATH, env=env, journal=True)]
    victim = next(r for r in records if r["name"] == "COMMIT")
    env.corrupt(f"{PATH}/{victim['file']}", victim["offset"])
    shown = lines(env, queue="topic")
    assert any(line.startswith("DAMAGE: journal/") for line in shown)
    assert any(
        line.startswith("MESSAGES, position ") and line.endswith("not certain") for line in shown
    )
    assert "not certain" in next(line for line in shown if line.startswith("queue #1"))


def test_a_damaged_record_page(env: SimEnv) -> None:
    """Its positions are lost, the records of the journal are listed."""
    pages = [as_json(item) for item in dump(PATH, env=env, pages=True)]
    page = next(p for p in pages if p.get("use") == "records" and p["queue"] == "topic")
    env.corrupt(f"{PATH}/data/0.dat", page["first"] * 4096 + 70)
    items = list(dump(PATH, env=env, queue="topic"))
    (finding,) = damages(items)
    assert (finding.file, finding.offset) == ("data/0.dat", page["first"] * 4096)
    assert finding.lost == "the records of positions 0 to 12"
    assert [as_json(item)["name"] for item in items if item.item == "queue_record"] == [
        "OPEN", "MESSAGES", "COMMIT",
    ]  # fmt: skip


def test_a_damaged_block(env: SimEnv) -> None:
    """Its messages are lost; it is read only where messages are asked for."""
    pages = [as_json(item) for item in dump(PATH, env=env, pages=True)]
    page = next(p for p in pages if p.get("use") == "block" and p["messages"] == 10)
    env.corrupt(f"{PATH}/data/0.dat", page["first"] * 4096 + 500)
    assert not damages(list(dump(PATH, env=env, queue="topic")))
    items = list(dump(PATH, env=env, queue="topic", messages=True))
    (finding,) = damages(items)
    assert finding.lost == "the messages at positions 3 to 12"
    assert [as_json(i)["position"] for i in items if i.item == "message"] == [13]


def test_a_missing_and_a_damaged_large_file(env: SimEnv) -> None:
    """A block of it costs its messages, its trailer costs all."""
    (path,) = [path for path in env.files() if path.endswith(".ltds")]
    env.corrupt(path, 4096 + 100)
    items = list(dump(PATH, env=env, queue="work", messages=True))
    (finding,) = damages(items)
    assert finding.lost.startswith("the messages of block 0 of ")
    assert as_json(items[-2])["payload_start"] == "\x1b[31m"
    env.remove(path)
    (finding,) = damages(list(dump(PATH, env=env)))
    assert finding.lost == "300 messages"


def test_pages_of_transactions_in_doubt_without_a_checkpoint(env: SimEnv) -> None:
    """The journal alone tells them, and says where the data file ends too early for them."""
    store = open_store(env)
    prepare(store, "one")
    killed = env.kill()
    held = held_pages(killed, "one")
    for path in killed.files():
        if "/checkpoint/" in path:
            killed.remove(path)
    assert held_pages(killed, "one") == held
    file = killed.open_file(f"{PATH}/data/0.dat")
    file.truncate(held[0]["first"] * 4096)
    file.close()
    lost = {finding.lost for finding in damages(list(dump(PATH, env=killed, pages=True)))}
    assert "5 messages of the prepared transaction 'one'" in lost


@pytest.mark.parametrize("taken", [True, False])
def test_pages_whose_decision_is_lost(env: SimEnv, taken: bool) -> None:
    """They go by the prepared transaction, but for those that a later commit has got."""
    store = open_store(env)
    prepare(store, "one")
    held = held_pages(env, "one")
    store.prepared.rollback("one")
    if taken:
        with store.transaction() as txn:
            txn.put_many("topic", [b"later" * 100] * 20)
    store.put("work", b"behind")
    killed = env.kill()
    assert not held_pages(killed, "one")
    records = [as_json(item) for item in dump(PATH, env=killed, journal=True)]
    (victim,) = [record for record in records if record["name"] == "ROLLBACK_PREPARED"]
    killed.corrupt(f"{PATH}/{victim['file']}", victim["offset"] + 20)
    found = damages(list(dump(PATH, env=killed, pages=True)))
    assert [finding.lsn for finding in found] == [victim["group_lsn"]]
    pages = [as_json(item) for item in dump(PATH, env=killed, pages=True) if item.item == "pages"]
    later = [p for p in pages if p["use"] == "block" and p["messages"] == 20]
    assert len(later) == taken
    end = max((page["first"] + page["pages"] for page in later), default=0)
    assert held_pages(killed, "one") == [page for page in held if page["first"] >= end]
    assert not taken or held[0]["first"] < end


def test_without_a_checkpoint(env: SimEnv) -> None:
    """A journal that begins with the store tells it all; nothing is guessed."""
    whole = list(dump(PATH, env=env, queue="work", messages=True))
    (path,) = [path for path in env.files() if path.endswith(".qck")]
    env.corrupt(path, 100)
    items = list(dump(PATH, env=env, queue="work", messages=True))
    assert "checksum differs" in damages(items)[0].message
    assert payloads(items) == payloads(whole)
    env.remove(path)
    assert "there is no checkpoint" in str(lines(env))
    assert lines(env, journal=True) == golden("journal")


def test_without_a_checkpoint_and_without_the_beginning(env: SimEnv) -> None:
    """The data file is searched for record pages; queues go by their numbers."""
    with open_store(env) as store:
        for number in range(20):  # into the next segment
            store.put("topic", b"more %d" % number)
        store.admin.checkpoint()
        store.put("topic", b"last")
    whole = list(dump(PATH, env=env, queue="topic", messages=True))
    for path in env.files():
        if path.endswith(".qck") or path == f"{PATH}/journal/{0:016x}.log":
            env.remove(path)
    items = list(dump(PATH, env=env, queue="#1", messages=True))
    assert "there is no checkpoint" in damages(items)[0].message
    assert "record pages of queue #1 were found by a search" in str(items)
    assert set(payloads(whole)) <= set(payloads(items))
    with pytest.raises(QueueNotFound, match="'#1'"):
        list(dump(PATH, env=env, queue="topic"))


def payloads(items: list[Item]) -> list[str]:
    """How the payloads of the messages begin, in order."""
    return [as_json(item)["payload_start"] for item in items if item.item == "message"]


def test_a_checkpoint_falls_back_to_an_older_one(env: SimEnv) -> None:
    """As it would after a crash before the older one was removed."""
    (older,) = [path for path in env.files() if path.endswith(".qck")]
    content = env.contents(older)
    with open_store(env) as store:
        store.admin.checkpoint()
    (newer,) = [path for path in env.files() if path.endswith(".qck")]
    file = env.open_file(older, create=True)
    file.write(0, content)
    file.close()
    env.corrupt(newer, 100)
    items = list(dump(PATH, env=env, checkpoint=True))
    assert [finding.file for finding in damages(items)] == [newer.removeprefix(f"{PATH}/")]
    assert as_json(items[1])["file"] == older.removeprefix(f"{PATH}/")


def contradict(env: SimEnv, lsn: int) -> None:
    """Write a checkpoint anew, its checksums right, without the ledger."""
    directory = f"{PATH}/checkpoint"
    checkpoint = read_checkpoint(env, directory, lsn)
    numbers = IntegerRuns()
    numbers.add(checkpoint.numbers)
    del checkpoint.document["ledger"]
    write_checkpoint(env, directory, checkpoint.store_id, lsn, checkpoint.document, numbers)


@pytest.mark.parametrize("why", ["damaged", "refused by the disk", "contradictory"])
def test_the_newest_checkpoint_cannot_be_read(env: SimEnv, why: str) -> None:
    """It is named; the one before it and the journal tell everything, and other damage is damage.

    There is one that is newer than what is told, yet nobody went on: nothing is excused by that.
    """
    (older,) = [path for path in env.files() if path.endswith(".qck")]
    content = env.contents(older)
    with open_store(env) as store:
        store.put("work", b"since")
        whole = list(dump(PATH, env=env, queue="work", messages=True, offline=True))
        pages = [as_json(item) for item in dump(PATH, env=env, pages=True)]
        store.admin.checkpoint()
    (newer,) = [path for path in env.files() if path.endswith(".qck")]
    file = env.open_file(older, create=True)
    file.write(0, content)
    file.close()
    if why == "damaged":
        env.corrupt(newer, 100)
    elif why == "contradictory":
        contradict(env, int(newer[-20:-4], 16))
    else:
        env.fail("read", newer, forever=True)
    items = list(dump(PATH, env=env, queue="work", messages=True))
    (finding,) = damages(items)
    assert (finding.file, finding.lost) == (
        newer.removeprefix(f"{PATH}/"),
        "the state that it held",
    )
    assert [as_json(i) for i in items if i is not finding] == [as_json(item) for item in whole]
    block = next(p for p in pages if p.get("use") == "block" and p["messages"] == 10)
    env.corrupt(f"{PATH}/data/0.dat", block["first"] * 4096 + 500)
    found = damages(list(dump(PATH, env=env, queue="topic", messages=True)))
    assert [each.lost for each in found] == [finding.lost, "the messages at positions 3 to 12"]


def test_a_record_of_a_later_release(env: SimEnv) -> None:
    """It is listed with the number of its kind; nothing of what it may have changed is guessed."""
    store = open_store(env)
    store._opened.journal.write_group([pack_record(99, 5, b"later")])
    store._lock.release()
    env = env.kill()
    shown = lines(env, journal=True)
    assert "note: journal/" in str(lines(env, queue="topic"))
    (queue,) = [line for line in lines(env, queue="topic") if line.startswith("queue #1 'topic'")]
    assert "end position 14" in queue
    assert "not certain" in queue
    assert shown[-1].endswith("UNKNOWN KIND 99, transaction 5, 21 bytes")


def test_files_that_are_not_there(env: SimEnv) -> None:
    """Whatever is missing, the rest is told."""
    for name in ("checkpoint", "journal", "data", "ltds"):
        machine = new_machine(0)
        story(machine).close()
        for path in machine.files():
            if path.startswith(f"{PATH}/{name}/"):
                machine.remove(path)
        items = all_items(machine)
        assert damages(items)
        assert len(items) > 10


def spoil(env: SimEnv, rng: random.Random) -> str:
    """Damage one file in one of the ways that files are damaged; what was done."""
    path = rng.choice([path for path in env.files() if not path.endswith("LOCK")])
    size = len(env.contents(path))
    used = [i for i, byte in enumerate(env.contents(path)) if byte] or [0]
    way = rng.choice(["bit", "bit", "bit", "run", "zero", "cut", "grow", "gone"])
    offset = rng.choice(used)
    if way == "bit":
        env.corrupt(path, offset, 1 << rng.randrange(8))
    elif way == "run":
        env.corrupt(path, offset, rng.randbytes(rng.randrange(1, 600)))
    elif way == "zero":
        env.corrupt(path, offset, env.contents(path)[offset : offset + 4096])
    elif way == "gone":
        env.remove(path)
    else:
        file = env.open_file(path)
        file.truncate(offset if way == "cut" else size + rng.randrange(1, 9000))
        file.close()
    return f"{way} at {offset} of {path}"


def essence(item: Item) -> str:
    """What of a record or a message its checksum covers: no names, no positions."""
    value = as_json(item)
    for part in (value, *value.get("parts", ()), *value.get("reads", ())):
        for name in ("position", "queue", "released", "subscription"):
            part.pop(name, None)
    return json.dumps(value)


def essences(items: list[Item]) -> set[str]:
    """Of all records of the journal and all messages."""
    return {essence(item) for item in items if item.item in ("record", "message")}


def known_items() -> tuple[SimEnv, set[str]]:
    """The machine of the story, and all that was ever in its store."""
    known: set[str] = set()
    sound = SimEnv()
    for choices in ({"read": False}, {"seal": False}, {}):
        sound = new_machine(0)
        store = story(sound, **choices)
        prepare(store, "one")
        prepare(store, "two", large=True)
        store.close()
        known |= essences(all_items(sound))
    return sound, known


def fuzz(rng: random.Random, rounds: int) -> int:
    """Damage stores and dump them; how often damage was found. AssertionError for wrong items."""
    sound, known = known_items()
    journal = essences(list(dump(PATH, env=sound, journal=True)))
    found = 0
    for _ in range(rounds * 4):
        env = sound.crash(outcome="kept")
        done = [spoil(env, rng) for _ in range(rng.choice([1, 1, 1, 3]))]
        try:
            items = all_items(env)
            assert essences(items) <= known
            if len(done) == 1 and done[0].startswith("bit") and "/journal/" in done[0]:
                header = "offset 0:" in str(damages(items))
                assert len(journal - essences(items)) <= (len(journal) if header else 1)
        except BaseException as error:
            error.add_note(str(done))
            raise
        found += bool(damages(items))
    return found


@pytest.mark.cases(8)
@pytest.mark.fuzz
@pytest.mark.promise(10)
def test_fuzz_damaged_stores(rng: random.Random, rounds: int) -> None:
    """Any damage: the dump ends without an exception, and shows nothing that was never there.

    One flipped bit in the journal costs the records of one group.
    """
    assert fuzz(rng, rounds) > rounds


class Believing:
    """Finds every checksum of a journal group right."""

    def unpack_from(self, data: memoryview) -> tuple[int]:
        header = unpack_group_header(data)
        return (checksum(data[8 : GROUP_HEADER_BYTES + header.body_length]),)


@pytest.mark.cases(8)
@pytest.mark.fuzz
def test_canary_ends_at_a_damaged_block(
    monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    """A dump that does not go on behind what it cannot read."""
    monkeypatch.setattr("quire.file_dump.records.UNREADABLE", ())
    with pytest.raises((QuireError, OSError)):
        fuzz(rng, 200)


@pytest.mark.cases(8)
@pytest.mark.fuzz
def test_canary_believes_what_it_reads(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """A dump without the checksums of the journal's groups."""
    monkeypatch.setattr(import_module("quire.journal.scan"), "CHECKSUM", Believing())
    with pytest.raises(AssertionError):
        fuzz(rng, 200)


# With an owner ------------------------------------------------------------------------------------


@pytest.mark.cases(2)
@pytest.mark.parametrize("open_owner", [Store.open, quire.open])
def test_beside_a_busy_owner(store_path: str, open_owner: Callable[..., Any]) -> None:
    """Commits, reads and checkpoints go on: no dump tells of damage, none ends with an error."""
    stop = threading.Event()
    options: dict[str, Any] = {
        "segment_bytes": 1 << 16,
        "grow_bytes": 1 << 16,
        "inline_limit_bytes": 4096,
        "checkpoint_bytes": 1 << 16,
        "large_limit_messages": 300,
    }

    def work(store: Store) -> None:
        rng = random.Random(1)
        while not stop.is_set():
            with store.transaction() as txn:
                size = rng.choice([10, 10, 300, 3000])
                txn.put_many("work", [b"m" * size] * rng.choice([1, 1, 5, 400]))
            with store.transaction() as txn:
                txn.get_many("work", max_messages=600)

    with open_owner(store_path, **options) as store:
        store.create_queue("work", kind="work", capacity=1 << 28)
        thread = threading.Thread(target=work, args=(store,))
        thread.start()
        try:
            for turn in range(500):
                if turn > 10 and store.status()["checkpoints"]["count"] > 3:
                    break
                for choices in ({}, {"journal": True}, {"queue": "work", "messages": True}):
                    items = list(dump(store_path, **choices))
                    assert not damages(items), [in_words(item) for item in damages(items)]
        finally:
            stop.set()
            thread.join()
        assert store.status()["checkpoints"]["count"] > 3
