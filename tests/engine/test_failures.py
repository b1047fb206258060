"""What is durable of deliveries that failed, and of sequences, wherever the power fails."""

from __future__ import annotations

import pytest

from quire import QueueOptions, Retry
from quire.engine import EmbeddedStore as Store
from quire.engine.queues.subscription import Subscription
from quire.errors import StoreFailed
from quire.testing import SimEnv
from tests.engine.workload import new_machine, open_store

RETRY: Retry = {"delay": 30.0, "growth": "linear"}
SECOND = 1_000_000


def inside(store: Store, name: str) -> Subscription:
    """The built-in subscription of a queue."""
    return store._context.state.queue(name).subscription(None)


def make(env: SimEnv) -> None:
    """Queues of each kind, with a message each, and a sequence of which the first is there."""
    with open_store(env) as store:
        store.create_queue("dead", kind="work")
        counted: QueueOptions = {"retry": RETRY, "max_deliveries": 9, "dead_letter": "dead"}
        store.create_queue("plain", kind="work")
        store.create_queue("retried", kind="work", retry=RETRY)
        store.create_queue("counted", kind="work", **counted)
        store.create_queue("numbered", kind="work", order={"sequence": "n", "wait": 60.0})
        for name in ("plain", "retried", "counted"):
            store.put(name, b"m", correlation_id="g")
        store.put("numbered", b"1", sender="s", attributes={"n": "1"})


def work(store: Store, done: list[str]) -> None:
    """One failure of each kind, and a number that is read."""
    with store.transaction() as txn:
        message = txn.get("plain")
        assert message is not None
        txn.reject(message, delay=30.0)
    check_whole(store)
    done.append("plain")
    for name in ("retried", "counted"):
        txn = store.transaction()
        assert txn.get(name) is not None
        txn.rollback()
        check_whole(store)
        store.put("dead", b"durable with all before it")
        done.append(name)
    with store.transaction() as txn:
        assert txn.get("numbered") is not None
    done.append("numbered")


def check_whole(store: Store) -> None:
    """A rollback raises nothing where it could not be written; then it is not acknowledged."""
    if store._context.committer.failed:
        raise StoreFailed("nothing of it is acknowledged")


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("way", ["kill", "close"])
def test_failures_are_the_same_after_a_restart(checkpoint: bool, way: str) -> None:
    """From the journal and from a checkpoint: the time as it was drawn, and both counts."""
    env = new_machine(1)
    make(env)
    store = open_store(env)
    work(store, [])
    tried = {
        name: inside(store, name).attempts.durable.rows()
        for name in ("plain", "retried", "counted")
    }
    assert tried["counted"][0][2:4] == (1, 1)
    assert tried["retried"][0][2:4] == (1, 0)
    assert all(rows[0][4] > env.now_us() + 29 * SECOND for rows in tried.values())
    if checkpoint:
        store.admin.checkpoint()
    if way == "close":
        store.close()
    else:
        env = env.kill()
    store.abandon("the machine of before")
    store = open_store(env)
    assert {name: inside(store, name).attempts.durable.rows() for name in tried} == tried
    for name in tried:
        assert store.get(name) is None
    store.put("plain", b"others go on")
    message = store.get("plain")
    assert message is not None
    assert message.payload == b"others go on"
    env.advance(31)
    store.put("dead", b"which lets time have its way")
    for name in tried:
        message = store.transaction().get(name)
        assert message is not None
        assert message.failed_count == 1
    store.close()


def test_a_failure_elsewhere_writes_nothing() -> None:
    """A queue that asks for nothing pays nothing: neither its rollbacks nor its rejections."""
    env = new_machine(1)
    make(env)
    store = open_store(env)
    store.create_queue("limited", kind="work", max_deliveries=9, dead_letter="dead")
    for name in ("plain", "limited"):
        store.put(name, b"m")
        txn = store.transaction()
        message = txn.get(name)
        assert message is not None
        before = store._context.journal.end_lsn
        txn.reject(message)
        assert name != "plain" or txn.get(name) is not None
        txn.rollback()
        assert store._context.journal.end_lsn == before
    store.close()


def test_a_failure_is_not_synced_by_itself() -> None:
    """It is durable with the next commit that waits for a sync."""
    env = new_machine(1)
    make(env)
    store = open_store(env)
    store.put("dead", b"m")  # after which the maintenance has nothing to prepare
    txn = store.transaction()
    assert txn.get("retried") is not None
    syncs: list[str] = []
    env.before_call = lambda call: syncs.append(call.kind) if "sync" in call.kind else None
    txn.rollback()
    env.before_call = None
    assert syncs == []
    assert store._context.journal.unsynced_bytes > 0
    store.put("dead", b"m")
    assert store._context.journal.unsynced_bytes == 0
    store.close()


def test_who_waits_at_an_opening_is_woken() -> None:
    """By the maintenance, when what had failed before the restart is due."""
    env = new_machine(1)
    make(env)
    store = open_store(env)
    work(store, [])
    store.close()
    store = open_store(env)
    queue = store._context.state.queue("retried")
    woken: list[int] = []
    assert queue.when_ready(inside(store, "retried"), lambda: woken.append(1)) is not None
    env.advance(31)
    store._context.delivery.bring_back()
    assert woken == [1]
    store.close()


def test_a_group_waits_over_a_restart() -> None:
    """For the message of it that comes later; others are had."""
    env = new_machine(1)
    store = open_store(env)
    store.create_queue("q", kind="work", grouped=True, retry=RETRY)
    for payload in (b"a0", b"b0", b"a1"):
        store.put("q", payload, group_key=payload[:1].decode())
    txn = store.transaction()
    message = txn.get("q")
    assert message is not None
    assert message.payload == b"a0"
    txn.rollback()
    store.close()
    store = open_store(env)
    assert store.get_many("q").payloads() == [b"b0"]
    env.advance(31)
    assert store.get_many("q").payloads() == [b"a0", b"a1"]
    store.close()
