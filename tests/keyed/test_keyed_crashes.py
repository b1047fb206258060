"""A keyed state over power failures and errors of the disk, at every call of changes and merges."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import quire
from quire import keyed
from quire.keyed.run_merge import deepest
from quire.ltds import LtdsWriter
from quire.ltds.writer import LtdsInfo
from quire.testing import SimEnv, enumerate_crashes
from tests.keyed.state_digest import Row, rows_held

PATH = "/store"
SMALL: dict[str, Any] = {"segment_bytes": 64 << 10, "grow_bytes": 64 << 10}
BATCHES = 7
SCHEMA = "customer string, batches bigint, note binary"

pytestmark = pytest.mark.usefixtures("small_runs")


def keys_of_batch(number: int) -> list[str]:
    """The keys of a batch: some of them are in each, others come again."""
    return [f"c{(number * 7 + each * each) % 29}" for each in range(9)]


def timers_of_batch(number: int, count: int) -> list[int | None]:
    """The timers of the rows that a batch puts: every third row has none."""
    return [10 * number + each if each % 3 else None for each in range(count)]


def due_at(number: int) -> int:
    """Up to when a batch fires timers: some of the last one's rows stay."""
    return 10 * number - 5


def rows_after(batches: int) -> list[Row]:
    """All rows once so many batches were committed, with their timers."""
    return _outcome(batches)[0]


def fired_by(batches: int) -> list[bytes]:
    """The message of each batch that fired timers: the keys of its rows."""
    return _outcome(batches)[1]


def _outcome(batches: int) -> tuple[list[Row], list[bytes]]:
    rows: dict[str, tuple[int, bytes, int | None]] = {}
    fired: list[bytes] = []
    for number in range(batches):
        due = [key for key, row in rows.items() if row[2] is not None and row[2] <= due_at(number)]
        if due:
            fired.append(" ".join(sorted(due)).encode())
        for key in due:
            rows[key] = *rows[key][:2], None
        first, *others = dict.fromkeys(keys_of_batch(number))
        for key, timer in zip(others, timers_of_batch(number, len(others)), strict=True):
            rows[key] = rows.get(key, (0,))[0] + 1, bytes([number % 256]) * (60 + number), timer
        rows.pop(first, None)
    return [(key, *row) for key, row in rows.items()], fired


def shown(store: quire.Store, state: keyed.KeyedState) -> list[Row]:
    """All rows of the state, with their timers."""
    return sorted(rows_held(store, state))


def opened(store: quire.Store, env: SimEnv) -> keyed.KeyedState:
    """The state of all these tests."""
    return keyed.open_state(store, "totals", "customer", SCHEMA, env=env)


def work(env: SimEnv, acknowledged: list[str]) -> None:
    """Batches, each one commit: a message, timers that fire, rows, what is put. Then a merge."""
    with quire.open(PATH, env=env, background=False, **SMALL) as store:
        store.create_queue("in")
        store.create_queue("out")
        store.create_queue("fired")
        store.put_many("in", [b"%d" % number for number in range(BATCHES)])
        state = opened(store, env)
        acknowledged.append("opened")
        go_on(store, state, acknowledged)
        state.merge(all=True)


def go_on(store: quire.Store, state: keyed.KeyedState, acknowledged: list[str]) -> None:
    """The batches that are left."""
    while True:
        with store.transaction() as txn, state.within(txn) as rows:
            message = txn.get("in")
            if message is None:
                return
            number = int(message.payload)
            due = rows.due(due_at(number)).rows.column("customer").to_pylist()
            if due:
                txn.put("fired", " ".join(sorted(due)).encode())
            first, *others = dict.fromkeys(keys_of_batch(number))
            before = {row["customer"]: row["batches"] for row in rows.get(others).to_pylist()}
            note = bytes([number % 256]) * (60 + number)
            news = [
                {"customer": key, "batches": before.get(key, 0) + 1, "note": note} for key in others
            ]
            rows.put(news, timers=timers_of_batch(number, len(news)))
            rows.delete([first])
            txn.put("out", message.payload)
        acknowledged.append(str(number))
        if number == 3:
            store.admin.checkpoint()


def look(env: SimEnv, acknowledged: list[str]) -> int:
    """All or nothing of each batch, and all that was acknowledged."""
    with quire.open(PATH, env=env, background=False, **SMALL) as store:
        if not acknowledged:
            return 0
        state = opened(store, env)
        done = store.browse("out").payloads()
        assert done == [b"%d" % number for number in range(len(done))]
        assert len(done) >= len(acknowledged) - 1
        assert store.browse("in").payloads() == [b"%d" % n for n in range(len(done), BATCHES)]
        assert shown(store, state) == sorted(rows_after(len(done)))
        assert store.browse("fired").payloads() == fired_by(len(done))
        assert deepest(state.runs())[0] <= 6
        report = store.admin.verify()
        assert report.ok, report.findings
        return len(done)


def check(env: SimEnv, acknowledged: list[str]) -> None:
    """What recovery has shown stays."""
    done = look(env, acknowledged)
    again = env.crash(outcome="lost")
    assert look(again, acknowledged) == done


def resume(env: SimEnv, acknowledged: list[str]) -> None:
    """Another process goes on."""
    with quire.open(PATH, env=env, background=False, **SMALL) as store:
        if acknowledged:
            go_on(store, opened(store, env), acknowledged)


def check_every_crash(workload: Callable[[SimEnv, list[str]], None], rng: Random) -> None:
    """Have the power fail, and the disk, in each call; and in those of who goes on after that."""
    seed = rng.randrange(1 << 32)
    assert enumerate_crashes(workload, check, list, seed=seed, rounds=2, resume=resume) > 1000


@pytest.mark.crash
@pytest.mark.promise(1, 2)
def test_batches_are_whole_after_a_power_failure_at_each_call(rng: Random) -> None:
    """Rows, positions and messages of a batch are there together, also amid a merge (KY1, KY3)."""
    seed = rng.randrange(1 << 32)
    assert enumerate_crashes(work, check, list, seed=seed, rounds=1, every=11) > 20


@pytest.mark.crash
@pytest.mark.promise(1, 2)
def test_merges_by_range_are_whole_after_a_power_failure(rng: Random, small_ranges: None) -> None:
    """Some ranges of a run are merged, others are not: each row is there once (MR3, KY3)."""
    seed = rng.randrange(1 << 32)
    assert enumerate_crashes(work, check, list, seed=seed, rounds=1, every=11) > 20


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.promise(1, 2)
def test_batches_are_whole_after_every_crash(rng: Random) -> None:
    """The same at each call, and while another process goes on after an error (KY1, KY3)."""
    check_every_crash(work, rng)


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.promise(1, 2)
def test_merges_by_range_are_whole_after_every_crash(rng: Random, small_ranges: None) -> None:
    """The same with merges of ranges (MR3, KY3)."""
    check_every_crash(work, rng)


@pytest.mark.crash
def test_a_run_that_is_named_before_it_is_durable_is_noticed(
    rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is one: it finds files whose names are not synced before a commit names them."""
    finish = LtdsWriter.finish

    def without_sync(self: LtdsWriter, *, sync_name: bool = True) -> LtdsInfo:
        return finish(self, sync_name=False)

    monkeypatch.setattr(LtdsWriter, "finish", without_sync)
    with pytest.raises((AssertionError, quire.StoreCorrupt)):
        enumerate_crashes(work, check, list, seed=rng.randrange(1 << 32), rounds=0)
