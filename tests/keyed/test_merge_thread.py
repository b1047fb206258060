"""Merges beside: a thread merges states, while transactions change them and find nothing to do."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import quire
from quire import keyed
from quire.errors import InvalidArgument
from quire.keyed import keyed_merges
from quire.keyed.keyed_merges import KeyedMerges
from quire.keyed.run_merge import deepest, merged_rows
from quire.ltds import list_ids, path_of
from tests.keyed.conftest import SMALL_RUNS
from tests.kit.limits import Limits
from tests.kit.waiting import eventually

SCHEMA = "id bigint, size bigint"
NEW_KEYS = 90  # of a batch: its run is a file


@pytest.fixture
def own_store(tmp_path: Path) -> Iterator[quire.Store]:
    """A store of this machine: a thread waits in it."""
    with quire.open(tmp_path / "store") as store:
        yield store


def opened(store: quire.Store, name: str = "sizes") -> keyed.KeyedState:
    """A state of numbers by number."""
    return keyed.open_state(store, name, "id", SCHEMA)


def put(store: quire.Store, state: keyed.KeyedState, sizes: dict[int, int]) -> None:
    """Put rows with one transaction."""
    with store.transaction() as txn, state.within(txn) as rows:
        rows.put([{"id": key, "size": size} for key, size in sizes.items()])


def batch(number: int) -> dict[int, int]:
    """Rows of which half are of keys that the batch before has, too."""
    start = number * NEW_KEYS // 2
    return dict.fromkeys(range(start, start + NEW_KEYS), number)


def shown(state: keyed.KeyedState) -> dict[int, int]:
    """All its rows."""
    return {row["id"]: row["size"] for part in state.rows() for row in part.to_pylist()}


class MergeCalls:
    """The merges that were tried, by the threads that did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[str] = []
        self.looks = self.waits = 0
        real, look = KeyedMerges._merge, KeyedMerges.merge_ahead
        wait = keyed.KeyedState.when_changed

        def merge(own: KeyedMerges, *given: Any) -> None:
            self.threads.append(threading.current_thread().name)
            real(own, *given)

        def merge_ahead(own: KeyedMerges, *given: Any) -> bool:
            self.looks += 1
            found: bool = look(own, *given)
            return found

        def when_changed(own: keyed.KeyedState, *given: Any) -> Any:
            found = wait(own, *given)
            self.waits += 1
            return found

        monkeypatch.setattr(keyed.KeyedState, "when_changed", when_changed)
        monkeypatch.setattr(KeyedMerges, "_merge", merge)
        monkeypatch.setattr(KeyedMerges, "merge_ahead", merge_ahead)


def is_merged(state: keyed.KeyedState) -> bool:
    """True if there is nothing to merge."""
    return bool(deepest(state.runs())[0] < SMALL_RUNS["AHEAD_RUNS"])


