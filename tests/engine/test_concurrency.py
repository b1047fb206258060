"""Threads: everything exactly once and in order, no two queue locks, nobody waits for the idle."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import QueueFull
from tests.kit.waiting import SECONDS


def run(*targets: Callable[[], None]) -> None:
    """Run all at once; raise what any of them raises."""
    errors: list[BaseException] = []

    def guarded(target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=guarded, args=(t,), daemon=True) for t in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


class TwoLocks(AssertionError):
    """A thread took a queue's lock while it held another's."""


class WatchedLock:
    """A queue's lock that knows which thread holds which."""

    held: threading.local = threading.local()
    violations: list[str]

    def __init__(self, lock: Any, name: str, violations: list[str]) -> None:
        self._lock = lock
        self._name = name
        self.violations = violations
        self.locked = lock.locked  # a Condition of Python 3.14 takes that, too

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        mine: list[str] = getattr(self.held, "names", [])
        self.held.names = mine
        if any(name != self._name for name in mine):  # a Condition asks whether it holds its own
            self.violations.append(f"{self._name} while holding {mine}")
        taken: bool = self._lock.acquire(blocking, timeout)
        if taken:
            mine.append(self._name)
        return taken

    def release(self) -> None:
        self.held.names.remove(self._name)
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


@contextmanager
def watched(store: Store) -> Iterator[list[str]]:
    """Watch the locks of all queues of the store."""
    violations: list[str] = []
    for queue in store._context.state.queues.values():
        watch: Any = WatchedLock(queue.lock, queue.name, violations)
        if queue.admission is queue.lock:  # not under lock-all, whose writers hold another before
            queue.admission = watch
        queue.lock = watch
    yield violations


def check_topic(store: Store, producers: int, rounds: int) -> None:
    """Both subscriptions see one order: that of the commits, and each producer's own."""
    with store.transaction() as txn:
        x, y = (txn.get_many(f"all/{name}", 100_000) for name in ("x", "y"))
    assert x.payloads() == y.payloads()
    assert x.ids == sorted(x.ids)
    by_producer: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for payload in x.payloads():
        who, number, part = payload.split(b"/")
        by_producer[who].append((int(number), int(part)))
    expected = [(number, part) for number in range(rounds) for part in range(3)]
    assert all(found == expected for found in by_producer.values())
    assert len(by_producer) == producers


