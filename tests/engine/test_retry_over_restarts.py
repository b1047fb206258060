"""Retry policies in numbers, over restarts, together with groups and prepared transactions."""

from __future__ import annotations

import pytest

from quire.definitions.retry import Retry, check_retry, retry_seconds
from quire.engine import EmbeddedStore as Store
from quire.limits import MAX_DELAY_SECONDS
from quire.messages.message import Message
from quire.testing import SimEnv, sim_env
from tests.engine.workload import open_store

RETRY: Retry = {"delay": 2.0}


def seconds(deliveries: int, chance: float = 0.0, **policy: object) -> float:
    """Of a policy."""
    checked = check_retry("retry", policy)
    assert checked is not None
    return retry_seconds(checked, deliveries, chance)


def fail(store: Store) -> Message | None:
    """Get one and roll back."""
    with store.transaction() as txn:
        message = txn.get("q")
        txn.rollback()
    return message


def test_how_policies_grow() -> None:
    """By the number of deliveries, up to the cap; jitter takes some of it away."""
    numbers = range(1, 5)
    assert [seconds(n, delay=2, growth="constant") for n in numbers] == [2, 2, 2, 2]
    assert [seconds(n, delay=2, growth="linear") for n in numbers] == [2, 4, 6, 8]
    assert [seconds(n, delay=2, growth="linear", cap=5) for n in numbers] == [2, 4, 5, 5]
    assert [seconds(n, delay=2) for n in numbers] == [2, 4, 8, 16]
    assert [seconds(n, delay=2, cap=9) for n in numbers] == [2, 4, 8, 9]
    assert seconds(65535, delay=1e-9) == MAX_DELAY_SECONDS
    assert [seconds(1, c, delay=2, jitter=0.5) for c in (0.0, 0.5, 1.0)] == [2, 1.5, 1]


def test_each_failure_waits_longer(env: SimEnv) -> None:
    """By what was delivered, which a restart keeps, as it keeps what waits, and what has failed."""
    store = open_store(env)
    store.create_queue("dead", kind="work")
    store.create_queue("q", kind="work", max_deliveries=9, dead_letter="dead", retry=RETRY)
    store.put("q", b"m")
    for wait in (2, 4):
        assert fail(store) is not None
        env.advance(wait - 0.5)
        assert fail(store) is None
        env.advance(1)
    assert fail(store) is not None
    store.close()
    store = open_store(env)
    assert fail(store) is None
    assert [s.delayed for s in store.subscriptions("q")] == [1]
    env.advance(8)
    message = fail(store)
    assert message is not None
    assert (message.delivery_count, message.failed_count) == (4, 3)
    env.advance(15)
    assert fail(store) is None
    env.advance(2)
    message = fail(store)
    assert message is not None
    assert (message.delivery_count, message.failed_count) == (5, 4)
    store.close()


