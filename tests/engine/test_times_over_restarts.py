"""Scheduled and expired messages over restarts and power failures, on a simulated clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from quire.definitions.properties import QueueOptions
from quire.engine import EmbeddedStore as Store
from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import new_machine, open_store
from tests.kit.messages import take

HOUR = 3_600_000_000


@dataclass
class Seen:
    """What was put, and what was delivered."""

    is_made: bool = False
    put: list[bytes] = field(default_factory=list)
    read: set[bytes] = field(default_factory=set)
    reading: bytes | None = None


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


def work(env: SimEnv, seen: Seen) -> None:
    """Messages come and go, are due and expire, between commits and checkpoints."""
    env.make_directory("/disk")
    env.sync_directory("/")
    store = open_store(env)
    make(store, keep=True)
    seen.is_made = True
    for number in range(24):
        payload = b"%d" % number
        times: dict[str, Any] = {"deliver_at": env.now_us() + 2_000_000} if number % 3 == 0 else {}
        if number % 3 == 1:
            times = {"expires_at": env.now_us() + 1_500_000}
        store.put("q", payload, **times)
        seen.put.append(payload)
        env.advance(1)
        if number % 4 == 3:
            with store.transaction() as txn:
                message = txn.get("q")
                if message is not None:
                    seen.reading = message.payload
            if seen.reading is not None:
                seen.read.add(seen.reading)
            seen.reading = None
        if number % 10 == 9:
            store.admin.checkpoint()
    store.close()


def check(env: SimEnv, seen: Seen) -> None:
    """Each message is in one place, and those that do not expire are delivered in the end."""
    if not seen.is_made:
        return
    store = open_store(env)
    env.advance(10)
    there = store.browse("q").payloads() + store.browse("dead").payloads()
    for payload in seen.put:
        maybe = {0, 1} if payload == seen.reading else {int(payload not in seen.read)}
        assert there.count(payload) in maybe, payload
    got = take(store, "q")
    assert got == sorted(got, key=int)
    assert not [payload for payload in got if int(payload) % 3 == 1]
    store.create_queue("more", kind="topic")
    assert store.queue("q").messages == 0
    dead = store.browse("dead").payloads()
    assert not [payload for payload in dead if int(payload) % 3 != 1]
    assert sorted([*got, *dead]) == sorted(there)
    assert store.admin.verify().ok
    store.close()


@pytest.mark.crash
@pytest.mark.promise(1, 2)
def test_promise_1_2_power_failure_while_messages_expire(seed: int, spread: int) -> None:
    """What has expired leaves the queue whole or not at all, with what it is kept as."""
    cases = enumerate_crashes(work, check, Seen, seed=seed, rounds=2, every=(spread + 1) // 2)
    assert cases > 100
