"""Growing queues and messages that give way, over power failures, failed writes and kills."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.transactions.gets import Gets
from quire.engine.upkeep.own_transaction import OwnTransaction
from quire.errors import DiskFull, QueueFull
from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import new_machine, open_store

KIB = b"x" * 1024
QUEUES: list[dict[str, Any]] = [
    {"name": "dead", "kind": "work"},
    {"name": "grown", "kind": "work", "capacity": 8 << 10, "grow_to": 1 << 20},
    {"name": "news", "kind": "topic", "max_messages": 4, "overflow": "drop_oldest"},
    {
"name": "nobody", "kind": "topic", "max_messages": 4, "overflow": "drop_oldest",
"order": "priority",
},
    {
        "name": "work", "kind": "work", "max_messages": 3, "overflow": "dead_letter",
        "dead_letter": "dead", "timed": True, "grouped": True,
    },
]  # fmt: skip
NAMES = ["grown", "news", "nobody", "work"]
Done = dict[str, list[int]]  # the numbers that were acknowledged


def put(store: Store, done: Done, rounds: int) -> None:
    """Messages by number into each queue: alone, several, and into all by one commit."""
    for turn in range(rounds):
        for name in NAMES:
            first = len(done[name])
            payloads = [b"%3d" % number + KIB for number in range(first, first + 1 + turn % 2)]
            store.put_many(name, payloads) if turn % 2 else store.put(name, payloads[0])
            done[name] += range(first, first + len(payloads))
        with store.transaction() as txn:
            for name in NAMES:
                txn.put(name, b"%3d" % len(done[name]) + KIB)
        for name in NAMES:
            done[name].append(len(done[name]))


def run(env: SimEnv, done: Done) -> None:
    """From nothing."""
    env.make_directory("/disk")
    env.sync_directory("/")
    with open_store(env) as store:
        store.admin.create_queues(QUEUES)
        store.subscribe("news", "a")
        store.subscribe("news", "b")
        done |= {name: [] for name in NAMES}
        put(store, done, 3)
        store.admin.checkpoint()
        put(store, done, 2)


def numbers(store: Store, queue: str) -> list[int]:
    """What is in it."""
    return [int(payload[:3]) for payload in store.browse(queue, 1000).payloads()]


def check(store: Store, done: Done) -> None:
    """All that was acknowledged is there, gave way and is counted, or is a dead letter."""
    report = store.admin.verify()
    assert report.ok, report.findings
    for name in NAMES:
        info = store.queue(name)
        before = numbers(store, "dead") if name == "work" else list(range(info.dropped))
        found = before + numbers(store, name)
        assert found == list(range(len(found))), name
        assert 0 <= len(found) - len(done[name]) <= 2, name  # what was not acknowledged
        assert info.max_messages is None or info.messages <= info.max_messages
        assert (info.dropped > 0) <= (info.overflow == "drop_oldest")
        done[name] = found


def test_what_gives_way_does_so_whole(seed: int) -> None:
    """At every call of the engine; and the store goes on from there."""

    def look(env: SimEnv, done: Done) -> None:
        if not done:
            return
        done = {name: list(known) for name, known in done.items()}
        with open_store(env) as store:
            check(store, done)
            put(store, done, 1)
            check(store, done)

    assert enumerate_crashes(run, look, dict, seed=seed, rounds=1, every=8) > 40


def test_a_kill_loses_none(seed: int) -> None:
    """A kill after any round loses none."""
    env = new_machine(seed)
    done: Done = {name: [] for name in NAMES}
    store = open_store(env)
    store.admin.create_queues(QUEUES)
    for _ in range(4):
        put(store, done, 1)
        env = env.kill()
        store = open_store(env)
        check(store, done)
    assert [len(numbers(store, name)) for name in NAMES[1:]] == [4, 4, 3]
    store.close()


def fill(store: Store) -> int:
    """Until it refuses; how many were put."""
    for number in range(10_000):
        try:
            store.put("grown", KIB)
        except (QueueFull, DiskFull):
            return number
    pytest.fail("it never refuses")


def test_a_full_disk_refuses_growth(seed: int) -> None:
    """The put says so; what is there stays, and with room on the disk it goes on."""
    env = new_machine(seed)
    with open_store(env) as store:
        store.admin.create_queues(QUEUES)
        env.capacity_bytes = env.used_bytes()
        number = fill(store)
        assert store.queue("grown").messages == number
        env.capacity_bytes = None
        for _ in range(60):
            store.put("grown", KIB)
        assert store.queue("grown").messages == number + 60
        assert store.queue("grown").capacity_bytes > 60 << 10
        assert store.admin.verify().ok


def test_many_threads_put_into_small_queues() -> None:
    """Each message is there, was dropped or is a dead letter, and the counts say so."""
    with open_store(new_machine(5)) as store:
        store.admin.create_queues(QUEUES)
        store.create_queue("waits", kind="work", max_messages=3, overflow="wait")
        got: list[bytes] = []
        errors: list[BaseException] = []

        def work(thread: int) -> None:
            try:
                for number in range(20):
                    with store.transaction() as txn:
                        for name in NAMES:
                            txn.put(name, b"%d %d" % (thread, number))
                    store.put("waits", b"%d" % number, timeout=30.0)
            except BaseException as error:  # noqa: BLE001 shown below
                errors.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        while len(got) < 80 and not errors:
            got += store.get_many("waits", 2, timeout=5.0).payloads()
        for thread in threads:
            thread.join()
        assert not errors, errors
        assert store.queue("grown").messages == 80
        assert store.queue("work").messages + store.queue("dead").messages == 80
        for name in ("news", "nobody"):
            info = store.queue(name)
            assert info.messages + info.dropped == 80
            assert info.messages <= 4
        assert store.admin.verify().ok


def test_what_is_read_meanwhile_is_no_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anything in its stead, which would be there twice."""
    store = open_store(new_machine(7))
    store.create_queue("dead", kind="work")
    store.create_queue("q", kind="work", max_messages=4, overflow="dead_letter", dead_letter="dead")
    store.put_many("q", [b"%d" % number for number in range(4)])
    getting = OwnTransaction.getting

    def read_past(self: OwnTransaction, action: Any, *args: Any) -> Any:
        taken = getting(self, action, *args)
        if action is Gets.oldest:
            with store.transaction() as txn:
                txn.read_to("q", 1)
        return taken

    monkeypatch.setattr(OwnTransaction, "getting", read_past)
    store.put_many("q", [b"4", b"5"])
    assert store.browse("dead").payloads() == [b"1"]
    assert store.browse("q").payloads() == [b"2", b"3", b"4", b"5"]
    store.close()
