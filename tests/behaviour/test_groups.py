"""Ordered groups, for every form of a store; and what a put may say in seconds."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import InvalidArgument
from quire.messages.message import Message
from tests.behaviour.forms import AnyStore, Clock
from tests.kit.children import child

TAKER = """
import sys, time, quire
store = quire.open(sys.argv[1])
txn = store.transaction()
print(txn.get("q").payload.decode(), flush=True)
time.sleep(600)
"""


def put_groups(store: AnyStore) -> None:
    """Two messages of each of two groups, and one of none."""
    for number in range(2):
        for group in "ab":
            store.put("q", b"%s%d" % (group.encode(), number), group_key=group)
    store.put("q", b"alone")


def test_a_group_goes_to_one_reader_at_a_time(store: AnyStore) -> None:
    """Who has a message of it gets the next ones; others get other groups, in order."""
    store.create_queue("q", kind="work", grouped=True)
    put_groups(store)
    with store.transaction() as first, store.transaction() as second:
        order = first.get("q")
        assert order is not None
        assert (order.payload, order.group_key) == (b"a0", "a")
        assert second.get_many("q").payloads() == [b"b0", b"b1", b"alone"]
        assert second.get("q") is None
        assert first.get_many("q").payloads() == [b"a1"]
        second.rollback()
    with store.transaction() as txn:
        assert txn.get_many("q").payloads() == [b"b0", b"b1", b"alone"]


def test_a_group_goes_on_when_its_transaction_ends(store: AnyStore) -> None:
    """By a rollback it comes again in order, by a commit the next ones come; who waits is woken."""
    store.create_queue("q", kind="work", grouped=True)
    store.put_many("q", [b"none"])
    put_groups(store)
    with store.transaction() as txn:
        assert txn.get_many("q", 4).payloads() == [b"none", b"a0", b"b0", b"a1"]
        txn.rollback()
    with store.transaction() as txn:
        assert txn.get_many("q", 3).payloads() == [b"none", b"a0", b"b0"]
    assert store.get_many("q").payloads() == [b"a1", b"b1", b"alone"]


def test_who_has_a_group_waits_for_its_next_message(store: AnyStore) -> None:
    """Others that wait there too, and longer, do not keep it from that."""
    store.create_queue("q", kind="work", grouped=True)
    store.put("q", b"a0", group_key="a")
    with store.transaction() as first, store.transaction() as second, ThreadPoolExecutor(2) as pool:
        assert first.get("q") is not None
        waiting = pool.submit(second.get, "q", 60.0)
        time.sleep(0.05)  # so that it waits already, most often
        own = pool.submit(first.get, "q", 60.0)
        store.put("q", b"a1", group_key="a")
        assert own.result().payload == b"a1"  # type: ignore[union-attr]
        assert not waiting.done()
        store.put("q", b"b0", group_key="b")
        assert waiting.result().payload == b"b0"  # type: ignore[union-attr]


def test_a_group_waits_for_a_message_that_was_rejected(store: AnyStore, clock: Clock) -> None:
    """With a delay: nobody gets the messages behind it, and then all come in order."""
    store.create_queue("q", kind="work", grouped=True)
    put_groups(store)
    with store.transaction() as txn:
        order = txn.get("q")
        assert isinstance(order, Message)
        txn.reject(order, "not yet", delay=600.0)
        assert txn.get_many("q").payloads() == [b"b0", b"b1", b"alone"]
    clock.forward(599.7)
    assert store.get("q", timeout=120.0) is not None
    assert store.get_many("q").payloads() == [b"a1"]


def test_a_group_goes_on_without_its_dead_letters(store: AnyStore) -> None:
    """What is delivered too often holds nobody up."""
    store.create_queue("dead", kind="work")
    store.create_queue("q", kind="work", grouped=True, max_deliveries=1, dead_letter="dead")
    store.alter_queue("dead", puts=False)  # so that it waits there, hidden
    put_groups(store)
    with store.transaction() as txn:
        order = txn.get("q")
        assert isinstance(order, Message)
        txn.reject(order, "bad")
    assert store.get_many("q").payloads() == [b"b0", b"a1", b"b1", b"alone"]
    store.alter_queue("dead", puts=True)
    assert store.queue("q").grouped


def test_a_message_that_is_spent_no_more_is_of_its_group(store: AnyStore) -> None:
    """Where the limit is raised, it waits for who has the group by then, and comes first again."""
    store.create_queue("dead", kind="work", puts=False)
    store.create_queue(
        "q", kind="work", grouped=True, timed=True, max_deliveries=1, dead_letter="dead"
    )
    put_groups(store)
    with store.transaction() as txn:
        order = txn.get("q")
        assert isinstance(order, Message)
        txn.reject(order, "bad")
    with store.transaction() as first, store.transaction() as second:
        assert first.get_many("q", 2).payloads() == [b"b0", b"a1"]
        store.alter_queue("q", max_deliveries=9)
        assert second.get_many("q").payloads() == [b"alone"]
        first.rollback()
    assert store.get_many("q").payloads() == [b"a0", b"b0", b"a1", b"b1"]


def test_a_prepared_transaction_keeps_its_groups(store: AnyStore) -> None:
    """A prepared transaction keeps its groups until it is decided."""
    store.create_queue("q", kind="work", grouped=True)
    put_groups(store)
    txn = store.transaction()
    assert txn.get("q") is not None
    txn.prepare("x")
    assert store.get_many("q").payloads() == [b"b0", b"b1", b"alone"]
    store.prepared.rollback("x")
    assert store.get_many("q").payloads() == [b"a0", b"a1"]


def test_a_dead_letter_keeps_its_group(store: AnyStore) -> None:
    """There, and when it is put back."""
    store.create_queue("dead", kind="work")
    store.create_queue("q", kind="work", grouped=True, max_deliveries=1, dead_letter="dead")
    store.put("q", b"m", group_key="g")
    with store.transaction() as txn:
        order = txn.get("q")
        assert isinstance(order, Message)
        txn.reject(order, "bad")
    [letter] = store.browse("dead")
    assert letter.group_key == "g"
    assert store.admin.redrive("dead") == 1
    [again] = store.browse("q")
    assert again.attributes == {"quire.group_key": "g"}


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "fields",
    [
        {"group_key": ""},
        {"group_key": 7},
        {"group_key": "x" * 70_000},
        {"group_key": "g", "attributes": 7},
        {"ttl": 0},
        {"ttl": True},
        {"ttl": "1"},
        {"ttl": float("nan")},
        {"ttl": 1.0, "expires_at": 1.0},
        {"delay": -1.0},
        {"delay": 1e12},
        {"delay": 1.0, "deliver_at": 1.0},
    ],
)
def test_wrong_fields_are_refused(store: AnyStore, fields: dict[str, object]) -> None:
    """By the put, and nothing is put."""
    store.create_queue("q", kind="work")
    with store.transaction() as txn:
        txn.put("q", b"before")
        with pytest.raises(InvalidArgument):
            txn.put("q", b"m", **fields)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        store.put("q", b"m", **fields)  # type: ignore[arg-type]
    assert store.browse("q").payloads() == [b"before"]


def test_a_put_may_give_seconds(store: AnyStore) -> None:
    """In the stead of moments: they count from the put on."""
    store.create_queue("q", kind="work", grouped=True)
    before = time.time_ns() // 1000
    store.put("q", b"m", ttl=2.5, delay=0)
    with store.transaction() as txn:
        for _ in range(2):
            txn.put("q", b"m", ttl=2.5, delay=0, group_key="g")
    after = time.time_ns() // 1000
    for message in store.browse("q"):
        assert message.expires_at is not None
        assert message.deliver_at is not None
        assert before <= message.deliver_at <= after
        assert message.expires_at - message.deliver_at == 2_500_000


def test_a_delay_and_a_lifetime_are_obeyed(store: AnyStore, clock: Clock) -> None:
    """A delay and a lifetime are obeyed in a queue that is timed."""
    store.create_queue("q", kind="work", timed=True)
    store.put("q", b"later", delay=600.0)
    store.put("q", b"short", ttl=60.0)
    clock.forward(60)
    assert store.get("q") is None
    clock.forward(539.7)
    order = store.get("q", timeout=120.0)
    assert order is not None
    assert order.payload == b"later"


def test_a_reader_that_is_killed_lets_its_group_go(store: AnyStore, owner: Store) -> None:
    """By SIGKILL: the owner gives back what it had, in order."""
    store.create_queue("q", kind="work", grouped=True, retry={"delay": 0.1})
    put_groups(store)
    with child(TAKER, owner.path) as taker:
        assert taker.line() == "a0"
        assert store.get_many("q").payloads() == [b"b0", b"b1", b"alone"]
        assert store.get("q") is None
        taker.kill()
        order = store.get("q", timeout=120.0)
        assert order is not None
        assert (order.payload, order.delivery_count) == (b"a0", 2)
    assert store.get_many("q").payloads() == [b"a1"]


def test_many_readers_of_few_groups(store: AnyStore) -> None:
    """Each group has one reader at any time, in order, though some roll back."""
    count, groups = 60, 4
    store.create_queue("q", kind="work", grouped=True)
    with store.transaction() as txn:
        for number in range(count):
            txn.put("q", b"%d" % number, group_key=str(number % groups))
    reading: Counter[int] = Counter()
    read: list[list[int]] = [[] for _ in range(groups)]
    lock = threading.Lock()

    def work(seed: int) -> None:
        rng = random.Random(seed)
        while sum(map(len, read)) < count:
            with store.transaction() as txn:
                numbers = list(map(int, txn.get_many("q", 3, timeout=0.1).payloads()))
                mine = {number % groups for number in numbers}
                with lock:
                    reading.update(mine)
                    assert not [group for group in mine if reading[group] > 1]
                is_read = rng.random() < 0.7
                with lock:  # before others may have the groups
                    reading.subtract(mine)
                    for number in numbers if is_read else ():
                        read[number % groups].append(number)
                if not is_read:
                    txn.rollback()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, seed) for seed in range(4)]:
            done.result()
    assert read == [list(range(group, count, groups)) for group in range(groups)]
