"""Queues and subscriptions: made, listed, dropped, read, browsed and passed over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from quire.block import BlockBuilder
from quire.engine import EmbeddedStore as Store
from quire.errors import (
    InvalidArgument,
    NobodyReads,
    PositionLost,
    QueueExists,
    QueueInUse,
    QueueNotFound,
    SubscriptionNotFound,
)
from quire.limits import MAX_CAPACITY_BYTES, MIN_CAPACITY_BYTES
from tests.engine.unchanged import numbers
from tests.kit.messages import take
from tests.kit.waiting import SECONDS


def fill(store: Store, queue: str, count: int = 10) -> list[bytes]:
    """Put "0", "1", ..., one transaction each."""
    payloads = [b"%d" % n for n in range(count)]
    for payload in payloads:
        store.put(queue, payload)
    return payloads


# Definitions


def test_queues_are_listed_by_name(store: Store) -> None:
    """What a queue was made with is what it shows."""
    made = [
        store.create_queue("b", "work", capacity=MIN_CAPACITY_BYTES, max_messages=1),
        store.create_queue("a", kind="topic", capacity=MAX_CAPACITY_BYTES),
        store.create_queue("x" * 200, kind="topic"),
        store.create_queue("_.-9", kind="topic"),
    ]
    assert store.queues() == sorted(made, key=lambda info: info.name)
    info = store.queue("b")
    assert (info.kind, info.capacity_bytes, info.max_messages) == ("work", MIN_CAPACITY_BYTES, 1)
    assert (info.messages, info.used_bytes, info.subscriptions) == (0, 0, ())
    assert [q["name"] for q in store.status()["queues"]] == [q.name for q in store.queues()]


@pytest.mark.promise(13)
def test_bad_definitions_change_nothing(store: Store, topic: str, work: str) -> None:
    """Kinds, sizes, names and starts that cannot be."""
    before = numbers(store)
    with pytest.raises(QueueExists, match="drop_queue"):
        store.create_queue(topic, kind="topic")
    kinds: list[Any] = ["", "queue", None, 1, [], "Topic"]
    for kind in kinds:
        with pytest.raises(InvalidArgument, match="kind"):
            store.create_queue("new", kind)
    sizes: list[Any] = [0, -1, MIN_CAPACITY_BYTES - 1, MAX_CAPACITY_BYTES + 1, 1e9, "1", True]
    for size in sizes:
        with pytest.raises(InvalidArgument, match="capacity"):
            store.create_queue("new", kind="topic", capacity=size)
    counts: list[Any] = [0, -1, 1.5, "1", True]
    for count in counts:
        with pytest.raises(InvalidArgument, match="max_messages"):
            store.create_queue("new", kind="topic", max_messages=count)
    names: list[Any] = ["", "a b", "a/b", ".a", "é", None, 5, [], "x" * 201]
    for name in names:
        with pytest.raises(InvalidArgument, match="name"):
            store.subscribe(topic, name)
        with pytest.raises(InvalidArgument, match="name"):
            store.unsubscribe(topic, name)
    starts: list[Any] = ["first", -1, None, True, [], -1.0, 1]
    for start, said in zip(starts, [*["start"] * 5, "time", "ends at position 0"], strict=True):
        with pytest.raises(InvalidArgument, match=said):
            store.subscribe(topic, "new", start=start)
    with pytest.raises(InvalidArgument, match="work queue"):
        store.subscribe(work, "new")
    for queue in (topic, work):
        with pytest.raises(SubscriptionNotFound):
            store.unsubscribe(queue, "new")
    for use in (store.drop_queue, store.queue, store.integration.positions, store.subscriptions):
        with pytest.raises(QueueNotFound, match="no queue 'new'") as told:
            use("new")
        assert ("create_queue" in str(told.value)) == (use != store.drop_queue)
    assert numbers(store) == before


def test_a_dropped_queue_is_gone_and_its_name_is_free(store: Store, topic: str) -> None:
    """Messages and subscriptions go with it; a queue of the same name starts anew."""
    fill(store, topic)
    with store.transaction() as txn:
        txn.put_many(topic, [b"x" * 1000] * 500)
    with store.transaction(large=True) as txn:
        txn.put_many(topic, [b"x" * 1000] * 5000)
    assert take(store, "topic/a", 3)
    store.drop_queue(topic)
    reader = store.transaction()
    for source in ("topic", "topic/a"):
        with pytest.raises(QueueNotFound):
            reader.get(source)
    store.create_queue(topic, "work")
    assert reader.get(topic) is None
    assert store.queue(topic).end_position == 0
    store.put(topic, b"new")
    assert take(store, topic) == [b"new"]
    assert store.admin.verify().ok


@pytest.mark.promise(13)
def test_a_queue_in_use_is_not_dropped(store: Store, topic: str) -> None:
    """Open transactions hold the queues they put to and those they got from."""
    store.put(topic, b"x")
    writer, reader = store.transaction(), store.transaction()
    writer.put(topic, b"y")
    with pytest.raises(QueueInUse, match="1 open transactions"):
        store.drop_queue(topic)
    writer.rollback()
    assert reader.get("topic/a") is not None
    with pytest.raises(QueueInUse, match="in flight"):
        store.drop_queue(topic)
    assert store.queue(topic).messages == 1
    reader.rollback()
    store.drop_queue(topic)
    assert store.queues() == []


def test_a_waiting_get_ends_with_its_queue_or_subscription(store: Store, topic: str) -> None:
    """Reading what was dropped or removed meanwhile is an error, not an endless wait."""
    ends: list[tuple[Callable[[], None], type[Exception]]] = [
        (lambda: store.unsubscribe(topic, "a"), SubscriptionNotFound),
        (lambda: store.drop_queue(topic), QueueNotFound),
    ]
    for end, error in ends:
        txn = store.transaction()
        caught: list[BaseException] = []

        def wait(txn: Any = txn, caught: list[BaseException] = caught) -> None:
            try:
                txn.get("topic/a" if "a" in store.queue(topic).subscriptions else "topic/b", 600.0)
            except (SubscriptionNotFound, QueueNotFound) as raised:
                caught.append(raised)

        thread = threading.Thread(target=wait)
        thread.start()
        while txn._waits_for is None:
            time.sleep(0.001)
        end()
        thread.join(SECONDS)
        assert [type(e) for e in caught] == [error]
        txn.rollback()


# Subscriptions


@pytest.mark.promise(3)
def test_where_a_subscription_begins(store: Store) -> None:
    """Earliest is all that is kept, latest what comes, a position what is from there on."""
    store.create_queue("q", kind="topic")
    with pytest.warns(NobodyReads):
        fill(store, "q", 6)
    starts: list[tuple[str, Any]] = [("early", "earliest"), ("late", "latest"), ("from4", 4)]
    for name, start in starts:
        info = store.subscribe("q", name, start=start)
        assert (info.queue, info.name) == ("q", name)
    assert [s.pending for s in store.subscriptions("q")] == [6, 2, 0]
    assert [s.name for s in store.subscriptions("q")] == ["early", "from4", "late"]
    store.put("q", b"6")
    assert take(store, "q/late") == [b"6"]
    assert take(store, "q/from4") == [b"4", b"5", b"6"]
    assert take(store, "q/early", 2) == [b"0", b"1"]
    store.subscribe("q", "second")
    assert take(store, "q/second") == [b"%d" % n for n in range(2, 7)]
    again = store.subscribe("q", "early", start="latest")  # it stays as it is
    assert (again.position, again.pending) == (2, 5)


def test_a_topic_without_subscriptions_keeps_its_messages(store: Store) -> None:
    """Nothing is read by all where nobody reads; the last one to leave takes nothing along."""
    store.create_queue("q", kind="topic")
    with pytest.warns(NobodyReads):
        payloads = fill(store, "q")
    assert store.browse("q").payloads() == payloads
    store.subscribe("q", "s")
    assert take(store, "q/s", 4) == payloads[:4]
    store.unsubscribe("q", "s")
    assert store.browse("q").payloads() == payloads[4:]
    store.subscribe("q", "s")
    assert take(store, "q/s") == payloads[4:]


def test_unsubscribing_frees_what_only_it_had_not_read(store: Store, topic: str) -> None:
    """A forgotten subscription holds space until it is removed."""
    fill(store, topic)
    take(store, "topic/a")
    assert store.queue(topic).messages == 10
    store.unsubscribe(topic, "b")
    assert (store.queue(topic).messages, store.queue(topic).used_bytes) == (0, 0)
    with store.transaction() as txn, pytest.raises(SubscriptionNotFound):
        txn.get("topic/b")


def test_unsubscribing_under_a_reader(store: Store, topic: str) -> None:
    """What it has got may still be committed with the rest; nothing happens to others."""
    payloads = fill(store, topic)
    txn = store.transaction()
    assert txn.get_many("topic/a", 5).payloads() == payloads[:5]
    txn.put(topic, b"more")
    store.unsubscribe(topic, "a")
    store.subscribe(topic, "a")
    txn.commit()
    assert take(store, "topic/a") == [*payloads, b"more"]
    assert take(store, "topic/b") == [*payloads, b"more"]


# Reading


@pytest.mark.promise(3)
def test_rollback_gives_back_in_place(store: Store, work: str) -> None:
    """Messages return to their place in the order, with the delivery count of the next time."""
    payloads = fill(store, work)
    first, second = store.transaction(), store.transaction()
    assert first.get_many(work, 4).payloads() == payloads[:4]
    assert second.get_many(work, 2).payloads() == payloads[4:6]
    first.rollback()
    with store.transaction() as txn:
        got = txn.get_many(work, 6)
        assert got.payloads() == payloads[:4] + payloads[6:8]
        assert [m.delivery_count for m in got] == [2] * 4 + [1] * 2
    second.rollback()
    for count in (2, 3, 4):
        txn = store.transaction()
        assert [(m.payload, m.delivery_count) for m in txn.get_many(work, 2)] == [
            (b"4", count),
            (b"5", count),
        ]
        assert txn.get_arrow(work).num_rows == 2
        txn.rollback()
    with store.transaction() as txn:
        assert [m.delivery_count for m in txn.get_many(work)] == [5, 5, 4, 4]


def test_one_rollback_of_mixed_counts(store: Store, work: str) -> None:
    """Each message has its own count, also within one block."""
    with store.transaction() as txn:
        txn.put_many(work, [b"%d" % n for n in range(6)])
    for take_first in (2, 4):
        txn = store.transaction()
        assert len(txn.get_many(work, take_first)) == take_first
        txn.rollback()
    with store.transaction() as txn:
        assert [m.delivery_count for m in txn.get_many(work)] == [3, 3, 2, 2, 1, 1]


def test_counts_that_no_record_tells(store_path: str) -> None:
    """Each message has its own count; after a reopening it begins again, checkpoint or not."""
    with Store.open(store_path) as store:
        store.create_queue("q", kind="work")
        fill(store, "q", 6)
        for take_first in (2, 4):
            txn = store.transaction()
            assert len(txn.get_many("q", take_first)) == take_first
            txn.rollback()
        with store.transaction() as txn:
            assert [m.delivery_count for m in txn.get_many("q")] == [3, 3, 2, 2, 1, 1]
            txn.rollback()
        store.admin.checkpoint()
    with Store.open(store_path) as store, store.transaction() as txn:
        assert [m.delivery_count for m in txn.get_many("q")] == [1] * 6


def test_a_work_queue_gives_each_message_once(store: Store, work: str) -> None:
    """What one transaction holds is hidden from the others, whether it commits or not."""
    payloads = fill(store, work)
    transactions = [store.transaction() for _ in range(5)]
    got = [txn.get_many(work, 2).payloads() for txn in transactions]
    assert [p for part in got for p in part] == payloads
    assert store.transaction().get(work) is None
    (info,) = store.subscriptions(work)
    assert (info.name, info.delivered, info.pending, info.position) == ("", 10, 10, 0)
    for txn in transactions[1:]:
        txn.commit()
    (info,) = store.subscriptions(work)
    assert (info.delivered, info.pending, info.position) == (2, 2, 0)
    transactions[0].commit()
    assert store.subscriptions(work)[0].position == 10


@pytest.mark.promise(3)
def test_ids_go_on_from_block_to_block(store: Store, work: str) -> None:
    """A transaction of several blocks: each message has an id of its own, in their order."""
    told = store.put_many(work, [b"x" * 200_000] * 20)
    assert len(list(store._context.state.queue(work).records)) > 1
    ids = store.browse(work).ids
    assert ids == list(told) == list(range(ids[0], ids[0] + 20))


def test_a_block_comes_behind_what_was_put_before_it(store: Store, work: str) -> None:
    """A block that was encoded elsewhere, between messages of the same transaction."""
    builder = BlockBuilder()
    builder.add_many([b"2", b"3"])
    (block,) = builder.build(1 << 20)
    with store.transaction() as txn:
        txn.put(work, b"1")
        txn.integration.put_block(work, block.data)
        txn.put(work, b"4")
    assert store.browse(work).payloads() == [b"1", b"2", b"3", b"4"]


def test_limits_cut_blocks_anywhere(store: Store, topic: str) -> None:
    """Blocks of any size, read in steps of any size, one by one, as rows and as Arrow."""
    sizes = [1, 7, 100, 1, 1, 33, 64]
    payloads = [b"%d/%d" % (n, size) for size in sizes for n in range(size)]
    start = 0
    for size in sizes:
        with store.transaction() as txn:
            txn.put_many(topic, payloads[start : start + size])
        start += size
    with store.transaction() as txn:
        got = []
        for limit in (1, 5, 50, 13, 1, 1, 1000):
            got += txn.get_many("topic/a", limit).payloads()
        assert got == payloads
    with store.transaction() as txn:
        rows = []
        while batch := txn.get_arrow("topic/b", max_messages=19):
            if not batch.num_rows:
                break
            assert batch.num_rows <= 19
            rows += batch.column("payload").to_pylist()
        assert rows == payloads
    assert store.queue(topic).used_bytes == 0


def test_browsing_takes_nothing(store: Store, topic: str, work: str) -> None:
    """A look from a position on, over all that is kept or what a subscription has not read."""
    payloads = fill(store, topic)
    fill(store, work)
    assert take(store, "topic/a", 3) == payloads[:3]
    for _ in range(2):
        assert store.browse(topic).payloads() == payloads
        assert store.browse("topic/a").payloads() == payloads[3:]
        assert store.browse(topic, start=4, max_messages=3).payloads() == payloads[4:7]
        assert store.browse("topic/a", start=1, max_messages=2).payloads() == payloads[3:5]
        assert store.browse(topic, start=10).payloads() == []
        assert store.browse(topic, start=10**12).payloads() == []
        assert store.browse(work, max_messages=1)[0].delivery_count == 0
    holder = store.transaction()
    assert holder.get(work) is not None
    assert len(store.browse(work)) == 10  # in flight is not read
    holder.rollback()
    assert take(store, "topic/b") == payloads
    assert store.browse(topic).payloads() == payloads[3:]


def test_read_to_passes_over(store: Store, topic: str) -> None:
    """Everything below a position counts as read once the transaction commits."""
    payloads = fill(store, topic)
    with store.transaction() as txn:
        txn.read_to("topic/a", 4)
        assert store.subscriptions(topic)[0].position == 0
    assert store.subscriptions(topic)[0].position == 4
    txn = store.transaction()
    txn.read_to("topic/a", 10)
    txn.rollback()
    with store.transaction() as txn:
        assert txn.get_many("topic/a", 2).payloads() == payloads[4:6]
        txn.read_to("topic/a", 5)
        txn.read_to("topic/a", 0)
    assert take(store, "topic/a") == payloads[6:]
    with store.transaction() as txn:
        txn.read_to("topic/b", 10)
    assert store.queue(topic).used_bytes == 0


def test_read_to_past_what_another_holds(store: Store, topic: str) -> None:
    """Neither the commit nor the rollback of the one that holds messages brings them back."""
    payloads = fill(store, topic)
    keeper, loser = store.transaction(), store.transaction()
    assert keeper.get_many("topic/a", 2).payloads() == payloads[:2]
    assert loser.get_many("topic/a", 2).payloads() == payloads[2:4]
    with store.transaction() as txn:
        txn.read_to("topic/a", 6)
    keeper.commit()
    loser.rollback()
    assert take(store, "topic/a") == payloads[6:]
    (info, _) = store.subscriptions(topic)
    assert (info.delivered, info.pending) == (0, 0)


def test_positions_and_leases(store: Store, topic: str) -> None:
    """Positions count messages; a lease of what is gone or never was is PositionLost."""
    fill(store, topic)
    assert store.integration.positions(topic) == (0, 10)
    lease = store.integration.lease(topic, 2, 8)
    assert sum(piece.stop - piece.start for piece in lease.pieces) == 6
    for name in ("a", "b"):
        take(store, f"topic/{name}")
    assert store.integration.positions(topic) == (10, 10)
    for start, end in ((0, 5), (5, 11)):
        with pytest.raises(PositionLost):
            store.integration.lease(topic, start, end)
    bad: list[tuple[Any, Any]] = [(-1, 5), (5, 4), (0, "5"), (None, 5), (0, 1.0)]
    for start, end in bad:
        with pytest.raises(InvalidArgument):
            store.integration.lease(topic, start, end)
    seconds: list[Any] = [0, -1, "1", None, float("nan"), float("inf")]
    for wrong in seconds:
        with pytest.raises(InvalidArgument):
            store.integration.lease(topic, 10, 10, wrong)
        with pytest.raises(InvalidArgument):
            store.integration.renew_lease(lease.lease_id, wrong)
    store.integration.renew_lease(lease.lease_id)
    store.integration.end_lease(lease.lease_id)
    store.integration.end_lease(lease.lease_id)
    with pytest.raises(PositionLost):
        store.integration.renew_lease(lease.lease_id)
    assert store.status()["leases"] == 0
