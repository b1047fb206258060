"""Volatile queues: the same whether the store is owned or joined."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import (
    InvalidArgument,
    PositionLost,
    QueueExists,
    QueueFull,
    QueueInUse,
    QueueNotFound,
    TransactionError,
)
from tests.behaviour.forms import WITH_CALLBACKS, AnyStore, Clock
from tests.behaviour.test_deliveries import got
from tests.kit.waiting import eventually


@pytest.fixture
def volatile(store: AnyStore) -> str:
    """A work queue whose messages are in memory; "kept" is one whose messages are not."""
    store.create_queue("kept", kind="work")
    return store.create_queue("v", kind="work", type="volatile").name


def payloads(store: AnyStore, queue: str) -> list[bytes]:
    """All that is there, read for good."""
    return [message.payload for message in got(store, queue)]


def held(store: AnyStore) -> int:
    """How many blocks are in memory."""
    return int(store.status()["volatile"]["blocks"])


def test_a_queue_tells_its_type(store: AnyStore, volatile: str) -> None:
    """Made so it stays so; its description is in the catalog, unless it is not to be durable."""
    info = store.queue(volatile)
    assert (info.type, info.persistent) == ("volatile", True)
    passing = store.create_queue("passing", kind="topic", type="volatile", persistent=False)
    assert (passing.type, passing.persistent) == ("volatile", False)
    assert (store.queue("kept").type, store.queue("kept").persistent) == ("persistent", True)
    bodies = {item.body["name"]: item.body for item in store.admin.catalog("queue")}
    assert (bodies["v"]["type"], bodies["passing"]["persistent"]) == ("volatile", False)
    for wrong in ({"type": "persistent"}, {"persistent": False}):
        with pytest.raises(InvalidArgument, match="as it was made"):
            store.alter_queue(volatile, **wrong)
    altered = store.alter_queue(volatile, type="volatile", text="in memory")
    assert (altered.type, altered.text) == ("volatile", "in memory")
    assert store.alter_queue("passing", max_messages=5).max_messages == 5
    with pytest.raises(QueueExists, match="type is 'volatile'"):
        store.create_queue(volatile, kind="work", exist_ok=True)
    assert store.create_queue(volatile, kind="work", type="volatile", exist_ok=True) == altered


def test_wrong_types_are_refused(store: AnyStore) -> None:
    """Wrong types are refused and nothing is made, not even of those beside them."""
    for wrong in ({"type": "unheard-of"}, {"type": 5}, {"type": ""}, {"persistent": "no"}):
        with pytest.raises(InvalidArgument):
            store.admin.create_queues(["a", {"name": "q", **wrong}])
    with pytest.raises(InvalidArgument, match="keeps messages durably"):
        store.admin.create_queues([{"name": "q", "persistent": False}])
    with pytest.raises(QueueExists):
        store.admin.create_queues(["b", {"name": "b", "type": "volatile", "persistent": False}])
    assert store.queues() == []


def test_messages_come_and_go_without_the_journal(store: AnyStore, volatile: str) -> None:
    """In order, with all that they carry; no record is written, and no memory is kept."""
    before = store.status()["journal"]["end_lsn"]
    first = store.put(volatile, b"a", group=3, attributes={"k": "v"})
    with store.transaction() as txn:
        ids = txn.put_many(volatile, [b"b", b"c"])
    assert store.browse(volatile).payloads() == [b"a", b"b", b"c"]
    with store.transaction() as txn:
        messages = [txn.get(volatile) for _ in range(3)]
        assert [m.id for m in messages if m] == [first, *map(int, ids)]
        assert messages[0] is not None
        assert (messages[0].group, messages[0].attributes) == (3, {"k": "v"})
    assert store.status()["journal"]["end_lsn"] == before
    assert held(store) == 0
    assert store.queue(volatile).used_bytes == 0


def test_promise_2_one_transaction_of_both(store: AnyStore, volatile: str) -> None:
    """All of it or nothing; a rollback gives back what was got, in both."""
    store.put(volatile, b"v")
    store.put("kept", b"k")
    with store.transaction() as txn:
        assert [m.payload for s in (volatile, "kept") if (m := txn.get(s))] == [b"v", b"k"]
        txn.put(volatile, b"not")
        txn.put("kept", b"not")
        txn.rollback()
    with store.transaction() as txn:
        taken = [txn.get(volatile), txn.get("kept")]
        assert [(m.payload, m.delivery_count) for m in taken if m] == [(b"v", 2), (b"k", 2)]
        ids = [txn.put(queue, queue.encode()) for queue in (volatile, "kept", volatile)]
        assert store.browse(volatile).payloads() == [b"v"]
    found = {m.id: m.payload for queue in (volatile, "kept") for m in got(store, queue)}
    assert found == {int(ids[0]): b"v", int(ids[1]): b"kept", int(ids[2]): b"v"}
    assert held(store) == 0


def test_a_get_waits_for_a_volatile_message(store: AnyStore, volatile: str) -> None:
    """A commit wakes it, as in other queues; two consumers share what comes."""
    found: list[bytes] = []

    def consume() -> None:
        message = store.get(volatile, timeout=120.0)
        assert message is not None
        found.append(message.payload)

    threads = [threading.Thread(target=consume) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    for payload in (b"1", b"2"):
        store.put(volatile, payload)
    for thread in threads:
        thread.join(120.0)
    assert sorted(found) == [b"1", b"2"]


@pytest.mark.parametrize("store", WITH_CALLBACKS, indirect=True)
def test_who_waits_by_a_callback_is_called(store: AnyStore, volatile: str) -> None:
    """A commit of volatile queues alone tells them too."""
    called = threading.Event()
    store.integration.when_ready(volatile, called.set)
    assert not called.is_set()
    store.put(volatile, b"x")
    assert called.wait(120.0)


def test_topics_have_subscriptions(store: AnyStore) -> None:
    """Each gets all; a message's memory goes when the last has read it, or is removed."""
    store.create_queue("t", kind="topic", type="volatile", persistent=False)
    store.subscribe("t", "a")
    store.put("t", b"1")
    store.subscribe("t", "b", start="latest")
    store.put("t", b"2")
    assert payloads(store, "t/a") == [b"1", b"2"]
    assert held(store) == 1
    assert payloads(store, "t/b") == [b"2"]
    store.put("t", b"3")
    assert held(store) == 1
    store.unsubscribe("t", "a")
    store.unsubscribe("t", "b")
    store.drop_queue("t")
    assert held(store) == 0
    with pytest.raises(QueueNotFound):
        store.queue("t")
    assert [item.body["name"] for item in store.admin.catalog()] == []


