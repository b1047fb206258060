"""Tasks: what they read of a look, and write for it, and the commit that adopts it."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import quire
from quire import keyed
from quire.errors import InvalidArgument, PositionLost, StateConflict, StoreCorrupt
from quire.keyed.fragment_files import SeenFragments
from quire.keyed.hash_ranges import range_numbers, range_of
from quire.keyed.run_merge import deepest
from quire.keyed.state_look import _open_runs
from quire.ltds import list_ids, path_of
from quire.testing import SimEnv
from tests.keyed.conftest import PATH
from tests.kit.limits import Limits

SCHEMA = "shop int, name string, total bigint"
Model = dict[tuple[int, str], int]
DIRECTORY = f"{PATH}/ltds"


@pytest.fixture
def state(store: quire.Store, env: SimEnv) -> keyed.KeyedState:
    """A state of totals."""
    return keyed.open_state(store, "totals", ["shop", "name"], SCHEMA, env=env)


@pytest.fixture
def files(env: SimEnv) -> SeenFragments:
    """The files as a task sees them."""
    return SeenFragments(env, DIRECTORY)


def table(keys: Iterable[tuple[int, str]]) -> pa.RecordBatch:
    """Keys, their columns."""
    schema = pa.schema([("shop", pa.int32()), ("name", pa.string())])
    return pa.RecordBatch.from_pylist([{"shop": s, "name": n} for s, n in keys], schema=schema)


def rows_of(model: Model) -> list[dict[str, Any]]:
    """Rows."""
    return [{"shop": s, "name": n, "total": t} for (s, n), t in model.items()]


def plain(batches: Iterable[pa.RecordBatch]) -> Model:
    """Rows, each key once."""
    found = [row for batch in batches for row in batch.to_pylist()]
    model = {(row["shop"], row["name"]): row["total"] for row in found}
    assert len(model) == len(found)
    return model


def tasks(
    look: keyed.StateLook, files: SeenFragments, env: SimEnv, changes: dict[Any, int | None],
    before: Model, count: int,
) -> list[keyed.WrittenRun]:  # fmt: skip
    """Do what tasks do, each with the keys of its range, in its own process as far as pickle."""
    keys = list(changes)
    numbers = look.range_numbers(table(keys), count)
    written = []
    for number in range(count):
        own = [key for key, its in zip(keys, numbers.tolist(), strict=True) if its == number]
        of_task = pickle.loads(pickle.dumps(look))
        _open_runs.cache_clear()
        found = plain([of_task.rows_of(files, table(own))])
        assert found == {key: before[key] for key in own if key in before}
        put = {key: total for key in own if (total := changes[key]) is not None}
        gone = table(key for key in own if changes[key] is None)
        run = of_task.write(files, rows_of(put), gone, number, count, env=env)
        assert (run is None) == (not own)
        if run is not None:
            written.append(pickle.loads(pickle.dumps(run)))
    return written


def test_what_tasks_write_is_one_commit(
    rng: Random, store: quire.Store, env: SimEnv, state: keyed.KeyedState, files: SeenFragments,
    small_runs: None,
) -> None:  # fmt: skip
    """Tasks of various numbers, and changes of the driver between; a dict says what is there (KL1,
    KM3, MR2).
    """
    store.create_queue("out")
    model: Model = {}
    for number in range(40):
        keys = [(each % 3, f"n{each}") for each in rng.sample(range(120), rng.randrange(60))]
        changes = {key: rng.choice([None, rng.randrange(99)]) for key in keys}
        if rng.random() < 0.3:
            with store.transaction() as txn, state.within(txn) as rows:
                rows.put(rows_of({k: t for k, t in changes.items() if t is not None}))
                rows.delete(table(k for k, t in changes.items() if t is None))
        else:
            look = state.look()
            written = tasks(look, files, env, changes, model, rng.choice([1, 2, 3, 8]))
            with store.transaction() as txn:
                state.adopt(txn, look, written)
                txn.put("out", b"%d" % number)
            state.end_look(look)
        model = {k: t for k, t in (model | changes).items() if t is not None}
        assert plain(state.rows()) == model
        assert plain([state.get(table(keys))]) == {k: model[k] for k in keys if k in model}
        assert deepest(state.runs())[0] <= 3
        if rng.random() < 0.2:
            state.merge(all=rng.random() < 0.5)
        if rng.random() < 0.2:
            store.admin.checkpoint()
        look = state.look()
        parts = [list(look.rows_in(files, each, 5)) for each in range(5)]
        assert plain(batch for part in parts for batch in part) == model
        state.end_look(look)
    report = store.admin.verify()
    assert report.ok, report.findings


def test_a_state_that_has_changed_since_is_refused(
    store: quire.Store, env: SimEnv, state: keyed.KeyedState, files: SeenFragments,
    small_runs: None,
) -> None:  # fmt: skip
    """By the adoption, or by its commit; and what was written is part of nothing (KL2)."""
    look = state.look()
    rows = rows_of({(1, f"n{each}"): each for each in range(100)})
    run = look.write(files, rows, env=env)
    assert run is not None
    assert list_ids(env, DIRECTORY) == [run.file]
    txn = store.transaction()
    state.adopt(txn, look, [run])
    with store.transaction() as other, state.within(other) as changes:
        changes.put(rows_of({(2, "other"): 1}))
    with pytest.raises(StateConflict):
        txn.commit()
    txn.rollback()
    with pytest.raises(StateConflict, match="another look"), store.transaction() as txn:
        state.adopt(txn, look, [run])
    files.remove([run.file])
    assert plain(state.rows()) == {(2, "other"): 1}
    with pytest.raises(StateConflict), store.transaction() as txn:
        state.adopt(txn, look, [])
    look = state.look()
    with store.transaction() as txn:
        state.adopt(txn, look, [])
    assert state.look().version == look.version
    with store.transaction() as txn:
        own = look.write(files, rows, env=env)
        assert own is not None
        state.adopt(txn, look, [own])
        with pytest.raises(StateConflict):
            state.adopt(txn, look, [])
        with pytest.raises(StateConflict, match="changed twice"):
            state.within(txn)
    assert len(plain(state.rows())) == 101


def test_a_look_stays_while_merges_go_on(
    store: quire.Store, env: SimEnv, state: keyed.KeyedState, files: SeenFragments,
    small_runs: None,
) -> None:  # fmt: skip
    """As long as its lease does; after it a file that is gone is told, never taken for no rows."""
    expected = {(1, f"n{each}"): each for each in range(100)}
    with store.transaction() as txn, state.within(txn) as rows:
        rows.put(rows_of(expected))
    look = state.look()
    assert state.merge(all=True)
    with store.transaction() as txn, state.within(txn) as rows:
        rows.delete(table(expected))
    store.admin.checkpoint()
    _open_runs.cache_clear()
    assert plain([look.rows_of(files, table(expected))]) == expected
    assert plain(look.rows_in(files)) == expected
    with pytest.raises(StateConflict), store.transaction() as txn:
        state.adopt(txn, look, [])
    state.end_look(look)
    state.end_look(look)
    with pytest.raises(PositionLost):
        store.integration.renew_lease(look.lease_id)
    while look.manifest.runs[0].file in list_ids(env, DIRECTORY):  # it goes with a later commit
        env.advance(60)
        with store.transaction() as txn, state.within(txn) as rows:
            rows.put(rows_of({(7, "later"): 1}))
        store.admin.checkpoint()
    _open_runs.cache_clear()
    with pytest.raises(StoreCorrupt, match=f"{look.manifest.runs[0].name}.*look anew"):
        look.rows_of(files, table(expected))


def test_a_merge_is_in_no_looks_way(
    store: quire.Store, env: SimEnv, state: keyed.KeyedState, files: SeenFragments,
    small_runs: None,
) -> None:  # fmt: skip
    """A look from before it is adopted after it (KY3)."""
    for number in range(2):
        with store.transaction() as txn, state.within(txn) as rows:
            rows.put(rows_of({(number, f"n{each}"): each for each in range(50)}))
    look = state.look()
    assert state.merge(all=True)
    run = look.write(files, rows_of({(0, "n1"): -1}), env=env)
    with store.transaction() as txn:
        assert run is not None
        state.adopt(txn, look, [run])
    assert plain(state.rows())[(0, "n1")] == -1


def test_rows_expire_by_the_looks_time(
    store: quire.Store, env: SimEnv, files: SeenFragments
) -> None:
    """A task that runs again sees what it saw; what it writes lives from the look on (KL1)."""
    state = keyed.open_state(store, "seen", "name", "name string, size bigint", ttl=60, env=env)
    look = state.look()
    rows = [{"name": name, "size": 1} for name in "abc"]
    times = pa.array([look.now_us + 10_000_000, None, (1 << 63) - 1], pa.int64())
    run = look.write(files, rows, expires_us=times, env=env)
    with store.transaction() as txn:
        assert run is not None
        state.adopt(txn, look, [run])
    look = state.look()
    for seconds, names in [(0, "abc"), (20, "bc"), (50, "c"), (1e9, "c")]:
        env.advance(seconds)
        assert state.get(list("abc")).column("name").to_pylist() == list(names)
        assert look.rows_of(files, list("abc")).num_rows == 3


def test_ranges_have_each_key_once(rng: Random, limits: Limits) -> None:
    """Whatever their number is; beyond it, and of keys of another range, nothing is written."""
    hashes = np.array([0, (1 << 64) - 1, *(rng.randrange(1 << 64) for _ in range(500))], np.uint64)
    for count in (1, 2, 3, 7, 8, 200, 1024):
        numbers = range_numbers(hashes, count).tolist()
        ranges = [range_of(number, count) for number in range(count)]
        assert ranges[0][0] == 0
        assert ranges[-1][1] == (1 << 64) - 1
        assert all(after[0] == own[1] + 1 for own, after in pairwise(ranges))
        for number, value in zip(numbers, hashes.tolist(), strict=True):
            assert ranges[number][0] <= value <= ranges[number][1]
    for number, count in ((0, 0), (0, 1025), (-1, 4), (4, 4)):
        with pytest.raises(InvalidArgument):
            range_of(number, count)


def test_what_tasks_may_not_write_is_told(
    store: quire.Store, env: SimEnv, state: keyed.KeyedState, files: SeenFragments
) -> None:
    """Keys of another range, two runs of one range, times for other rows."""
    look = state.look()
    keys = [(1, f"n{each}") for each in range(20)]
    rows = rows_of(dict.fromkeys(keys, 1))
    with pytest.raises(InvalidArgument, match="share them by range_numbers"):
        look.write(files, rows, number=1, count=4, env=env)
    with pytest.raises(InvalidArgument, match="give one for each"):
        look.write(files, rows, expires_us=pa.array([1]), env=env)
    with pytest.raises(InvalidArgument, match="give one for each"):
        look.write(files, deletes=table(keys), expires_us=pa.array([1]), env=env)
    runs = [look.write(files, rows, env=env) for _ in range(2)]
    with pytest.raises(InvalidArgument, match="one attempt"), store.transaction() as txn:
        state.adopt(txn, look, [run for run in runs if run is not None])
    assert look.write(files, env=env) is None
    assert state.runs() == ()


def test_a_damaged_run_is_named_by_a_task(
    store: quire.Store, env: SimEnv, state: keyed.KeyedState, files: SeenFragments,
    small_runs: None,
) -> None:  # fmt: skip
    """And nothing is read of it (KY2); one that is damaged before its commit is not adopted."""
    keys = [(1, f"n{each}") for each in range(100)]
    look = state.look()
    run = look.write(files, rows_of(dict.fromkeys(keys, 1)), env=env)
    assert run is not None
    with store.transaction() as txn:
        state.adopt(txn, look, [run])
    look = state.look()
    env.corrupt(path_of(DIRECTORY, run.file), 4096, b"\xff" * 600)
    _open_runs.cache_clear()
    for use in (lambda: look.rows_of(files, table(keys)), lambda: list(look.rows_in(files))):
        with pytest.raises(StoreCorrupt, match=f"run {run.name}.*{run.file:016x}"):
            use()
    other = look.write(files, rows_of(dict.fromkeys(keys, 2)), env=env)
    assert other is not None
    files.remove([other.file])
    with pytest.raises(StoreCorrupt, match=f"{other.file:016x}"), store.transaction() as txn:
        state.adopt(txn, look, [other])
