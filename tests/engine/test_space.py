"""The space rules of a queue, to the byte (rules S1 to S3 of `engine/queues/reservation.py`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.queues.reservation import Space
from quire.engine.state.durable_state import QueueConfig
from quire.engine.strategies import RESERVE_MODE
from quire.errors import QueueFull
from quire.limits import COMMIT_BYTES, MESSAGE_OVERHEAD_BYTES, MIN_CAPACITY_BYTES, OPEN_BYTES

CONTROL = OPEN_BYTES + COMMIT_BYTES
CAPACITY = MIN_CAPACITY_BYTES
ROOM = CAPACITY - CONTROL - MESSAGE_OVERHEAD_BYTES  # the largest payload of a lone message


def space(available: int, transactions: int, reserving: int = 0) -> Space:
    """A queue's space in the given situation."""
    made = Space(QueueConfig(1, "q", "work", 1 << 20, None, 0, 1), RESERVE_MODE)
    made.used = made.capacity - available
    made.open_transactions = transactions
    made.reserving = reserving
    return made


def numbers(of: Space) -> tuple[int, ...]:
    """All of its counters."""
    return (of.used, of.pending_bytes, of.live_messages, of.pending_messages,
            of.open_transactions, of.reserving)  # fmt: skip


@pytest.mark.promise(5)
@pytest.mark.parametrize("transactions", [0, 1, 7])
def test_s1_to_open(transactions: int) -> None:
    """available >= OPEN + COMMIT * (T + 1), and one byte less is refused without a trace."""
    need = OPEN_BYTES + COMMIT_BYTES * (transactions + 1)
    good, bad = space(need, transactions), space(need - 1, transactions)
    good.open()
    assert good.open_transactions == transactions + 1
    before = numbers(bad)
    with pytest.raises(QueueFull, match="read and commit"):
        bad.open()
    assert numbers(bad) == before


@pytest.mark.promise(5)
@pytest.mark.parametrize("transactions", [1, 7])
@pytest.mark.parametrize("reserving", [0, 1])
def test_s2_to_write(transactions: int, reserving: int) -> None:
    """available >= s + COMMIT * T, in reserve mode and out of it."""
    need = 100 + COMMIT_BYTES * transactions
    good, bad = space(need, transactions, reserving), space(need - 1, transactions, reserving)
    good.write(100, 1)
    assert good.capacity - good.used == need - 100
    before = numbers(bad)
    with pytest.raises(QueueFull):
        bad.write(100, 1)
    assert numbers(bad) == before


@pytest.mark.promise(5)
@pytest.mark.parametrize("transactions", [1, 7])
def test_s3_to_commit(transactions: int) -> None:
    """available >= COMMIT * T; R counts the commits that passed and those alone."""
    need = COMMIT_BYTES * transactions
    good, bad = space(need, transactions), space(need - 1, transactions)
    good.reserve()
    assert good.reserving == 1
    before = numbers(bad)
    with pytest.raises(QueueFull):
        bad.reserve()
    assert numbers(bad) == before


@pytest.mark.promise(5)
@pytest.mark.parametrize("transactions", [0, 3])
def test_a_lone_message_obeys_all_three_at_once(transactions: int) -> None:
    """`whole` admits what open, write and reserve in a row admit.

    What it takes is the queue's once it is committed, or given back as a whole.
    """
    need = 100 + OPEN_BYTES + COMMIT_BYTES * (transactions + 1)
    good, bad = space(need, transactions), space(need - 1, transactions)
    good.whole(100)
    assert (good.open_transactions, good.reserving) == (transactions, 0)
    assert good.capacity - good.used == COMMIT_BYTES * transactions  # its own is taken
    before = numbers(bad)
    with pytest.raises(QueueFull):
        bad.whole(100)
    assert numbers(bad) == before
    steps = space(need, transactions, reserving=1)
    steps.open()
    steps.write(100, 1)
    steps.reserve()
    steps.commit(100 + CONTROL, 1)
    given_back = space(need, transactions)
    before = numbers(given_back)
    given_back.whole(100)
    given_back.abandon_whole(100)
    assert numbers(given_back) == before
    good.commit_whole(100 + CONTROL, 1)
    assert numbers(good)[:4] == numbers(steps)[:4]


@pytest.mark.promise(5)
def test_once_reserved_the_commit_record_fits_whatever_others_do() -> None:
    """After S3 nobody can take the room of the commit records: not writers, not openers."""
    held = Space(QueueConfig(1, "q", "work", 4096, None, 0, 1), RESERVE_MODE)
    for _ in range(3):
        held.open()
    held.reserve()
    takers: list[Callable[[], None]] = [lambda: held.write(7, 1), held.open, lambda: held.whole(16)]
    for taker in takers:
        for _ in range(10_000):
            try:
                taker()
            except QueueFull:
                break
    assert held.capacity - held.used >= COMMIT_BYTES * held.open_transactions
    while held.open_transactions:
        if not held.reserving:
            held.reserve()
        held.commit(OPEN_BYTES + COMMIT_BYTES, 0)
    assert held.used <= held.capacity


