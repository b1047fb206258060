"""Waiting for messages without a thread, and giving back what did not arrive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import InvalidArgument, QueueNotFound, StoreClosed, TransactionClosed
from quire.remote import JoinedStore
from quire.remote.wire.protocol import AWAIT, CONNECTION, HEAD, READY
from tests.behaviour.forms import WITH_CALLBACKS, AnyStore
from tests.kit.limits import Limits
from tests.kit.waiting import SECONDS, eventually

WAITERS = 1000

with_callbacks = pytest.mark.parametrize("store", WITH_CALLBACKS, indirect=True)


def awaited(store: AnyStore, source: str) -> threading.Event:
    """Set once something may be got."""
    event = threading.Event()
    store.integration.when_ready(source, event.set)
    return event


def settle(store: AnyStore) -> None:
    """What a joined store has sent before is at the owner."""
    store.status()


@with_callbacks
def test_a_commit_calls_back(store: AnyStore, owner: Store, work: str) -> None:
    """Once, and not before; at once where something is there already."""
    event = awaited(store, work)
    settle(store)
    assert not event.is_set()
    owner.put(work, b"1")
    assert event.wait(SECONDS)
    assert awaited(store, work).wait(SECONDS)
    with store.transaction() as txn:
        assert txn.get(work) is not None
    assert not awaited(store, work).wait(0.05)


@with_callbacks
def test_a_rollback_calls_back(store: AnyStore, work: str) -> None:
    """As what it had got is there again; while it is in flight nothing is."""
    store.put(work, b"1")
    txn = store.transaction()
    assert txn.get(work) is not None
    event = awaited(store, work)
    settle(store)
    assert not event.wait(0.05)
    txn.rollback()
    assert event.wait(SECONDS)


def put_later(store: AnyStore) -> None:
    """It is delivered after a moment."""
    store.put("q", b"1", deliver_at=time.time() + 0.6)


def start_all(store: AnyStore) -> None:
    """As many as may start in a second have, and one is left."""
    is_any = True
    while is_any:
        store.put("q", b"1")
        with store.transaction() as txn:
            is_any = txn.get("q") is not None


def fail(store: AnyStore) -> None:
    """It was got, and is given back."""
    store.put("q", b"1")
    with store.transaction() as txn:
        assert txn.get("q") is not None
        txn.rollback()


def reject(store: AnyStore) -> None:
    """It comes again after a while."""
    store.put("q", b"1")
    with store.transaction() as txn:
        message = txn.get("q")
        assert message is not None
        txn.reject(message, delay=0.6)


HIDDEN: dict[str, tuple[dict[str, Any], Callable[[AnyStore], None]]] = {
    "deliver_at": ({"timed": True}, put_later),
    "reject": ({}, reject),
    "retry": ({"retry": {"delay": 0.6}}, fail),
    "rate": ({"rate": 5}, start_all),
}


@with_callbacks
@pytest.mark.parametrize("source", ["q", "*"])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_comes_by_time_calls_back(
    store: AnyStore, owner: Store, limits: Limits, hidden: str, source: str
) -> None:
    """When it is due: nothing else looks for it meanwhile."""
    properties, hide = HIDDEN[hidden]
    owner.create_queue("q", kind="work", **properties)
    limits(INTERVAL_SECONDS=1000.0)
    maintenance = owner._maintenance
    maintenance.soon()  # from now on it looks around when something is due
    eventually(maintenance._wake.empty)
    hide(store)
    with store.transaction() as txn:
        assert txn.get(source) is None
    assert awaited(store, source).wait(20.0)
    with store.transaction() as txn:
        assert txn.get(source) is not None


@with_callbacks
def test_subscriptions_are_awaited_apart(store: AnyStore) -> None:
    """What one has read is there for the other."""
    store.create_queue("topic", kind="topic")
    store.subscribe("topic", "a")
    store.subscribe("topic", "b")
    store.put("topic", b"1")
    with store.transaction() as txn:
        assert txn.get("topic/a") is not None
    assert awaited(store, "topic/b").wait(SECONDS)
    event = awaited(store, "topic/a")
    assert not event.wait(0.05)
    store.unsubscribe("topic", "a")
    assert event.wait(SECONDS)


@with_callbacks
def test_a_drop_calls_back(store: AnyStore, work: str) -> None:
    """The get that follows says why."""
    event = awaited(store, work)
    settle(store)
    store.drop_queue(work)
    assert event.wait(SECONDS)
    with pytest.raises(QueueNotFound), store.transaction() as txn:
        txn.get(work)


@with_callbacks
def test_what_is_withdrawn_is_not_called(store: AnyStore, work: str) -> None:
    """Others that wait for the same source are."""
    first, second = threading.Event(), threading.Event()
    withdraw = store.integration.when_ready(work, first.set)
    store.integration.when_ready(work, second.set)
    withdraw()
    withdraw()
    store.put(work, b"1")
    assert second.wait(SECONDS)
    assert not first.is_set()


@with_callbacks
def test_close_calls_back(store: AnyStore, work: str) -> None:
    """Whoever looks then meets StoreClosed."""
    event = awaited(store, work)
    store.close()
    assert event.wait(SECONDS)
    with pytest.raises(StoreClosed):
        store.integration.when_ready(work, event.set)


def test_the_end_of_the_owner_calls_back(joined: JoinedStore, owner: Store) -> None:
    """All that wait in a joined store."""
    owner.admin.create_queues([{"name": name, "kind": "work"} for name in "ab"])
    events = [awaited(joined, name) for name in "ab"]
    owner.close()
    assert all(event.wait(SECONDS) for event in events)


def test_a_source_that_is_not_there(joined: JoinedStore, owner: Store) -> None:
    """Embedded an error, joined a call back: the get raises it."""
    with pytest.raises(QueueNotFound):
        owner.integration.when_ready("nowhere", lambda: None)
    assert awaited(joined, "nowhere").wait(SECONDS)


def test_a_thousand_waiters_take_no_threads(joined: JoinedStore, owner: Store) -> None:
    """On as many sources, at the owner and at the client; each is called."""
    names = [f"q{n}" for n in range(WAITERS)]
    owner.admin.create_queues([{"name": name, "kind": "work"} for name in names])
    before = threading.active_count()
    events = [awaited(joined, name) for name in names for _ in range(2)]
    settle(joined)
    sharing = owner.status()["sharing"]
    assert threading.active_count() <= before + 4  # the reader, and workers of the server
    assert sharing["waiting"] == 0
    assert sharing["connections"] <= 3
    assert not any(event.is_set() for event in events)
    with owner.transaction() as txn:
        for name in names:
            txn.put(name, b"1")
    assert all(event.wait(SECONDS) for event in events)


@with_callbacks
def test_no_commit_is_missed(store: AnyStore, owner: Store, work: str) -> None:
    """Many commits race with one that takes, and waits only when it finds nothing."""
    count = 300

    def put() -> None:
        for n in range(count):
            owner.put(work, b"%d" % n)

    putter = threading.Thread(target=put)
    putter.start()
    found = 0
    while found < count:
        with store.transaction() as txn:
            got = len(txn.get_many(work, 7))
        found += got
        if not got:
            assert awaited(store, work).wait(SECONDS), found
    putter.join()


TAKES: dict[str, Callable[..., int]] = {
    "get": lambda txn: int(txn.get("work") is not None),
    "waiting get": lambda txn: int(txn.get("work", timeout=1.0) is not None),
    "get_many": lambda txn: len(txn.get_many("work", 3)),
    "get_arrow": lambda txn: txn.get_arrow("work", 2).num_rows,
}


@pytest.mark.cases(3)
@pytest.mark.parametrize("take", TAKES.values(), ids=TAKES)
@pytest.mark.parametrize("before", TAKES.values(), ids=TAKES)
def test_the_latest_get_is_given_back(
    store: AnyStore, work: str, before: Callable[..., int], take: Callable[..., int]
) -> None:
    """And no more: it is there again for others, at its place, as if it had not been delivered."""
    for n in range(2):
        store.put(work, b"%d" % n)
    with store.transaction() as txn:
        txn.put_many(work, [b"%d" % n for n in range(2, 10)])
    txn = store.transaction()
    kept = before(txn)
    taken = take(txn)
    assert kept
    assert taken
    txn.unget()
    with store.transaction() as other:
        message = other.get(work)
        assert message is not None
        assert (message.payload, message.delivery_count) == (b"%d" % kept, 1)
        other.rollback()
    txn.commit()
    assert store.subscriptions(work)[0].position == kept
    with store.transaction() as other:
        assert len(other.get_many(work)) == 10 - kept


def test_giving_back_what_was_given_back(store: AnyStore, work: str) -> None:
    """What came back out of order is one batch, and goes back as one."""
    with store.transaction() as txn:
        txn.put_many(work, [b"%d" % n for n in range(6)])
    first, second = store.transaction(), store.transaction()
    first.get(work)
    second.get_many(work, 2)
    first.rollback()
    assert second.get_many(work, 2).payloads() == [b"0", b"3"]
    second.unget()
    second.commit()
    with store.transaction() as txn:
        assert txn.get_many(work).payloads() == [b"0", b"3", b"4", b"5"]


def test_nothing_to_give_back(store: AnyStore, work: str) -> None:
    """A transaction that has taken nothing, and one that has ended."""
    with store.transaction() as txn:
        txn.put(work, b"1")
        txn.unget()
    with pytest.raises(TransactionClosed):
        txn.unget()
    assert store.queue(work).messages == 1


def test_a_source_is_told_once(joined: JoinedStore, owner: Store) -> None:
    """However often a client asks, and however much comes: so little waits for one that is slow."""
    owner.create_queue("work", kind="work")
    channel = joined.owner_session.connection.borrow()
    for _ in range(5):
        channel.tell(lambda _: [HEAD.pack(4, AWAIT, CONNECTION) + b"work"])
    channel.request({"op": "failed", "arguments": {}})  # they are there
    for _ in range(100):
        owner.put("work", b"1")
    assert bytes(channel.next_frame()) == HEAD.pack(4, READY, CONNECTION) + b"work"
    [answer] = channel.request({"op": "failed", "arguments": {}})
    assert answer.header["result"] is False
    joined.owner_session.connection.give_back(channel)


@pytest.mark.promise(13)
def test_what_is_no_source(joined: JoinedStore, owner: Store) -> None:
    """Is answered as one that is not there, or not at all; the connection goes on."""
    channel = joined.owner_session.connection.borrow()
    for name in (b"", b"x" * 5000, b"a/b/c", b"\xff\xfe", b"..", b"\x00"):
        frame = HEAD.pack(len(name), AWAIT, CONNECTION) + name
        channel.tell(lambda _, frame=frame: [frame])  # type: ignore[misc]
    frames = [bytes(channel.next_frame()) for _ in range(5)]
    assert {frame[HEAD.size :] for frame in frames} == {b"", b"x" * 5000, b"a/b/c", b"..", b"\x00"}
    [answer] = channel.request({"op": "failed", "arguments": {}})
    assert answer.header["result"] is False
    joined.owner_session.connection.give_back(channel)


@with_callbacks
@pytest.mark.parametrize("wrong", [None, 5, "work", []])
def test_what_is_no_function_is_refused(store: AnyStore, wrong: Any) -> None:
    """When it is given, not in the midst of somebody's commit."""
    store.create_queue("q", kind="work")
    with pytest.raises(InvalidArgument, match="callback"):
        store.integration.when_ready("q", wrong)
    store.put("q", b"m")
    assert store.get("q") is not None


def test_a_callback_that_fails_harms_nobody(
    owner: Store, joined: JoinedStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit that it is called by stands, others are called, and the log has what it raised."""

    def fail() -> None:
        raise KeyError("in a callback")

    owner.create_queue("q", kind="work")
    told = threading.Event()
    for store in (owner, joined):
        store.integration.when_ready("q", fail)
        store.integration.when_ready("q", told.set)
    owner.put("q", b"m")
    assert told.wait(SECONDS)
    again = threading.Event()
    joined.integration.when_ready("q", again.set)
    assert again.wait(SECONDS)
    assert owner.get("q") is not None
    assert "in a callback" in caplog.text
