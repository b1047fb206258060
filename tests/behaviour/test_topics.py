"""Topics: where a subscription begins, what is kept of them, and how a subscription is moved.

Each behaviour is tested embedded and joined.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack

import pytest

import quire
from quire.definitions.properties import QueueOptions
from quire.engine import EmbeddedStore
from quire.errors import (
    InvalidArgument,
    NobodyReads,
    PositionLost,
    QueueFull,
    QueueInUse,
    QueueNotFound,
    SubscriptionExists,
    TransactionError,
)
from quire.interface.store import Store
from quire.messages.message import Message

NOWHERE = datetime(2020, 1, 1)  # noqa: DTZ001 - there is no saying when that was


def rest(store: Store, source: str) -> list[bytes]:
    """All that a subscription has not read; it is read then."""
    return store.get_many(source).payloads()


def test_a_subscription_begins_where_it_is_told_to(store: Store) -> None:
    """At a position, a time, a message by itself, by its id, by its `MessageId`."""
    store.create_queue("events", kind="topic", keep_forever=True)
    first = store.put("events", b"1")
    with store.transaction() as txn:
        second = txn.put("events", b"2")
    store.put("events", b"3")
    messages = list(store.browse("events"))
    at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=messages[1].time)
    starts: dict[str, quire.Start] = {
        "earliest": "earliest", "position": 1, "message": messages[1], "id": f"id:{first + 1}",
        "put": second, "datetime": at, "seconds": messages[1].time / 1e6,
    }  # fmt: skip
    for name, start in starts.items():
        store.subscribe("events", name, start=start)
        expected = [b"1", b"2", b"3"] if name == "earliest" else [b"2", b"3"]
        assert rest(store, f"events/{name}") == expected, name
    store.subscribe("events", "later", start=float(2**33))
    assert rest(store, "events/later") == []


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "start",
    [-1, True, "soon", "id:x", "time:", "id:99999999999999999999", b"latest", None, [], -1.0,
     float("nan"), float("inf"), NOWHERE, "id:١"],
)  # fmt: skip
def test_no_subscription_begins_nowhere(store: Store, start: quire.Start) -> None:
    """What is no place in a queue is refused, and nothing is made."""
    store.create_queue("events", kind="topic")
    with pytest.raises(InvalidArgument):
        store.subscribe("events", "audit", start=start)
    assert store.subscriptions("events") == []


def test_a_message_that_is_not_kept_is_no_beginning(store: Store) -> None:
    """The error tells where what is kept begins. A subscription that is there does not care."""
    store.create_queue("events", kind="topic")
    store.subscribe("events", "audit")
    lost = store.put("events", b"1")
    store.put("events", b"2")
    store.get("events/audit")
    with pytest.raises(PositionLost, match="first position that it keeps is 1"):
        store.subscribe("events", "late", start=f"id:{lost}")
    with pytest.raises(PositionLost):
        store.subscribe("events", "late", start="id:1000")
    assert [s.name for s in store.subscriptions("events")] == ["audit"]
    assert store.subscribe("events", "audit", start=f"id:{lost}").position == 1


def test_a_position_is_found_by_time(store: Store) -> None:
    """The first message of that time or later; of what is not kept any more the first that is."""
    store.create_queue("events", kind="topic")
    store.subscribe("events", "audit")
    assert store.admin.position_at("events", 0) == 0
    for number in range(5):
        store.put("events", b"%d" % number)
    times = [message.time for message in store.browse("events")]
    for time_us in times:
        first = times.index(time_us)
        assert store.admin.position_at("events", time_us / 1e6) == first
        assert (
            store.admin.position_at("events", datetime.fromtimestamp(time_us / 1e6, UTC)) == first
        )
    assert store.admin.position_at("events", times[-1] / 1e6 + 1) == 5
    store.get_many("events/audit", 2)
    assert store.admin.position_at("events", 0) == 2
    with pytest.raises(QueueNotFound):
        store.admin.position_at("nothing", 0)
    for wrong in ("now", None, -1, float("nan"), True, NOWHERE):
        with pytest.raises(InvalidArgument):
            store.admin.position_at("events", wrong)  # type: ignore[arg-type]


def test_the_ends_of_many_queues_are_of_one_point(store: Store) -> None:
    """Of a transaction that puts to several queues all is before the ends, or nothing."""
    names = ["a", "b", "c"]
    store.admin.create_queues([{"name": name, "kind": "topic"} for name in names])
    for name in names:
        store.subscribe(name, "audit")
    assert store.integration.positions_many(names) == dict.fromkeys(names, (0, 0))
    assert store.integration.positions_many([]) == {}
    done = threading.Event()

    def put() -> None:
        while not done.is_set():
            with store.transaction(durable=False) as txn:
                for name in names:
                    txn.put(name, b"x")

    writer = threading.Thread(target=put)
    writer.start()
    try:
        seen = [store.integration.positions_many(reversed(names)) for _ in range(100)]
    finally:
        done.set()
        writer.join()
    assert all(len({end for _, end in found.values()}) == 1 for found in seen)
    assert list(seen[0]) == names[::-1]
    store.get_many("a/audit", 1)
    assert store.integration.positions_many(["a", "b"])["a"][0] == 1
    with pytest.raises(QueueNotFound):
        store.integration.positions_many(["a", "nothing"])
    with pytest.raises(InvalidArgument):
        store.integration.positions_many("a")


def upkeep(owner: EmbeddedStore) -> None:
    """What the store does by itself now and then."""
    owner._maintenance.step()


def test_a_topic_keeps_the_newest_messages(owner: EmbeddedStore, store: Store) -> None:
    """So many of those that all have read; a later subscription finds them."""
    store.create_queue("events", kind="topic", keep_messages=3)
    store.subscribe("events", "audit")
    store.put_many("events", [b"%d" % number for number in range(10)])
    upkeep(owner)
    assert store.integration.positions("events") == (0, 10)  # nobody has read any
    assert rest(store, "events/audit")[0] == b"0"
    upkeep(owner)
    assert store.integration.positions("events") == (7, 10)
    store.subscribe("events", "late")
    assert rest(store, "events/late") == [b"7", b"8", b"9"]
    upkeep(owner)
    assert store.integration.positions("events") == (7, 10)


def test_a_topic_keeps_the_newest_bytes(owner: EmbeddedStore, store: Store) -> None:
    """As many messages as fit, as they are charged."""
    store.create_queue("events", kind="topic", keep_bytes=1000)
    store.subscribe("events", "audit")
    for _ in range(20):
        store.put("events", bytes(100))
    charge = store.queue("events").used_bytes // 20
    rest(store, "events/audit")
    upkeep(owner)
    first, end = store.integration.positions("events")
    assert end - first == 1000 // charge
    assert store.queue("events").used_bytes <= 1000
    for _ in range(20):  # what is counted goes on
        store.put("events", bytes(100))
        rest(store, "events/audit")
        upkeep(owner)
        assert store.queue("events").messages == 1000 // charge


def test_a_topic_keeps_what_is_young(owner: EmbeddedStore, store: Store) -> None:
    """What is older goes once all have read it, also if a checkpoint has packed it."""
    store.create_queue("events", kind="topic", keep_seconds=1000)
    store.subscribe("events", "audit")
    store.put_many("events", [b"1", b"2"])
    rest(store, "events/audit")
    upkeep(owner)
    assert store.integration.positions("events") == (0, 2)
    store.admin.checkpoint()
    store.alter_queue("events", keep_seconds=0.0)
    upkeep(owner)
    assert store.integration.positions("events") == (2, 2)
    store.put("events", b"3")
    upkeep(owner)
    assert store.integration.positions("events") == (2, 3)
    assert rest(store, "events/audit") == [b"3"]


def test_a_topic_keeps_everything(owner: EmbeddedStore, store: Store) -> None:
    """Then a full one refuses puts. Switched off, what all have read goes."""
    store.create_queue("events", kind="topic", keep_forever=True, max_messages=3)
    store.subscribe("events", "audit")
    store.put_many("events", [b"1", b"2", b"3"])
    assert rest(store, "events/audit") == [b"1", b"2", b"3"]
    upkeep(owner)
    with pytest.raises(QueueFull):
        store.put("events", b"4")
    assert store.browse("events").payloads() == [b"1", b"2", b"3"]
    assert store.alter_queue("events", keep_forever=False).messages == 0
    store.put("events", b"4")


def test_what_a_topic_without_subscriptions_keeps(owner: EmbeddedStore, store: Store) -> None:
    """Everything, until it is full; with a limit what that says, be it nothing."""
    store.create_queue("all", "topic")
    with pytest.warns(NobodyReads):
        store.put_many("all", [b"1", b"2"])
    for name, options in (("some", {"keep_messages": 1}), ("none", {"keep_bytes": 0})):
        store.create_queue(name, "topic", **options)  # type: ignore[arg-type]
        store.put_many(name, [b"1", b"2"])
    upkeep(owner)
    kept = [store.browse(name).payloads() for name in ("all", "some", "none")]
    assert kept == [[b"1", b"2"], [b"2"], []]


def test_what_a_topic_keeps_gives_way_to_puts(owner: EmbeddedStore, store: Store) -> None:
    """From the oldest on, but never what a subscription has not read."""
    store.create_queue("events", kind="topic", capacity=8192, keep_seconds=1000)
    store.subscribe("events", "audit")
    for number in range(100):
        with store.transaction() as txn:
            txn.put("events", b"%100d" % number)
        assert rest(store, "events/audit") == [b"%100d" % number]
    kept = [int(payload) for payload in store.browse("events").payloads()]
    assert kept == list(range(kept[0], 100))
    assert 10 < len(kept) < 80
    with pytest.raises(QueueFull):  # what never fits takes nothing away
        store.put("events", bytes(10_000))
    assert len(store.browse("events")) == len(kept)
    for number in range(20):
        store.put("events", b"%100d" % number)
    with pytest.raises(QueueFull):
        store.put("events", bytes(4000))
    assert store.get("events/audit").payload == b"%100d" % 0  # type: ignore[union-attr]


def test_messages_that_are_kept_give_way_to_a_number(store: Store) -> None:
    """As they do to bytes; a batch needs more of them."""
    store.create_queue("events", kind="topic", max_messages=10, keep_seconds=1000)
    store.put_many("events", [b"%d" % number for number in range(10)])
    store.put("events", b"10")
    assert store.browse("events").payloads()[0] == b"1"
    store.put_many("events", [b"x"] * 10)
    assert store.browse("events").payloads() == [b"x"] * 10
    with pytest.raises(QueueFull):
        store.put_many("events", [b"y"] * 11)
    assert store.browse("events").payloads() == [b"x"] * 10


def test_what_keeps_is_seen_nowhere(owner: EmbeddedStore, store: Store) -> None:
    """In no list of subscriptions; a queue of the name can be made again."""
    store.create_queue("events", kind="topic", keep_forever=True, timed=True, ttl=0.001)
    store.put("events", b"1")
    assert store.subscriptions("events") == []
    assert store.queue("events").subscriptions == ()
    assert owner.status()["queues"][0]["subscriptions"] == ()
    with pytest.raises(InvalidArgument):
        store.unsubscribe("events", "")
    upkeep(owner)
    assert store.browse("events").payloads() == [b"1"]  # it has expired for nobody
    store.drop_queue("events")
    store.create_queue("events", kind="topic", keep_forever=True)
    assert store.queue("events").keep_forever


def test_wrong_limits_of_what_is_kept_are_refused(store: Store) -> None:
    """A work queue keeps nothing that was read."""
    store.create_queue("events", kind="topic")
    for wrong in (
        {"keep_seconds": -1}, {"keep_seconds": float("inf")}, {"keep_seconds": True},
        {"keep_bytes": 1.5}, {"keep_messages": -1}, {"keep_forever": 1},
    ):  # fmt: skip
        with pytest.raises(InvalidArgument):
            store.alter_queue("events", **wrong)
    store.create_queue("orders", kind="work")
    for wrong in ({"keep_seconds": 1}, {"keep_forever": True}):
        with pytest.raises(InvalidArgument, match="work queue"):
            store.alter_queue("orders", **wrong)
        with pytest.raises(InvalidArgument, match="work queue"):
            store.create_queue("more", kind="work", **wrong)
    assert [queue.name for queue in store.queues()] == ["events", "orders"]


def filled(store: Store, **options: Unpack[QueueOptions]) -> list[Message]:
    """A topic that keeps ten messages, all of which the subscription "audit" has read."""
    options.setdefault("keep_forever", True)
    store.create_queue("events", "topic", **options)
    store.subscribe("events", "audit")
    for number in range(10):
        store.put("events", b"%d" % number)
    assert len(rest(store, "events/audit")) == 10
    return list(store.browse("events"))


def payloads(first: int, end: int = 10) -> list[bytes]:
    """Those of messages of `filled`."""
    return [b"%d" % number for number in range(first, end)]


def test_a_subscription_is_moved(store: Store) -> None:
    """Back and forward, to a position, a time, a message, the first or behind the last one."""
    messages = filled(store)
    store.subscribe("events", "other", start="latest")
    places: list[tuple[quire.Start, int]] = [
        ("earliest", 0), (7, 7), (3, 3), ("latest", 10), (messages[4].time / 1e6, 4),
        (messages[6], 6), (f"id:{messages[2].id}", 2), (0, 0), (10, 10),
    ]  # fmt: skip
    for place, first in places:
        with store.transaction() as txn:
            txn.seek("events/audit", place)
        assert store.subscriptions("events")[0].pending == 10 - first
        assert rest(store, "events/audit") == payloads(first)
        assert rest(store, "events/other") == []


def test_a_move_is_part_of_its_transaction(store: Store) -> None:
    """What else it does commits with it, and is rolled back with it. The last of two holds."""
    filled(store)
    store.create_queue("log", kind="work")
    with store.transaction() as txn:
        txn.put("log", b"moved")
        txn.seek("events/audit", 5)
        txn.rollback()
    assert store.get("log") is None
    assert rest(store, "events/audit") == []
    with store.transaction() as txn:
        txn.put("log", b"moved")
        txn.put("events", b"10")
        txn.seek("events/audit", 5)
        txn.seek("events/audit", 8)
        txn.enter("moves", 1)
    assert store.get_many("log").payloads() == [b"moved"]
    assert rest(store, "events/audit") == payloads(8, 11)
    assert store.integration.ledger("moves") == 1


def test_what_the_mover_has_got_is_read_or_not_by_where_it_goes(store: Store) -> None:
    """Also what it has passed; the commit does not count it as read before it moves."""
    store.create_queue("events", kind="topic")
    store.subscribe("events", "audit")
    store.put_many("events", payloads(0))
    with store.transaction() as txn:
        assert txn.get_many("events/audit", 4).payloads() == payloads(0, 4)
        txn.read_to("events/audit", 9)
        txn.seek("events/audit", 2)
    assert store.integration.positions("events") == (2, 10)
    assert rest(store, "events/audit") == payloads(2)


def test_who_moves_reads_nothing_of_it(store: Store) -> None:
    """Nor does anybody else, until it ends."""
    filled(store)
    store.put("events", b"10")
    with store.transaction() as txn:
        txn.seek("events/audit", 5)
        for read in (
            lambda: txn.get("events/audit"),
            lambda: txn.get_many("events/audit"),
            lambda: txn.read_to("events/audit", 7),
        ):
            with pytest.raises(TransactionError, match="moves"):
                read()
        with store.transaction() as other:
            assert other.get("events/audit") is None
            with pytest.raises(QueueInUse):
                other.seek("events/audit", 3)
        txn.rollback()
    assert rest(store, "events/audit") == [b"10"]


def test_a_move_waits_for_what_others_have_got(owner: EmbeddedStore, store: Store) -> None:
    """Up to its time-out; who has got something may end, but nobody begins."""
    filled(store)
    store.put("events", b"10")
    reader = owner.transaction()
    assert reader.get("events/audit") is not None
    with store.transaction() as txn:
        with pytest.raises(QueueInUse, match="in flight"):
            txn.seek("events/audit", 0)
        with pytest.raises(QueueInUse):
            txn.seek("events/audit", 0, timeout=0.05)
        assert txn.get("events/audit") is None  # it did not keep what it could not move
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(txn.seek, "events/audit", 0, 60.0)
            subscription = owner._context.state.source("events/audit")[1]
            while subscription.seeker is None:
                assert not waiting.done() or waiting.result() is None
            reader.commit()
            waiting.result()
    assert rest(store, "events/audit") == payloads(0, 11)


def test_a_reader_waits_for_a_move(owner: EmbeddedStore, store: Store) -> None:
    """It gets what is there then."""
    filled(store)
    mover = owner.transaction()
    mover.seek("events/audit", 9)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.get, "events/audit", 60.0)
        mover.commit()
        message = waiting.result()
    assert message is not None
    assert (message.payload, message.delivery_count) == (b"9", 1)


def test_nobody_goes_back_behind_what_is_kept(owner: EmbeddedStore, store: Store) -> None:
    """The error says where that begins."""
    store.create_queue("events", kind="topic", keep_messages=5)
    store.subscribe("events", "audit")
    store.put_many("events", payloads(0))
    rest(store, "events/audit")
    upkeep(owner)
    with store.transaction() as txn:
        with pytest.raises(PositionLost, match="first position that it keeps is 5"):
            txn.seek("events/audit", 4)
        with pytest.raises(PositionLost):
            txn.seek("events/audit", "id:1")
        with pytest.raises(InvalidArgument):
            txn.seek("events/audit", 11)
        txn.seek("events/audit", 0.0)  # a time before all that is kept
    assert rest(store, "events/audit") == payloads(5)


def test_what_goes_meanwhile_refuses_a_move(owner: EmbeddedStore, store: Store) -> None:
    """But not one to the earliest message there is."""
    store.create_queue("events", kind="topic")
    for name in ("audit", "slow"):
        store.subscribe("events", name)
    store.put_many("events", payloads(0))
    rest(store, "events/audit")
    txn = store.transaction()
    txn.seek("events/audit", 3)
    assert rest(store, "events/slow") == payloads(0)
    with pytest.raises(PositionLost, match="first position that it keeps is 10"):
        txn.commit()
    txn.rollback()
    store.subscribe("events", "slower")
    store.put_many("events", payloads(10, 12))
    rest(store, "events/audit")
    with store.transaction() as txn:
        txn.seek("events/audit", "earliest")
        rest(store, "events/slower")
        rest(store, "events/slow")
    assert rest(store, "events/audit") == []


def test_a_work_queue_is_moved_forward_only(store: Store) -> None:
    """As it keeps nothing that was read."""
    store.create_queue("orders", kind="work")
    store.put_many("orders", payloads(0))
    store.get("orders")
    with store.transaction() as txn:
        with pytest.raises(PositionLost):
            txn.seek("orders", 0)
        txn.seek("orders", 6)
    assert store.queue("orders").messages == 4
    assert rest(store, "orders") == payloads(6)


def test_one_that_moves_cannot_be_prepared(store: Store) -> None:
    """And what a prepared one has got cannot be moved."""
    filled(store)
    store.put("events", b"10")
    with store.transaction() as txn:
        txn.seek("events/audit", 0)
        with pytest.raises(TransactionError, match="prepared"):
            txn.prepare("move")
        txn.rollback()
    with store.transaction() as txn:
        txn.get("events/audit")
        txn.prepare("read")
    with store.transaction() as txn, pytest.raises(QueueInUse):
        txn.seek("events/audit", 0)
    store.prepared.rollback("read")
    with store.transaction() as txn:
        txn.seek("events/audit", 9)
    assert rest(store, "events/audit") == payloads(9, 11)


def test_moves_of_selected_messages(owner: EmbeddedStore, store: Store) -> None:
    """By priority, with times and counted deliveries, what is read again is all there again."""
    store.create_queue("dead", kind="work")
    filled(store, order="priority", timed=True, max_deliveries=3, dead_letter="dead")
    store.put("events", b"high", priority=9)
    with store.transaction() as txn:
        message = txn.get("events/audit")
        assert message is not None
        txn.reject(message, delay=1000.0)
        txn.seek("events/audit", 8)
    messages = store.get_many("events/audit")
    assert messages.payloads() == [b"high", b"8", b"9"]
    assert [message.delivery_count for message in messages] == [2, 1, 1]
    assert [(s.delivered, s.delayed, s.spent) for s in store.subscriptions("events")] == [(0, 0, 0)]
    store.admin.checkpoint()
    with store.transaction() as txn:
        txn.seek("events/audit", 0)
    assert rest(store, "events/audit") == [b"high", *payloads(0)]


def test_an_exclusive_subscription_has_one_reader_at_a_time(store: Store) -> None:
    """Others find nothing until it ends; so what is rolled back comes first again."""
    store.create_queue("events", kind="topic")
    assert store.subscribe("events", "audit", exclusive=True).exclusive
    assert not store.subscribe("events", "shared").exclusive
    store.put_many("events", payloads(0))
    first, second = store.transaction(), store.transaction()
    assert first.get("events/audit").payload == b"0"  # type: ignore[union-attr]
    assert second.get("events/audit") is None
    assert len(second.get_many("events/audit", timeout=0.05)) == 0
    assert first.get_many("events/audit", 2).payloads() == payloads(1, 3)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.get, "events/audit", 60.0)
        first.rollback()
        message = waiting.result()
    assert message is not None
    assert (message.payload, message.delivery_count) == (b"0", 2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.get, "events/audit", 60.0)
        second.commit()
        assert waiting.result().payload == b"1"  # type: ignore[union-attr]
    assert rest(store, "events/audit") == payloads(2)


def test_what_a_subscription_that_is_there_is_asked_to_be(store: Store) -> None:
    """Again and again without a word; what is said of its form has to be so, `start` not."""
    store.create_queue("events", kind="topic")
    made = store.subscribe("events", "audit", exclusive=True)
    forms: list[dict[str, Any]] = [{}, {"exclusive": True}, {"durable": True}, {"start": "latest"}]
    for again in forms:
        assert store.subscribe("events", "audit", **again) == made
    others: list[tuple[dict[str, Any], str]] = [
        ({"exclusive": False}, "exclusive is True, not False"),
        ({"durable": False}, "durable is True, not False"),
        ({"exclusive": False, "durable": False}, "exclusive is True, not False; durable is True"),
    ]
    for differs, words in others:
        with pytest.raises(SubscriptionExists, match=words):
            store.subscribe("events", "audit", **differs)
        with pytest.raises(SubscriptionExists, match="'events/audit' is there already"):
            store.integration.subscribe_many(None, {"events/new": 0, "events/audit": 0}, **differs)
    assert store.subscriptions("events") == [made]
    passing = store.subscribe("events", "mine", durable=False)
    assert store.subscribe("events", "mine") == passing
    with pytest.raises(SubscriptionExists, match="durable is False, not True"):
        store.subscribe("events", "mine", durable=True)


def test_a_prepared_transaction_holds_an_exclusive_subscription(store: Store) -> None:
    """Until it is decided, whoever decides it."""
    store.create_queue("events", kind="topic")
    store.subscribe("events", "audit", exclusive=True)
    store.put_many("events", payloads(0, 4))
    for number, decide in enumerate((store.prepared.commit, store.prepared.rollback)):
        with store.transaction() as txn:
            txn.get("events/audit")
            txn.prepare("x")
        with ThreadPoolExecutor(1) as pool:
            assert store.get("events/audit") is None
            waiting = pool.submit(store.get, "events/audit", 60.0)
            decide("x")
            assert waiting.result().payload == b"%d" % (number + 1)  # type: ignore[union-attr]
    with pytest.raises(InvalidArgument):
        store.subscribe("events", "other", exclusive=1)  # type: ignore[arg-type]
