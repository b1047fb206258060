"""What is done where a queue has no room: the same for any store."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import quire
import quire.aio
from quire.aio import AsyncStore
from quire.engine import EmbeddedStore as Store
from quire.errors import InvalidArgument, QueueExists, QueueFull, QuireError, RemoteError
from quire.limits import AIO_THREADS
from quire.remote import JoinedStore
from quire.remote.wire.protocol import STEP
from tests.behaviour.forms import SEGMENT_BYTES, AnyStore, Clock
from tests.behaviour.test_deliveries import got
from tests.behaviour.test_life import nearly_full
from tests.kit.children import child
from tests.kit.waiting import eventually

KIB = b"x" * 1024
SMALL = 16 << 10  # a capacity, for not quite 16 of them


def fill(store: AnyStore, queue: str, most: int = 100) -> int:
    """Until it refuses; how many fit."""
    for number in range(most):
        try:
            store.put(queue, b"%3d" % number + KIB)
        except QueueFull:
            return number
    return most


def numbers(messages: Any) -> list[int]:
    """The first three characters of each."""
    return [int(message.payload[:3]) for message in messages]


def put_and_commit(txn: Any, queue: str, payloads: list[bytes]) -> None:
    """Without waiting: a joined store is told by the commit."""
    txn.put_many(queue, payloads, timeout=0.0)
    txn.commit(timeout=0.0)


# Growing


def test_a_queue_grows(store: AnyStore) -> None:
    """As it needs, up to what is said; then it is full. Other limits stay."""
    store.create_queue("q", kind="work", capacity=SMALL, grow_to=3 * SMALL + 100)
    assert store.queue("q").grow_to == 3 * SMALL + 100
    put = fill(store, "q")
    assert 3 * 14 <= put <= 3 * 16
    assert store.queue("q").capacity_bytes == 3 * SMALL + 100
    assert store.admin.catalog("queue")[0].body["capacity"] == 3 * SMALL + 100
    assert numbers(got(store, "q")) == list(range(put))
    store.create_queue("n", kind="work", capacity=SMALL, grow_to=1 << 20, max_messages=3)
    assert fill(store, "n") == 3
    assert store.queue("n").capacity_bytes == SMALL


def test_a_queue_that_has_grown_may_be_there_already(store: AnyStore) -> None:
    """A program that makes it at each start finds it as it asks for, though it is larger now."""
    asked: dict[str, Any] = {"capacity": SMALL, "grow_to": 1 << 20}
    store.create_queue("q", exist_ok=True, **asked)
    store.put_many("q", [KIB] * 40)
    grown = store.queue("q")
    assert grown.capacity_bytes > SMALL
    assert store.create_queue("q", exist_ok=True, **asked) == grown
    with pytest.raises(QueueExists, match="capacity is"):  # of what is asked for it has less
        store.create_queue("q", exist_ok=True, **{**asked, "capacity": 1 << 21})
    store.alter_queue("q", grow_to=None)
    with pytest.raises(QueueExists, match="capacity is"):  # somebody has said so
        store.create_queue("q", exist_ok=True, capacity=SMALL)


def test_a_transaction_has_its_queues_grow(store: AnyStore) -> None:
    """By messages one by one, by many, as a part of more; it stays so if that is rolled back."""
    store.admin.create_queues(
        [{"name": name, "kind": "work", "capacity": SMALL, "grow_to": 1 << 20} for name in "ab"]
    )
    with store.transaction() as txn:
        ids = [txn.put("a", KIB) for _ in range(40)]
        many = txn.put_many("b", [KIB] * 40)
        txn.put_many("a", pa.array([KIB] * 40))
    assert [int(i) for i in ids] == [m.id for m in store.browse("a")][:40]
    assert [int(i) for i in many] == [m.id for m in store.browse("b")]
    assert (store.queue("a").messages, store.queue("b").messages) == (80, 40)
    before = store.queue("b").capacity_bytes
    txn = store.transaction()
    txn.put_many("b", [KIB] * 200)
    store.queue("b")
    with pytest.raises(QueueFull):
        put_and_commit(txn, "b", [KIB] * 2000)
    txn.rollback()
    assert before < store.queue("b").capacity_bytes <= 1 << 20
    assert store.queue("b").messages == 40


def test_a_commit_has_its_queue_grow(store: AnyStore) -> None:
    """Where its own record finds no room, also if it would not wait."""
    first, second = nearly_full(store)
    with pytest.raises(QueueFull):
        first.commit(timeout=0.0)
    store.alter_queue("small", grow_to=1 << 20)
    first.commit(timeout=0.0)
    second.commit()
    assert len(got(store, "small")) == 4


def test_a_prepare_has_its_queue_grow(store: AnyStore) -> None:
    """A prepare has its queue grow, as a commit does."""
    store.create_queue("q", kind="work", capacity=SMALL, grow_to=1 << 20)
    with store.transaction() as txn:
        txn.put_many("q", [KIB] * 30)
        txn.prepare("x")
    store.prepared.commit("x")
    assert store.queue("q").messages == 30


# The oldest


@pytest.mark.parametrize("kind", ["persistent", "volatile"])
def test_the_oldest_of_a_topic_are_dropped(store: AnyStore, kind: str) -> None:
    """For all of its subscriptions, and counted; the newest are there, in order."""
    store.create_queue("t", kind="topic", capacity=SMALL, overflow="drop_oldest", type=kind)
    store.subscribe("t", "a")
    store.subscribe("t", "b")
    assert fill(store, "t", 40) == 40
    info = store.queue("t")
    assert info.dropped == 40 - info.messages
    with store.transaction() as txn:
        left = numbers(txn.get_many("t/a", 100))
        assert left == numbers(txn.get_many("t/b", 100))
    assert left == list(range(40 - info.messages, 40))
    assert info.messages >= 10
    assert store.admin.verify().ok


@pytest.mark.parametrize("kind", ["persistent", "volatile"])
def test_the_oldest_are_dropped_where_nobody_has_subscribed(store: AnyStore, kind: str) -> None:
    """Where nobody has subscribed the oldest are dropped, many at once for many at once."""
    store.create_queue("t", kind="topic", capacity=SMALL, overflow="drop_oldest", type=kind)
    store.put_many("t", [b"%3d" % n for n in range(100)])
    store.put_many("t", [KIB] * 10)
    info = store.queue("t")
    assert store.browse("t").payloads()[-10:] == [KIB] * 10
    assert info.messages + info.dropped == 110
    store.subscribe("t", "late")
    with store.transaction() as txn:
        assert len(txn.get_many("t/late", 1000)) == info.messages


def test_what_somebody_has_is_not_dropped(store: AnyStore) -> None:
    """Neither in an open nor in a prepared transaction; where all is held the put is refused."""
    store.create_queue("q", kind="work", max_messages=4, overflow="drop_oldest")
    store.put_many("q", [b"0", b"1", b"2", b"3"])
    txn = store.transaction()
    assert txn.get("q").payload == b"0"  # type: ignore[union-attr]
    with store.transaction() as other:
        assert other.get("q").payload == b"1"  # type: ignore[union-attr]
        other.prepare("x")
    store.put("q", b"4")
    assert store.browse("q").payloads() == [b"0", b"1", b"3", b"4"]
    store.put_many("q", [b"5", b"6"])
    with pytest.raises(QueueFull):
        store.put_many("q", [b"7", b"8", b"9"])
    assert store.queue("q").dropped == 3
    txn.rollback()
    store.prepared.rollback("x")
    assert [m.payload for m in got(store, "q")] == [b"0", b"1", b"5", b"6"]


def test_the_oldest_become_dead_letters(store: AnyStore) -> None:
    """In one commit, with attributes that tell where they come from."""
    store.create_queue("dead", kind="work")
    store.create_queue("q", kind="work", max_messages=3, overflow="dead_letter", dead_letter="dead")
    store.put_many("q", [b"0", b"1", b"2"])
    store.put("q", b"3", attributes={"a": "b"})
    with store.transaction() as txn:
        txn.put_many("q", [b"4", b"5"])
    assert store.browse("q").payloads() == [b"3", b"4", b"5"]
    letters = got(store, "dead")
    assert [m.payload for m in letters] == [b"0", b"1", b"2"]
    assert letters[0].attributes["quire.queue"] == "q"
    assert letters[0].attributes["quire.reason"] == "overflow"
    assert store.queue("q").dropped == 0
    store.put("q", b"6")
    assert store.admin.redrive("dead") == 1
    assert len(store.browse("q")) == 3


def test_a_full_dead_letter_queue_refuses(store: AnyStore) -> None:
    """And nothing is lost; it may grow, but its own messages stay."""
    store.create_queue("dead", kind="work", max_messages=2)
    store.create_queue("q", kind="work", max_messages=2, overflow="dead_letter", dead_letter="dead")
    store.alter_queue("dead", overflow="dead_letter", dead_letter="q")
    for number in range(4):
        store.put("q", b"%d" % number)
    with pytest.raises(QueueFull):
        store.put("q", b"4")
    assert store.browse("q").payloads() == [b"2", b"3"]
    assert store.browse("dead").payloads() == [b"0", b"1"]


def test_volatile_queues_without_room(store: AnyStore) -> None:
    """They grow, give way and wait as others do, also where they are not there after a restart."""
    made: Any = {"kind": "work", "type": "volatile", "persistent": False}
    store.create_queue("dead", kind="work")
    store.create_queue("grows", capacity=SMALL, grow_to=1 << 20, **made)
    store.create_queue("drops", max_messages=2, overflow="drop_oldest", **made)
    store.create_queue("moves", max_messages=2, overflow="dead_letter", dead_letter="dead", **made)
    store.create_queue("waits", max_messages=2, overflow="wait", **made)
    before = store.status()["journal"]["end_lsn"]
    store.put_many("grows", [KIB] * 40)
    for number in range(5):
        store.put("drops", b"%d" % number)
    assert store.status()["journal"]["end_lsn"] == before  # nothing of it is written
    for number in range(5):
        with store.transaction() as txn:
            txn.put("moves", b"%d" % number)
    store.put_many("waits", [b"0", b"1"])
    with pytest.raises(QueueFull):
        store.put("waits", b"2", timeout=0.1)
    assert (store.queue("grows").messages, store.queue("drops").dropped) == (40, 3)
    assert store.browse("drops").payloads() == [b"3", b"4"]
    assert [m.payload for m in got(store, "dead")] == [b"0", b"1", b"2"]
    assert store.admin.purge("grows") == 40


# Waiting


def test_a_put_waits_for_room(store: AnyStore) -> None:
    """Until somebody has read; a message alone, and one in a transaction."""
    store.create_queue("q", kind="work", max_messages=2, overflow="wait")
    store.put_many("q", [b"0", b"1"])
    done: list[int] = []

    def put() -> None:
        done.append(store.put("q", b"2"))
        with store.transaction() as txn:
            txn.put("q", b"3")
            txn.put_many("q", [b"4"])
        done.append(0)

    thread = threading.Thread(target=put)
    thread.start()
    time.sleep(0.2)
    assert not done
    read = []
    for _ in range(5):
        eventually(lambda: store.queue("q").messages)
        message = store.get("q", timeout=120.0)
        assert message is not None
        read.append(message.payload)
    thread.join(120)
    assert len(done) == 2
    assert read == [b"%d" % number for number in range(5)]


def test_a_put_with_a_request_id_waits(store: AnyStore) -> None:
    """In a transaction and alone; repeated it is there at once."""
    store.create_queue("q", kind="work", max_messages=1, overflow="wait", dedup_count=9)
    ids = [store.put("q", b"0", request_id="a")]

    def put() -> None:
        ids.append(store.put("q", b"1", request_id="b", timeout=120.0))
        with store.transaction() as txn:
            put_id = txn.put("q", b"2", request_id="c")
        ids.append(int(put_id))

    thread = threading.Thread(target=put)
    thread.start()
    got_ids = []
    for _ in range(3):
        message = store.get("q", timeout=120.0)
        assert message is not None
        got_ids.append(message.id)
    thread.join(120)
    assert ids == got_ids
    store.put("q", b"full")
    assert store.put("q", b"1", request_id="b", timeout=0.0) == ids[1]


def test_a_put_waits_so_long(store: AnyStore) -> None:
    """As it says; what can never have room is refused at once."""
    store.create_queue("q", kind="work", max_messages=2, overflow="wait")
    store.put_many("q", [b"0", b"1"])
    with pytest.raises(QueueFull):
        store.put("q", b"2", timeout=0.1)
    with pytest.raises(QueueFull):
        store.put_many("q", [b"2"], timeout=0.1)
    with pytest.raises(QueueFull):
        store.put_many("q", [b"2"] * 3)
    txn = store.transaction()
    with pytest.raises(QueueFull):
        txn.put("q", b"2", timeout=0.1)
    txn.rollback()
    txn = store.transaction()
    with pytest.raises(QueueFull):
        put_and_commit(txn, "q", [b"2"])
    txn.rollback()
    assert store.queue("q").messages == 2
    for wrong in (-1, "1", float("nan")):
        with pytest.raises(InvalidArgument):
            store.put("q", b"", timeout=wrong)  # type: ignore[arg-type]


def test_a_put_waits_only_where_its_queue_says_so(store: AnyStore) -> None:
    """A `timeout` is refused elsewhere, where it would have no effect; 0 waits nowhere."""
    store.create_queue("dead")
    store.create_queue("fails", kind="work", max_messages=1)
    store.create_queue("gives_way", kind="work", max_messages=1, overflow="drop_oldest")
    ways: list[Callable[[str, float], object]] = [
        lambda queue, seconds: store.put(queue, b"m", timeout=seconds),
        lambda queue, seconds: store.put_many(queue, [b"m"], timeout=seconds),
        lambda queue, seconds: store.put_stream(queue, b"m" * 9, timeout=seconds),
    ]
    for queue in ("fails", "gives_way"):
        for way in ways:
            with pytest.raises(InvalidArgument, match=f"alter_queue\\('{queue}', overflow='wait'"):
                way(queue, 5)
        with store.transaction() as txn:
            with pytest.raises(InvalidArgument, match="timeout would have no effect"):
                txn.put(queue, b"m", timeout=5)
            txn.put(queue, b"other")
    assert [store.queue(name).messages for name in ("fails", "gives_way")] == [1, 1]
    assert store.alter_queue("fails", overflow="wait", max_messages=9).messages == 1
    for way in ways:
        way("fails", 5)
        way("gives_way", 0)
    assert [store.queue(name).messages for name in ("fails", "gives_way")] == [4, 1]


def test_who_waits_is_told_of_what_happens(store: AnyStore) -> None:
    """Another capacity lets it in; a queue that is dropped ends it."""
    store.create_queue("q", kind="work", max_messages=1, overflow="wait")
    store.put("q", b"0")
    ended: list[str] = []

    def put() -> None:
        store.put("q", b"1", timeout=120.0)
        ended.append("in")
        try:
            store.put("q", b"2", timeout=120.0)
        except Exception as error:  # noqa: BLE001 which one is looked at
            ended.append(type(error).__name__)

    thread = threading.Thread(target=put)
    thread.start()
    time.sleep(0.2)
    store.alter_queue("q", max_messages=2)
    eventually(lambda: ended)
    time.sleep(0.2)
    store.alter_queue("q", puts=False)
    thread.join(120)
    assert ended == ["in", "QueueDisabled"]


ORDERS: dict[str, dict[str, Any]] = {
    "priority": {"order": "priority"},
    "timed": {"timed": True},
    "grouped": {"grouped": True},
    "attribute": {"order": {"attribute": "due", "numeric": True}, "grouped": True},
    "sequence": {"order": {"sequence": "seq", "wait": 0}},
}


def put_all_ways(store: AnyStore, queue: str, first: int, after: int) -> None:
    """Messages by number, of all that can order them: in the order of their commits, or against."""
    for number in range(first, after):
        attributes = {"due": str(-number), "seq": str(number + 1)}
        header: dict[str, Any] = {"attributes": attributes}
        info = store.queue(queue)
        header |= {"priority": number} if info.order == "priority" else {}
        header |= {"group_key": str(number % 2)} if info.grouped else {}
        header |= {"deliver_at": 1.0} if info.timed else {}
        store.put(queue, b"%d" % number, **header)


def test_the_oldest_give_way_in_every_order(store: AnyStore) -> None:
    """By their commits; what is left is handed out in the queue's order."""
    store.create_queue("dead", kind="work")
    for name, options in ORDERS.items():
        store.create_queue(name, kind="work", max_messages=4, overflow="drop_oldest", **options)
        topic = f"{name}-topic"
        store.create_queue(
            topic, "topic", max_messages=4, overflow="dead_letter", dead_letter="dead", **options
        )
        store.subscribe(topic, "s")
        for source in (name, f"{topic}/s"):
            queue = source.partition("/")[0]
            put_all_ways(store, queue, 0, 6)
            with store.transaction() as txn:
                assert len(txn.get_many(source, 2)) == 2  # so that its order is known
                txn.rollback()
            put_all_ways(store, queue, 6, 9)
            expected = [b"5", b"6", b"7", b"8"]
            is_back = name in ("priority", "attribute")
            assert store.browse(queue).payloads() == expected
            assert store.get_many(source).payloads() == (expected[::-1] if is_back else expected)
        assert store.queue(name).dropped == 5
        letters = [int(letter.payload) for letter in store.get_many("dead")]
        assert letters == list(range(5))