def test_a_topic_keeps_what_was_read(store: AnyStore) -> None:
    """In memory, as far as it is to be kept; a subscription goes back, in its transaction."""
    store.create_queue("t", kind="topic", type="volatile", keep_messages=3)
    store.subscribe("t", "a")
    store.put_many("t", [b"%d" % n for n in range(6)])
    start = store.integration.positions("t")[0]
    assert payloads(store, "t/a") == [b"%d" % n for n in range(6)]
    eventually(lambda: store.queue("t").messages == 3)
    with store.transaction() as txn:
        txn.seek("t/a", start + 4)
        txn.rollback()
    assert payloads(store, "t/a") == []
    with store.transaction() as txn:
        txn.seek("t/a", start + 4)
        assert store.browse("t/a").payloads() == []
    assert payloads(store, "t/a") == [b"4", b"5"]
    store.subscribe("t", "b")
    assert payloads(store, "t/b") == [b"3", b"4", b"5"]
    with store.transaction() as txn, pytest.raises(PositionLost):
        txn.seek("t/a", start)
    store.alter_queue("t", keep_messages=None)
    eventually(lambda: store.queue("t").messages == 0)
    assert held(store) == 0


def test_one_transaction_moves_subscriptions_of_both(store: AnyStore) -> None:
    """With messages to both types, all of it or nothing."""
    for name in ("durable", "v"):
        store.create_queue(
            name, kind="topic", type="volatile" if name == "v" else "persistent", keep_forever=True
        )
        store.subscribe(name, "s")
        store.put_many(name, [b"1", b"2"])
        assert payloads(store, f"{name}/s") == [b"1", b"2"]
    start = store.integration.positions("v")[0]
    sources = ("durable/s", "v/s")

    def move(*, beside: bool, moved: tuple[str, ...]) -> None:
        with store.transaction() as txn:
            for source in moved:
                txn.seek(source, start + 1 if source == "v/s" else 1)
            if beside:
                txn.put("v", b"3")
                txn.put("durable", b"3")

    expected = [b"2"]
    for beside in (False, True):
        expected += [b"3"] * beside
        move(beside=beside, moved=sources)
        assert [payloads(store, source) for source in sources] == [expected] * 2
    for one in sources:
        expected.append(b"3")
        move(beside=True, moved=(one,))
        other = next(source for source in sources if source != one)
        assert (payloads(store, one), payloads(store, other)) == (expected, [b"3"])
    with store.transaction() as txn:
        txn.seek("v/s", "latest")
        txn.put("durable", b"4")
    assert (payloads(store, "v/s"), payloads(store, "durable/s")) == ([], [b"4"])
    with store.transaction() as txn:
        txn.seek("v/s", start + 1)
        with pytest.raises(TransactionError):
            txn.prepare("x")
        txn.rollback()


