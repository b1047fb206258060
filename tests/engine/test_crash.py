"""Creation and recovery over power failures, pages in use, and canaries of the crash workloads.

The workloads are tried by `test_crash_workloads`, the model that judges them is in
`tests.engine.workload`. Engines that are broken on purpose (the canaries) must be caught by it.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from quire.engine.checkpoints import snapshot
from quire.engine.pages.free_space import FreeSpace
from quire.engine.records import checkpoint_file
from quire.engine.state.fold import Committed, Fold, FoldedCommit
from quire.errors import StoreCorrupt, StoreNotFound
from quire.testing import SimEnv, SimFile, enumerate_crashes
from tests.engine.crashing.drawn import try_several
from tests.engine.page_guard import guard_pages
from tests.engine.workload import (
    PATH,
    Oracle,
    Workload,
    check_ids,
    check_space,
    check_store,
    drain,
    new_machine,
    open_store,
)

pytestmark = [pytest.mark.crash, pytest.mark.cases(5, of_file=True)]

LARGE_PAGES: dict[str, Any] = {"page_size": 65536, "segment_bytes": 1 << 20, "data_files": 2}


@pytest.mark.promise(8)
def test_promise_8_recovering_again_and_again_changes_nothing(seed: int) -> None:
    """A store that is recovered, and loses the power before it does anything, stays the same."""
    env, oracle = new_machine(seed), Oracle()
    Workload(seed, steps=60).run(env, open_store(env), oracle)
    for n in range(6):
        env = env.crash(seed=n)
        store = open_store(env)
        model = oracle.match(store)
        check_ids(store, oracle)
        check_space(store, model)
        if n == 5:
            drain(store, model)


@pytest.mark.promise(8)
def test_promise_8_recovery_reads_what_came_after_the_checkpoint(seed: int) -> None:
    """What recovery reads depends on the journal since the checkpoint, not on the backlog."""
    reads = []
    for backlog in (60, 600):  # with both, the journal has as many spare files as it keeps
        env = new_machine(seed)
        store = open_store(env)
        store.create_queue("work", kind="work")
        for _ in range(backlog):
            with store.transaction() as transaction:
                transaction.put_many("work", [b"x" * 400] * 20)
        store.admin.checkpoint()
        saved = store._context.sequencer.number
        store.put("work", b"the last")
        after = env.crash(outcome="lost")
        store = open_store(after)
        assert store.recovered.number - saved == 1  # counted as they are read
        spares = after.calls.count("read", "*.spare")  # the headers of a few files of the journal
        reads.append(after.calls.count("read") - spares)
        assert store.queue("work").messages == backlog * 20 + 1
    assert reads[0] == reads[1]


def test_creation_is_whole_or_not_there(seed: int, spread: int) -> None:
    """A crash at each call of a store's creation: the next opening makes it, or finds it empty."""

    def create(env: SimEnv, oracle: Oracle) -> None:
        env.make_directory("/disk")
        env.sync_directory("/")
        open_store(env)
        oracle.created = True

    cases = enumerate_crashes(
        create, check_store, Oracle, seed=seed, rounds=6, every=(spread + 1) // 2
    )
    assert cases > 50


def run_on_guarded_disk(seed: int, **options: Any) -> None:
    """A workload on a disk that lets nothing be written over that is in use."""
    env, oracle = SimEnv(seed), Oracle()
    env.forbid_overwrite("*.log")
    env.forbid_overwrite("*.lts*")
    guard_pages(env, PATH)
    Workload(seed, checkpoint_bytes=100_000, **options)(env, oracle)


