"""Ordered groups inside the engine: memory, restarts, switching while messages are in flight."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.delivery.delivery_counts import DeliveryCounts
from quire.engine.delivery.ordered_groups import Groups, group_number
from quire.engine.delivery.selection import Selection, SelectionHeaders
from quire.engine.state.attempts import Attempts
from quire.intervals import IntervalSet
from quire.testing import SimEnv
from tests.engine import test_rules_model
from tests.engine.workload import open_store
from tests.kit.messages import take


def make(env: SimEnv, **options: Any) -> Store:
    """A store with a work queue that holds two messages of each of two groups."""
    store = open_store(env)
    store.create_queue("q", kind="work", **{**options, "grouped": True})
    for number in range(2):
        for group in "ab":
            store.put("q", b"%s%d" % (group.encode(), number), group_key=group)
    if not options.get("grouped"):
        store.alter_queue("q", grouped=False)
    return store


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_keeps_its_groups_over_a_restart(env: SimEnv, commit: bool) -> None:
    """Though what it has got is known by positions only then."""
    store = make(env, grouped=True)
    txn = store.transaction()
    assert txn.get("q") is not None
    txn.prepare("x")
    env = env.kill()
    store.abandon("the machine of before")
    store = open_store(env)
    assert take(store, "q") == [b"b0", b"b1"]
    assert take(store, "q") == []
    if commit:
        store.prepared.commit("x")
        assert take(store, "q") == [b"a1"]
    else:
        store.prepared.rollback("x")
        assert take(store, "q") == [b"a0", b"a1"]
    store.close()


def test_groups_are_switched_on_while_messages_are_in_flight(env: SimEnv) -> None:
    """A group with some in flight waits for them, also for one that was rejected with a delay."""
    store = make(env)
    txn = store.transaction()
    first = txn.get("q")
    assert first is not None
    second = txn.get("q")
    assert second is not None
    txn.reject(second, delay=5.0)
    store.alter_queue("q", grouped=True)
    assert take(store, "q") == []
    txn.rollback()
    assert take(store, "q") == [b"a0", b"a1"]
    env.advance(6)
    assert take(store, "q") == [b"b0", b"b1"]
    store.close()


def test_groups_are_switched_off(env: SimEnv) -> None:
    """What waited behind another one is there for all."""
    store = make(env, grouped=True)
    txn = store.transaction()
    assert txn.get("q") is not None
    store.alter_queue("q", grouped=False)
    assert take(store, "q") == [b"b0", b"a1", b"b1"]
    txn.rollback()
    assert take(store, "q") == [b"a0"]
    store.close()


def test_by_priority_a_group_goes_in_the_order_of_the_queue(env: SimEnv) -> None:
    """Higher first, also within the group."""
    store = make(env, grouped=True, order="priority")
    store.put("q", b"a2", priority=1, group_key="a")
    with store.transaction() as txn, store.transaction() as other:
        assert txn.get_many("q", 2).payloads() == [b"a2", b"a0"]
        assert other.get_many("q").payloads() == [b"b0", b"b1"]
    store.close()


def test_what_is_not_due_holds_no_group_up(env: SimEnv) -> None:
    """When it is due it is at its place."""
    store = open_store(env)
    store.create_queue("q", kind="work", grouped=True, timed=True)
    store.put("q", b"a0", group_key="a", delay=5.0)
    for number in range(1, 4):
        store.put("q", b"a%d" % number, group_key="a")
    with store.transaction() as txn:
        assert txn.get_many("q", 1).payloads() == [b"a1"]
    env.advance(6)
    assert take(store, "q") == [b"a0", b"a2", b"a3"]
    store.close()


def test_what_has_expired_holds_no_group_up(env: SimEnv) -> None:
    """Whether somebody looked before or not."""
    store = open_store(env)
    store.create_queue("q", kind="work", grouped=True, timed=True)
    for number in range(3):
        store.put("q", b"a%d" % number, group_key="a", ttl=3.0 - number)
    txn = store.transaction()
    assert txn.get("q") is not None
    txn.rollback()
    env.advance(2.5)
    assert take(store, "q") == [b"a0"]
    store.close()


def test_unget_gives_a_group_back_in_order(env: SimEnv) -> None:
    """To the same transaction, which has others of the group."""
    store = make(env, grouped=True)
    store.put("q", b"a2", group_key="a")
    with store.transaction() as txn:
        assert txn.get_many("q", 1).payloads() == [b"a0"]
        for _ in range(3):
            assert txn.get_many("q", 9).payloads() == [b"b0", b"a1", b"b1", b"a2"]
            txn.unget()
        assert take(store, "q") == [b"b0", b"b1"]
        assert txn.get_many("q", 9).payloads() == [b"a1", b"a2"]
    store.close()


def test_a_read_to_passes_groups_by(env: SimEnv) -> None:
    """Also what waits behind a message in flight."""
    store = make(env, grouped=True)
    txn = store.transaction()
    assert txn.get("q") is not None
    with store.transaction() as other:
        other.read_to("q", 3)
    txn.commit()
    assert take(store, "q") == [b"b1"]
    assert store.queue("q").messages == 0
    store.close()


GROUPS: dict[str, Callable[[int], int]] = {
    "one": lambda count: 1,
    "ten": lambda count: 10,
    "one for two": lambda count: count // 2,
    "one each": lambda count: count,
}


@pytest.mark.cases(2)
@pytest.mark.parametrize("kind", GROUPS)
def test_memory_of_groups(kind: str) -> None:
    """Below 200 bytes for each message that waits, as counted, and as the interpreter allocates."""
    count = 20_000
    several = GROUPS[kind](count)
    numbers = np.array([group_number(b"%d" % n) for n in range(several)])[
        np.random.default_rng(1).permutation(count) % several
    ].astype(np.int64)
    zeros = np.zeros(count, np.int64)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    done, attempts = IntervalSet(), DeliveryCounts(Attempts())
    selection = Selection(IntervalSet(), 0, is_grouped=True)
    selection.learn(0, SelectionHeaders(zeros, groups=numbers), done, 0, 0)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert selection.memory_bytes < count * 200
    assert used < count * 200
    assert 0.8 * used < selection.memory_bytes < 1.3 * used
    token = object()
    runs = [selection.take(1, attempts, token) for _ in range(count)]
    assert sorted(run[0] for run in runs if run) == list(range(count))
    for run in runs:
        assert run is not None
        selection.forget(*run)
        done.add(*run)
    groups = selection.groups
    assert groups is not None
    assert (groups._groups, groups._shown._pages, groups.held, groups._holders) == ({}, {}, {}, {})
    assert groups._shown.count == 0


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_group_with_two_readers_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary: a group goes on at once when a message of it is taken."""

    def take(self: Groups, position: int, taker: object) -> None:
        self.pass_over(position)

    monkeypatch.setattr(Groups, "take", take)
    with pytest.raises(AssertionError):
        test_rules_model.run_many(range(40))


def test_numbers_of_groups_are_small_ints() -> None:
    """So that they take what is counted for them."""
    assert sys.getsizeof(group_number(b"key")) == 32
    assert group_number(b"key") == group_number(memoryview(b"a key")[2:])