@pytest.mark.promise(5)
@pytest.mark.parametrize("way", ["put", "transaction", "many"])
def test_the_last_byte_of_a_queue(store: Store, way: str) -> None:
    """A message that fits exactly goes in; one byte more is QueueFull and changes nothing."""
    store.create_queue("q", kind="work", capacity=CAPACITY)

    def put(size: int) -> None:
        if way == "put":
            store.put("q", b"x" * size)
            return
        with store.transaction() as txn:
            if way == "many":
                txn.put_many("q", [b"x" * size])
            else:
                txn.put("q", b"x" * size)

    before = store.queue("q")
    with pytest.raises(QueueFull, match="'q' is full"):
        put(ROOM + (1 if way == "put" else COMMIT_BYTES + 1))
    assert store.queue("q") == before
    put(ROOM)
    assert store.queue("q").used_bytes == CAPACITY
    with pytest.raises(QueueFull):
        put(0)
    with store.transaction() as txn:
        assert txn.get("q") is not None
    assert store.queue("q").used_bytes == 0
    put(ROOM)


@pytest.mark.promise(5)
@pytest.mark.promise(13)
def test_a_full_queue_leaves_the_transaction_usable(store: Store, topic: str) -> None:
    """After QueueFull at a put all that was put before can still be committed."""
    store.create_queue("small", kind="work", capacity=CAPACITY)
    with store.transaction() as txn:
        txn.put(topic, b"1")
        for _ in range(2):
            with pytest.raises(QueueFull):
                txn.put("small", b"x" * CAPACITY)
            with pytest.raises(QueueFull):
                txn.put_many("small", [b"x" * 1000] * 5)
        assert store.queue("small").open_transactions == 0
        assert store.queue("small").used_bytes == 0
        txn.put("small", b"2")
        with pytest.raises(QueueFull):
            txn.put_many("small", [b"x" * 1000] * 5)
        txn.put("small", b"3")
    assert store.browse("small").payloads() == [b"2", b"3"]
    assert store.browse(topic).payloads() == [b"1"]


@pytest.mark.promise(5)
def test_a_commit_that_finds_no_room_can_be_tried_again(store: Store) -> None:
    """S3 refuses before the journal: the transaction stays open, and commits once there is room.

    So it is where the capacity was lowered under what is taken.
    """
    store.create_queue("q", kind="work", capacity=CAPACITY + CONTROL)
    first, second = store.transaction(), store.transaction()
    first.put("q", b"1")
    free = CAPACITY + CONTROL - store.queue("q").used_bytes
    second.put("q", b"x" * (free - CONTROL - COMMIT_BYTES - MESSAGE_OVERHEAD_BYTES))
    store.alter_queue("q", capacity=CAPACITY)
    before = store.queue("q")
    for txn in (first, second):
        with pytest.raises(QueueFull, match="commit records"):
            txn.commit(timeout=0)
        assert txn.state == "open"
    assert store.queue("q") == before
    second.rollback()
    first.commit()
    assert store.browse("q").payloads() == [b"1"]


@pytest.mark.promise(5)
def test_max_messages(store: Store) -> None:
    """The number of messages is bounded too: unread ones and those of open transactions."""
    store.create_queue("q", kind="work", max_messages=3)
    store.put("q", b"1")
    txn = store.transaction()
    txn.put("q", b"2")
    with pytest.raises(QueueFull, match="at most 3 messages"):
        txn.put_many("q", [b"3", b"4"])
    txn.put("q", b"3")
    with pytest.raises(QueueFull, match="at most 3 messages"):
        store.put("q", b"4")
    txn.commit()
    with pytest.raises(QueueFull):
        store.put("q", b"4")
    with store.transaction() as reader:
        assert reader.get("q") is not None
        with pytest.raises(QueueFull):  # in flight is not read
            store.put("q", b"4")
    store.put("q", b"4")
    assert store.browse("q").payloads() == [b"2", b"3", b"4"]


@pytest.mark.promise(5)
def test_the_counters_return_to_zero(store: Store) -> None:
    """When all is read and nothing open, nothing is used, T = R = 0, whatever happened before."""
    store.create_queue("q", kind="topic")
    for name in ("a", "b"):
        store.subscribe("q", name)
    for n in range(30):
        txn = store.transaction(large=n % 10 == 9)
        txn.put("q", b"x" * n * 37, attributes={"k": "v" * n})
        txn.put_many("q", [b"y" * (n % 7)] * n)
        if n % 3:
            txn.commit()
        else:
            txn.rollback()
    assert store.queue("q").used_bytes > 0
    for name, limit in (("a", 7), ("b", 11)):
        while True:
            with store.transaction() as txn:
                if not txn.get_many(f"q/{name}", limit):
                    break
        if name == "a":
            assert store.queue("q").used_bytes > 0
    info = store.queue("q")
    assert (info.used_bytes, info.messages, info.open_transactions, info.reserving) == (0,) * 4
    assert info.first_position == info.end_position


@pytest.mark.promise(5)
@pytest.mark.promise(8)
def test_used_bytes_are_the_same_after_a_reopening(store_path: str) -> None:
    """The charge of what is partly read is found again from the files alone."""
    with Store.open(store_path) as store:
        store.create_queue("q", kind="work")
        with store.transaction() as txn:
            txn.put_many("q", [b"%d" % n * n for n in range(100)])
        with store.transaction() as txn:
            txn.get_many("q", 33)
        info = store.queue("q")
    for checkpoint in (False, True):
        with Store.open(store_path) as store:
            assert store.queue("q") == info
            if checkpoint:
                store.admin.checkpoint()
                assert store.queue("q") == info
            assert store.admin.verify().ok
