"""Many threads, many subscriptions, many transactions: what one does must not hurt another."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from quire.calls.signal_safety import allow_reentry
from quire.engine import EmbeddedStore as Store
from quire.engine.commits.definitions import Definitions
from quire.engine.transactions.transaction import EmbeddedTransaction as Transaction
from quire.errors import (
    DiskFull,
    InvalidArgument,
    StoreClosed,
    TransactionClosed,
    TransactionTimeout,
)
from quire.intervals import IntervalSet
from quire.testing import Call, SimEnv
from quire.writebuffer import WriteBuffer
from tests.kit.messages import take
from tests.kit.waiting import SECONDS

# Subscriptions ------------------------------------------------------------------------------------


@pytest.mark.cases(3)
@pytest.mark.parametrize("order", ["first to last", "last to first", "random"])
def test_what_many_subscriptions_cost_each_other(
    store: Store, order: str, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads looks at those that hold a message back, not at all others each time."""
    store.create_queue("topic", kind="topic")
    names = [f"s{number}" for number in range(100)]
    for name in names:
        store.subscribe("topic", name)
    for number in range(5):
        store.put("topic", b"%d" % number)
    if order == "last to first":
        names.reverse()
    elif order == "random":
        rng.shuffle(names)
    looks: list[int] = []
    look = IntervalSet.intersection

    def counted(self: IntervalSet, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        looks.append(1)
        return look(self, lo, hi)

    monkeypatch.setattr(IntervalSet, "intersection", counted)
    for name in names[:-1]:
        assert take(store, f"topic/{name}") == [b"0", b"1", b"2", b"3", b"4"]
    monkeypatch.undo()
    assert len(looks) <= 3 * len(names)
    assert store.queue("topic").messages == 5
    store.unsubscribe("topic", names[-1])
    assert store.queue("topic").messages == 0
    store.subscribe("topic", names[-1])
    store.put("topic", b"more")
    assert take(store, f"topic/{names[-1]}") == [b"more"]
    assert store.queue("topic").messages == 1


@pytest.mark.cases(8)
def test_subscriptions_are_found_while_others_are_made(os_store: Store) -> None:
    """A look-up by name does not trip over a new one."""
    os_store.create_queue("topic", kind="topic")
    os_store.subscribe("topic", "there")
    errors: list[BaseException] = []
    done = threading.Event()

    def look() -> None:
        try:
            while not done.is_set():
                os_store._context.state.queue("topic").subscription("there")
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(500):
        os_store.subscribe("topic", f"s{number}")
    done.set()
    thread.join()
    assert not errors


def test_a_topic_that_became_a_work_queue_is_not_subscribed(
    store: Store, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it was a topic when subscribe began."""
    submit = Definitions.submit

    def late(self: Definitions, *arguments: Any, **options: Any) -> None:
        monkeypatch.undo()
        allow_reentry(store.drop_queue, topic)
        allow_reentry(store.create_queue, topic, kind="work")
        submit(self, *arguments, **options)

    monkeypatch.setattr(Definitions, "submit", late)
    with pytest.raises(InvalidArgument, match="work queue"):
        store.subscribe(topic, "new")
    assert [s.name for s in store.subscriptions(topic)] == [""]


# The write buffer ---------------------------------------------------------------------------------


def in_memory(store: Store) -> int:
    """What open transactions hold."""
    open_ones = [t for t in store._context.registry if isinstance(t, Transaction)]
    puts = [t._writes for t in open_ones if t._writes is not None]
    files = sum(part.waiting_bytes for own in puts for part in own.by_queue.values())
    return files + sum(own.buffered_bytes for own in puts)


@pytest.mark.promise(9)
def test_promise_9_many_open_transactions_share_one_buffer(store_path: str) -> None:
    """However many there are: none of them is large enough to be noticed alone."""
    limit = 1 << 20
    with Store.open(store_path, write_buffer_bytes=limit) as store:
        store.create_queue("q", kind="work")
        transactions = [store.transaction() for _ in range(30)]
        for _ in range(30):
            for transaction in transactions:
                transaction.put("q", b"x" * 10_000)
        assert in_memory(store) <= limit + len(transactions) * (64 << 10) + 10_000
        for transaction in transactions:
            transaction.commit()
        assert store.queue("q").messages == 900
        assert store.admin.verify().ok


@pytest.mark.promise(9)
def test_promise_9_a_large_transaction_of_many_queues(store_path: str) -> None:
    """Its files share what may wait for their next write."""
    with Store.open(store_path, large_flush_bytes=1 << 18) as store:
        names = [store.create_queue(f"q{number}", kind="work").name for number in range(40)]
        with store.transaction(large=True) as txn:
            for number in range(2000):
                txn.put(names[number % 40], b"x" * 1000)
                assert in_memory(store) <= 2 * ((1 << 18) + 40 * 4096)
        assert sum(store.queue(name).messages for name in names) == 2000
        assert store.admin.verify().ok


def test_room_is_not_made_at_the_cost_of_who_asks(
    store_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest transaction cannot go to its file: it is rolled back, the put succeeds."""
    with Store.open(store_path, write_buffer_bytes=1 << 20, when_full="large") as store:
        store.create_queue("q", kind="work")
        oldest, asking = store.transaction(), store.transaction()
        oldest.put("q", b"x" * 1_200_000)

        def full(self: Transaction, buffer: WriteBuffer | None) -> bool:
            allow_reentry(self.rollback)
            raise DiskFull("no room")

        monkeypatch.setattr(Transaction, "leave", full)
        asking.put("q", b"y" * 300_000)
        with pytest.raises(TransactionClosed):
            oldest.commit()
        asking.commit()
        assert store.queue("q").messages == 1


# Closing, and what goes on in the background ------------------------------------------------------


def test_close_waits_for_a_put_that_is_being_written() -> None:
    """Nobody may own the store while this one still writes."""
    env = SimEnv()
    store = Store.open("/store", env=env, background=False)
    store.create_queue("work", kind="work")
    writing, go_on = threading.Event(), threading.Event()

    def hold(call: Call) -> None:
        if call.kind == "write" and threading.current_thread() is putting:
            writing.set()
            assert go_on.wait(SECONDS)

    putting = threading.Thread(target=store.put, args=("work", b"acknowledged"))
    env.before_call = hold
    putting.start()
    assert writing.wait(SECONDS)
    closing = threading.Thread(target=store.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    go_on.set()
    closing.join(SECONDS)
    putting.join(SECONDS)
    env.before_call = None
    with pytest.raises(StoreClosed):
        store.put("work", b"late")
    with Store.open("/store", env=env, background=False) as store:
        assert take(store, "work") == [b"acknowledged"]


def put_on(store: Store, done: list[bytes], errors: list[BaseException], name: int) -> None:
    """Put until the store is closed; what was acknowledged goes into `done`."""
    try:
        for number in range(1_000_000):
            payload = b"%d %d" % (name, number)
            store.put("work", payload)
            done.append(payload)
    except StoreClosed:
        pass
    except BaseException as error:  # noqa: BLE001 - shown by the test
        errors.append(error)


def test_close_while_threads_put(store_path: str) -> None:
    """Each put is acknowledged and there, or refused."""
    for _ in range(5):
        store = Store.open(store_path)
        if not store.queues():
            store.create_queue("work", kind="work")
        acknowledged: list[bytes] = []
        errors: list[BaseException] = []

        arguments = store, acknowledged, errors
        threads = [threading.Thread(target=put_on, args=(*arguments, name)) for name in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        store.close()
        for thread in threads:
            thread.join(SECONDS)
        assert not errors
        with Store.open(store_path) as store:
            assert sorted(take(store, "work")) == sorted(acknowledged)


def test_maintenance_survives_what_goes_wrong(store_path: str) -> None:
    """A folder that is gone is shown by status; time-outs go on."""
    with Store.open(store_path) as store:
        store.create_queue("q", kind="topic")
        store._maintenance._swept = -1e9
        shutil.rmtree(f"{store_path}/ltds")
        deadline = time.monotonic() + SECONDS
        while store.status()["maintenance_error"] is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "ltds" in store.status()["maintenance_error"]
        transaction = store.transaction(timeout=0.1)
        while transaction.state == "open" and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(TransactionTimeout):
            transaction.put("q", b"late")