def test_waits_are_exact(env: SimEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to come after so many microseconds does, whatever floats make of the sum."""
    store = open_store(env)
    store.create_queue("q", kind="work")
    store.put("q", b"m")
    monkeypatch.setattr(sim_env, "STEP_US", 0)
    env.clock_us = 2_100_000
    assert 2.1 + 0.2 > 2.3
    with store.transaction() as txn:
        message = txn.get("q")
        assert message is not None
        txn.reject(message, delay=0.2)
    env.advance(0.199_999)
    assert store.get("q") is None
    env.advance(0.000_001)
    assert store.get("q") is not None
    store.close()


def test_what_failed_together_is_one_entry(env: SimEnv) -> None:
    """However many they are; and what is read past meanwhile does not come again."""
    store = open_store(env)
    store.create_queue("q", kind="work", retry=RETRY)
    store.put_many("q", [b"%d" % n for n in range(10_000)])
    with store.transaction() as txn:
        assert len(txn.get_many("q", 10_000)) == 10_000
        txn.rollback()
    [subscription] = store._context.state.queue("q").subscriptions.values()
    assert len(subscription.later) == 1
    with store.transaction() as txn:
        txn.read_to("q", 9_990)
    assert [s.delayed for s in store.subscriptions("q")] == [10]
    env.advance(3)
    assert len(store.get_many("q")) == 10
    assert store.queue("q").messages == 0
    store.close()


def test_a_group_waits_for_its_retry(env: SimEnv) -> None:
    """All of it, and comes in order; the others go on."""
    store = open_store(env)
    store.create_queue("q", kind="work", grouped=True, retry=RETRY)
    for payload in (b"a0", b"b0", b"a1"):
        store.put("q", payload, group_key=payload[:1].decode())
    message = fail(store)
    assert message is not None
    assert message.payload == b"a0"
    assert store.get_many("q").payloads() == [b"b0"]
    env.advance(3)
    assert store.get_many("q").payloads() == [b"a0", b"a1"]
    store.close()


@pytest.mark.parametrize("is_known", [True, False])
def test_a_prepared_transaction_that_is_rolled_back(env: SimEnv, is_known: bool) -> None:
    """Decided before a restart or after it, its messages wait."""
    store = open_store(env)
    store.create_queue("q", kind="work", retry=RETRY)
    store.put("q", b"m")
    txn = store.transaction()
    assert txn.get("q") is not None
    txn.prepare("x")
    if is_known:
        store.prepared.rollback("x")
        assert store.get("q") is None
    env = env.kill()
    store.abandon("the machine of before")
    store = open_store(env)
    if not is_known:
        store.prepared.rollback("x")
    assert store.get("q") is None
    env.advance(3)
    assert store.get("q") is not None
    store.close()


def test_seconds_are_drawn_by_chance(env: SimEnv) -> None:
    """Each within the jitter's share."""
    store = open_store(env)
    store.create_queue("q", kind="work", retry={"delay": 8, "jitter": 0.5})
    store.put_many("q", [b""] * 20)
    with store.transaction() as txn:
        for message in txn.get_many("q"):
            txn.reject(message)
    [subscription] = store._context.state.queue("q").subscriptions.values()
    waits = [row[0] / 1e6 - env.monotonic() for row in subscription.later]
    assert len(set(waits)) == 20
    assert 3.5 < min(waits) < max(waits) <= 8
    store.close()


@pytest.mark.parametrize("is_grouped", [True, False])
def test_a_group_does_not_wait_for_what_has_expired(env: SimEnv, is_grouped: bool) -> None:
    """Whether its time was over before or after it was rejected; then it is a dead letter."""
    store = open_store(env)
    store.create_queue("dead", kind="work")
    store.create_queue(
        "q", kind="work", grouped=is_grouped, timed=True, keep_expired=True, dead_letter="dead"
    )
    for number, ttl in enumerate((2.0, 2.0, None)):
        for group in "ab":
            key = group if is_grouped else None
            store.put("q", b"%s%d" % (group.encode(), number), group_key=key, ttl=ttl)
    with store.transaction() as txn:
        first, second, *others = txn.get_many("q", 4)
        txn.reject(first, delay=600.0)
        for other in others:
            txn.reject(other, delay=600.0)
        env.advance(3)
        assert store.get_many("q").payloads() == ([b"a2"] if is_grouped else [b"a2", b"b2"])
        assert txn.get("q") is None
        txn.reject(second, delay=600.0)
    assert store.get_many("q").payloads() == ([b"b2"] if is_grouped else [])
    store.create_queue("more", kind="topic")
    assert sorted(store.browse("dead").payloads()) == [b"a0", b"a1", b"b0", b"b1"]
    assert store.queue("q").messages == 0
    [info] = store.subscriptions("q")
    assert (info.pending, info.delayed, info.delivered) == (0, 0, 0)
    assert store.admin.verify().ok
    store.close()