def test_read_to_and_reject(store: AnyStore, volatile: str) -> None:
    """Positions and single messages are handled as elsewhere."""
    with store.transaction() as txn:
        txn.put_many(volatile, [b"%d" % n for n in range(6)])
    with store.transaction() as txn:
        txn.read_to(volatile, 2)
    with store.transaction() as txn:
        message, other = txn.get(volatile), txn.get(volatile)
        assert message is not None
        assert other is not None
        txn.reject(message)
    assert [message.payload, other.payload] == [b"2", b"3"]
    assert payloads(store, volatile) == [b"2", b"4", b"5"]
    assert store.integration.positions(volatile) == (6, 6)


def test_priorities_and_times(store: AnyStore, clock: Clock) -> None:
    """Selections work over what is in memory."""
    store.create_queue("v", kind="work", type="volatile", order="priority", timed=True)
    now = clock.now_us()
    store.put("v", b"low", priority=1)
    store.put("v", b"high", priority=9)
    store.put("v", b"late", priority=9, deliver_at=now + 600_000_000)
    store.put("v", b"gone", priority=9, expires_at=now)
    assert payloads(store, "v") == [b"high", b"low"]
    clock.forward(599.7)
    message = store.get("v", timeout=120.0)
    assert message is not None
    assert message.payload == b"late"
    eventually(lambda: held(store) == 0)


def test_groups_are_ordered(store: AnyStore) -> None:
    """One reader at a time has messages of a group; others are passed over."""
    store.create_queue("v", kind="work", type="volatile", grouped=True)
    for payload, group in ((b"a0", "a"), (b"b0", "b"), (b"a1", "a")):
        store.put("v", payload, group_key=group)
    with store.transaction() as first, store.transaction() as second:
        assert first.get_many("v", 1).payloads() == [b"a0"]
        assert second.get_many("v").payloads() == [b"b0"]
        first.rollback()
    assert payloads(store, "v") == [b"a0", b"a1"]
    assert held(store) == 0


@pytest.mark.parametrize("types", [("volatile", "persistent"), ("persistent", "volatile")], ids=str)
def test_dead_letters_between_types(store: AnyStore, types: tuple[str, str]) -> None:
    """Deliveries are counted in memory; the last one moves the message: it is in one of both."""
    store.create_queue("dead", kind="work", type=types[1])
    store.create_queue("q", kind="work", type=types[0], max_deliveries=2, dead_letter="dead")
    store.put("q", b"poison")
    for delivery in (1, 2):
        with store.transaction() as txn:
            message = txn.get("q")
            assert message is not None
            assert message.delivery_count == delivery
            txn.reject(message, "smells")
    eventually(lambda: store.queue("dead").messages == 1)
    assert store.queue("q").messages == 0
    [letter] = got(store, "dead")
    assert (letter.payload, letter.attributes["quire.reason"]) == (b"poison", "smells")


def test_a_temporary_queue_takes_no_dead_letters_of_a_lasting_one(store: AnyStore) -> None:
    """They would have nowhere to go after a restart."""
    store.create_queue("dead", kind="work", type="volatile", persistent=False)
    with pytest.raises(InvalidArgument, match="gone after a restart"):
        store.create_queue("q", kind="topic", max_deliveries=1, dead_letter="dead")
    store.create_queue("q", kind="topic")
    with pytest.raises(InvalidArgument, match="gone after a restart"):
        store.alter_queue("q", max_deliveries=1, dead_letter="dead")
    store.create_queue(
        "r", kind="topic", type="volatile", persistent=False, max_deliveries=1, dead_letter="dead"
    )
    with pytest.raises(QueueInUse):
        store.drop_queue("dead")


