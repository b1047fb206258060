"""Messages that are taken before they are due, on a simulated clock."""

from __future__ import annotations

import pytest

from quire.engine import EmbeddedStore as Store
from quire.testing import SimEnv
from tests.engine.workload import open_store


def make(env: SimEnv, **options: bool) -> tuple[Store, int]:
    """A store with a message that is due in 10 seconds, and over in 20."""
    store = open_store(env)
    store.create_queue("q", kind="work", timed=True, **options)  # type: ignore[arg-type]
    group = "g" if options.get("grouped") else None
    return store, store.put("q", b"m", delay=10.0, ttl=20.0, group_key=group)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("seconds", [5.0, 15.0, 25.0])
def test_given_back_it_is_what_it_would_be(env: SimEnv, seconds: float, grouped: bool) -> None:
    """Scheduled again, due by now, or over."""
    store, message_id = make(env, grouped=grouped)
    with store.transaction() as txn:
        assert txn.get_delayed("q", message_id) is not None
        assert [(s.delayed, s.delivered) for s in store.subscriptions("q")] == [(0, 1)]
        env.advance(seconds)
        assert store.get("q") is None
        txn.rollback()
    assert len(store.delayed.list("q")) == (seconds < 10)
    assert len(store.get_many("q")) == (10 < seconds < 20)
    store.create_queue("more", kind="topic")  # what is over is dropped after a commit
    assert store.queue("q").messages == (seconds < 10)
    env.advance(10)
    assert len(store.get_many("q")) == (seconds < 10)
    assert store.queue("q").messages == 0
    store.close()


@pytest.mark.parametrize("way", ["commit", "rollback"])
def test_a_cancellation_is_durable(env: SimEnv, seed: int, way: str) -> None:
    """With its commit, also a prepared one that is decided after a power failure."""
    store, message_id = make(env)
    other = store.put("q", b"other", delay=10.0)
    assert store.delayed.cancel("q", other)
    txn = store.transaction()
    assert txn.get_delayed("q", message_id) is not None
    txn.prepare("x")
    env = env.crash(seed=seed)
    store.abandon("the machine of before")
    store = open_store(env)
    assert len(store.delayed.list("q")) == 0
    if way == "commit":
        store.prepared.commit("x")
    else:
        store.prepared.rollback("x")
    assert len(store.delayed.list("q")) == (way == "rollback")
    env.advance(15)
    assert len(store.get_many("q")) == (way == "rollback")
    assert store.admin.verify().ok
    store.close()


def test_switched_off_meanwhile(env: SimEnv) -> None:
    """It is there at once when it comes back."""
    store, message_id = make(env)
    with store.transaction() as txn:
        assert txn.get_delayed("q", message_id) is not None
        store.alter_queue("q", timed=False)
        txn.rollback()
    assert store.get("q") is not None
    store.close()


def test_a_clock_that_was_set_back(env: SimEnv) -> None:
    """What was due by the clock of before is got, not cancelled: it is in one place."""
    store, message_id = make(env)
    env.advance(12)
    store.get_many("q", 1)
    again = store.put("q", b"again", delay=2.0)
    env.advance(3)
    assert len(store.delayed.list("q")) == 0
    assert not store.delayed.cancel("q", message_id)
    assert not store.delayed.cancel("q", again)
    assert len(store.get_many("q")) == 1
    store.close()


def test_counted_deliveries(env: SimEnv) -> None:
    """What is taken early is delivered too; it may be spent by that."""
    store = open_store(env)
    store.create_queue("dead", kind="work")
    store.create_queue("q", kind="work", timed=True, max_deliveries=2, dead_letter="dead")
    message_id = store.put("q", b"m", delay=10.0)
    for number in (1, 2):
        with store.transaction() as txn:
            message = txn.get_delayed("q", message_id)
            assert message is not None
            assert message.delivery_count == number
            txn.rollback()
    store.create_queue("more", kind="topic")
    assert len(store.delayed.list("q")) == 0
    assert store.get_many("dead").payloads() == [b"m"]
    assert store.queue("q").messages == 0
    store.close()
