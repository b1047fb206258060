"""Scheduled messages are listed, cancelled and changed, for every form of a store."""

from __future__ import annotations

import time
from typing import Any

import pytest

from quire.errors import InvalidArgument, QueueNotFound
from tests.behaviour.forms import AnyStore, Clock


def make(store: AnyStore) -> list[int]:
    """A queue with three that come later, and one that is there; their ids, by time."""
    store.create_queue("q", kind="work", timed=True)
    ids = {n: store.put("q", b"%d" % n, delay=n * 600.0, sender="s") for n in (3, 1, 2)}
    store.put("q", b"now")
    return [ids[n] for n in sorted(ids)]


def test_what_is_scheduled_is_listed(store: AnyStore) -> None:
    """In the order in which it is due; nothing is taken by that."""
    ids = make(store)
    assert [message.id for message in store.delayed.list("q")] == ids
    assert store.delayed.list("q", 2).payloads() == [b"1", b"2"]
    assert [s.delayed for s in store.subscriptions("q")] == [3]
    assert store.get_many("q").payloads() == [b"now"]
    store.create_queue("plain", kind="work")
    store.put("plain", b"m")
    assert len(store.delayed.list("plain")) == 0


def test_a_scheduled_message_is_cancelled(store: AnyStore) -> None:
    """Once; and what is due is got, not cancelled."""
    first, second, _ = make(store)
    assert store.delayed.cancel("q", second)
    assert not store.delayed.cancel("q", second)
    assert not store.delayed.cancel("q", second + 1000)
    assert store.delayed.list("q").payloads() == [b"1", b"3"]
    now = store.browse("q")[-1]
    assert now.payload == b"now"
    assert not store.delayed.cancel("q", now.id)
    with store.transaction() as txn:
        assert txn.get_delayed("q", first) is not None
        assert store.delayed.list("q").payloads() == [b"3"]
        assert not store.delayed.cancel("q", first)
        txn.rollback()
    assert store.delayed.list("q").payloads() == [b"1", b"3"]


def test_a_scheduled_message_is_rescheduled(store: AnyStore) -> None:
    """It has all that it was put with, but for the time and the id."""
    first, second, third = make(store)
    later = time.time_ns() // 1000 + 900_000_000
    assert store.delayed.reschedule("q", third, deliver_at=later) is not None
    made = store.delayed.reschedule("q", second, delay=300.0)
    assert store.delayed.list("q").payloads() == [b"2", b"1", b"3"]
    assert [m.deliver_at for m in store.delayed.list("q")][2] == later
    [message, *_] = store.delayed.list("q")
    assert (message.id, message.sender) == (made, "s")
    assert store.delayed.reschedule("q", second, delay=1.0) is None
    assert store.delayed.reschedule("q", first) is not None
    assert store.get_many("q").payloads() == [b"now", b"1"]


def test_a_topic_has_them_for_each_subscription(store: AnyStore, clock: Clock) -> None:
    """Cancelled for one, the other gets it."""
    store.create_queue("q", kind="topic", timed=True)
    for name in "ab":
        store.subscribe("q", name)
    message_id = store.put("q", b"m", delay=600.0)
    assert store.delayed.cancel("q/a", message_id)
    assert store.delayed.list("q/a").payloads() == []
    assert store.delayed.list("q/b").payloads() == [b"m"]
    clock.forward(599.7)
    assert store.get("q/b", timeout=120.0) is not None
    assert store.get("q/a") is None


def test_it_is_part_of_its_transaction(store: AnyStore) -> None:
    """With what it puts and gets elsewhere; `unget` and `reject` know it."""
    first, second, _ = make(store)
    store.create_queue("other", kind="work")
    with store.transaction() as txn:
        assert txn.get_delayed("q", first) is not None
        message = txn.get_delayed("q", second)
        assert message is not None
        txn.put("other", message.payload)
        txn.unget()
        assert store.delayed.list("q").payloads() == [b"2", b"3"]
        message = txn.get_delayed("q", second)
        assert message is not None
        txn.reject(message)
    assert store.delayed.list("q").payloads() == [b"2", b"3"]
    assert store.get_many("other").payloads() == [b"2"]


def test_it_holds_its_group(store: AnyStore) -> None:
    """Who takes it has its group, as by any other get, until it is given back or the end."""
    store.create_queue("q", kind="work", timed=True, grouped=True)
    first, second = (store.put("q", b"later%d" % n, delay=600.0, group_key="a") for n in range(2))
    for payload in (b"a0", b"a1"):
        store.put("q", payload, group_key="a")
    store.put("q", b"b0", group_key="b")
    with store.transaction() as txn, store.transaction() as other:
        assert txn.get_delayed("q", first) is not None
        assert other.get_many("q").payloads() == [b"b0"]
        assert other.get_delayed("q", second) is None
        assert txn.get_delayed("q", second) is not None
        assert txn.get("q") is not None
        txn.unget()
        txn.rollback()
        assert other.get_many("q").payloads() == [b"a0", b"a1"]
        assert store.delayed.list("q").payloads() == [b"later0", b"later1"]
        with store.transaction() as third:
            assert third.get_delayed("q", first) is None
        assert other.get_delayed("q", first) is not None
        other.rollback()
    with store.transaction() as txn:
        message = txn.get_delayed("q", first)
        assert message is not None
        txn.reject(message)
        assert store.get_many("q").payloads() == [b"a0", b"a1", b"b0"]
        assert txn.get_delayed("q", first) is not None
        store.put("q", b"a2", group_key="a")
        assert store.get("q") is None
    assert store.get_many("q").payloads() == [b"a2"]


def test_it_is_changed_whoever_has_its_group(store: AnyStore) -> None:
    """Nobody handles what is cancelled or put anew: that waits for nobody, nor holds anybody up."""
    store.create_queue("q", kind="work", timed=True, grouped=True)
    ids = [store.put("q", b"%d" % n, delay=600.0, group_key="a") for n in range(3)]
    for payload in (b"a0", b"a1"):
        store.put("q", payload, group_key="a")
    with store.transaction() as txn, store.transaction() as other:
        assert txn.get("q") is not None
        assert store.delayed.cancel("q", ids[0])
        assert store.delayed.reschedule("q", ids[1], delay=300.0) is not None
        message = other.get_delayed("q", ids[2], to_change=True)
        assert message is not None
        assert txn.get("q") is not None
        assert other.get("q") is None
        txn.rollback()
        assert store.get_many("q").payloads() == [b"a0", b"a1"]
        other.rollback()
    assert store.delayed.list("q").payloads() == [b"1", b"2"]


@pytest.mark.parametrize("wrong", [0, -1, 1 << 70, True, "1", None])
def test_wrong_arguments_are_refused(store: AnyStore, wrong: Any) -> None:
    """Wrong arguments are refused, and nothing is taken."""
    ids = make(store)
    with store.transaction() as txn, pytest.raises(InvalidArgument):
        txn.get_delayed("q", wrong)
    with store.transaction() as txn, pytest.raises(InvalidArgument):
        txn.get_delayed("q", ids[0], to_change="no" if wrong is True else wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        store.delayed.cancel("q", wrong)
    if wrong is not None:
        with pytest.raises(InvalidArgument):
            store.delayed.reschedule("q", ids[0], delay="soon")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            store.delayed.list("q", -5)
        with pytest.raises(QueueNotFound):
            store.delayed.list("nowhere")
    assert [message.id for message in store.delayed.list("q")] == ids
