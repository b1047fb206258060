"""Power failures, errors and full disks around prepared transactions, judged by the model.

The workload is that of `test_crash`, with much preparing and deciding. Engines that are broken on
purpose (the canaries) must be caught by the same checks.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from quire.engine.checkpoints import snapshot
from quire.engine.queues.subscription import Subscription
from quire.errors import StoreCorrupt, StoreFailed, TransactionNotFound
from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import (
    Oracle,
    Workload,
    check_ids,
    check_space,
    check_store,
    drain,
    gone_on,
    new_machine,
    open_store,
)

pytestmark = pytest.mark.crash

MUCH: dict[str, Any] = {"prepares": 40}


def crash_everywhere(
    seed: int, *, every: int = 1, rounds: int = 2, resumed: bool = False, **options: Any
) -> int:
    """A workload that prepares and decides much, crashed at its calls; the number of cases.

    `resumed`: also when it goes on after an error, in each kind of write and sync.
    """

    def check(env: SimEnv, oracle: Oracle) -> None:
        check_store(env, oracle, seed=seed + env.random.getrandbits(16))

    return enumerate_crashes(
        Workload(seed, **MUCH, **options),
        check,
        Oracle,
        seed=seed,
        rounds=rounds,
        every=every,
        resume=gone_on(seed, prepares=40) if resumed else None,
    )


@pytest.mark.promise(1, 2, 7)
def test_promise_1_2_7_power_failure_around_prepare_and_decision(
    seed: int, rounds: int, spread: int
) -> None:
    """At every call: prepared, decided or not, as acknowledged; the call under way, one of both."""
    for n in range(max(1, rounds // 25)):
        assert crash_everywhere(seed + n, every=2 * spread, steps=30) > 300 // spread


@pytest.mark.promise(1, 7, 11)
def test_promise_1_7_11_power_failure_after_an_error(seed: int, rounds: int, spread: int) -> None:
    """The same where an error came first: what is prepared, once shown, is prepared or decided."""
    for n in range(max(1, rounds // 25)):
        assert crash_everywhere(seed + n, every=8 * spread, steps=25, resumed=True) > 100


@pytest.mark.promise(7, 8)
def test_promise_7_8_recovery_of_prepared_transactions_is_repeated(
    seed: int, rounds: int, spread: int
) -> None:
    """Broken off at any of its calls, and repeated: the same transactions are prepared."""
    for n in range(max(1, rounds // 25)):
        before, oracle = new_machine(seed + n), Oracle()
        Workload(seed + n, steps=30, **MUCH).run(before, open_store(before), oracle)

        def recover(env: SimEnv, found: Oracle) -> None:
            for _ in range(3):
                store = open_store(env)
                found.match(store)
                store.close()

        enumerate_crashes(
            recover,
            check_store,
            lambda: Oracle(True, oracle.model, None, oracle.ids, oracle.adopted),  # noqa: B023
            seed=seed + n,
            rounds=2,
            every=(spread + 1) // 2,
            new_env=lambda number: before.crash(seed=number),  # noqa: B023
        )


@pytest.mark.promise(11)
def test_promise_11_an_io_error_at_every_call(seed: int, spread: int) -> None:
    """Nothing is committed after it; opened again, all is as acknowledged."""
    sound = SimEnv(seed)
    Workload(seed, steps=50, beside=0.0, **MUCH)(sound, Oracle())
    for number in range(1 + seed % spread, sound.calls.last_number + 1, 2 * spread):
        env, oracle = SimEnv(seed), Oracle()
        env.fail_at(number)
        with contextlib.suppress(OSError, StoreFailed):
            Workload(seed, steps=50, beside=0.0, **MUCH)(env, oracle)
        check_store(env.crash(seed=number), oracle, seed=number)
        if oracle.created:
            check_store(env.kill(), oracle, seed=number)


@pytest.mark.promise(5)
def test_promise_5_a_full_disk(seed: int, rounds: int) -> None:
    """With the disk full every now and then: refused as a whole, and later all goes on."""
    refused = 0
    for n in range(rounds * 2):
        env, oracle = SimEnv(seed + n), Oracle()
        workload = Workload(seed + n, steps=60, full=0.2, beside=0.2, **MUCH)
        workload(env, oracle)
        assert workload.runner is not None
        refused += workload.runner.refused
        store = open_store(env)
        model = oracle.match(store)
        check_ids(store, oracle)
        check_space(store, model)
        drain(store, model)
        store.close()
    assert refused > 10


# Canaries -----------------------------------------------------------------------------------------


def several(seed: int) -> None:
    """A few workloads, each crashed at some of its calls."""
    for n in range(20):
        crash_everywhere(seed + n, every=40, rounds=0)


def caught(seed: int) -> None:
    """The checks find what is broken."""
    with pytest.raises((AssertionError, StoreCorrupt, TransactionNotFound)):
        several(seed)


def test_nothing_is_caught_where_nothing_is_broken(seed: int) -> None:
    """What the canaries run passes as it is."""
    several(seed)


def test_canary_delivers_what_is_in_flight(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery after which others get what a prepared transaction has got."""
    resume = Subscription.resume

    def all_of_it(self: Subscription, in_flight: list[tuple[int, int]]) -> None:
        resume(self, [])

    monkeypatch.setattr(Subscription, "resume", all_of_it)
    caught(seed)


def test_canary_checkpoints_without_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that forgets the prepared transactions."""
    document = snapshot.Snapshot.document

    def without(self: snapshot.Snapshot, numbers: Any) -> dict[str, Any]:
        return {**document(self, numbers), "prepared": []}

    monkeypatch.setattr(snapshot.Snapshot, "document", without)
    caught(seed)


def test_canary_keeps_the_space(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback that keeps the queues' space."""
    monkeypatch.setattr(
        "quire.engine.queues.reservation.Space.rollback_prepared",
        lambda self, charge, messages: self.keep_prepared(-charge, -messages, -1),
    )
    caught(seed)
