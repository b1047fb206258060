"""Topics: where a subscription begins, what is kept of them, and how a subscription is moved.

Each behaviour is tested embedded and joined.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import quire
from quire.engine import EmbeddedStore
from quire.errors import InvalidArgument, PositionLost, QueueFull, QueueNotFound
from quire.store import Store

NOWHERE = datetime(2020, 1, 1)  # noqa: DTZ001 - there is no saying when that was


def rest(store: Store, source: str) -> list[bytes]:
    """All that a subscription has not read; it is read then."""
    return store.get_many(source).payloads()


def test_a_subscription_begins_where_it_is_told_to(store: Store) -> None:
    """At a position, a time, a message by itself, by its id, by its `MessageId`."""
    store.create_queue("events")
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
    store.subscribe("events", "later", start=float(2**40))
    assert rest(store, "events/later") == []


@pytest.mark.parametrize(
    "start",
    [-1, True, "soon", "id:x", "time:", "id:99999999999999999999", b"latest", None, [], -1.0,
     float("nan"), float("inf"), NOWHERE, "id:١"],
)  # fmt: skip
def test_no_subscription_begins_nowhere(store: Store, start: quire.Start) -> None:
    """What is no place in a queue is refused, and nothing is made."""
    store.create_queue("events")
    with pytest.raises(InvalidArgument):
        store.subscribe("events", "audit", start=start)
    assert store.subscriptions("events") == []


def test_a_message_that_is_not_kept_is_no_beginning(store: Store) -> None:
    """The error tells where what is kept begins. A subscription that is there does not care."""
    store.create_queue("events")
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
    store.create_queue("events")
    store.subscribe("events", "audit")
    assert store.position_at("events", 0) == 0
    for number in range(5):
        store.put("events", b"%d" % number)
    times = [message.time for message in store.browse("events")]
    for time_us in times:
        first = times.index(time_us)
        assert store.position_at("events", time_us / 1e6) == first
        assert store.position_at("events", datetime.fromtimestamp(time_us / 1e6, UTC)) == first
    assert store.position_at("events", times[-1] / 1e6 + 1) == 5
    store.get_many("events/audit", 2)
    assert store.position_at("events", 0) == 2
    with pytest.raises(QueueNotFound):
        store.position_at("nothing", 0)
    for wrong in ("now", None, -1, float("nan"), True, NOWHERE):
        with pytest.raises(InvalidArgument):
            store.position_at("events", wrong)  # type: ignore[arg-type]


def upkeep(owner: EmbeddedStore) -> None:
    """What the store does by itself now and then."""
    owner._maintenance.step()


def test_a_topic_keeps_the_newest_messages(owner: EmbeddedStore, store: Store) -> None:
    """So many of those that all have read; a later subscription finds them."""
    store.create_queue("events", keep_messages=3)
    store.subscribe("events", "audit")
    store.put_many("events", [b"%d" % number for number in range(10)])
    upkeep(owner)
    assert store.positions("events") == (0, 10)  # nobody has read any
    assert rest(store, "events/audit")[0] == b"0"
    upkeep(owner)
    assert store.positions("events") == (7, 10)
    store.subscribe("events", "late")
    assert rest(store, "events/late") == [b"7", b"8", b"9"]
    upkeep(owner)
    assert store.positions("events") == (7, 10)


def test_a_topic_keeps_the_newest_bytes(owner: EmbeddedStore, store: Store) -> None:
    """As many messages as fit, as they are charged."""
    store.create_queue("events", keep_bytes=1000)
    store.subscribe("events", "audit")
    for _ in range(20):
        store.put("events", bytes(100))
    charge = store.queue("events").used_bytes // 20
    rest(store, "events/audit")
    upkeep(owner)
    first, end = store.positions("events")
    assert end - first == 1000 // charge
    assert store.queue("events").used_bytes <= 1000
    for _ in range(20):  # what is counted goes on
        store.put("events", bytes(100))
        rest(store, "events/audit")
        upkeep(owner)
        assert store.queue("events").messages == 1000 // charge


def test_a_topic_keeps_what_is_young(owner: EmbeddedStore, store: Store) -> None:
    """What is older goes once all have read it, also if a checkpoint has packed it."""
    store.create_queue("events", keep_seconds=1000)
    store.subscribe("events", "audit")
    store.put_many("events", [b"1", b"2"])
    rest(store, "events/audit")
    upkeep(owner)
    assert store.positions("events") == (0, 2)
    store.checkpoint()
    store.alter_queue("events", keep_seconds=0.0)
    upkeep(owner)
    assert store.positions("events") == (2, 2)
    store.put("events", b"3")
    upkeep(owner)
    assert store.positions("events") == (2, 3)
    assert rest(store, "events/audit") == [b"3"]


def test_a_topic_keeps_everything(owner: EmbeddedStore, store: Store) -> None:
    """Then a full one refuses puts. Switched off, what all have read goes."""
    store.create_queue("events", keep_forever=True, max_messages=3)
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
    for name, options in (("all", {}), ("some", {"keep_messages": 1}), ("none", {"keep_bytes": 0})):
        store.create_queue(name, **options)  # type: ignore[arg-type]
        store.put_many(name, [b"1", b"2"])
    upkeep(owner)
    kept = [store.browse(name).payloads() for name in ("all", "some", "none")]
    assert kept == [[b"1", b"2"], [b"2"], []]


def test_what_a_topic_keeps_gives_way_to_puts(owner: EmbeddedStore, store: Store) -> None:
    """From the oldest on, but never what a subscription has not read."""
    store.create_queue("events", capacity=8192, keep_seconds=1000)
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
    for number in range(40):
        store.put("events", b"%100d" % number)
    with pytest.raises(QueueFull):
        store.put("events", bytes(4000))
    assert store.get("events/audit").payload == b"%100d" % 0  # type: ignore[union-attr]


def test_messages_that_are_kept_give_way_to_a_number(store: Store) -> None:
    """As they do to bytes; a batch needs more of them."""
    store.create_queue("events", max_messages=10, keep_seconds=1000)
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
    store.create_queue("events", keep_forever=True, timed=True, ttl=0.001)
    store.put("events", b"1")
    assert store.subscriptions("events") == []
    assert store.queue("events").subscriptions == ()
    assert owner.status()["queues"][0]["subscriptions"] == ()
    with pytest.raises(InvalidArgument):
        store.unsubscribe("events", "")
    upkeep(owner)
    assert store.browse("events").payloads() == [b"1"]  # it has expired for nobody
    store.drop_queue("events")
    store.create_queue("events", keep_forever=True)
    assert store.queue("events").keep_forever


def test_wrong_limits_of_what_is_kept_are_refused(store: Store) -> None:
    """A work queue keeps nothing that was read."""
    store.create_queue("events")
    for wrong in (
        {"keep_seconds": -1}, {"keep_seconds": float("inf")}, {"keep_seconds": True},
        {"keep_bytes": 1.5}, {"keep_messages": -1}, {"keep_forever": 1},
    ):  # fmt: skip
        with pytest.raises(InvalidArgument):
            store.alter_queue("events", **wrong)  # type: ignore[arg-type]
    store.create_queue("orders", kind="work")
    for wrong in ({"keep_seconds": 1}, {"keep_forever": True}):
        with pytest.raises(InvalidArgument, match="work queue"):
            store.alter_queue("orders", **wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="work queue"):
            store.create_queue("more", kind="work", **wrong)  # type: ignore[arg-type]
    assert [queue.name for queue in store.queues()] == ["events", "orders"]