def test_transactions_find_nothing_to_merge(
    own_store: quire.Store, small_runs: None, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is merged in the thread, of two states, and the rows are those that were put (KMT1)."""
    limits(RANGE_BYTES=20_000)
    calls = MergeCalls(monkeypatch)
    states = [opened(own_store), opened(own_store, "others")]
    models: list[dict[int, int]] = [{}, {}]
    with keyed.merging(*states) as thread:
        for number in range(8):
            for state, model in zip(states, models, strict=True):
                put(own_store, state, batch(number))
                model |= batch(number)
            eventually(lambda: all(map(is_merged, states)))
        assert thread.errors == {}
    assert set(calls.threads) == {"quire-merging"}
    for state, model in zip(states, models, strict=True):
        assert shown(state) == model
        assert state.verify() == []


def test_the_thread_sleeps_until_there_is_a_change(
    own_store: quire.Store, small_runs: None, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks once at the start, once after each change, and once more after each merge."""
    limits(AHEAD_RUNS=4, MAX_RUNS=9)
    calls, state = MergeCalls(monkeypatch), opened(own_store)
    with keyed.merging(state):
        for number in range(4):
            eventually(lambda: calls.waits == number + 1)  # noqa: B023
            put(own_store, state, batch(number))
        eventually(lambda: calls.waits == 5)
        assert len(state.runs()) == 1
        assert (calls.looks, calls.threads) == (6, ["quire-merging"])


def test_what_goes_wrong_is_told_once_and_tried_again(
    own_store: quire.Store,
    small_runs: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A damaged run of one state: the other is merged; so is it once it is whole again (KMT2)."""
    monkeypatch.setattr("quire.keyed.merge_thread.MERGE_RETRY_SECONDS", (0.01,))
    caplog.set_level(logging.WARNING, "quire.keyed")
    bad, good = opened(own_store, "bad"), opened(own_store, "good")
    put(own_store, bad, batch(0))
    [run] = bad.runs()
    file = Path(path_of(f"{own_store.path}/ltds", run.file))
    whole = file.read_bytes()
    middle = 4096 + run.size // 3
    calls = MergeCalls(monkeypatch)
    with keyed.merging(bad, good) as thread:
        eventually(lambda: calls.looks == 2)
        _overwrite(file, whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
        put(own_store, bad, batch(1))
        eventually(lambda: len(calls.threads) > 3)  # it is tried again and again
        assert "bad" in thread.errors
        assert run.name in thread.errors["bad"]
        for number in range(3):
            put(own_store, good, batch(number))
            eventually(lambda: is_merged(good))
        assert list(thread.errors) == ["bad"]
        _overwrite(file, whole)
        eventually(lambda: is_merged(bad))
        eventually(lambda: not thread.errors)
    assert [record.args[0] for record in caplog.records if record.args] == ["bad"]  # type: ignore[index]
    assert shown(bad) == batch(0) | batch(1)


def _overwrite(file: Path, data: bytes) -> None:
    with file.open("r+b") as opened_file:  # the same file, which others have open
        opened_file.write(data)


def test_a_merge_that_is_given_up_has_changed_nothing(
    own_store: quire.Store, small_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is told to end in the midst of a merge: no file, lease or transaction is left."""
    state = opened(own_store)
    for number in range(2):
        put(own_store, state, batch(number))
    before, files = state.runs(), list_ids(quire.env.OsEnv(), f"{own_store.path}/ltds")
    begun, told = threading.Event(), threading.Event()

    def slow(*given: Any) -> Any:
        for rows in merged_rows(*given):
            begun.set()
            assert told.wait(300)
            yield rows

    monkeypatch.setattr(keyed_merges, "merged_rows", slow)
    thread = keyed.merging(state)
    thread.start()
    assert begun.wait(300)
    assert not thread.stop(0.0)
    told.set()
    assert thread.stop()
    assert state.runs() == before
    assert list_ids(quire.env.OsEnv(), f"{own_store.path}/ltds") == files
    assert own_store.queue("quire.keyed.sizes").open_transactions == 0
    monkeypatch.undo()
    while state.merge():  # nobody holds its name
        pass
    assert shown(state) == batch(0) | batch(1)


def test_another_one_that_merges_is_not_disturbed(
    own_store: quire.Store, small_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While somebody else holds the merges the thread looks once after each change, no more."""
    calls, state = MergeCalls(monkeypatch), opened(own_store)
    lease_id = own_store.integration.lease_names(["quire.keyed.sizes/merge"])
    put(own_store, state, batch(0))
    put(own_store, state, batch(1))
    with keyed.merging(state) as thread:
        eventually(lambda: calls.waits == 1)
        put(own_store, state, batch(2))
        eventually(lambda: calls.waits == 2)
        assert (calls.looks, calls.threads, thread.errors) == (2, [], {})
        own_store.integration.end_lease(lease_id)
        put(own_store, state, batch(3))
        eventually(lambda: is_merged(state))
    assert shown(state) == batch(0) | batch(1) | batch(2) | batch(3)


def test_a_transaction_that_clears_the_state_is_waited_for(
    own_store: quire.Store, small_runs: None, limits: Limits
) -> None:
    """It has the runs until it ends: the thread can be stopped meanwhile, and goes on after it."""
    limits(GIVE_UP_WAIT_SECONDS=0.02)
    state, other = opened(own_store), opened(own_store, "other")
    for number in range(2):
        put(own_store, state, batch(number))
    txn = own_store.transaction()
    state.clear(txn)
    with keyed.merging(state, other):
        for number in range(3):
            put(own_store, other, batch(number))
            eventually(lambda: is_merged(other))
        assert not is_merged(state)
    with keyed.merging(state):
        txn.rollback()
        eventually(lambda: is_merged(state))
    assert shown(state) == batch(0) | batch(1)


def test_a_child_that_was_forked_has_no_thread(own_store: quire.Store, small_runs: None) -> None:
    """It leaves the block at once; the parent's thread goes on."""
    state = opened(own_store)
    with keyed.merging(state) as thread:
        child = os.fork()
        if not child:
            os._exit(0 if thread.stop() else 1)
        assert os.waitpid(child, 0)[1] == 0
        for number in range(3):
            put(own_store, state, batch(number))
        eventually(lambda: is_merged(state))


def test_what_is_no_state_is_refused() -> None:
    """A name is none."""
    with pytest.raises(InvalidArgument, match=r"give what keyed\.open_state returns"):
        keyed.merging("sizes")  # type: ignore[arg-type]
    with keyed.merging() as thread:  # none at all: there is no thread
        assert thread.errors == {}


def test_changes_of_several_threads_while_it_merges(
    own_store: quire.Store, small_runs: None, rng: Random
) -> None:
    """Two threads change the state as fast as they can, and each change is there once."""
    state = opened(own_store)

    def count(seed: int) -> None:
        own = Random(seed)
        for _ in range(12):
            name = own.randrange(4)

            def add(txn: Any, name: int = name) -> None:
                with state.within(txn) as rows:
                    found = rows.get([name]).to_pylist()
                    rows.put([{"id": name, "size": found[0]["size"] + 1 if found else 1}])

            quire.run_transaction(own_store, add, attempts=10_000)

    threads = [threading.Thread(target=count, args=(rng.random(),)) for _ in range(2)]
    with keyed.merging(state) as thread:
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert thread.errors == {}
    assert sum(shown(state).values()) == 24
