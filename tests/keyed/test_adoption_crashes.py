"""Runs that tasks write, over power failures and errors of the disk, at every call until they are
adopted, and at the adoption.
"""

from __future__ import annotations

from random import Random

import pytest

import quire
from quire import keyed
from quire.keyed.fragment_files import SeenFragments
from quire.keyed.state_look import _open_runs
from quire.ltds import LtdsWriter
from quire.ltds.writer import LtdsInfo
from quire.testing import SimEnv, enumerate_crashes
from tests.keyed.conftest import SMALL
from tests.keyed.test_keyed_crashes import (
    BATCHES,
    PATH,
    check,
    check_every_crash,
    due_at,
    keys_of_batch,
    timers_of_batch,
)
from tests.keyed.test_keyed_crashes import opened as state_of

TASKS = 2

pytestmark = pytest.mark.usefixtures("small_ranges")


def work(env: SimEnv, acknowledged: list[str]) -> None:
    """Batches, each by two tasks with a commit that adopts what they wrote; and merges."""
    with quire.open(PATH, env=env, background=False, **SMALL) as store:
        store.create_queue("in")
        store.create_queue("out")
        store.create_queue("fired")
        store.put_many("in", [b"%d" % number for number in range(BATCHES)])
        state = state_of(store, env)
        acknowledged.append("opened")
        for number in range(BATCHES):
            batch(store, env, state, number)
            acknowledged.append(str(number))
            if number == 3:
                store.admin.checkpoint()
        state.merge()


def batch(store: quire.Store, env: SimEnv, state: keyed.KeyedState, number: int) -> None:
    """One batch, as those of `test_keyed_crashes` are."""
    look, files = state.look(), SeenFragments(env, f"{PATH}/ltds")
    _open_runs.cache_clear()
    mark = look.due_mark(files, due_at(number))
    first, *others = dict.fromkeys(keys_of_batch(number))
    timers = dict(zip(others, timers_of_batch(number, len(others)), strict=True))
    note = bytes([number]) * (60 + number)
    due: list[str] = []
    written: list[keyed.WrittenRun] = []
    for task in range(TASKS):
        keys = [first, *others]
        inside = look.range_numbers(keys, TASKS).tolist()
        own = [key for key, its in zip(keys, inside, strict=True) if its == task]
        found = look.rows_of(files, own).to_pylist()
        before = {row["customer"]: row["batches"] for row in found}
        rows = [
            {"customer": key, "batches": before.get(key, 0) + 1, "note": note}
            for key in own
            if key != first
        ]
        if mark is not None:
            due += look.due_rows(files, mark, task, TASKS).rows.column("customer").to_pylist()
        times = [timers[row["customer"]] for row in rows]
        gone = [first] if first in own else ()
        run = look.write(files, rows, gone, task, TASKS, timers=times, env=env)
        written += [] if run is None else [run]
    with store.transaction() as txn:
        message = txn.get("in")
        assert message is not None
        assert int(message.payload) == number
        state.adopt(txn, look, written, mark)
        if due:
            txn.put("fired", " ".join(sorted(due)).encode())
        txn.put("out", message.payload)
    state.end_look(look)


@pytest.mark.crash
@pytest.mark.promise(1, 2)
def test_adoptions_are_whole_after_a_power_failure_at_each_call(rng: Random) -> None:
    """Rows of all tasks, positions and messages of a batch are there together, or none (KL2)."""
    seed = rng.randrange(1 << 32)
    assert enumerate_crashes(work, check, list, seed=seed, rounds=1, every=11) > 20


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.promise(1, 2)
def test_adoptions_are_whole_after_every_crash(rng: Random) -> None:
    """The same at each call, and while another process goes on, in blocks, after an error (KL2)."""
    check_every_crash(work, rng)


@pytest.mark.crash
def test_a_run_that_is_adopted_before_it_is_durable_is_noticed(
    rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is one: it finds files whose names are not synced before a commit names them."""
    finish = LtdsWriter.finish

    def without_sync(self: LtdsWriter, *, sync_name: bool = True) -> LtdsInfo:
        return finish(self, sync_name=False)

    monkeypatch.setattr(LtdsWriter, "finish", without_sync)
    with pytest.raises((AssertionError, quire.StoreCorrupt)):
        enumerate_crashes(work, check, list, seed=rng.randrange(1 << 32), rounds=0)
