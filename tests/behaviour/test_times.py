"""Times of messages, obeyed where a queue is `timed`: the same however the store is opened."""

from __future__ import annotations

import time
from typing import Any

import pytest

from quire.errors import InvalidArgument
from tests.behaviour.forms import AnyStore, Clock
from tests.kit.waiting import SECONDS, eventually


def got(store: AnyStore, queue: str) -> list[bytes]:
    """All that is there, read for good."""
    with store.transaction() as txn:
        return txn.get_many(queue, 100).payloads()


def test_a_message_is_delivered_when_it_is_due(store: AnyStore, clock: Clock) -> None:
    """Others pass it meanwhile; a get that waits gets it in time."""
    store.create_queue("q", kind="work", timed=True)
    due = clock.now_us() + 600_000_000
    store.put("q", b"later", deliver_at=due)
    store.put("q", b"past", deliver_at=1.0)
    store.put("q", b"now")
    assert got(store, "q") == [b"past", b"now"]
    [info] = store.subscriptions("q")
    assert (info.pending, info.delayed, info.delivered) == (1, 1, 0)
    clock.forward(599.7)
    with store.transaction() as txn:
        message = txn.get("q", timeout=SECONDS)
        assert message is not None
        assert (message.payload, message.deliver_at) == (b"later", due)
        assert clock.now_us() >= due


def test_a_message_is_not_delivered_after_its_time(store: AnyStore, clock: Clock) -> None:
    """Not either when a transaction that has it is rolled back; it leaves the queue by itself."""
    store.create_queue("q", kind="work", timed=True)
    store.put("q", b"over", expires_at=1.0)
    store.put("q", b"soon over", expires_at=clock.now_us() + 600_000_000)
    store.put("q", b"stays")
    txn = store.transaction()
    message = txn.get("q")
    assert message is not None
    assert message.payload == b"soon over"
    clock.forward(600)
    txn.rollback()
    txn = store.transaction()
    assert txn.get_many("q", 10).payloads() == [b"stays"]
    txn.rollback()
    eventually(lambda: store.queue("q").messages == 1)
    assert store.browse("q").payloads() == [b"stays"]
    assert got(store, "q") == [b"stays"]
    assert store.queue("q").used_bytes == 0


def test_what_has_expired_is_kept_elsewhere(store: AnyStore, clock: Clock) -> None:
    """As a dead letter, if the queue says so; a queue has a time to live of its own."""
    store.create_queue("dead", kind="work")
    store.create_queue(
        "q", kind="work", timed=True, ttl=0.01, keep_expired=True, dead_letter="dead"
    )
    store.put("q", b"short")
    store.put("q", b"long", expires_at=clock.now_us() + 600_000_000)
    eventually(lambda: store.queue("dead").messages)
    [letter] = list(store.browse("dead"))
    assert (letter.payload, letter.attributes["quire.reason"]) == (b"short", "expired")
    assert letter.attributes["quire.deliveries"] == "0"
    assert got(store, "q") == [b"long"]


def test_each_subscription_has_times(store: AnyStore, clock: Clock) -> None:
    """A topic keeps what has expired until all have passed it."""
    store.create_queue("t", kind="topic", timed=True)
    store.subscribe("t", "a")
    store.subscribe("t", "b")
    store.put("t", b"over", expires_at=clock.now_us() + 600_000_000)
    assert got(store, "t/a") == [b"over"]
    clock.forward(600)
    assert got(store, "t/b") == []
    eventually(lambda: store.queue("t").messages == 0)


def test_times_are_kept_where_they_do_not_count(store: AnyStore, clock: Clock) -> None:
    """What is moved to a queue that is not timed keeps them; altered, all that waits is."""
    store.create_queue("from", kind="work", timed=True)
    store.create_queue("q", kind="work", timed=False)
    soon_us = clock.now_us() + 1_000_000
    store.put("from", b"0", expires_at=soon_us)
    with store.transaction() as txn:
        assert txn.move("from", "q") == 1
    store.alter_queue("from", timed=False)
    store.alter_queue("q", timed=True)
    store.put("q", b"1", deliver_at=clock.now_us() + 3_600_000_000)
    store.alter_queue("q", timed=False)
    store.put("q", b"2")
    clock.forward(1.0)
    txn = store.transaction()
    assert txn.get_many("q", 10).payloads() == [b"0", b"1", b"2"]
    txn.rollback()
    store.alter_queue("q", timed=True, order="priority")
    txn = store.transaction()
    assert txn.get_many("q", 10).payloads() == [b"2"]
    txn.rollback()
    eventually(lambda: store.queue("q").messages == 2)
    store.alter_queue("q", timed=False)
    assert got(store, "q") == [b"1", b"2"]


@pytest.mark.parametrize(
    "wrong", [{"ttl": 0}, {"ttl": True}, {"ttl": "1"}, {"timed": 1}, {"keep_expired": True}]
)
def test_wrong_times_are_refused(store: AnyStore, wrong: Any) -> None:
    """What is kept needs a queue for it."""
    with pytest.raises(InvalidArgument):
        store.create_queue("q", **{"timed": True, **wrong})


def test_what_expires_before_it_is_due_is_refused(store: AnyStore) -> None:
    """As nobody would get it; what is put besides is there."""
    store.create_queue("q", timed=True)
    with pytest.raises(InvalidArgument, match="longer than its delay"):
        store.put("q", b"m", delay=60.0, ttl=30.0)
    with store.transaction() as txn:
        txn.put("q", b"before")
        for name, value in (("delay", 30.0), ("deliver_at", time.time() + 31.0)):
            with pytest.raises(InvalidArgument, match="nobody would get it"):
                txn.put("q", b"m", ttl=30.0, **{name: value})  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="nobody would get it"):
            txn.put_stream("q", b"m", ttl=30.0, delay=31.0)
        txn.put("q", b"m", delay=30.0, ttl=31.0)
    assert store.queue("q").messages == 2
    with pytest.raises(InvalidArgument, match="nobody would get it"):
        store.cron.create("s", "q", "* * * * *", b"m", ttl=1.0, delay=2.0)
