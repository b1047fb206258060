"""Growing queues and messages that give way, over power failures, failed writes and kills."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.transactions.transaction import EmbeddedTransaction
from quire.engine.upkeep.own_transaction import take_oldest
from quire.errors import DiskFull, QueueFull
from tests.engine.crashing.definitions import KIB, NAMES, OVERFLOWING, Overflow
from tests.engine.crashing.parts import Site
from tests.engine.workload import new_machine, open_store


def test_a_kill_loses_none(seed: int) -> None:
    """A kill after any round loses none."""
    env, part = new_machine(seed), Overflow()
    with open_store(env) as store:
        part.make(store)
    for _ in range(4):
        site = Site(env)
        part.check(site)
        assert site.store.admin.verify().ok
        env = env.kill()
    site = Site(env)
    part.check(site)
    assert [len(site.numbers(name, 3)) for name in NAMES[1:]] == [4, 4, 3]
    site.store.close()


def fill(store: Store) -> int:
    """Until it refuses; how many were put."""
    for number in range(10_000):
        try:
            store.put("o-grown", KIB)
        except (QueueFull, DiskFull):
            return number
    pytest.fail("it never refuses")


def test_a_full_disk_refuses_growth(seed: int) -> None:
    """The put says so; what is there stays, and with room on the disk it goes on."""
    env = new_machine(seed)
    with open_store(env) as store:
        store.admin.create_queues(OVERFLOWING)
        env.capacity_bytes = env.used_bytes()
        number = fill(store)
        assert store.queue("o-grown").messages == number
        env.capacity_bytes = None
        for _ in range(60):
            store.put("o-grown", KIB)
        assert store.queue("o-grown").messages == number + 60
        assert store.queue("o-grown").capacity_bytes > 60 << 10
        assert store.admin.verify().ok


def test_many_threads_put_into_small_queues() -> None:
    """Each message is there, was dropped or is a dead letter, and the counts say so."""
    with open_store(new_machine(5)) as store:
        store.admin.create_queues(OVERFLOWING)
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
        assert store.queue("o-grown").messages == 80
        assert store.queue("o-work").messages + store.queue("o-dead").messages == 80
        for name in ("o-news", "o-nobody"):
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
    getting = EmbeddedTransaction.getting

    def read_past(self: EmbeddedTransaction, action: Any, *args: Any) -> Any:
        taken = getting(self, action, *args)
        if action is take_oldest:
            with store.transaction() as txn:
                txn.read_to("q", 1)
        return taken

    monkeypatch.setattr(EmbeddedTransaction, "getting", read_past)
    store.put_many("q", [b"4", b"5"])
    assert store.browse("dead").payloads() == [b"1"]
    assert store.browse("q").payloads() == [b"2", b"3", b"4", b"5"]
    store.close()
