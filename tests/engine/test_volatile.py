"""Volatile queues beside persistent ones: restarts, power failures, failed writes, memory."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import (
    DiskFull,
    InvalidArgument,
    QueueFull,
    QueueNotFound,
    QuireError,
    StoreFailed,
)
from quire.limits import VOLATILE_BLOCK_BYTES, VOLATILE_RECORDS
from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import new_machine, open_store
from tests.kit.messages import take
from tests.kit.waiting import SECONDS

PERSISTENT = ("p", "dead")


def make(store: Store) -> None:
    """Queues of both types; one volatile topic, and one queue that a restart ends."""
    store.admin.create_queues(
        [
            {"name": "dead", "kind": "work"},
            {"name": "p", "kind": "work"},
            {"name": "v", "type": "volatile", "max_deliveries": 9, "dead_letter": "dead"},
            {"name": "t", "kind": "topic", "type": "volatile"},
            {"name": "gone", "kind": "work", "type": "volatile", "persistent": False},
        ]
    )
    store.subscribe("t", "s")


# Restarts


@pytest.mark.parametrize("is_sealed", [False, True], ids=["journal", "checkpoint"])
def test_a_volatile_queue_comes_back_empty(sim: SimEnv, is_sealed: bool) -> None:
    """With its description and subscriptions, from the journal or a checkpoint, time and again."""
    env = new_machine(1)
    seen: set[int] = set()
    ends = {"v": 0, "t": 0}
    for number in range(4):
        store = open_store(env)
        if not number:
            make(store)
            store.alter_queue("v", text="in memory", order="priority")
            store.subscribe("t", "late", start="latest")
        assert store.queue("v").text == "in memory"
        assert store.queue("t").subscriptions == ("s", "late")
        for name, end in ends.items():
            info = store.queue(name)
            assert (info.messages, info.used_bytes) == (0, 0)
            assert info.first_position == info.end_position >= end
        assert store.browse("v").payloads() == store.browse("t/s").payloads() == []
        with store.transaction() as txn:
            ids = [*txn.put_many("v", [b"a", b"b"]), *txn.put_many("t", [b"c"] * 3)]
            ids.append(txn.put("p", b"%d" % number))
        numbers = {int(i) for i in ids}
        assert len(numbers) == 6
        assert not numbers & seen  # no message of before is meant by them
        seen |= numbers
        assert take(store, "v", 1) == [b"a"]
        assert take(store, "t/s") == take(store, "t/late") == [b"c"] * 3
        ends = {name: store.integration.positions(name)[1] for name in ends}
        if is_sealed:
            store.admin.checkpoint()
        assert store.admin.verify().ok
        if number % 2:
            store.close()
        else:
            env = env.kill()
    store = open_store(env)
    assert take(store, "p") == [b"0", b"1", b"2", b"3"]
    with pytest.raises(QueueNotFound):
        store.queue("gone")
    assert store.create_queue("gone", kind="topic").end_position == 0
    assert store.admin.verify().ok
    store.close()


def test_positions_of_before_mean_no_message(sim: SimEnv) -> None:
    """Neither one to look at, nor one that is passed over."""
    env = new_machine(1)
    store = open_store(env)
    make(store)
    with store.transaction() as txn:
        txn.put_many("v", [b"old"] * 3)
    store.close()
    store = open_store(env)
    with store.transaction() as txn:
        txn.put_many("v", [b"new"] * 3)
    with store.transaction() as txn:
        txn.read_to("v", 3)
    assert store.browse("v", start=1).payloads() == [b"new"] * 3
    store.close()


# Power failures


@dataclass
class Seen:
    """What was acknowledged: the persistent queue, and the volatile one of this opening."""

    is_made: bool = False
    sure: list[bytes] = field(default_factory=list)
    maybe: list[bytes] | None = None  # if the commit under way happened
    memory: list[bytes] = field(default_factory=list)
    highest: int = 0  # message id of a volatile queue


def one_step(store: Store, seen: Seen, number: int) -> None:
    """A transaction of both types; every third puts much, every fourth is of memory alone."""
    memory = list(seen.memory)
    seen.maybe = list(seen.sure)
    txn = store.transaction(large=number % 6 == 5)
    if number % 4 != 3:
        payloads = [b"%d.%d" % (number, n) for n in range(2)]
        if number % 3 == 2:
            payloads += [b"%d" % number * 3000]
        txn.put_many("p", payloads)
        seen.maybe += payloads
    if number % 2:
        got = txn.get_many("v", 2).payloads()
        assert got == memory[:2]
        del memory[:2]
    if number % 5 == 4:
        got = txn.get_many("p", 1).payloads()
        assert got == seen.maybe[:1]
        del seen.maybe[:1]
    ids = [txn.put(queue, b"%d" % number * 40) for queue in ("v", "v", "t")]
    memory += [b"%d" % number * 40] * 2
    if number % 4 == 2:
        txn.seek("t/s", "latest")  # all that was there before: nothing
    try:
        txn.commit()
    except QuireError:
        assert store.browse("v").payloads() == seen.memory  # it has no effect either
        raise
    seen.sure, seen.maybe, seen.memory = seen.maybe, None, memory
    assert seen.highest < int(ids[0])
    seen.highest = int(ids[2])
    assert store.browse("v").payloads() == memory
    assert len(take(store, "t/s")) == 1


def work(env: SimEnv, seen: Seen) -> None:
    """Two openings, with checkpoints."""
    env.make_directory("/disk")
    env.sync_directory("/")
    for _ in range(2):
        store = open_store(env)
        seen.memory = []
        if not seen.is_made:
            make(store)
            seen.is_made = True
        for number in range(12):
            one_step(store, seen, number)
            if number % 5 == 4:
                store.admin.checkpoint()
        store.close()


def check(env: SimEnv, seen: Seen) -> None:
    """The persistent queue is what it was; the volatile ones are empty, and go on."""
    if not seen.is_made:
        return
    store = open_store(env)
    there = store.browse("p", max_messages=1000).payloads()
    assert there in (seen.sure, seen.maybe)
    assert {info.name for info in store.queues()} == {"dead", "p", "v", "t"}
    assert store.queue("v").messages == store.queue("t").messages == 0
    again = Seen(True, there, highest=seen.highest)
    for number in range(4):
        one_step(store, again, number)
    assert store.admin.verify().ok
    store.close()


@pytest.mark.crash
@pytest.mark.promise(1, 2)
def test_promise_1_2_power_failure_at_every_call_beside_volatile_queues(
    seed: int, spread: int
) -> None:
    """And every write and sync that fails: what is volatile stands exactly with what is not."""
    cases = enumerate_crashes(work, check, Seen, seed=seed, rounds=2, every=2 * spread)
    assert cases > 100 // spread


# Failed writes, full disks


def test_promise_11_a_failed_write_has_no_effect_in_memory() -> None:
    """Nor has anything that comes after it: the store refuses commits of memory, too."""
    env = new_machine(1)
    store = open_store(env)
    make(store)
    store.put("v", b"before")
    with store.transaction() as txn:
        assert txn.get("v") is not None
        txn.put("v", b"never")
        txn.put("p", b"perhaps")
        env.fail("write", "*.log")
        with pytest.raises(StoreFailed):
            txn.commit()
    assert store.browse("v").payloads() == [b"before"]
    assert store.status()["volatile"]["blocks"] == 1
    with pytest.raises(StoreFailed):
        store.put("v", b"after")
    with pytest.raises(StoreFailed):
        store.create_queue("more", kind="topic", type="volatile", persistent=False)
    with suppress(StoreFailed):
        store.close()


def test_a_full_disk_does_not_concern_memory() -> None:
    """Commits of volatile queues alone go on; one of both is refused as a whole."""
    env = new_machine(1)
    store = open_store(env)
    make(store)
    env.capacity_bytes = env.used_bytes()
    with suppress(DiskFull):
        while True:
            store.put("p", b"x" * 5000)
    store.put("v", b"1")
    with store.transaction() as txn:
        txn.put("v", b"2")
        txn.put("p", b"x" * 5000)
        with pytest.raises(DiskFull):
            txn.commit()
        txn.rollback()
    assert take(store, "v") == [b"1"]
    assert store.status()["volatile"]["blocks"] == 0
    env.capacity_bytes = None
    store.close()


# Memory, threads, strategies


@pytest.mark.cases(2)
def test_promise_9_what_was_read_takes_no_memory(store: Store) -> None:
    """Records and the log are kept small, without checkpoints, while one old message stays."""
    store.create_queue("v", kind="work", type="volatile")
    store.put("v", b"old")
    held = store.transaction()
    assert held.get("v") is not None
    for _ in range(4 * VOLATILE_RECORDS):
        store.put("v", b"new")
        assert take(store, "v") == [b"new"]
    queue = store._context.state.queue("v")
    assert len(queue.durable.tail) <= 2 * VOLATILE_RECORDS + 2
    assert len(queue.log._commits) <= 48 * (2 * VOLATILE_RECORDS + 2)
    assert store.status()["volatile"]["blocks"] == 1
    held.rollback()
    assert take(store, "v") == [b"old"]


def test_promise_9_the_capacity_bounds_what_waits_beside_what_was_read(store: Store) -> None:
    """One message of each batch waits: no more of the batch stays than counts, 64 KiB at most."""
    capacity = 2 << 20
    store.create_queue("v", kind="work", type="volatile", order="priority", capacity=capacity)
    batches = 0
    with suppress(QueueFull):
        while True:
            with store.transaction() as txn:
                txn.put("v", b"low", priority=0)
                for _ in range(9):
                    txn.put("v", b"x" * 20_000, priority=5)
            assert len(store.get_many("v", 9)) == 9
            batches += 1
    status, info = store.status()["volatile"], store.queue("v")
    assert info.messages == status["blocks"] == batches
    assert status["bytes"] < info.used_bytes + 200 * batches < capacity
    assert batches > capacity // VOLATILE_BLOCK_BYTES - 4
    assert take(store, "v") == [b"low"] * batches
    assert (store.queue("v").used_bytes, store.status()["volatile"]["blocks"]) == (0, 0)


def test_many_threads_pass_messages_on(store_path: str) -> None:
    """Through both types and back, each once."""
    messages, stages = 300, ("v", "p", "w")
    with Store.open(store_path, segment_bytes=4 << 20) as store:
        for name in stages:
            store.create_queue(name, kind="work", type="persistent" if name == "p" else "volatile")
        store.create_queue("end", kind="work")

        def pass_on(source: str, target: str) -> None:
            while True:
                with store.transaction() as txn:
                    message = txn.get(source, timeout=SECONDS)
                    assert message is not None
                    if message.payload == b"stop":
                        return
                    txn.put(target, message.payload)

        pairs = list(zip(stages, (*stages[1:], "end"), strict=True))
        threads = [threading.Thread(target=pass_on, args=pair) for pair in pairs for _ in range(2)]
        for thread in threads:
            thread.start()
        for number in range(messages):
            store.put("v", b"%d" % number)
        while store.queue("end").messages < messages:
            assert all(thread.is_alive() for thread in threads)
            time.sleep(0.001)
        for source, _ in pairs:
            store.put_many(source, [b"stop"] * 2)
        for thread in threads:
            thread.join(SECONDS)
        assert Counter(take(store, "end")) == Counter(b"%d" % n for n in range(messages))
        assert store.status()["volatile"]["blocks"] == 0
        assert store.admin.verify().ok


@pytest.mark.parametrize(
    "strategy", ["lock-all", "reserve-at-open", "reserve-mode", "reserve-mode-counted"]
)
def test_every_strategy_commits_them(store_path: str, strategy: str) -> None:
    """Space is taken and given back by the same rules."""
    with Store.open(store_path, strategy=strategy, segment_bytes=4 << 20) as store:
        make(store)
        for _ in range(3):
            with store.transaction() as txn:
                for name in ("v", "p", "gone"):
                    txn.put(name, b"x")
        with store.transaction() as txn:
            assert [len(txn.get_many(name, 10)) for name in ("v", "p", "gone")] == [3, 3, 3]
        assert [q.used_bytes for q in store.queues()] == [0] * 5
        assert store.admin.verify().ok


def test_who_reads_past_messages_lets_go_of_them(store: Store) -> None:
    """A subscription that goes and a queue that is dropped leave nothing in memory."""
    store.create_queue("t", kind="topic", type="volatile")
    store.subscribe("t", "a")
    store.subscribe("t", "b")
    with store.transaction() as txn:
        txn.put_many("t", [b"x"] * 10)
    store.put("t", b"y")
    assert len(take(store, "t/a")) == 11
    store.unsubscribe("t", "b")
    assert store.status()["volatile"]["blocks"] == 0
    store.put("t", b"z")
    store.drop_queue("t")
    assert store.status()["volatile"]["blocks"] == 0


def test_an_interrupted_rollback_and_a_time_out(store: Store) -> None:
    """What a transaction holds of volatile queues is given back by whatever ends it."""
    store.create_queue("v", kind="work", type="volatile")
    store.put("v", b"x")
    txn = store.transaction()
    assert txn.get("v") is not None
    txn.put_many("v", [b"y"] * 3)
    store.admin.abort(txn.id)
    with pytest.raises(QuireError):
        txn.commit()
    assert store.browse("v").payloads() == [b"x"]
    info = store.queue("v")
    assert (info.open_transactions, info.messages) == (0, 1)
    assert take(store, "v") == [b"x"]


def test_prepared_transactions_stand_beside_them(tmp_path: Path) -> None:
    """A store with one that is prepared has its volatile queues all the same."""
    options: dict[str, Any] = {"segment_bytes": 4 << 20}
    path = str(tmp_path / "store")
    with Store.open(path, **options) as store:
        make(store)
        txn = store.transaction()
        txn.put("p", b"prepared")
        txn.prepare("x")
        store.put("v", b"gone")
        with pytest.raises(InvalidArgument):
            store.transaction(owner="me").prepare("")
    with Store.open(path, **options) as store:
        store.put("v", b"there")
        store.prepared.commit("x")
        assert take(store, "p") == [b"prepared"]
        assert take(store, "v") == [b"there"]
        assert store.admin.verify().ok


@pytest.mark.parametrize("on", ["put", "removal"])
@pytest.mark.parametrize("gets", [0, 2])
def test_what_a_listener_missed_before_an_opening_is_not_known(on: Any, gets: int) -> None:
    """It is None, where a listener goes on from a place that an owner before had told it."""
    env = SimEnv()
    with Store.open("/s", env=env, background=False) as store:
        store.create_queue("q", type="volatile")
        before = store.listeners.poll_notices("q", on=on)
        named = store.listeners.add("q", on=on, name="me")
        assert named.get(0) is None
        store.put_many("q", [b"m"] * gets)
        assert len(store.get_many("q")) == gets
    with Store.open("/s", env=env, background=False) as store:
        ids = [store.put("q", b"after"), store.put("q", b"after")]
        found = store.listeners.poll_notices(
            "q", before.position, on=on, created_us=before.created_us
        )
        assert found.missed is None
        assert found.ids == ([] if on == "removal" else ids)
        assert store.get("q") is not None
        named = store.listeners.add("q", on=on, name="me")
        notice = named.get(0)
        assert notice is not None
        assert notice.missed is None
        later = store.listeners.poll_notices("q", notice.position, on=on)
        assert (later.missed, later.ids) == (0, [])
        assert store.get("q") is not None
        notice = named.get(0)
        assert (notice and (notice.missed, notice.ids)) == (None if on == "put" else (0, ids[1:]))
