"""Retries after a while, and failures that are counted, for every form of a store."""

from __future__ import annotations

from typing import Any

import pytest

from quire.definitions.retry import Retry
from quire.errors import InvalidArgument
from quire.messages.message import Message
from tests.behaviour.forms import AnyStore, Clock

LONG: Retry = {"delay": 3600.0}
SHORT: Retry = {"delay": 60.0, "growth": "constant"}


def fail(store: AnyStore, source: str = "q", timeout: float = 0.0) -> Message:
    """Get a message and roll back."""
    with store.transaction() as txn:
        message = txn.get(source, timeout)
        assert message is not None
        txn.rollback()
    return message


def test_what_is_rolled_back_comes_again_later(store: AnyStore, clock: Clock) -> None:
    """Others come meanwhile; who waits gets it when it is due."""
    store.create_queue("q", kind="work", retry=SHORT)
    store.put_many("q", [b"a", b"b"])
    assert fail(store).failed_count == 0
    with store.transaction() as txn:
        assert txn.get_many("q").payloads() == [b"b"]
    clock.forward(59.7)
    message = store.get("q", timeout=120.0)
    assert message is not None
    assert (message.payload, message.delivery_count, message.failed_count) == (b"a", 2, 1)


def test_a_topic_retries_for_each_subscription(store: AnyStore) -> None:
    """What failed for one is hidden from it alone."""
    store.create_queue("q", kind="topic", retry=LONG)
    for name in "ab":
        store.subscribe("q", name)
    store.put("q", b"m")
    assert fail(store, "q/a").payload == b"m"
    assert store.get("q/a") is None
    assert store.get("q/b") is not None
    assert [s.delayed for s in store.subscriptions("q")] == [1, 0]


def test_reject_has_a_policy_or_that_of_the_queue(store: AnyStore, clock: Clock) -> None:
    """Or a number of seconds, of which 0 is at once."""
    store.create_queue("q", kind="work", retry=LONG)
    store.put_many("q", [b"by the queue", b"at once", b"soon", b"by its own"])
    with store.transaction() as txn:
        own, now, soon, other = txn.get_many("q")
        txn.reject(own, "no")
        txn.reject(now, "no", delay=0)
        txn.reject(soon, "no", delay=60.0)
        txn.reject(other, "no", delay={"delay": 120.0, "growth": "linear"})
    assert store.get_many("q").payloads() == [b"at once"]
    for expected in (b"soon", b"by its own"):
        clock.forward(59.9)
        message = store.get("q", timeout=120.0)
        assert message is not None
        assert message.payload == expected
    assert store.get("q") is None


def test_failures_are_counted_apart(store: AnyStore) -> None:
    """Of a queue with `max_deliveries` too, one by one and in batches; what was not, is none."""
    store.create_queue("dead", kind="work")
    store.create_queue("q", kind="work", max_deliveries=9, dead_letter="dead")
    store.put_many("q", [b"a", b"b"])
    fail(store)
    with store.transaction() as txn:
        messages = txn.get_many("q")
        assert [(m.delivery_count, m.failed_count) for m in messages] == [(2, 1), (1, 0)]
        txn.reject(messages[0])
    with store.transaction() as txn:
        message = txn.get("q")
        assert message is not None
        assert (message.delivery_count, message.failed_count) == (3, 2)
        txn.unget()  # handed out, and not failed
        message = txn.get("q")
        assert message is not None
        assert (message.delivery_count, message.failed_count) == (3, 2)


def test_what_failed_too_often_is_a_dead_letter_at_once(store: AnyStore, clock: Clock) -> None:
    """It does not wait for a retry that will not be."""
    store.create_queue("dead", kind="work")
    store.create_queue("q", kind="work", max_deliveries=2, dead_letter="dead", retry=SHORT)
    store.put("q", b"m")
    fail(store)
    clock.forward(60)
    assert fail(store, timeout=120.0).failed_count == 1
    assert store.get("dead", timeout=120.0) is not None


def test_a_queue_tells_its_policy(store: AnyStore) -> None:
    """With all of its fields; and it is taken away."""
    made = store.create_queue("q", kind="work", retry={"delay": 2, "cap": 60})
    assert made.retry == {"delay": 2.0, "growth": "exponential", "cap": 60.0, "jitter": 0.0}
    assert store.queue("q") == made
    assert (
        store.create_queue("q", kind="work", retry={"delay": 2, "cap": 60}, exist_ok=True) == made
    )
    assert store.alter_queue("q", retry=None).retry is None


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "wrong",
    [
        5,
        {},
        {"delay": 0},
        {"delay": -1},
        {"delay": True},
        {"delay": float("nan")},
        {"delay": 1e12},
        {"delay": 1, "growth": "cubic"},
        {"delay": 1, "growth": ["linear"]},
        {"delay": 1, "cap": 0},
        {"delay": 1, "jitter": 1.5},
        {"delay": 1, "jitter": "1"},
        {"delay": 1, "other": 1},
    ],
    ids=str,
)
def test_wrong_policies_are_refused(store: AnyStore, wrong: Any) -> None:
    """Of queues, and by `reject`, which changes nothing."""
    with pytest.raises(InvalidArgument):
        store.create_queue("r", kind="topic", retry=wrong)
    store.create_queue("q", kind="work")
    store.put("q", b"m")
    with store.transaction() as txn:
        message = txn.get("q")
        assert message is not None
        if wrong != 5:  # seconds
            with pytest.raises(InvalidArgument):
                txn.reject(message, delay=wrong)
    assert store.get("q") is None