@pytest.mark.promise(2)
@pytest.mark.promise(3)
@pytest.mark.promise(6)
def test_eight_producers_and_eight_consumers(store_path: str, rng: random.Random) -> None:
    """Compound transactions and random rollbacks on both sides: each message once, in order."""
    producers, consumers, rounds = 8, 8, 60
    queues = [f"q{n}" for n in range(4)]
    options: dict[str, Any] = {"checkpoint_bytes": 1 << 18, "segment_bytes": 1 << 20}
    with Store.open(store_path, **options) as store:
        for queue in queues:
            store.create_queue(queue, kind="work")
        store.create_queue("all", kind="topic")
        for name in ("x", "y"):
            store.subscribe("all", name)
        taken: list[list[tuple[str, bytes]]] = [[] for _ in range(consumers)]
        wanted = producers * rounds * (len(queues) // 2)
        lock, count = threading.Lock(), [0]
        seeds = [rng.random() for _ in range(producers + consumers)]

        def produce(me: int) -> None:
            mine = random.Random(seeds[me])
            number = 0
            while number < rounds:
                txn = store.transaction(large=mine.random() < 0.02)
                for queue in mine.sample(queues, len(queues) // 2):
                    txn.put(queue, b"%d/%d" % (me, number))
                txn.put_many("all", [b"%d/%d/%d" % (me, number, n) for n in range(3)])
                if mine.random() < 0.2:
                    txn.rollback()
                else:
                    txn.commit()
                    number += 1

        def consume(me: int) -> None:
            mine = random.Random(seeds[producers + me])
            while count[0] < wanted:
                txn = store.transaction()
                got = []
                for queue in mine.sample(queues, 2):
                    got += [(queue, m.payload) for m in txn.get_many(queue, 5, timeout=0.01)]
                if mine.random() < 0.3:
                    txn.rollback()
                    continue
                txn.commit()
                taken[me] += got
                with lock:
                    count[0] += len(got)

        with watched(store) as violations:
            run(
                *(lambda n=n: produce(n) for n in range(producers)),
                *(lambda n=n: consume(n) for n in range(consumers)),
            )
        assert violations == []
        every = [pair for part in taken for pair in part]
        assert len(every) == len(set(every)) == wanted
        check_topic(store, producers, rounds)
        assert all(q.used_bytes == q.open_transactions == 0 for q in store.queues())
        assert store.admin.verify().ok


@pytest.mark.promise(6)
def test_holding_two_queue_locks_is_caught(os_store: Store) -> None:
    """The canary: a commit that locks all its queues at once is noticed."""
    for name in ("a", "b"):
        os_store.create_queue(name, kind="work")
    with watched(os_store) as violations:
        with os_store.transaction() as txn:
            txn.put("a", b"1")
            txn.put("b", b"2")
        assert violations == []
        first, second = os_store._context.state.queues.values()
        with first.lock, second.lock:
            pass
        assert violations == ["b while holding ['a']"]


@pytest.mark.promise(6)
@pytest.mark.parametrize("strategy", ["reserve-at-open", "reserve-mode", "reserve-mode-counted"])
def test_all_calls_hold_one_queue_lock_at_most(store_path: str, strategy: str) -> None:
    """Checkpoints, spills, prepares, status, verify, leases, drops and subscriptions too."""
    with Store.open(store_path, strategy=strategy, write_buffer_messages=50) as store:
        call_everything(store)


def call_everything(store: Store) -> None:
    """Under watch."""
    for name in ("a", "b", "c"):
        store.create_queue(name, kind="topic")
        store.subscribe(name, "s")
    with watched(store) as violations:
        for n in range(50):
            with store.transaction(large=n % 10 == 0) as txn:
                txn.put_many("a", [b"x" * 9000] * 40)
                txn.put("b", b"y")
                txn.get("a/s")
                txn.read_to("b/s", max(store.integration.positions("b")[1] - 1, 0))
                if n % 10 == 7:
                    txn.put_many("c", [b"spilled"] * 60)
                    txn.put("c", b"last")
                    txn.prepare(f"x{n}")
                    (store.prepared.rollback if n == 17 else store.prepared.commit)(f"x{n}")
            if n % 10 == 5:
                store.admin.checkpoint()
        lease = store.integration.lease("a", *store.integration.positions("a"))
        store.integration.end_lease(lease.lease_id)
        store.status()
        assert store.admin.verify().ok
        store.subscribe("a", "late", start="latest")
        store.unsubscribe("a", "s")
        store.browse("b/s")
        store.drop_queue("c")
        txn = store.transaction()
        txn.get("a/late")
        txn.put("b", b"z")
        txn.rollback()
    assert violations == []


@pytest.mark.cases(4)
@pytest.mark.promise(4)
def test_an_open_transaction_stalls_nobody(sim_store: Store) -> None:
    """10,000 others commit and are read in its queues meanwhile; what it pins is shown."""
    store = sim_store
    store.create_queue("q", kind="work")
    store.create_queue("other", kind="work")
    store.put("q", b"held")
    idle = store.transaction()
    idle.put("q", b"x" * 1000)
    idle.put("other", b"y")
    assert idle.get("q") is not None
    for n in range(10_000):  # if it stalled one of them it would be for an hour
        store.put("q", b"%d" % n)
        if n % 1000 == 999:
            with store.transaction() as txn:
                got = txn.get_many("q", 10_000).payloads()
                assert got == [b"%d" % i for i in range(n - 999, n + 1)]
                txn.put("other", b"z")
    (shown,) = store.status()["transactions"]
    assert (shown["messages"], shown["queues"], shown["in_flight"]) == (2, ["other", "q"], 1)
    assert shown["bytes"] >= 1001
    info = store.queue("q")
    assert info.open_transactions == 1
    assert info.used_bytes >= 1000
    idle.commit()
    assert store.browse("q").payloads() == [b"x" * 1000]


@pytest.mark.promise(4)
def test_a_forgotten_transaction_does_not_stop_checkpoints(os_store: Store) -> None:
    """The journal's space is given back while it is open, and it can commit all the same."""
    store = os_store
    store.create_queue("q", kind="work")
    idle = store.transaction()
    idle.put("q", b"late")
    for _ in range(20):
        with store.transaction() as txn:
            txn.put_many("q", [b"x" * 10_000] * 10)
            txn.get_many("q")
    store.admin.checkpoint()
    assert store.status()["journal"]["since_checkpoint_bytes"] < 100_000
    idle.commit()
    assert store.browse("q").payloads()[-1] == b"late"


@pytest.mark.promise(4)
@pytest.mark.promise(5)
def test_a_queue_filled_by_an_idle_transaction_hinders_no_other_queue(os_store: Store) -> None:
    """The space that it takes is bounded by the queue's capacity."""
    store = os_store
    store.create_queue("small", kind="work", capacity=4096)
    store.create_queue("q", kind="work")
    idle = store.transaction()
    with pytest.raises(QueueFull):
        idle.put_many("small", [b"x" * 5000])
    idle.put("small", b"x" * 3800)
    with pytest.raises(QueueFull):
        store.put("small", b"x" * 100)
    for _ in range(10):
        store.put("q", b"y")
    idle.rollback()
    store.put("small", b"x" * 100)


@pytest.mark.promise(1)
def test_concurrent_commits_share_writes(os_store: Store) -> None:
    """Group commit: with 16 threads there are fewer groups than commits; alone, as many."""
    store = os_store
    store.create_queue("q", kind="work")
    before = store.status()
    for _ in range(10):
        store.put("q", b"x")
    alone = store.status()
    assert alone["groups"] - before["groups"] == alone["commits"] - before["commits"] == 10
    sequencer = store._context.sequencer

    def put() -> None:
        for _ in range(50):
            store.put("q", b"x" * 100)

    def come_together() -> None:
        while len(sequencer._queue) < 2:
            time.sleep(0.001)

    run(lambda: sequencer.exclusive(come_together), *[put] * 16)
    after = store.status()
    commits = after["commits"] - alone["commits"]
    assert commits == 16 * 50
    assert after["groups"] - alone["groups"] < commits


def test_waiting_gets_wake_up_on_commit(store: Store, work: str, topic: str) -> None:
    """A get waits for a commit, not for a poll; each message wakes one that takes it."""
    woken: list[bytes] = []
    started = threading.Barrier(5)

    def wait(source: str) -> None:
        started.wait()
        with store.transaction() as txn:
            message = txn.get(source, timeout=SECONDS)
            assert message is not None
            woken.append(message.payload)

    threads = [threading.Thread(target=wait, args=(s,)) for s in (work, work, "topic/a", "topic/b")]
    for thread in threads:
        thread.start()
    started.wait()
    time.sleep(0.05)
    with store.transaction() as txn:
        txn.put(work, b"1")
        txn.put(topic, b"3")
    store.put(work, b"2")
    for thread in threads:
        thread.join(SECONDS)
    assert sorted(woken) == [b"1", b"2", b"3", b"3"]


def test_waiting_gets_wake_up_on_rollback_and_time_out(store: Store, work: str) -> None:
    """What is given back wakes those who wait; a time-out without messages gives None."""
    store.put(work, b"1")
    holder = store.transaction()
    assert holder.get(work) is not None
    got: list[Any] = []

    def wait() -> None:
        with store.transaction() as txn:
            got.append(txn.get(work, timeout=SECONDS))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    holder.rollback()
    thread.join(SECONDS)
    assert [(m.payload, m.delivery_count) for m in got] == [(b"1", 2)]
    with store.transaction() as txn:
        begun = time.monotonic()
        assert txn.get(work, timeout=0.05) is None
        assert not txn.get_many(work, timeout=0.01)
        assert time.monotonic() - begun >= 0.05


def test_a_get_waits_without_using_the_processor(os_store: Store) -> None:
    """No polling: a wait of half a second calls next to nothing."""
    os_store.create_queue("q", kind="work")
    calls: list[str] = []
    with os_store.transaction() as txn:
        sys.setprofile(lambda _, event, __: calls.append(event))
        try:
            assert txn.get("q", timeout=0.5) is None
        finally:
            sys.setprofile(None)
    assert 0 < len(calls) < 1000
