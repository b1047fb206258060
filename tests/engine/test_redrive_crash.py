"""Putting dead letters back while power fails, on a simulated disk."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from quire.batches.moved_messages import QUEUE
from quire.messages.message import Message
from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import open_store

LETTERS = 20


@dataclass
class Seen:
    """How far it came."""

    is_made: bool = False
    is_over: bool = False


def is_wanted(letter: Message) -> bool:
    """Two of three."""
    return int(letter.payload) % 3 != 0


def work(env: SimEnv, seen: Seen) -> None:
    """Letters are there, and go back by several transactions."""
    env.make_directory("/disk")
    env.sync_directory("/")
    store = open_store(env)
    store.admin.create_queues([{"name": name, "kind": "work"} for name in ("work", "dead")])
    with store.transaction() as txn:
        for number in range(LETTERS):
            txn.put("dead", b"%d" % number, attributes={QUEUE: "work"})
    seen.is_made = True
    store.admin.redrive("dead", is_wanted)
    seen.is_over = True
    store.close()


def check(env: SimEnv, seen: Seen) -> None:
    """Each letter is in one of the two queues, and the rest goes with another call."""
    if not seen.is_made:
        return
    store = open_store(env)
    back = [int(p) for p in store.browse("work").payloads()]
    left = [int(p) for p in store.browse("dead").payloads()]
    assert sorted([*back, *left]) == list(range(LETTERS))
    assert all(number % 3 for number in back)
    if seen.is_over:
        assert len(back) == sum(number % 3 != 0 for number in range(LETTERS))
    store.admin.redrive("dead", is_wanted)
    assert [int(p) for p in store.browse("dead").payloads()] == list(range(0, LETTERS, 3))
    for message in store.get_many("dead"):
        assert message.delivery_count == 1
    assert store.admin.verify().ok
    store.close()


def test_a_letter_is_in_one_queue(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the power fails: none is lost, none is there twice."""
    for module in ("quire.interface.redriving", "quire.engine.upkeep.redriving"):
        monkeypatch.setattr(f"{module}.REDRIVEN_AT_ONCE", 5)
    enumerate_crashes(work, check, Seen, seed=seed, rounds=1)
