"""The marks of a disk that fills up, on a simulated disk: also where the power fails there."""

from __future__ import annotations

import logging
import random
from contextlib import suppress
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.upkeep.disk_watch import FULL, LOW, OK
from quire.errors import StoreFull
from quire.testing import SimEnv, SimulatedCrash
from tests.engine.workload import new_machine, open_store

MARKS: dict[str, Any] = {"warn_below_bytes": 1 << 20, "refuse_below_bytes": 512 << 10}
PAYLOAD = b"x" * 2000


def look(store: Store) -> None:
    """Have the store ask for the free space."""
    watch = store._maintenance.disk
    assert watch is not None
    watch.look()


def nearly_full(seed: int, free: int = 3 << 20) -> tuple[SimEnv, Store]:
    """A store on a disk that has so much free."""
    env = new_machine(seed)
    store = open_store(env, **MARKS)
    store.create_queue("work", kind="work")
    env.capacity_bytes = env.used_bytes() + free
    return env, store


def fill(env: SimEnv, store: Store, taken: list[int], most: int = 10_000) -> None:
    """Put until it is refused, and note what was taken."""
    with suppress(StoreFull):
        for number in range(len(taken), most):
            env.advance(0.1)
            store.put("work", b"%6d" % number + PAYLOAD)
            taken.append(number)


def drain(env: SimEnv, store: Store) -> list[int]:
    """All that is there, one by one."""
    found = []
    while (message := store.get("work")) is not None:
        env.advance(0.1)
        found.append(int(message.payload[:6]))
    return found


def test_puts_stop_before_the_disk_is_full(seed: int) -> None:
    """With as much left as the mark says, but for a step; and they go on once it was read."""
    env, store = nearly_full(seed)
    levels = {store.status()["disk"]["level"]}
    taken: list[int] = []
    for most in range(0, 5000, 10):
        fill(env, store, taken, most)
        levels.add(store.status()["disk"]["level"])
    assert levels == {OK, LOW, FULL}
    assert 200 < len(taken) < 1600
    assert store.status()["disk"]["free_bytes"] > 256 << 10
    with pytest.raises(StoreFull):
        store.put("work", b"refused")
    with store.transaction() as txn:
        assert txn.get("work") is not None
        txn.rollback()
    assert drain(env, store) == taken
    store.admin.checkpoint()
    env.advance(1)
    store.create_queue("more", kind="work")  # after a commit it is looked at again
    store.put("more", b"taken")
    assert store.admin.verify().ok
    store.close()


@pytest.mark.crash
def test_power_failures_while_a_disk_fills_up(seed: int, rng: random.Random) -> None:
    """At any call: what was acknowledged is there, whether puts were refused or not."""
    env, store = nearly_full(seed)
    begin = env.calls.last_number
    taken: list[int] = []
    fill(env, store, taken)
    drain(env, store)
    store.admin.checkpoint()
    end = env.calls.last_number
    for crash_at in sorted(rng.sample(range(begin + 1, end), 12)):
        env, store = nearly_full(seed)
        env.crash_at = crash_at
        taken, read = [], []
        with suppress(SimulatedCrash):
            fill(env, store, taken)
            while (message := store.get("work")) is not None:
                read.append(int(message.payload[:6]))
                env.advance(0.1)
            store.admin.checkpoint()
        env = env.crash(seed=crash_at)
        store = open_store(env, **MARKS)
        assert store.admin.verify().ok
        found = drain(env, store)
        # The last put or get may have happened, or not.
        assert found[:1] in ([], [len(read)], [len(read) + 1])
        assert found == list(range(found[0], found[-1] + 1)) if found else True
        assert len(read) + len(found) + 1 >= len(taken)
        store.admin.checkpoint()
        env.capacity_bytes = None
        env.advance(1)
        store.create_queue("more", kind="work")
        store.put("more", b"taken")
        store.close()


def test_the_log_tells_once(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Of each level; free space that goes up and down around a mark tells nothing more."""
    env, store = nearly_full(seed)
    caplog.set_level(logging.INFO, "quire.disk")
    warn, refuse = MARKS.values()
    again = refuse + refuse // 16
    for free in (9 << 20, warn - 1, warn, warn - 1, refuse - 1, again - 1, 0, again, 9 << 20):
        env.capacity_bytes = env.used_bytes() + free
        look(store)
    told = [record.getMessage() for record in caplog.records if record.name == "quire.disk"]
    words = ["warn_below_bytes", "puts are refused", "puts go on again", "has room again"]
    assert len(told) == len(words)
    assert all(word in line for word, line in zip(words, told, strict=True))
    store.close()


def test_a_disk_of_unknown_size_is_not_watched(seed: int) -> None:
    """What was refused before goes on."""
    env, store = nearly_full(seed)
    env.capacity_bytes = env.used_bytes()
    look(store)
    with pytest.raises(StoreFull):
        store.put("work", b"refused")
    env.capacity_bytes = None
    look(store)
    store.put("work", b"taken")
    store.close()


def test_an_opening_looks_before_anybody_puts(seed: int) -> None:
    """A store whose disk filled up meanwhile refuses the first put; without marks it takes it."""
    env, store = nearly_full(seed)
    store.close()
    env.capacity_bytes = env.used_bytes() + (300 << 10)
    store = open_store(env, **MARKS)
    with pytest.raises(StoreFull, match="refuse_below_bytes"):
        store.put("work", b"refused")
    store.close()
    store = open_store(env)
    store.put("work", b"taken")
    assert store.status()["disk"]["level"] == OK
    store.close()
