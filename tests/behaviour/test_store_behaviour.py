"""What a store does, the same whether this process owns it or has joined its owner."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pytest

from quire.errors import (
    AlreadyCommitted,
    InvalidArgument,
    NobodyReads,
    PositionLost,
    QueueExists,
    QueueFull,
    QueueInUse,
    QueueNotFound,
    QuireError,
    StoreClosed,
    SubscriptionNotFound,
    TransactionClosed,
    TransactionError,
    TransactionTimeout,
)
from quire.messages.message_schema import MESSAGE_SCHEMA
from tests.behaviour.forms import AnyStore, Clock
from tests.kit.waiting import SECONDS, eventually


def test_many_queues_and_the_catalog(store: AnyStore) -> None:
    """Names and mappings are made together, or none; what is defined is listed, by type."""
    made = store.admin.create_queues([{"name": "a", "kind": "topic"}, "b"])
    assert made == store.queues()
    with pytest.raises(QueueExists):
        store.admin.create_queues(["c", "a"])
    with pytest.raises(InvalidArgument, match="size"):
        store.admin.create_queues([{"name": "c", "size": 1}])
    store.subscribe("a", "reader")
    assert [(item.type, item.key, item.body["name"]) for item in store.admin.catalog()] == [
        ("queue", 1, "a"), ("queue", 2, "b"), ("subscription", 2, "reader"),
    ]  # fmt: skip
    assert len(store.admin.catalog("queue")) == 2


def test_many_queues_are_asked_for_at_once(store: AnyStore) -> None:
    """In the order of the names, again if a name is; one that is missing is an error."""
    a, b, _ = store.admin.create_queues(["a", "b", {"name": "c", "kind": "work"}])
    assert store.queues(["b", "a", "b"]) == [b, a, b]
    assert store.queues(iter(["a"])) == [a]
    assert store.queues([]) == []
    with pytest.raises(QueueNotFound, match="nowhere"):
        store.queues(["a", "nowhere"])


def test_many_topics_are_subscribed_to_at_once(store: AnyStore) -> None:
    """In all of them or in none; a subscription that is there stays where it is."""
    topics = [{"name": name, "kind": "topic"} for name in "abc"]
    store.admin.create_queues([*topics, "work"])
    for queue in "abc":
        with pytest.warns(NobodyReads):
            store.put(queue, b"0")
    old = store.subscribe("b", "reader", start="latest")
    refused: list[dict[str, Any]] = [
        {"c": "earliest", "a": 2}, {"c": 0, "work": 0}, {"c": 0, "nowhere": 0},
    ]  # fmt: skip
    for wrong in refused:
        with pytest.raises((InvalidArgument, QueueNotFound)):
            store.integration.subscribe_many("reader", wrong)
    assert store.subscriptions("c") == []
    made = store.integration.subscribe_many("reader", {"c": "earliest", "b": 0, "a": "latest"})
    assert [(info.queue, info.name, info.position) for info in made] == [
        ("c", "reader", 0), ("b", "reader", 1), ("a", "reader", 1),
    ]  # fmt: skip
    assert made[1] == old
    assert store.integration.subscribe_many("reader", {"c": 1, "a": 0}) == [made[0], made[2]]
    assert store.integration.subscribe_many("reader", {}) == []
    numbers = [item.key for item in store.admin.catalog("subscription")]
    assert len(set(numbers)) == len(numbers) == 3


def test_subscriptions_of_several_names_are_made_at_once(store: AnyStore) -> None:
    """All of them or none, each where it is to begin; those that are there stay where they are."""
    store.admin.create_queues([{"name": name, "kind": "topic"} for name in "ab"])
    for queue in "ab":
        with pytest.warns(NobodyReads):
            store.put(queue, b"0")
    old = store.subscribe("a", "x")
    for wrong in ({"a/y": 0, "b/y": 2}, {"a/y": 0, "none/y": 0}, {"a/y": 0, "b": 0}):
        with pytest.raises((InvalidArgument, QueueNotFound)):
            store.integration.subscribe_many(None, wrong)
    assert [info.name for info in store.subscriptions("a")] == ["x"]
    made = store.integration.subscribe_many(None, {"b/y": "latest", "a/x": 1, "b/z": "earliest"})
    found = [(info.queue, info.name, info.position) for info in made]
    assert found == [("b", "y", 1), ("a", "x", 0), ("b", "z", 0)]
    assert made[1] == old


def test_many_ranges_are_one_lease(store: AnyStore) -> None:
    """They have one id, to renew and to release; with one that is gone, none is leased."""
    infos = store.admin.create_queues([{"name": "a", "kind": "topic"}, "work"])
    store.subscribe("a", "s")
    for queue in ("a", "work"):
        for n in range(4):
            store.put(queue, b"%d" % n)
    leases = store.integration.lease_many(
        [("work", 1, 3), ("a", 0, 4), ("work", 2, 2)], seconds=60.0
    )
    assert [(lease.queue, lease.start, lease.end) for lease in leases] == [
        ("work", 1, 3), ("a", 0, 4), ("work", 2, 2),
    ]  # fmt: skip
    assert [lease.created_us for lease in leases] == [infos[n].created_us for n in (1, 0, 1)]
    assert [sum(p.stop - p.start for p in lease.pieces) for lease in leases] == [2, 4, 0]
    [lease_id] = {lease.lease_id for lease in leases}
    with pytest.raises(PositionLost):
        store.integration.lease_many([("a", 0, 4), ("work", 0, 5)])
    assert store.status()["leases"] == 1
    store.integration.renew_lease(lease_id, seconds=60.0)
    store.integration.end_lease(lease_id)
    with pytest.raises(PositionLost):
        store.integration.renew_lease(lease_id)
    assert store.integration.lease_many([]) == []


def test_many_ranges_are_leased_with_their_gaps(store: AnyStore) -> None:
    """What is there of each is in the one lease, which says how far it goes."""
    store.admin.create_queues([{"name": name, "kind": "work"} for name in "ab"])
    for queue in "ab":
        for n in range(4):
            store.put(queue, b"%d" % n)
    with store.transaction() as txn:
        txn.get_many("a", 3)
    ranges = [("a", 0, 9), ("b", 1, 3), ("a", 5, 7)]
    with pytest.raises(PositionLost):
        store.integration.lease_many(ranges)
    leases = store.integration.lease_many(ranges, seconds=60.0, gaps=True)
    assert [(lease.queue, lease.start, lease.end) for lease in leases] == [
        ("a", 0, 4), ("b", 1, 3), ("a", 4, 4),
    ]  # fmt: skip
    assert [[p.first_position for p in lease.pieces] for lease in leases] == [[3], [1, 2], []]
    [lease_id] = {lease.lease_id for lease in leases}
    store.integration.end_lease(lease_id)
    assert store.status()["leases"] == 0


def test_many_sources_are_passed_over_at_once(store: AnyStore) -> None:
    """With an error none of them is, and the transaction goes on."""
    store.admin.create_queues([{"name": "a", "kind": "topic"}, "work"])
    store.subscribe("a", "reader")
    for queue in ("a", "work"):
        for n in range(4):
            store.put(queue, b"%d" % n)
    with store.transaction() as txn:
        for wrong in ({"a/reader": 4, "work": 5}, {"work": 4, "a/nobody": 1}):
            with pytest.raises((InvalidArgument, SubscriptionNotFound)):
                txn.integration.read_to_many(wrong)
    assert [store.subscriptions(queue)[0].position for queue in ("a", "work")] == [0, 0]
    with store.transaction() as txn:
        made = txn.integration.read_to_many({"a/reader": 3, "work": 2})
    assert made == {"a/reader": store.queue("a").created_us, "work": store.queue("work").created_us}
    assert [store.subscriptions(queue)[0].position for queue in ("a", "work")] == [3, 2]


@pytest.fixture
def topic(store: AnyStore) -> str:
    """A topic with the subscription "a"."""
    store.create_queue("topic", kind="topic")
    store.subscribe("topic", "a")
    return "topic"


def test_queues_are_made_listed_and_dropped(store: AnyStore) -> None:
    """The definitions of queues and subscriptions, as values that compare equal."""
    info = store.create_queue("q", kind="topic", capacity=1 << 20, max_messages=5)
    assert (info.name, info.kind, info.capacity_bytes, info.max_messages) == (
        "q",
        "topic",
        1 << 20,
        5,
    )
    assert store.queue("q") == info
    assert store.queues() == [info]
    in_files = [store.create_queue(f"f{n}", kind="topic", data_file=n).data_file for n in (0, 1)]
    assert in_files == [0, 1]
    assert [len(store.status()["data"]["files"]), info.data_file] == [2, 0]
    for n in (0, 1):
        store.drop_queue(f"f{n}")
    with pytest.raises(QueueExists):
        store.create_queue("q", kind="topic")
    first = store.subscribe("q", "a", start="latest")
    assert store.subscribe("q", "a", start="latest") == first
    assert store.subscriptions("q") == [first]
    assert store.queue("q").subscriptions == ("a",)
    store.unsubscribe("q", "a")
    with pytest.raises(SubscriptionNotFound):
        store.unsubscribe("q", "a")
    store.drop_queue("q")
    with pytest.raises(QueueNotFound):
        store.queue("q")


def test_a_message_arrives_with_all_its_fields(store: AnyStore, work: str) -> None:
    """Every field of a message, and its id, which is known after the commit."""
    fields: dict[str, Any] = {
        "priority": 7,
        "group": 9,
        "sender": "Jörg",
        "correlation_id": "c-1",
        "reply_to": "answers",
        "content_type": "text/plain",
        "expires_at": 4_000_000_000_000_000,
        "deliver_at": 1_700_000_000_000_000,
        "attributes": {"a": "1", "b": ""},
    }
    store.alter_queue(work, order="priority", timed=True)
    with store.transaction() as txn:
        message_id = txn.put(work, b"payload", **fields)
        with pytest.raises(TransactionError):
            int(message_id)
    with store.transaction() as txn:
        message = txn.get(work)
        assert txn.get(work) is None
    assert message is not None
    assert {name: getattr(message, name) for name in fields} == fields
    assert (message.id, message.queue, message.payload) == (int(message_id), work, b"payload")
    assert message.delivery_count == 1
    assert abs(message.time - time.time_ns() // 1000) < 3600e6


def test_a_rollback_makes_messages_available_again(store: AnyStore, work: str) -> None:
    """At their place in the order, and counted as delivered once more."""
    with store.transaction() as txn:
        txn.put_many(work, [b"0", b"1", b"2"])
    txn = store.transaction()
    assert txn.get_many(work, 2).payloads() == [b"0", b"1"]
    txn.rollback()
    txn.rollback()
    assert txn.state == "rolled back"
    with store.transaction() as txn:
        messages = txn.get_many(work)
    assert messages.payloads() == [b"0", b"1", b"2"]
    assert [message.delivery_count for message in messages] == [2, 2, 1]


def test_an_exception_rolls_back(store: AnyStore, topic: str) -> None:
    """Nothing of the block takes effect."""
    with pytest.raises(ZeroDivisionError), store.transaction() as txn:  # noqa: PT012
        txn.put(topic, b"x")
        txn.enter("key", 1)
        _ = 1 // 0
    assert txn.state == "rolled back"
    assert store.queue(topic).end_position == 0
    assert store.integration.ledger("key") is None
    with pytest.raises(TransactionClosed):
        txn.put(topic, b"x")


def test_one_commit_over_many_queues(store: AnyStore, topic: str, work: str) -> None:
    """Gets and puts of one transaction become visible together, in put order."""
    store.put(work, b"order")
    txn = store.transaction()
    order = txn.get(work)
    assert order is not None
    txn.put(topic, b"1")
    txn.put_many(topic, [b"2", b"3"])
    txn.put(work, b"later")
    with store.transaction() as other:
        assert other.get(work) is None
        assert len(other.get_many(f"{topic}/a")) == 0
    txn.commit()
    assert txn.state == "committed"
    with store.transaction() as other:
        assert other.get_many(f"{topic}/a").payloads() == [b"1", b"2", b"3"]
        assert other.get_many(work).payloads() == [b"later"]


def test_batches_go_in_and_come_out(store: AnyStore, topic: str) -> None:
    """put_many takes lists, arrays and batches; their ids are those of the messages."""
    store.subscribe(topic, "b")
    batch = pa.record_batch({"payload": [b"d", b"e"], "group": pa.array([1, 2], pa.int32())})
    with store.transaction() as txn:
        ids = [
            txn.put_many(topic, [b"a", b"b"]),
            txn.put_many(topic, pa.array([b"c"])),
            txn.put_many(topic, batch),
            txn.put_many(topic, []),
        ]
        single = txn.put(topic, b"f")
    with store.transaction() as txn:
        messages = txn.get_many(f"{topic}/a")
        arrow = txn.get_arrow(f"{topic}/b")
        nothing = txn.get_arrow(f"{topic}/b")
    assert messages.payloads() == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert [*map(int, (*ids[0], *ids[1], *ids[2], single))] == messages.ids
    assert len(ids[3]) == 0
    assert [int(i) for i in ids[0][1:]] == messages.ids[1:2]
    assert messages.to_arrow().equals(arrow)
    assert arrow.schema.equals(MESSAGE_SCHEMA)
    assert arrow.schema.metadata == {b"queue": topic.encode()}
    assert arrow["group"].to_pylist() == [0, 0, 0, 1, 2, 0]
    assert nothing.num_rows == 0
    assert nothing.schema.equals(MESSAGE_SCHEMA)


@pytest.mark.parametrize("large", [False, True])
def test_a_transaction_larger_than_any_buffer(store: AnyStore, work: str, large: bool) -> None:
    """20 MB in one transaction, given in many puts, come out in order."""
    payload = bytes(1000)
    with store.transaction(large=large) as txn:
        for n in range(199):
            txn.put_many(work, [b"%05d" % (n * 100 + i) + payload for i in range(100)])
        ids = txn.put_many(work, [b"%05d" % (19_900 + i) + payload for i in range(100)])
        assert store.queue(work).messages == 0
    assert int(ids[-1]) - int(ids[0]) == 99
    with store.transaction() as txn:
        got = txn.get_many(work, max_messages=50_000)
    assert [p[:5] for p in got.payloads()] == [b"%05d" % n for n in range(20_000)]


def test_a_payload_larger_than_any_frame_part(store: AnyStore, work: str) -> None:
    """One message of 50 MB."""
    store.put(work, b"x" * 50_000_000)
    with store.transaction() as txn:
        message = txn.get(work)
    assert message is not None
    assert len(message.payload) == 50_000_000


@pytest.mark.promise(5)
def test_a_full_queue_refuses_and_the_store_goes_on(store: AnyStore) -> None:
    """QueueFull comes from the put or, joined, from the commit; nothing of it took effect."""
    store.create_queue("small", kind="work", capacity=100_000)
    txn = store.transaction()
    with pytest.raises(QueueFull):  # noqa: PT012
        for _ in range(11):
            txn.put("small", b"x" * 10_000)
        txn.commit()
    txn.rollback()
    assert store.queue("small").used_bytes == 0
    store.put("small", b"fits")
    assert store.queue("small").messages == 1


def test_a_missing_queue_fails_the_put(store: AnyStore, work: str) -> None:
    """The transaction stays usable."""
    with store.transaction() as txn:
        with pytest.raises(QueueNotFound):
            txn.put("nowhere", b"x")
        with pytest.raises(QueueNotFound):
            txn.put_many("nowhere", [b"x"])
        with pytest.raises(QueueNotFound):
            txn.get("nowhere")
        txn.put(work, b"y")
    assert store.queue(work).messages == 1
    with pytest.raises(QueueNotFound):
        store.put("nowhere", b"x")


def test_a_queue_dropped_meanwhile(store: AnyStore, work: str) -> None:
    """What was known of it is not trusted for ever."""
    store.put(work, b"x")
    store.drop_queue(work)
    with pytest.raises(QueueNotFound):
        store.put(work, b"x")
    with pytest.raises(QueueNotFound), store.transaction() as txn:
        txn.put(work, b"x")


def test_a_queue_in_use_is_not_dropped(store: AnyStore, work: str) -> None:
    """A transaction that has put to it holds it, once its puts are at the owner."""
    store.create_queue("empty", kind="work")
    with store.transaction() as txn:
        txn.put(work, b"x")
        assert txn.get("empty") is None  # its answer comes after what was put before it
        with pytest.raises(QueueInUse):
            store.drop_queue(work)


def test_the_ledger_makes_a_commit_happen_once(store: AnyStore, work: str) -> None:
    """A second commit with the same version raises AlreadyCommitted and does nothing."""
    for version in (1, 2):
        with store.transaction() as txn:
            txn.put(work, b"x")
            txn.enter("query", version)
    assert store.integration.ledger("query") == 2
    assert store.integration.ledger_many(["other", "query"]) == {"query": 2}
    assert store.integration.ledger_many([]) == {}
    with pytest.raises(AlreadyCommitted), store.transaction() as txn:  # noqa: PT012
        txn.put(work, b"x")
        txn.enter("query", 2)
    assert txn.state == "rolled back"
    assert store.queue(work).messages == 2


def test_a_get_waits_for_a_commit(store: AnyStore, work: str) -> None:
    """A waiting get is woken by a commit, not by its time, and holds up no other transaction."""
    got: list[Any] = []

    def wait() -> None:
        with store.transaction() as txn:
            got.append(txn.get(work, timeout=100 * SECONDS))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(3):
        store.put(work, b"%d" % n)
    for thread in threads:
        thread.join(SECONDS)
    assert sorted(message.payload for message in got) == [b"0", b"1", b"2"]


def test_a_get_in_the_main_thread_waits_its_time(store: AnyStore, work: str) -> None:
    """None after the timeout; the transaction goes on."""
    with store.transaction() as txn:
        start = time.monotonic()
        assert txn.get(work, timeout=0.3) is None
        assert time.monotonic() - start > 0.25
        assert len(txn.get_many(work, timeout=0.01)) == 0
        txn.put(work, b"x")
    assert store.queue(work).messages == 1


def test_a_transaction_is_rolled_back_after_its_timeout(
    store: AnyStore, work: str, clock: Clock
) -> None:
    """What it got is available again, and it says what happened to it."""
    store.put(work, b"x")
    txn = store.transaction(timeout=600.0)
    assert txn.get(work) is not None
    clock.forward(600)
    with store.transaction() as other:
        assert other.get(work, timeout=SECONDS) is not None
    for operation in (lambda: txn.get(work), lambda: txn.put(work, b"y"), txn.commit):
        with pytest.raises(TransactionTimeout):
            operation()
    assert txn.state == "rolled back"


def test_puts_that_waited_too_long(store: AnyStore, work: str) -> None:
    """The timeout holds for a transaction that has only put, too."""
    with pytest.raises(TransactionTimeout), store.transaction(timeout=0.1) as txn:  # noqa: PT012
        txn.put(work, b"x")
        time.sleep(0.11)
        eventually(lambda: not store.admin.transactions())  # the maintenance does it, now and then
    assert store.queue(work).messages == 0


def test_an_empty_transaction(store: AnyStore) -> None:
    """It commits, and can be used no more."""
    txn = store.transaction()
    txn.commit()
    assert txn.state == "committed"
    with pytest.raises(TransactionClosed):
        txn.commit()
    with pytest.raises(TransactionClosed):
        txn.get("q")
    with pytest.raises(TransactionClosed):
        txn.enter("k", 1)
    txn.rollback()


def test_looking_without_taking(store: AnyStore, topic: str) -> None:
    """browse, from a position and within a subscription."""
    with store.transaction() as txn:
        txn.put_many(topic, [b"0", b"1", b"2"])
    store.subscribe(topic, "late", start=2)
    assert store.browse(topic).payloads() == [b"0", b"1", b"2"]
    assert store.browse(topic, start=1, max_messages=1).payloads() == [b"1"]
    assert store.browse(f"{topic}/late").payloads() == [b"2"]
    assert store.subscriptions(topic)[0].pending == 3


def test_positions_leases_and_reading_on(store: AnyStore, topic: str) -> None:
    """Ranges can be pinned; read_to passes messages over at the commit."""
    with store.transaction() as txn:
        txn.put_many(topic, [b"%d" % n for n in range(10)])
    assert store.integration.positions(topic) == (0, 10)
    lease = store.integration.lease(topic, 2, 5, seconds=60.0)
    assert (lease.queue, lease.start, lease.end) == (topic, 2, 5)
    assert sum(piece.stop - piece.start for piece in lease.pieces) == 3
    store.integration.renew_lease(lease.lease_id, 60.0)
    store.integration.end_lease(lease.lease_id)
    with pytest.raises(PositionLost):
        store.integration.renew_lease(lease.lease_id)
    with store.transaction() as txn:
        txn.read_to(f"{topic}/a", 4)
    assert store.subscriptions(topic)[0].position == 4


def test_a_lease_with_gaps_is_of_what_is_there(store: AnyStore, work: str) -> None:
    """Wherever messages are gone, within a block too, and beyond the end."""
    for n in range(4):
        store.put(work, b"%d" % n)
    with store.transaction() as txn:
        txn.put_many(work, [b"%d" % n for n in range(4, 10)])
    first = store.transaction()
    first.get(work)
    with store.transaction() as txn:
        txn.get_many(work, 2)
    second = store.transaction()
    second.get_many(work, 2)
    with store.transaction() as txn:
        txn.get_many(work, 3)

    def positions(start: int, end: int) -> list[int]:
        lease = store.integration.lease(work, start, end, seconds=60.0, gaps=True)
        store.integration.end_lease(lease.lease_id)
        found = [(p.first_position, p.stop - p.start) for p in lease.pieces]
        return [position + n for position, count in found for n in range(count)]

    with pytest.raises(PositionLost):
        store.integration.lease(work, 0, 10)
    assert positions(0, 10) == positions(0, 1 << 40) == [0, 3, 4, 8, 9]
    assert positions(2, 9) == [3, 4, 8]
    assert positions(5, 8) == positions(10, 20) == positions(30, 40) == []
    first.rollback()
    second.commit()
    assert positions(0, 10) == [0, 8, 9]


def test_the_store_as_a_whole(store: AnyStore, work: str) -> None:
    """status is JSON, a checkpoint can be asked for, verify finds nothing."""
    store.put(work, b"x")
    store.admin.checkpoint()
    assert json.loads(json.dumps(store.status()))["queues"][0]["name"] == work
    report = store.admin.verify()
    assert report.ok
    assert report.checked["messages"] == 1
    assert "contents" not in report.checked
    whole = store.admin.verify(contents=True).checked
    assert len(whole.pop("contents")) == 32
    assert whole == report.checked
    with pytest.raises(InvalidArgument):
        store.admin.verify(contents="all")  # type: ignore[arg-type]


class Within:
    """Calls a method of a new transaction, which then ends."""

    def __init__(self, store: AnyStore) -> None:
        self._store = store

    def __getattr__(self, method: str) -> Any:
        def call(*arguments: Any) -> Any:
            with self._store.transaction() as txn:
                return attrgetter(method)(txn)(*arguments)

        return call


BAD_CALLS: dict[str, Callable[[AnyStore], object]] = {
    "queue name": lambda store: store.create_queue("a/b", kind="topic"),
    "queue name type": lambda store: store.create_queue(5, kind="topic"),  # type: ignore[arg-type]
    "kind": lambda store: store.create_queue("b", kind="heap"),  # type: ignore[arg-type]
    "capacity": lambda store: store.create_queue("b", kind="topic", capacity=-1),
    "data file": lambda store: store.create_queue("b", kind="topic", data_file=2),
    "data file type": lambda store: store.create_queue("b", kind="topic", data_file="0"),  # type: ignore[arg-type]
    "start": lambda store: store.subscribe("topic", "b", start="middle"),
    "subscription name": lambda store: store.subscribe("topic", ""),
    "subscribe to work": lambda store: store.subscribe("work", "b"),
    "timeout": lambda store: store.transaction(timeout=0),
    "payload type": lambda store: store.put("work", "text"),
    "payloads type": lambda store: Within(store).put_many("work", b"abc"),
    "payloads of text": lambda store: Within(store).put_many("work", ["a"]),
    "batch without payload": lambda store: Within(store).put_many(
        "work", pa.record_batch({"x": [1]})
    ),
    "priority": lambda store: store.put("work", b"", priority=70_000),
    "unknown field": lambda store: store.put("work", b"", colour="red"),  # type: ignore[call-arg]
    "attributes": lambda store: store.put("work", b"", attributes={"a": 1}),  # type: ignore[dict-item]
    "source type": lambda store: Within(store).get(None),
    "source form": lambda store: Within(store).get("topic/a/b"),
    "max_messages": lambda store: Within(store).get_many("work", 0),
    "max_messages type": lambda store: Within(store).get_many("work", "all"),
    "ledger key": lambda store: Within(store).enter("", 1),
    "ledger version": lambda store: Within(store).enter("k", -1),
    "position": lambda store: Within(store).read_to("topic/a", 99),
    "fragment": lambda store: getattr(Within(store), "integration.adopt")("work", 1),
    "put to a subscription": lambda store: store.put("topic/a", b""),
    "put to a list": lambda store: store.put(["work"], b""),  # type: ignore[arg-type]
    "queue of bytes": lambda store: store.queue(b"work"),  # type: ignore[arg-type]
    "source of bytes": lambda store: Within(store).get(b"work"),
    "range of a lease": lambda store: store.integration.lease("work", -1, 0),
    "seconds of a lease": lambda store: store.integration.lease("work", 0, 0, float("nan")),
}


@pytest.mark.cases(3)
@pytest.mark.promise(13)
@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_bad_argument_is_named_and_changes_nothing(
    store: AnyStore, topic: str, work: str, name: str
) -> None:
    """InvalidArgument, and the store is as before."""
    before = store.queues(), store.subscriptions(topic)
    with pytest.raises(InvalidArgument):
        BAD_CALLS[name](store)
    assert (store.queues(), store.subscriptions(topic)) == before


@pytest.mark.promise(13)
def test_damaged_blocks_are_refused(store: AnyStore, work: str) -> None:
    """put_block verifies what it is given; the transaction stays open."""
    with store.transaction() as txn:
        for data in (b"", b"x" * 100):
            with pytest.raises(QuireError):
                txn.integration.put_block(work, data)
        txn.put(work, b"x")
    assert store.queue(work).messages == 1


def test_after_close(store: AnyStore, work: str) -> None:
    """StoreClosed, whatever is called; what was open is rolled back."""
    txn = store.transaction()
    txn.put(work, b"x")
    store.close()
    store.close()
    for operation in (store.queues, store.transaction, store.status, txn.commit):
        with pytest.raises((StoreClosed, TransactionClosed)):
            operation()
