"""Which runs are merged, in which ranges: of plans alone, and of a state of several ranges."""

from __future__ import annotations

from random import Random

import pytest

import quire
from quire import keyed
from quire.keyed.format import LAST_HASH
from quire.keyed.hash_ranges import range_of
from quire.keyed.manifest import RunEntry, _check_order
from quire.keyed.run_merge import DueMerge, deepest, density_of, due_merge, merge_at
from quire.ltds import list_ids
from quire.testing import SimEnv
from tests.keyed.conftest import PATH
from tests.kit.limits import Limits


def entry(run_id: int, low: int, high: int, size: int, hashes: tuple[int, int]) -> RunEntry:
    """A run of the manifest."""
    return RunEntry(run_id, low, high, run_id, size, 0, 0, size, *hashes, size)


def ordered(runs: list[RunEntry]) -> list[RunEntry]:
    """The newest first, as a manifest has them, which it checks."""
    found = sorted(runs, key=lambda run: (-run.high, run.first))
    _check_order("it", found)
    return found


def versions_at(runs: list[RunEntry], place: int) -> set[tuple[int, int]]:
    """The versions of runs that a hash is in."""
    return {(run.low, run.high) for run in runs if run.first <= place <= run.last}


def merged(runs: list[RunEntry], merge: DueMerge, new_id: int) -> list[RunEntry]:
    """The runs after a merge."""
    first, last = merge.hashes
    kept = [run for run in runs if run not in merge.runs]
    rests = [run.within(*side) for run in merge.runs for side in merge.outside(run)]
    inside = [run.within(max(first, run.first), min(last, run.last)) for run in merge.runs]
    low, high = min(run.low for run in merge.runs), max(run.high for run in merge.runs)
    made = entry(new_id, low, high, sum(run.kept for run in inside), merge.hashes)
    return ordered([*kept, *rests, made])


def test_merges_keep_the_order_of_versions(rng: Random, limits: Limits) -> None:
    """Whatever runs there are: of each hash all newer versions come together, the sizes stay small,
    and a look goes through few runs in the end (MR2, MR3, KM3).
    """
    limits(RANGE_BYTES=4000)
    for _ in range(20):
        runs: list[RunEntry] = []
        places = [0, LAST_HASH, *(rng.randrange(LAST_HASH) for _ in range(30))]
        for version in range(1, 60):
            count = rng.choice([1, 1, 2, 3, 8])
            size = rng.choice([10, 200, 3000])
            some = [n for n in range(count) if rng.random() < 0.9]
            new = [
                entry(version << 8 | n, version, version, size, range_of(n, count)) for n in some
            ]
            runs = ordered([*new, *runs])
            small, rounds = rng.random() < 0.3, 0
            while (merge := due_merge(runs, 4, small=small)) is not None:
                first, last = merge.hashes
                newest = max(run.high for run in merge.runs)
                oldest = min(run.low for run in merge.runs)
                for run in runs:
                    if run.first <= last and first <= run.last and run not in merge.runs:
                        assert run.high < oldest
                        assert not merge.is_oldest
                before = {place: versions_at(runs, place) for place in places}
                rounds += 1
                runs = merged(runs, merge, rounds << 32 | version)
                for place, its in before.items():
                    now = versions_at(runs, place)
                    if first <= place <= last:
                        assert {each for each in its if each[1] < oldest} == now - {
                            (oldest, newest)
                        }
                    else:
                        assert now == its
                small = small and rng.random() < 0.9
                assert rounds < 1000
            assert deepest(runs)[0] < 4 or small
        place, density = 0, density_of(runs)
        while place <= LAST_HASH:
            found, after = merge_at(runs, place, density)
            if found is not None:
                assert found.is_oldest
                runs = merged(runs, found, after)
            place = after
        assert deepest(runs)[0] == 1


