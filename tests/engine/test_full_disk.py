"""A full disk is a state, not an end: reading, dropping, deciding and opening work on it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.errors import DiskFull, QueueFull, QueueNotFound
from quire.testing import SimEnv
from tests.engine.mounted import fill_rest, small_disk
from tests.kit.messages import take
from tests.kit.waiting import SECONDS

SMALL: dict[str, Any] = {"segment_bytes": 1 << 20, "grow_bytes": 1 << 18}
NUMBER_BYTES = 8


def payload(number: int, size: int) -> bytes:
    """A message that can be told."""
    return number.to_bytes(NUMBER_BYTES, "big") + b"x" * size


def number_of(message: bytes) -> int:
    """Which one it is."""
    return int.from_bytes(message[:NUMBER_BYTES], "big")


def repeat(action: Callable[[], object]) -> None:
    """Do it until it raises; not for ever."""
    for _ in range(1_000_000):
        action()


class Producer:
    """Puts to two queues in turn until there is no room."""

    def __init__(self, store: Any, size: int) -> None:
        self.store = store
        self.size = size
        self.put: dict[str, list[int]] = {"all": [], "some": []}
        self.number = 0

    def step(self) -> None:
        self.number += 1
        queue = "some" if self.number % 5 == 0 else "all"
        self.store.put(queue, payload(self.number, self.size))
        self.put[queue].append(self.number)

    def until_full(self) -> None:
        with pytest.raises((DiskFull, QueueFull)):
            repeat(self.step)


def drain(store: Any, queue: str) -> list[int]:
    """Take everything, each message in a transaction of its own; the numbers."""
    taken: list[int] = []
    while True:
        with store.transaction() as txn:
            message = txn.get(queue)
            if message is None:
                return taken
            taken.append(number_of(message.payload))


# On real file systems -----------------------------------------------------------------------------


@pytest.mark.cases(6, of_file=True)
@pytest.mark.cases(8)
@pytest.mark.promise(5)
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize(
    ("kind", "megabytes", "size"),
    [("tmpfs", 48, 200_000), ("tmpfs", 16, 2_000), ("ext4", 48, 20_000), ("ext4", 80, 400_000)],
)
def test_promise_5_a_full_file_system_is_drained_to_empty(
    kind: str, megabytes: int, size: int, share: bool
) -> None:
    """Filled by puts and by others; then read to the end, closed and opened, without any help."""
    with small_disk(kind, megabytes << 20) as place:
        path = str(place / "store")
        store = quire.open(path, share=share)
        store.create_queue("all", kind="work")
        store.create_queue("some", kind="work")
        store.create_queue("topic", kind="topic")
        store.subscribe("topic", "a")
        store.put("topic", b"waits")
        producer = Producer(store, size)
        producer.until_full()
        fill_rest(place)
        producer.until_full()
        fill_rest(place)
        assert os.statvfs(place).f_bavail < 64  # the store's own threads may give some back
        assert sum(map(len, producer.put.values())) > 20
        store.admin.checkpoint()
        assert store.admin.verify().ok
        store.close()
        store = quire.open(path, share=share)  # which rolls back, recovers, locks and listens
        assert store.admin.verify().ok
        half = len(producer.put["all"]) // 2
        with store.transaction() as txn:
            first = [number_of(p) for p in txn.get_many("all", half).payloads()]
        assert first == producer.put["all"][:half]
        store.admin.checkpoint()
        assert drain(store, "all") == producer.put["all"][half:]
        store.unsubscribe("topic", "a")
        store.drop_queue("topic")
        store.close()
        store = quire.open(path, share=share)
        assert drain(store, "some") == producer.put["some"]
        store.drop_queue("all")
        store.admin.checkpoint()
        assert store.admin.verify().ok
        os.remove(place / "others")
        store.put("some", b"goes on")
        assert store.browse("some").payloads() == [b"goes on"]
        store.close()


@pytest.mark.cases(6, of_file=True)
@pytest.mark.promise(5)
def test_promise_5_a_store_of_default_size_on_300_megabytes() -> None:
    """The case that once was a dead end: 18 of 1,002 messages could be read."""
    with small_disk("tmpfs", 300_000_000) as place:
        with Store.open(str(place / "store")) as store:
            store.create_queue("all", kind="work")
            store.create_queue("some", kind="work")
            producer = Producer(store, 250_000)
            producer.until_full()
            shown = store.status()["kept_back"]
            assert shown["whole"]
            assert shown["journal_bytes"] == 2 * (128 << 10)
            assert shown["checkpoint_bytes"] > 128 << 10
            assert drain(store, "all") == producer.put["all"]
            assert drain(store, "some") == producer.put["some"]
            assert store.admin.verify().ok
        with Store.open(str(place / "store")) as store:
            store.put("all", b"goes on")


# On the simulated disk ----------------------------------------------------------------------------


def full_store(env: SimEnv, size: int = 3000, **options: Any) -> tuple[Store, Producer]:
    """A store with two queues on a disk that is full now."""
    store = Store.open("/s", env=env, background=False, **{**SMALL, **options})
    store.create_queue("all", kind="work")
    store.create_queue("some", kind="work")
    producer = Producer(store, size)
    for _ in range(30):
        producer.step()
    env.capacity_bytes = env.used_bytes()
    producer.until_full()
    return store, producer


@pytest.mark.cases(6, of_file=True)
@pytest.mark.promise(5)
def test_promise_5_relieving_never_ends(seed: int) -> None:
    """Thousands of commits that free nothing: one of two subscriptions reads, and gives back."""
    env = SimEnv(seed)
    store = Store.open("/s", env=env, background=False, **SMALL)
    store.create_queue("topic", kind="topic")
    store.subscribe("topic", "reads")
    store.subscribe("topic", "lags")
    for number in range(2000):
        store.put("topic", b"%d" % number)
    env.capacity_bytes = env.used_bytes()
    with pytest.raises(DiskFull):
        repeat(lambda: store.put("topic", b"more"))
    end = store.queue("topic").messages
    taken: list[bytes] = []
    while len(taken) < end:
        env.capacity_bytes = env.used_bytes()  # others take what becomes free
        with store.transaction() as txn:
            message = txn.get("topic/reads")
            assert message is not None
            taken.append(message.payload)
    assert taken[:2000] == [b"%d" % number for number in range(2000)]
    assert store.status()["checkpoints"]["count"] > 20
    assert store.admin.verify().ok
    store.close()
    with Store.open("/s", env=env, background=False) as store:
        assert store.admin.verify().ok
        assert len(take(store, "topic/lags")) == end


@pytest.mark.cases(6, of_file=True)
@pytest.mark.promise(5)
def test_promise_5_no_order_of_reading_needs_more_than_is_kept_back(seed: int) -> None:
    """Two subscriptions read by priority, not in the order of the puts: drained to empty.

    In between, each checkpoint has thousands of runs of what is read, and a spare has room for it.
    """
    env = SimEnv(seed)
    store = Store.open("/s", env=env, background=False, **SMALL)
    store.create_queue("topic", kind="topic", order="priority")
    store.subscribe("topic", "reads")
    store.subscribe("topic", "lags")
    with store.transaction() as txn:
        for number in range(14_000):
            txn.put("topic", b"x", priority=9 * (number % 2))
    env.capacity_bytes = env.used_bytes()
    with pytest.raises(DiskFull):
        repeat(lambda: store.put("topic", bytes(50_000)))
    durable, most_runs = store._context.state.queue("topic").durable, 0
    for source in ("topic/reads", "topic/lags"):
        got = -1
        while got:
            env.capacity_bytes = env.used_bytes()  # others take what becomes free
            with store.transaction() as txn:
                got = len(txn.get_many(source, 2500).payloads())
            runs = [durable.released, *(each.done for each in durable.subscriptions.values())]
            most_runs = max(most_runs, sum(map(len, runs)))
    assert store.queue("topic").messages == 0
    assert most_runs > 12_000
    assert store.admin.verify().ok
    with Store.open("/s", env=env.kill(), background=False) as store:
        assert store.admin.verify().ok
        assert store.browse("topic/lags").payloads() == []


@pytest.mark.promise(5)
def test_promise_5_what_makes_room_goes_on(seed: int) -> None:
    """Prepared transactions are decided, queues and subscriptions go, messages are passed over."""
    env = SimEnv(seed)
    store = Store.open("/s", env=env, background=False, **SMALL)
    for name in ("topic", "dropped"):
        store.create_queue(name, kind="topic")
        store.subscribe(name, "a")
        store.subscribe(name, "b")
    for xid in ("committed", "rolled back"):
        txn = store.transaction()
        txn.put("topic", xid.encode())
        txn.prepare(xid)
    env.capacity_bytes = env.used_bytes()
    with pytest.raises(DiskFull):
        repeat(lambda: store.put("dropped", b"x" * 500))
    store.prepared.commit("committed")
    store.prepared.rollback("rolled back")
    with pytest.raises(DiskFull):
        store.put("topic", b"x")
    with pytest.raises(DiskFull), store.transaction() as txn:
        txn.enter("key", 1)
    with store.transaction() as txn:
        txn.read_to("dropped/a", store.queue("dropped").messages // 2)
        txn.enter("key", 2)
    store.unsubscribe("dropped", "b")
    store.drop_queue("dropped")
    store.admin.checkpoint()
    store.close()
    with Store.open("/s", env=env, background=False) as store:
        assert take(store, "topic/a") == take(store, "topic/b") == [b"committed"]
        assert store.integration.ledger("key") == 2
        assert store.admin.verify().ok
        with pytest.raises(QueueNotFound):
            store.queue("dropped")
        env.capacity_bytes += 1 << 18
        store.put("topic", b"there is room again")


@pytest.mark.promise(5)
def test_promise_5_what_was_refused_holds_no_key(seed: int) -> None:
    """A version of the ledger whose commit found no room is committed by the next transaction."""
    env = SimEnv(seed)
    store, _ = full_store(env)
    refused = store.transaction()
    refused.put("all", b"x" * 100_000)
    refused.enter("key", 1)
    with pytest.raises(DiskFull):
        refused.commit()
    env.capacity_bytes = None
    with store.transaction() as txn:
        txn.enter("key", 1)
    assert store.integration.ledger("key") == 1
    store.close()


@pytest.mark.promise(5)
@pytest.mark.parametrize("data_files", [1, 3])
def test_promise_5_a_checkpoint_moves_what_fits(data_files: int) -> None:
    """Free pages of the data files are used first; what does not fit stays in the journal."""
    env = SimEnv()
    store = Store.open("/s", env=env, background=False, data_files=data_files, **SMALL)
    store.create_queue("all", kind="work", data_file=data_files - 1)
    store.create_queue("moved", kind="work", data_file=data_files - 1)
    for _ in range(2):
        with store.transaction() as txn:
            txn.put("moved", b"y" * 300_000)  # in the data file at once
    for number in range(100):
        store.put("all", payload(number, 10_000))
    take(store, "moved")
    env.capacity_bytes = env.used_bytes()
    with pytest.raises(DiskFull):
        repeat(lambda: store.put("moved", b"z" * 2000))
    store.admin.checkpoint()
    after = store.status()
    assert after["checkpoints"]["moved_bytes"] > 300_000
    assert after["data"]["free_bytes"] < 300_000
    assert sum(len(queue.durable.tail) for queue in store._context.state.queues.values()) > 20
    assert store.admin.verify().ok
    moved = take(store, "moved")
    env = env.crash(outcome="lost")
    with Store.open("/s", env=env, background=False) as store:
        assert store.admin.verify().ok
        assert take(store, "moved") == []
        assert drain(store, "all") == list(range(100))
    assert set(moved) == {b"z" * 2000}


def test_others_of_a_group_are_refused_alone() -> None:
    """A group of a put and a read: the read stands, the put gets DiskFull, and nothing of it."""
    env = SimEnv()
    store, producer = full_store(env)
    txn = store.transaction()
    assert txn.get("all") is not None
    blocked, go = threading.Event(), threading.Event()

    def hold(call: Any) -> None:
        if call.kind == "write" and threading.current_thread() is first:
            blocked.set()
            assert go.wait(SECONDS)

    def commit_first() -> None:
        take(store, "some", 1)

    outcomes: list[BaseException | None] = []

    def put() -> None:
        try:
            store.put("some", payload(0, 60_000))
            outcomes.append(None)
        except DiskFull as error:
            outcomes.append(error)

    first = threading.Thread(target=commit_first)
    others = [threading.Thread(target=put), threading.Thread(target=txn.commit)]
    env.before_call = hold
    first.start()
    assert blocked.wait(SECONDS)
    for thread in others:
        thread.start()
    while len(store._context.sequencer._queue) < 2:
        time.sleep(0.001)
    go.set()
    for thread in (first, *others):
        thread.join(SECONDS)
    env.before_call = None
    assert [type(outcome) for outcome in outcomes] == [DiskFull]
    assert txn.state == "committed"
    assert drain(store, "all") == producer.put["all"][1:]
    assert drain(store, "some") == producer.put["some"][1:]
    assert store.admin.verify().ok
    store.close()


@dataclass
class Known:
    """What was acknowledged to the workload of the crash test."""

    put: dict[str, list[int]] = field(default_factory=lambda: {"all": [], "some": []})
    taken: dict[str, int] = field(default_factory=lambda: {"all": 0, "some": 0})
    taking: dict[str, int] = field(default_factory=lambda: {"all": 0, "some": 0})
    dropping: bool = False
    full: bool = False


class Drained:
    """The workload: a store on a full disk is read, checkpointed, opened again, emptied."""

    def __init__(self, step: int, options: dict[str, Any]) -> None:
        self.step = step
        self.options = options

    def __call__(self, env: SimEnv, known: Known) -> None:
        crash_at, env.crash_at = env.crash_at, None
        store, producer = full_store(env, 2000, **self.options)
        known.put, known.full = producer.put, True
        begin = env.calls.last_number
        env.crash_at = None if crash_at is None else crash_at + begin
        self.begin = begin
        self.read(store, known, "all", 12)
        store.admin.checkpoint()
        self.read(store, known, "some", 100)
        store.close()
        store = Store.open("/s", env=env, background=False)
        self.read(store, known, "all", 30)
        known.dropping = True
        store.drop_queue("some")
        self.read(store, known, "all", 1000)
        store.close()

    def read(self, store: Store, known: Known, queue: str, messages: int) -> None:
        for _ in range(-(-messages // self.step)):
            with store.transaction() as txn:
                got = txn.get_many(queue, self.step).payloads()
                known.taking[queue] += len(got)
            known.taken[queue] += len(got)
            if not got:
                return


def check_drained(env: SimEnv, known: Known) -> None:
    """All that was acknowledged holds; the disk is still full, and the store is emptied."""
    if not known.full:
        return
    assert env.capacity_bytes is not None
    with Store.open("/s", env=env, background=False) as store:
        assert store.admin.verify().ok
        for queue in ("all", "some"):
            if known.dropping and queue == "some" and len(store.queues()) == 1:
                continue
            left = drain(store, queue)
            gone = len(known.put[queue]) - len(left)
            assert known.taken[queue] <= gone <= known.taking[queue]
            assert left == known.put[queue][gone:]
        store.admin.checkpoint()
        assert store.admin.verify().ok


@pytest.mark.cases(6, of_file=True)
@pytest.mark.cases(2)
@pytest.mark.promise(1, 2, 5, 8)
@pytest.mark.parametrize(("step", "options"), [(1, {}), (4, {"data_files": 2})])
def test_promise_1_2_5_8_power_failure_on_a_full_disk(
    seed: int, step: int, options: dict[str, Any]
) -> None:
    """At every call of draining it: it is recovered on the full disk, and drained to empty."""
    env, workload = SimEnv(seed), Drained(step, options)
    workload(env, Known())
    calls = env.calls.last_number - workload.begin
    cases = 0
    for number in range(1, calls + 1, 1 + calls // 60):
        env, known = SimEnv(seed), Known()
        env.crash_at = number
        try:
            workload(env, known)
        except BaseException:
            if not env.crashed:
                raise
        for after in (env.crash(outcome="lost"), env.crash(outcome="kept"), env.crash(seed=number)):
            check_drained(after, known)
            cases += 1
    assert cases > 100


@pytest.mark.cases(6, of_file=True)
@pytest.mark.promise(8)
def test_promise_8_openings_on_a_full_disk_never_end(seed: int) -> None:
    """Killed or cut off after each opening: every opening writes, and all of them succeed."""
    env = SimEnv(seed)
    store, producer = full_store(env)
    for number in range(150):
        env = env.kill() if number % 3 else env.crash(seed=number)
        store = Store.open("/s", env=env, background=False)
    assert drain(store, "all") == producer.put["all"]
    assert drain(store, "some") == producer.put["some"]
    assert store.admin.verify().ok
    store.close()