def test_what_is_held_in_another_order_stays(store: AnyStore, clock: Clock) -> None:
    """In flight, prepared, rejected with a delay: others give way; what comes back is in order."""
    options: dict[str, Any] = {"order": "priority", "grouped": True}
    store.create_queue("q", kind="work", max_messages=5, overflow="drop_oldest", **options)
    for number in range(5):
        store.put("q", b"%d" % number, priority=5 - number)
    txn, prepared = store.transaction(), store.transaction()
    assert txn.get_many("q", 1).payloads() == [b"0"]
    assert prepared.get_many("q", 1).payloads() == [b"1"]
    prepared.prepare("x")
    delayed = txn.get("q")
    assert delayed is not None
    txn.reject(delayed, delay=60.0)
    put_all_ways(store, "q", 5, 7)
    held = [b"0", b"1", b"2"]
    assert store.browse("q").payloads() == [*held, b"5", b"6"]
    other = store.transaction()
    assert other.get_many("q").payloads() == [b"6", b"5"]
    with pytest.raises(QueueFull):
        store.put("q", b"there is nothing to give way", timeout=0.0)
    other.rollback()
    store.prepared.rollback("x")
    txn.rollback()
    clock.forward(60)
    got = [store.get("q", timeout=120.0) for _ in range(5)]
    payloads = [b"" if message is None else message.payload for message in got]
    assert sorted(payloads) == [*held, b"5", b"6"]
    assert payloads.index(b"6") < payloads.index(b"0") < payloads.index(b"1")
    assert store.queue("q").dropped == 2