@pytest.fixture
def state(store: quire.Store, env: SimEnv, small_ranges: None) -> keyed.KeyedState:
    """A state of numbers."""
    return keyed.open_state(store, "n", "key", "key int, text string", env=env)


def put(store: quire.Store, state: keyed.KeyedState, keys: range, text: str) -> None:
    """Put rows with one transaction."""
    with store.transaction() as txn, state.within(txn) as rows:
        rows.put([{"key": key, "text": text * 20} for key in keys])


def found(state: keyed.KeyedState) -> dict[int, str]:
    """All rows."""
    return {row["key"]: row["text"][0] for b in state.rows() for row in b.to_pylist()}


def test_a_large_run_is_merged_range_by_range(
    store: quire.Store, env: SimEnv, state: keyed.KeyedState
) -> None:
    """Each call merges one of them, and rows are there meanwhile; the file stays as long as a part
    of it counts (MR3).
    """
    put(store, state, range(300), "a")
    put(store, state, range(100, 400), "b")
    before = [run.file for run in state.runs()]
    expected = dict.fromkeys(range(100), "a") | dict.fromkeys(range(100, 400), "b")
    calls, files = 0, set[int]()
    while state.merge():
        calls += 1
        assert found(state) == expected
        assert {row["text"][0] for row in state.get([5, 150, 399]).to_pylist()} == {"a", "b"}
        files = {run.file for run in state.runs()}
        assert set(before) <= files or deepest(state.runs())[0] == 1
    assert calls > 4
    assert not files & set(before)
    assert found(state) == expected
    while set(before) & set(list_ids(env, f"{PATH}/ltds")):
        put(store, state, range(400, 401), "c")
        env.advance(60)
        store.admin.checkpoint()
    report = store.admin.verify()
    assert report.ok, report.findings


def test_a_change_waits_for_a_part_of_a_large_merge_only(
    store: quire.Store, env: SimEnv, state: keyed.KeyedState, limits: Limits
) -> None:
    """Where all ranges are due, a change merges one, and small runs; others are left (MR2)."""
    limits(MERGE_RATIO=1000)
    for number in range(12):
        put(store, state, range(0, 400, 1 + number % 2), str(number % 10))
        assert deepest(state.runs())[0] <= 6
    assert found(state) == {key: str((11 if key % 2 == 0 else 10) % 10) for key in range(400)}


def test_who_merges_is_alone(
    store: quire.Store, env: SimEnv, state: keyed.KeyedState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others go on without a merge, as long as there are not too many runs."""
    lease = store.integration.lease_names(["quire.keyed.n/merge"])
    for number in range(6):
        put(store, state, range(50), str(number))
    assert deepest(state.runs())[0] == 6
    assert not state.merge()
    monkeypatch.setattr(env, "sleep", lambda _: store.integration.end_lease(lease))
    with store.transaction() as txn:
        state.within(txn)  # which waits for the other one's end
    assert deepest(state.runs())[0] < 6
    assert set(found(state).values()) == {"5"}


def test_a_state_tells_its_size_and_what_was_written(
    store: quire.Store, env: SimEnv, state: keyed.KeyedState
) -> None:
    """By changes and by merges, whoever has made them."""
    assert state.status() == keyed.KeyedStatus("n", state.status().version, 0, 0, 0, 0, 0, 0)
    put(store, state, range(200), "a")
    once = state.status()
    assert (once.rows, once.runs, once.depth, once.merged_bytes) == (200, 1, 1, 0)
    assert once.put_bytes == once.size_bytes == state.runs()[0].size
    assert once.write_amplification == 1.0
    put(store, state, range(200), "b")
    assert state.status().rows == 400
    assert state.status().put_bytes == 2 * once.put_bytes
    assert state.merge(all=True)
    after = state.status()
    assert (after.rows, after.depth, after.version) == (200, 1, once.version + 1)
    assert after.merged_bytes == after.size_bytes == sum(run.size for run in state.runs())
    assert 1.4 < after.write_amplification < 1.7