def test_the_capacity_bounds_the_memory(store: AnyStore) -> None:
    """A put that does not fit is refused, one after the messages were read is not."""
    store.create_queue("v", kind="work", type="volatile", capacity=1 << 16, max_messages=3)
    with pytest.raises(QueueFull):
        store.put("v", b"x" * (1 << 16))
    for _ in range(3):
        store.put("v", b"x")
    with pytest.raises(QueueFull):
        store.put("v", b"x")
    assert len(payloads(store, "v")) == 3
    store.put("v", b"x")


def test_large_transactions_stay_in_memory(store: AnyStore, volatile: str, owner: Store) -> None:
    """Past every limit, with `large` or without: no file, and each message is there once."""
    for large in (False, True):
        with store.transaction(large=large) as txn:
            for n in range(6):
                txn.put_many(volatile, [b"%d" % n * (1 << 20)] * 4)
            txn.put("kept", b"small")
        assert store.status()["large_transactions"]["files"] == 0
        with store.transaction() as txn:
            found = txn.get_many(volatile, 100).payloads()
            assert [(p[:1], len(p)) for p in found] == [
                (b"%d" % n, 1 << 20) for n in range(6) for _ in range(4)
            ]
            assert [m.payload for m in txn.get_many("kept", 10)] == [b"small"]
    assert held(store) == 0
    assert owner.queue(volatile).used_bytes == 0


def test_arrow_goes_in_and_out(store: AnyStore, volatile: str) -> None:
    """Columns, and a batch that was put as one block."""
    with store.transaction() as txn:
        txn.put_many(volatile, pa.array([b"a", b"b", b"c"]))
    with store.transaction() as txn:
        batch = txn.get_arrow(volatile)
        assert batch.column("payload").to_pylist() == [b"a", b"b", b"c"]


def test_nothing_volatile_is_prepared(store: AnyStore, volatile: str) -> None:
    """Neither puts nor gets; the transaction stays open, and can be committed."""
    store.put(volatile, b"x")
    with store.transaction() as txn:
        txn.put("kept", b"k")
        txn.put(volatile, b"y")
        with pytest.raises(InvalidArgument, match="volatile"):
            txn.prepare("xid")
        txn.commit()
    with store.transaction() as txn:
        assert txn.get(volatile) is not None
        with pytest.raises(InvalidArgument, match="volatile"):
            txn.prepare("xid")
        txn.rollback()
    with store.transaction() as txn:
        txn.read_to(volatile, 1)
        with pytest.raises(InvalidArgument, match="volatile"):
            txn.prepare("xid")
        txn.rollback()
    with store.transaction() as txn:  # others are, beside it
        txn.put("kept", b"l")
        txn.prepare("xid")
        txn.commit()
    assert payloads(store, volatile) == [b"x", b"y"]
    assert payloads(store, "kept") == [b"k", b"l"]


def test_files_are_out_of_reach(store: AnyStore, volatile: str) -> None:
    """Leases, by which Spark reads, and files that other processes wrote are refused in words."""
    store.put(volatile, b"x")
    with pytest.raises(InvalidArgument, match="volatile"):
        store.integration.lease(volatile, 0, 1)

    def adopt() -> None:
        with store.transaction() as txn:
            txn.integration.adopt(volatile, 1 << 62 | 5)

    with pytest.raises(InvalidArgument, match="volatile"):
        adopt()
    assert payloads(store, volatile) == [b"x"]


def test_a_transaction_tells_what_it_holds_in_memory(store: AnyStore, volatile: str) -> None:
    """What has left the write buffer is still in memory, and told so."""
    with store.transaction(large=True) as txn:
        txn.put_many(volatile, [b"x" * (1 << 20)] * 8)
        txn.get("kept")  # whatever a client collects has arrived
        [info] = store.admin.transactions()
        assert info.buffered_bytes == info.bytes > 8 << 20
        assert (info.file_bytes, info.spilled_bytes) == (0, 0)
        txn.rollback()
    assert store.queue(volatile).used_bytes == 0


def test_records_are_told(store: AnyStore, volatile: str) -> None:
    """As the patent's figures have them; where the messages are is the memory."""
    with store.transaction() as txn:
        txn.put(volatile, b"x")
    kinds = [(record.kind, record.where) for record in store.admin.queue_records(volatile)]
    assert kinds == [("OPEN", ""), ("MESSAGES", "memory"), ("COMMIT", "")]
