"""Scheduled and expired messages over restarts and power failures, on a simulated clock."""

from __future__ import annotations

import pyarrow as pa

from quire.definitions.properties import QueueOptions
from quire.engine import EmbeddedStore as Store
from tests.engine.workload import new_machine, open_store
from tests.kit.messages import take

HOUR = 3_600_000_000


def make(store: Store, *, keep: bool = False) -> None:
    """A timed queue, and one for what has expired."""
    store.create_queue("dead", kind="work")
    goes: QueueOptions = {"timed": True}
    if keep:
        goes |= {"keep_expired": True, "dead_letter": "dead"}
    store.create_queue("q", kind="work", **goes)


def test_times_hold_over_a_restart(seed: int) -> None:
    """What is scheduled is durable; what expires while nobody runs is not delivered."""
    env = new_machine(seed)
    store = open_store(env)
    make(store, keep=True)
    now = env.now_us()
    store.put("q", b"in an hour", deliver_at=now + HOUR)
    store.put("q", b"for an hour", expires_at=now + HOUR)
    store.put("q", b"in two hours", deliver_at=now + 2 * HOUR)
    store.put("q", b"between", deliver_at=now + HOUR // 2, expires_at=now + HOUR)
    store.admin.checkpoint()
    store.put("q", b"in the journal", deliver_at=now + HOUR)
    env = env.crash(seed=seed)
    env.advance(3601)
    store = open_store(env)
    assert take(store, "q") == [b"in an hour", b"in the journal"]
    assert store.browse("dead").payloads() == [b"for an hour", b"between"]
    env.advance(3600)
    assert take(store, "q") == [b"in two hours"]
    assert store.queue("q").messages == 0
    store.close()


def test_a_clock_that_is_set_back_delays(seed: int) -> None:
    """Times are those of the wall clock; nothing is delivered before its time as that says it."""
    env = new_machine(seed)
    store = open_store(env)
    make(store)
    store.put("q", b"m", deliver_at=env.now_us() + HOUR)
    env.jump_wall_clock(-7200)
    env.advance(3601)
    assert take(store, "q") == []
    env.jump_wall_clock(7200)
    assert take(store, "q") == [b"m"]
    store.close()


def test_many_expire_by_few_commits(seed: int) -> None:
    """Runs of them go together, and nothing is left of them."""
    env = new_machine(seed)
    store = open_store(env)
    make(store)
    for _ in range(5):
        with store.transaction() as txn:
            for number in range(200):
                txn.put("q", b"x" * 50, expires_at=env.now_us() + 1000 + number)
    env.advance(1)
    before = env.calls.count("write", "*.log")
    assert take(store, "q") == []
    store.create_queue(
        "more", kind="topic"
    )  # after a commit the maintenance looks, as no thread does
    assert store.queue("q").messages == 0
    assert env.calls.count("write", "*.log") - before < 40
    assert store.queue("q").used_bytes == 0
    store.close()


def test_what_expires_among_others_goes_by_few_commits(seed: int) -> None:
    """Though no two of them stand side by side; a topic has them go for each subscription."""
    env = new_machine(seed)
    with open_store(env) as store:
        store.create_queue("q", kind="topic", timed=True)
        for name in "ab":
            store.subscribe("q", name)
        times = [None, env.now_us() + 1_000_000] * 500
        rows = pa.array(times, pa.timestamp("us", "UTC"))
        payloads = [b"stays", b"goes"] * 500
        store.put_many("q", pa.record_batch({"payload": payloads, "expires_at": rows}))
        env.advance(2)
        before = store.status()["commits"]
        store._maintenance.step()
        assert store.status()["commits"] - before < 6
        assert [info.pending for info in store.subscriptions("q")] == [500, 500]
        for name in "ab":
            assert set(store.get_many(f"q/{name}").payloads()) == {b"stays"}
        assert store.queue("q").messages == 0
        assert store.admin.verify().ok