def test_wrong_properties_are_refused(store: AnyStore) -> None:
    """Wrong properties are refused and nothing is made."""
    store.create_queue("dead", kind="work")
    for wrong in (
        {"overflow": "drop"},
        {"overflow": None},
        {"overflow": "drop_oldest", "keep_forever": True},
        {"overflow": "dead_letter"},
        {"grow_to": 1},
        {"grow_to": True},
        {"grow_to": "1"},
    ):
        with pytest.raises(InvalidArgument):
            store.create_queue("q", **wrong)
    assert [info.name for info in store.queues()] == ["dead"]


def test_many_put_at_once(store: AnyStore) -> None:
    """By transactions and alone: each message is there, was dropped or is a dead letter."""
    store.admin.create_queues(
        [
            {"name": "dead", "kind": "work"},
            {"name": "grows", "kind": "work", "capacity": SMALL, "grow_to": 1 << 20},
            {"name": "drops", "kind": "topic", "max_messages": 12, "overflow": "drop_oldest"},
            {
                "name": "moves", "kind": "work", "max_messages": 12, "overflow": "dead_letter",
                "dead_letter": "dead",
            },
        ]
    )  # fmt: skip
    names = ["grows", "drops", "moves"]
    errors: list[BaseException] = []

    def put() -> None:
        try:
            for _ in range(5):
                for name in names:
                    store.put(name, KIB)
                with store.transaction() as txn:
                    for name in names:
                        txn.put(name, KIB)
        except BaseException as error:  # noqa: BLE001 shown below
            errors.append(error)

    threads = [threading.Thread(target=put) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert store.queue("grows").messages == 60
    assert store.queue("drops").messages + store.queue("drops").dropped == 60
    assert store.queue("moves").messages + store.queue("dead").messages == 60


@pytest.mark.promise(13)
def test_a_client_does_not_hold_up_the_owner(owner: Store, joined: JoinedStore) -> None:
    """How long a put waits is no field of its message, through which it would wait at once."""
    owner.create_queue("q", kind="work", max_messages=1, overflow="wait", dedup_count=9)
    owner.put("q", b"0")
    channel = joined.owner_session.connection.borrow()
    call = {"op": "put_once", "queue": "q", "request_id": "a"}
    with pytest.raises(RemoteError, match="no field 'timeout'"):
        channel.request({**call, "fields": {"timeout": 1000}}, [b"x"], kind=STEP)
    with pytest.raises(QueueFull):
        channel.request({**call, "fields": {}, "wait": 0.0}, [b"x"], kind=STEP)
    channel.close()
    joined.owner_session.connection.give_back(channel)
    assert owner.queue("q").messages == 1


# Processes and event loops

WAITER = """
import sys, quire
store = quire.open(sys.argv[1])
print(store.role, flush=True)
if sys.argv[2] == "alone":
    store.put("q", b"1", timeout=None)
else:
    with store.transaction() as txn:
        txn.put("q", b"1")
        txn.commit(timeout=60.0)
print("put", flush=True)
"""


@pytest.mark.parametrize("how", ["alone", "transaction"])
def test_a_client_dies_while_its_put_waits(store_path: str, how: str) -> None:
    """What it waited with is not put, and holds no room."""
    options: Any = {"segment_bytes": SEGMENT_BYTES, "commit_timeout": 60.0}
    with quire.open(store_path, **options) as store:
        store.create_queue("q", kind="work", max_messages=1, overflow="wait")
        store.put("q", b"0")
        with child(WAITER, store_path, how) as waiter:
            assert waiter.line() == "joined"
            eventually(store.admin.transactions)
            waiter.kill()
        eventually(lambda: not store.admin.transactions())
        assert [m.payload for m in got(store, "q")] == [b"0"]
        store.put("q", b"2", timeout=0.0)
        assert store.browse("q").payloads() == [b"2"]


def test_an_owner_ends_while_a_put_waits(store_path: str) -> None:
    """Who waits is told, or puts at the next owner; it is put once or not at all."""
    ended: list[BaseException | None] = []

    def put(client: Any) -> None:
        try:
            client.put("q", b"1")
            ended.append(None)
        except QuireError as error:
            ended.append(error)

    store = quire.open(store_path, segment_bytes=SEGMENT_BYTES)
    store.create_queue("q", kind="work", max_messages=1, overflow="wait")
    store.put("q", b"0")
    with quire.open(store_path) as client:
        thread = threading.Thread(target=put, args=(client,))
        thread.start()
        eventually(store.admin.transactions)
        store.close()
        eventually(lambda: client.role == "owner")
        first = client.get("q", timeout=120.0)
        assert first is not None
        thread.join(120)
        assert len(ended) == 1
        is_put = ended[0] is None
        assert client.browse("q").payloads() == [b"1"] * is_put


@pytest.mark.parametrize("role", ["owner", "joined"])
def test_coroutines_wait_for_room(store_path: str, role: str) -> None:
    """However many they are, there are threads for the calls that make room."""

    async def main(store: AsyncStore) -> None:
        await store.create_queue("q", kind="work", max_messages=1, overflow="wait")
        puts = [asyncio.create_task(store.put("q", b"m")) for _ in range(AIO_THREADS + 8)]
        for _ in puts:
            assert await store.get("q", timeout=120.0) is not None
        await asyncio.gather(*puts)
        assert (await store.queue("q")).messages == 0

    async def begin() -> None:
        options: Any = {"segment_bytes": SEGMENT_BYTES, "commit_timeout": 120.0}
        if role == "owner":
            async with quire.aio.open(store_path, **options) as store:
                await main(store)
        else:
            with quire.open(store_path, **options):
                async with quire.aio.open(store_path) as store:
                    await main(store)

    asyncio.run(begin())
