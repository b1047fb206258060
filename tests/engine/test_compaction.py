"""Compaction: the disk is given back, whatever fails; what is kept back for a full disk stays."""

from __future__ import annotations

import errno
import threading
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import DiskFull, QuireError
from quire.limits import KEPT_BACK_SEGMENTS
from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import PATH, new_machine, open_store

BIG = 4000


def burst(store: Store, messages: int = 400) -> None:
    """Make the journal's segments and a data file large, and read nearly all of it."""
    store.create_queue("q", kind="work", exist_ok=True)
    for number in range(messages):
        store.put("q", b"%d " % number * (BIG // 4))
        if number % 40 == 39:
            store.admin.checkpoint()
    store.get_many("q", messages - 3)


def larger_store(env: SimEnv) -> Store:
    """A store with segments that grow from the least to eight times that."""
    return open_store(env, segment_bytes=1 << 20, grow_bytes=1 << 16)


@pytest.fixture
def env(seed: int) -> SimEnv:
    """A machine with a durable directory."""
    return new_machine(seed)


def test_what_nobody_needs_is_given_back(env: SimEnv) -> None:
    """A store after a burst takes what a new one takes, and goes on."""
    new = larger_store(env)
    least = new._opened.journal.status().bytes
    new.close()
    store = larger_store(env)
    burst(store)
    journal = store._opened.journal
    journal.prepare_next()
    assert journal.status().bytes > 4 * least
    used = env.used_bytes()
    report = store.admin.compact()
    assert journal.status().bytes <= least
    assert report.before["journal"] > 4 * report.after["journal"]
    assert report.freed_bytes > 0
    assert env.used_bytes() <= used - report.freed_bytes // 2
    status = journal.status()
    assert (status.spares, status.ready) == (KEPT_BACK_SEGMENTS, 0)
    assert store._opened.kept_back.is_enough
    assert store.admin.compact().freed_bytes == 0
    assert store.admin.verify().ok
    assert len(store.get_many("q", 10)) == 3
    burst(store)
    store.close()
    store = larger_store(env)
    assert store.admin.verify().ok
    assert len(store.get_many("q", 10)) == 3
    store.close()


def test_data_files_are_cut(env: SimEnv) -> None:
    """Unread messages at the end of a mostly free file move down."""
    store = larger_store(env)
    store.create_queue("q", kind="work")
    for number in range(600):
        store.put("q", b"%d " % number + bytes(9000))
    store.admin.checkpoint()
    assert len(store.get_many("q", 595)) == 595
    report = store.admin.compact()
    assert report.after["data"] < report.before["data"] // 2
    assert [m.payload.split()[0] for m in store.browse("q")] == [b"%d" % n for n in range(595, 600)]
    assert store.admin.verify().ok
    store.close()


@dataclass
class Acknowledged:
    """What must be there."""

    put: set[bytes] = field(default_factory=set)
    got: set[bytes] = field(default_factory=set)
    maybe: set[bytes] = field(default_factory=set)


def work(env: SimEnv, oracle: Acknowledged) -> None:
    """Put, compact, put, compact, get."""
    store = open_store(env)
    store.create_queue("q", kind="work", exist_ok=True)
    for round_number in range(2):
        for number in range(8):
            payload = b"%d/%d" % (round_number, number) + bytes(3000 + 1500 * number)
            oracle.maybe.add(payload)
            store.put("q", payload)
            oracle.put.add(payload)
        store.admin.compact()
    with store.transaction() as transaction:
        oracle.got |= {bytes(message.payload) for message in transaction.get_many("q", 5)}
    store.admin.compact()
    store.close()


def check(env: SimEnv, oracle: Acknowledged) -> None:
    """Whatever was acknowledged is there, and the store goes on."""
    if not env.exists(f"{PATH}/checkpoint"):
        assert not oracle.put
        return
    store = open_store(env)
    report = store.admin.verify()
    assert report.ok, report.findings
    found = set()
    with suppress(QuireError):
        found = {bytes(message.payload) for message in store.browse("q")}
    assert oracle.put - oracle.got <= found <= oracle.maybe
    store.admin.compact()
    assert store.admin.verify().ok
    store.close()


@pytest.mark.crash
@pytest.mark.promise(1)
@pytest.mark.promise(8)
@pytest.mark.promise(11)
def test_promise_1_8_11_power_failure_and_errors_at_every_call(seed: int) -> None:
    """CP3: at each call the power fails, or an error of the disk comes."""
    every = 4
    assert enumerate_crashes(
        work, check, Acknowledged, seed=seed, rounds=1, every=every, new_env=new_machine
    )


@pytest.mark.long
@pytest.mark.crash
def test_each_call_of_a_compaction(seed: int) -> None:
    """The same, at every call, with more outcomes."""
    assert enumerate_crashes(work, check, Acknowledged, seed=seed, rounds=3, new_env=new_machine)


@pytest.mark.promise(5)
@pytest.mark.parametrize("kind", ["allocate", "write", "create", "rename", "remove", "truncate"])
def test_promise_5_a_refused_call_leaves_the_store_usable(env: SimEnv, kind: str) -> None:
    """Where the disk has no room for a step, the store goes on, and is compacted later."""
    for nth in range(1, 6):
        store = larger_store(env)
        burst(store, 120)
        fault = env.fail(kind, f"{PATH}*", nth, OSError(errno.ENOSPC, "full"))
        with suppress(DiskFull):
            store.admin.compact()
        fault.cancel()
        store.put("q", b"more")
        assert store.admin.verify().ok
        store.admin.compact()
        assert store.get_many("q", 10)
        store.close()


@pytest.mark.promise(5)
def test_promise_5_a_compacted_store_can_be_emptied_on_a_full_disk(env: SimEnv) -> None:
    """CP1: what reading needs until the store is empty is kept back still."""
    store = larger_store(env)
    burst(store, 200)
    for number in range(150):
        store.put("q", b"%d" % number)
    store.admin.compact()
    env.capacity_bytes = env.used_bytes()
    with suppress(DiskFull):
        for _ in range(1000):
            store.put("q", b"fills" * 200)
    with suppress(DiskFull):
        store.admin.compact()
    count = 0
    while store.get("q") is not None:
        count += 1
    assert count >= 153
    store.admin.checkpoint()
    store.close()
    store = larger_store(env)
    assert store.admin.verify().ok
    assert store.get("q") is None
    store.close()


def test_commits_go_on_beside_it(store_path: str) -> None:
    """CP2: producers and a consumer work while the store is compacted again and again."""
    store = Store.open(store_path, segment_bytes=1 << 20, checkpoint_bytes=1 << 20)
    store.create_queue("q", kind="work")
    done = threading.Event()
    got: list[bytes] = []

    def produce(name: int) -> None:
        for number in range(150):
            store.put("q", b"%d/%d " % (name, number) + bytes(2000))

    def consume() -> None:
        while True:
            message = store.get("q")
            if message is not None:
                got.append(bytes(message.payload).split()[0])
            elif done.is_set():
                return

    producers = [threading.Thread(target=produce, args=(name,)) for name in range(2)]
    consumer = threading.Thread(target=consume)
    for thread in (*producers, consumer):
        thread.start()
    for _ in range(6):
        store.admin.compact()
    for thread in producers:
        thread.join()
    done.set()
    consumer.join()
    assert sorted(got) == sorted(b"%d/%d" % (n, i) for n in range(2) for i in range(150))
    assert store.admin.verify().ok
    store.close()
