"""Schedules of an archived store's owner, shippers, bases and clean-up: what is needed stays."""

from __future__ import annotations

from typing import Any

import pytest

from quire.archive import base_keeping, base_making, base_restoring
from quire.archive.base_keeping import ArchiveCleaning
from quire.engine.checkpoints.checkpoint import Checkpointer
from quire.engine.pages.unshipped_places import UnshippedPlaces
from quire.intervals import IntervalSet
from tests.archive.archive_turns import run_schedules

SCHEDULES = 60  # in which each fault below is found
FIRST = {  # from which schedule on, where the first one that finds it is a later one
    "pages are used again": 13,
    "files are removed": 17,
    "a checkpoint forgets what waits": 17,
    "a segment is released early": 22,
    "entries go before the record": 25,
}


@pytest.fixture(autouse=True)
def own_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the simulator sets in the modules of bases is as it was after a test."""
    for module in (base_making, base_restoring):
        monkeypatch.setattr(module, "open_objects", vars(module)["open_objects"])


@pytest.mark.cases(6)
@pytest.mark.crash
def test_all_schedules_ship_everything(seed: int, rounds: int) -> None:
    """[US1, US2, SH1, SH2, SH3, ME1, BK5] Invariants 4, 5 and 7, and the state at the end."""
    count = rounds * 8 // 5
    done = run_schedules(1000 * seed, count)
    assert done["schedules"] == count
    assert done["entries"] > rounds
    assert all(done[what] for what in ("crash", "base", "clean-up", "restore"))


def forgetful(self: UnshippedPlaces, *gap: Any) -> Any:
    """Return what a checkpoint holds, without pages and files."""
    found = snapshot(self, *gap)
    if found is not None:
        found.pages, found.files = IntervalSet(), []
    return found


snapshot = UnshippedPlaces.snapshot

FAULTS: dict[str, tuple[Any, str, Any]] = {
    "pages are used again": (UnshippedPlaces, "keep_pages", lambda self, first, pages: False),
    "files are removed": (UnshippedPlaces, "keep_file", lambda self, ltds_id, size: False),
    "a checkpoint forgets what waits": (UnshippedPlaces, "snapshot", forgetful),
    "a segment is released early": (
        Checkpointer,
        "_needed_from",
        lambda self, snapshot: snapshot.restart_lsn,
    ),
    "entries go before the record": (ArchiveCleaning, "_is_noted", lambda self: True),
    "a clean-up takes from a base that is made": (base_keeping, "UNNAMED_AGE_SECONDS", -1.0),
}


@pytest.mark.cases(3)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary: with a fault in what keeps unshipped places some schedule fails."""
    target, name, broken = FAULTS[fault]
    first = FIRST.get(fault, 1)
    monkeypatch.setattr(target, name, broken)
    with pytest.raises(AssertionError):
        run_schedules(first, SCHEDULES)
