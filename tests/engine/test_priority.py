"""Delivery by priority: higher first, then commit order, whatever happened to the messages."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.delivery.delivery_counts import DeliveryCounts
from quire.engine.delivery.selection import Selection, SelectionHeaders
from quire.engine.state.attempts import Attempts
from quire.errors import StoreCorrupt
from quire.intervals import IntervalSet
from quire.limits import ARROW_WHOLE_ROWS
from quire.testing import SimEnv
from tests.engine.workload import open_store
from tests.kit.waiting import SECONDS

Sent = tuple[int, int]  # priority and number of a message


def put(store: Store, queue: str, rng: random.Random, numbers: range) -> list[Sent]:
    """Messages of random priorities, as one put each or as batches of any size."""
    sent = [(rng.choice([0, 0, 1, 5, 65535]), number) for number in numbers]
    rest = list(sent)
    while rest:
        part, rest = rest[: (size := rng.choice([1, 1, 3, 50]))], rest[size:]
        with store.transaction(large=size == 50) as txn:
            if size == 1:
                header = {"priority": part[0][0]}  # taken whatever the queue obeys
                txn.put_moved(queue, b"%d" % part[0][1], header)
            else:
                columns = {
                    "payload": pa.array([b"%d" % number for _, number in part], pa.binary()),
                    "priority": pa.array([priority for priority, _ in part], pa.int32()),
                }
                txn.put_moved_many(queue, pa.record_batch(columns))
    return sent


def in_order(sent: list[Sent]) -> list[int]:
    """The numbers as they are to be delivered."""
    return [number for _, number in sorted(sent, key=lambda pair: (-pair[0], pair[1]))]


def rest_of(store: Store, source: str, most: int) -> list[int]:
    """All that is left, without taking it."""
    with store.transaction() as txn:
        got: list[int] = []
        while part := txn.get_many(source, most).payloads():
            got += map(int, part)
        txn.rollback()
    return got


@pytest.mark.parametrize("kind", ["work", "topic"])
def test_higher_priorities_come_first(seed: int, rng: random.Random, kind: Any) -> None:
    """One by one and in batches, from the journal, data files and files of large transactions."""
    env = SimEnv(seed)
    store = open_store(env, path="/s")
    store.create_queue("q", kind=kind, order="priority")
    source = "q" if kind == "work" else "q/reader"
    if kind == "topic":
        store.subscribe("q", "reader")
    sent: list[Sent] = []
    for turn in range(6):
        sent += put(store, "q", rng, range(turn * 80, turn * 80 + 80))
        if turn == 2:
            store.admin.checkpoint()
        if turn == 4:
            store.close()
            store = open_store(env, path="/s")
        assert rest_of(store, source, rng.choice([1, 7, 1000])) == in_order(sent)
        for number in in_order(sent)[:20]:
            with store.transaction() as txn:
                message = txn.get(source)
                assert message is not None
                assert int(message.payload) == number
        taken = set(in_order(sent)[:20])
        sent = [pair for pair in sent if pair[1] not in taken]
    assert store.admin.verify().ok
    store.close()


def test_priorities_are_switched_while_messages_wait(seed: int, rng: random.Random) -> None:
    """For all that waits, what comes back from a rollback included."""
    store = open_store(SimEnv(seed), path="/s")
    store.create_queue("q", kind="work")
    sent = put(store, "q", rng, range(100))
    held = store.transaction()
    first = [int(payload) for payload in held.get_many("q", 10).payloads()]
    assert first == list(range(10))
    store.alter_queue("q", order="priority")
    waiting = [pair for pair in sent if pair[1] >= 10]
    assert rest_of(store, "q", 1000) == in_order(waiting)
    held.rollback()
    assert rest_of(store, "q", 1000) == in_order(sent)
    held = store.transaction()
    taken = [int(payload) for payload in held.get_many("q", 10).payloads()]
    assert taken == in_order(sent)[:10]
    store.alter_queue("q", order="commit")
    assert rest_of(store, "q", 3) == [n for n in range(100) if n not in taken]
    held.rollback()
    assert rest_of(store, "q", 1000) == list(range(100))
    store.close()


def test_a_default_priority_is_for_messages_without_one(seed: int) -> None:
    """As it is at the put: what waits keeps its number, and 0 is one."""
    store = open_store(SimEnv(seed), path="/s")
    store.create_queue("q", kind="work", order="priority", default_priority=5)
    for number, priority in enumerate([9, None, 1, None, 5, 0]):
        store.put("q", b"%d" % number, priority=priority)
    assert rest_of(store, "q", 1) == [0, 1, 3, 4, 2, 5]
    txn = store.transaction()
    txn.put("q", b"6")  # which says what the default is to this transaction
    store.alter_queue("q", default_priority=0)
    txn.put("q", b"7")
    txn.commit()
    store.put("q", b"8")
    assert rest_of(store, "q", 1) == [0, 1, 3, 4, 6, 7, 2, 5, 8]
    store.alter_queue("q", default_priority=7)
    store.alter_queue("q", order="commit")
    store.put("q", b"9")  # a queue that is not read by priority grants none
    store.alter_queue("q", order="priority")
    assert rest_of(store, "q", 1) == [0, 1, 3, 4, 6, 7, 2, 5, 8, 9]
    assert store.admin.verify().ok
    store.close()


def test_a_batch_that_is_put_in_slices_gets_the_default(seed: int) -> None:
    """Each of its messages that says none; 0 is 0 in a slice that has nothing else, too."""
    store = open_store(SimEnv(seed), path="/s")
    store.create_queue("q", order="priority", default_priority=5, capacity=1 << 28)
    third = ARROW_WHOLE_ROWS // 3 + 1
    said = [None] * third + [0] * third + [9] * third
    columns = {"payload": pa.array([b""] * 3 * third), "priority": pa.array(said, pa.int32())}
    store.put_many("q", pa.record_batch(columns))
    places = (0, third - 1, third, 2 * third - 1, 2 * third, 3 * third - 1)
    found = [store.browse("q", 1, start=place)[0].priority for place in places]
    assert found == [5, 5, 0, 0, 9, 9]
    store.close()


def test_what_is_read_past_is_passed_over(seed: int, rng: random.Random) -> None:
    """A `read_to` counts in commit order, also where messages are delivered in another."""
    store = open_store(SimEnv(seed), path="/s")
    store.create_queue("q", kind="work", order="priority")
    sent = put(store, "q", rng, range(60))
    assert rest_of(store, "q", 1000) == in_order(sent)
    with store.transaction() as txn:
        txn.read_to("q", 30)
    left = [pair for pair in sent if pair[1] >= 30]
    assert rest_of(store, "q", 4) == in_order(left)
    store.alter_queue("q", order="commit")
    assert rest_of(store, "q", 1000) == list(range(30, 60))
    store.close()


def test_prepared_transactions_keep_what_they_have_got(seed: int) -> None:
    """Over a restart: it is in flight until the decision, and back at its place or read then."""
    env = SimEnv(seed)
    store = open_store(env, path="/s")
    store.create_queue("q", kind="work", order="priority")
    for number in range(6):
        store.put("q", b"%d" % number, priority=number % 3)
    for xid in ("back", "read"):
        txn = store.transaction()
        assert txn.get("q") is not None
        txn.prepare(xid)  # 2 and 5
    for reopen in (False, True):
        if reopen:
            store.close()
            store = open_store(env, path="/s")
        assert rest_of(store, "q", 1000) == [1, 4, 0, 3]
    store.prepared.rollback("back")
    assert rest_of(store, "q", 1000) == [2, 1, 4, 0, 3]
    store.prepared.commit("read")
    assert rest_of(store, "q", 1) == [2, 1, 4, 0, 3]
    store.close()


def test_everybody_gets_every_message_once(store_path: str) -> None:
    """Consumers that wait, and some that roll back, beside those who put."""
    wanted = 600
    got: list[int] = []
    with Store.open(store_path) as store:
        store.create_queue("q", kind="work", order="priority")
        lock = threading.Lock()

        def consume(seed: int) -> None:
            rng = random.Random(seed)
            while True:
                with store.transaction() as txn:
                    part = txn.get_many("q", rng.choice([1, 4]), timeout=SECONDS).payloads()
                    if rng.random() < 0.2:
                        txn.rollback()
                        continue
                with lock:
                    got.extend(map(int, part))
                    if len(got) >= wanted or not part:
                        return

        def produce(first: int) -> None:
            for number in range(first, wanted, 2):
                store.put("q", b"%d" % number, priority=number % 7)

        with ThreadPoolExecutor(5) as pool:
            for seed in range(3):
                pool.submit(consume, seed)
            for work in [pool.submit(produce, first) for first in range(2)]:
                work.result()
            while len(got) < wanted:
                threading.Event().wait(0.01)
            store.alter_queue("q", gets=False)  # those that still wait end
        assert sorted(got) == list(range(wanted))
        assert store.queue("q").messages == 0


def test_a_damaged_block_is_refused_at_its_place(seed: int) -> None:
    """The others are delivered; it counts as one without headers."""
    env = SimEnv(seed)
    with open_store(env, path="/s") as store:
        store.create_queue("q", kind="work", order="priority")
        for number in range(3):
            with store.transaction() as txn:
                txn.put_many("q", [b"%d" % number * 9000])
            store.put("q", b"high", priority=1)
        store.admin.checkpoint()
        [path] = [path for path in env.files() if path.endswith(".dat")]
        at = env.contents(path).index(b"1" * 9000)
    env.corrupt(path, at)
    with open_store(env, path="/s") as store, store.transaction() as txn:
        assert txn.get_many("q", 3).payloads() == [b"high"] * 3
        first = txn.get("q")
        assert first is not None
        assert first.payload[:1] == b"0"
        with pytest.raises(StoreCorrupt):
            txn.get("q")
        txn.rollback()


@pytest.mark.cases(4)
def test_memory_of_waiting_messages() -> None:
    """Some 10 bytes each, and below 200 wherever they are."""
    count = 100_000
    selection = Selection(IntervalSet(), 0)
    ranks = np.random.default_rng(1).integers(0, 10, count)
    done, attempts = IntervalSet(), DeliveryCounts(Attempts())
    selection.learn(0, SelectionHeaders(ranks), done, 0, 0)
    assert count * 9 <= selection.memory_bytes < count * 10
    taken = [selection.take(1, attempts) for _ in range(count)]
    assert selection.take(1, attempts) is None
    assert selection.memory_bytes < count * 200
    for run in taken:
        assert run is not None
        selection.give_back(*run)
    assert selection.memory_bytes < count * 60
    again = [selection.take(1, attempts) for _ in range(count)]
    assert again == taken
    for run in taken:
        assert run is not None
        selection.forget(*run)
    assert selection.memory_bytes < 100_000


def test_an_order_that_is_lost_is_caught(
    seed: int, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A canary: a selection that takes the highest position of a rank first."""
    monkeypatch.setattr(
        "quire.engine.delivery.ready_positions.heappush",
        lambda heap, position: heap.insert(0, position),
    )
    with pytest.raises(AssertionError):
        test_higher_priorities_come_first(seed, rng, "work")