@pytest.mark.cases(6)
@pytest.mark.promise(10)
@pytest.mark.parametrize("options", [{}, {"data_files": 3}, LARGE_PAGES], ids=str)
def test_promise_10_pages_in_use_are_not_overwritten(
    seed: int, rounds: int, options: dict[str, Any]
) -> None:
    """No group of the journal is written over before its segment came round (J4), and no data page
    while a durable record refers to it, also while the file is cut by nearly every checkpoint.
    """
    for n in range(max(1, rounds // 12)):
        run_on_guarded_disk(seed + n, steps=100, **options)


# Canaries -----------------------------------------------------------------------------------------


class HastyFile(SimFile):
    """Its sync does nothing, and its writes are never direct."""

    def sync(self) -> None:
        self._check_open()


class HastyEnv(SimEnv):
    """A machine whose journal and data files are never synced."""

    def open_file(self, path: str, **options: Any) -> SimFile:
        file = super().open_file(path, **{**options, "direct": False})
        if path.endswith((".log", ".dat")):
            file.__class__ = HastyFile
        return file


def test_canary_commits_without_a_sync(seed: int) -> None:
    """An engine that acknowledges before the journal's sync is caught."""
    with pytest.raises(Exception):  # noqa: B017, PT011
        enumerate_crashes(
            Workload(seed), check_store, Oracle, seed=seed, rounds=2, every=3, new_env=HastyEnv
        )


@pytest.mark.parametrize("options", [{}, {"data_files": 3}], ids=str)
def test_canary_hands_out_a_used_page(
    seed: int, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """A free-space map that hands out a page in use is caught at the write."""
    allocate = FreeSpace.allocate
    handed_out = []

    def careless(space: FreeSpace, pages: int) -> int | None:
        for first in range(1, space.total_pages - pages + 1):
            end = first + pages
            if not space._free.overlaps(first, end) and not space.pending.overlaps(first, end):
                handed_out.append(first)
                space.pending.add(first, end)
                return first
        return allocate(space, pages)

    monkeypatch.setattr(FreeSpace, "allocate", careless)
    with pytest.raises(AssertionError, match="in use by pages"):
        run_on_guarded_disk(seed, steps=100, **options)
    assert len(handed_out) == 1


def test_canary_forgets_the_ledger_in_recovery(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery that does not apply ledger entries is caught."""
    commit = Fold.commit

    def without_entries(self: Fold, made: Committed, *args: Any, **options: Any) -> None:
        if isinstance(made, FoldedCommit):  # read from a record
            made = replace(made, entries=())
        commit(self, made, *args, **options)

    monkeypatch.setattr(Fold, "commit", without_entries)
    with pytest.raises((AssertionError, StoreCorrupt)):
        try_several(range(seed, seed + 20))


def test_canary_forgets_what_was_read(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery that does not apply what transactions have read is caught."""
    commit = Fold.commit

    def without_reads(self: Fold, made: Committed, *args: Any, **options: Any) -> None:
        if isinstance(made, FoldedCommit) and made.groups:  # read from a record
            made = replace(made, reads=())
        commit(self, made, *args, **options)

    monkeypatch.setattr(Fold, "commit", without_reads)
    with pytest.raises((AssertionError, StoreCorrupt)):
        try_several(range(seed, seed + 20))


def test_canary_switches_before_the_checkpoint_is_durable(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that is used before its name is durable is caught."""

    def hasty(
        env: SimEnv, directory: str, store_id: int, lsn: int, document: Any, numbers: Any
    ) -> str:
        known = env.sync_directory
        env.sync_directory = lambda path: None  # type: ignore[method-assign]
        try:
            return checkpoint_file.write_checkpoint(
                env, directory, store_id, lsn, document, numbers
            )
        finally:
            env.sync_directory = known  # type: ignore[method-assign]

    monkeypatch.setattr(snapshot, "write_checkpoint", hasty)
    with pytest.raises(Exception):  # noqa: B017, PT011
        try_several(range(seed, seed + 20), points=30)


@pytest.mark.cases(8)
def test_canary_uses_released_pages_within_a_checkpoint(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that takes pages that were released after its snapshot is caught."""
    monkeypatch.setattr("quire.engine.pages.block_places.Places.withhold", lambda places: None)
    with pytest.raises(Exception):  # noqa: B017, PT011
        try_several(range(seed, seed + 60), points=1)


@pytest.mark.parametrize(
    "skipped",
    ["quire.journal.recovery._settle_last_groups", "quire.engine.checkpoints.store_files.settle"],
)
def test_canary_builds_on_what_may_be_gone(
    seed: int, monkeypatch: pytest.MonkeyPatch, skipped: str
) -> None:
    """A recovery that does not write the last group, or the newest checkpoint, again is caught."""
    monkeypatch.setattr(skipped, lambda *_, **options: None)
    with pytest.raises((AssertionError, StoreCorrupt, StoreNotFound)):
        try_several(range(seed, seed + 20), fault="resumed", points=20)
