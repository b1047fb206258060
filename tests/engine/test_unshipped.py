"""What waits for a store's archive: released pages and files, segments, and the limit of it all.

The crash workload `archived` (`test_crash_workloads`) tries the same at every call.
"""

from __future__ import annotations

import logging
import random
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.checkpoints import snapshot, space_maps
from quire.engine.checkpoints.checkpoint import Checkpointer
from quire.engine.pages.unshipped_places import UnshippedPlaces
from quire.errors import ArchiveFull, DiskFull
from quire.libraries.late_modules import load_rest
from quire.reports.info import ShippingReport, ShippingState
from quire.testing import SimEnv
from tests.engine.checking_shipper import Archive, ship
from tests.engine.crashing.drawn import VARIANTS, Drawn
from tests.engine.workload import drain_all, new_machine, open_store
from tests.kit.crashes import CellRun
from tests.kit.limits import limited
from tests.kit.moments import at_moment, some_moments

LARGE = b"x" * 9000  # of which a commit goes to pages


def archived(env: SimEnv, **options: Any) -> tuple[Store, Archive]:
    """A store with a queue and an archive that has all of it."""
    store = open_store(env, **options)
    store.create_queue("work", kind="work")
    store.admin.set_archive("/archive")
    archive = Archive(store.integration.ship().number)
    ship(env, store, archive)
    return store, archive


def put_and_get(store: Store, payload: bytes = LARGE, *, large: bool = False) -> None:
    """Put a message, and read it."""
    with store.transaction(large=large) as txn:
        txn.put_many("work", [payload])
    assert len(store.get_many("work")) == 1


def held_bytes(store: Store) -> int:
    """The bytes of pages and files that wait."""
    return int(store.status()["archive"]["held_bytes"])


@pytest.mark.parametrize("large", [False, True])
def test_what_was_released_stays_until_it_is_shipped(seed: int, *, large: bool) -> None:
    """Pages, and files of large transactions; a shipper that did not report reads them again."""
    env = new_machine(seed)
    store, archive = archived(env)
    put_and_get(store, large=large)
    before = held_bytes(store)
    assert before >= len(LARGE)
    again = Archive(archive.number)
    ship(env, store, again, reports=False)
    assert (again.blocks, again.files) == (0, 1) if large else (1, 0)
    assert held_bytes(store) == before
    assert store.admin.verify().ok
    ship(env, store, archive)
    assert held_bytes(store) == 0
    drain_all(store)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("checkpoints", [0, 1, 2])
def test_what_was_released_stays_over_a_crash(seed: int, checkpoints: int, *, large: bool) -> None:
    """By the checkpoint, or by the records after it; what uses pages afterwards uses others."""
    env = new_machine(seed)
    store, archive = archived(env)
    put_and_get(store, large=large)
    for _ in range(checkpoints):
        store.admin.checkpoint()
    env = env.crash(outcome="lost")
    store = open_store(env)
    assert held_bytes(store) >= len(LARGE)
    for number in range(9):
        put_and_get(store, b"%d" % number * 9000)
    ship(env, store, archive)
    assert (archive.blocks, archive.files) == (9 + (not large), large)
    assert archive.gaps == 0
    assert held_bytes(store) == 0
    drain_all(store)


def free_bytes(store: Store) -> list[tuple[int, int]]:
    """The bytes of each data file, and those that are free."""
    return [(file["bytes"], file["free_bytes"]) for file in store.status()["data"]["files"]]


def reported(seed: int) -> tuple[SimEnv, Store, partial[ShippingState]]:
    """A store where pages and a file wait, and the call that reports them shipped."""
    env = new_machine(seed)
    store, archive = archived(env)
    for large in (False, True, False):
        put_and_get(store, large=large)
    state = store.integration.ship()
    report = ShippingReport(state.end_lsn, state.end_number, archive.place + 1)
    return env, store, partial(store.integration.ship, report)


@pytest.mark.parametrize("again", [True, False], ids=["reported again", "reopened"])
def test_a_signal_while_places_go(seed: int, rng: random.Random, *, again: bool) -> None:
    """At any moment of a report: each page and file goes once, if it is reported again or not."""
    env, store, report = reported(seed)
    load_rest(("quire",))  # imports hold signals back (LD3)
    report()
    store.admin.checkpoint()
    expected = free_bytes(store)
    interrupts = 0
    for moment in some_moments(reported(seed)[2], rng, 8):
        env, store, report = reported(seed)
        interrupts += at_moment(report, moment)
        if not again:
            store.close()
            store = open_store(env)
            report = partial(store.integration.ship, report.args[0])
        report()
        assert held_bytes(store) == 0
        store.admin.checkpoint()
        store.admin.checkpoint()
        assert free_bytes(store) == expected
        assert store.admin.verify().ok
        store.close()
        assert not [path for path in env.files() if path.endswith(".ltds")]
    assert interrupts > 0


def test_segments_stay_until_they_are_shipped(seed: int) -> None:
    """Checkpoints release none that has records which are not shipped, nor does an opening."""
    env = new_machine(seed)
    store, archive = archived(env)
    for _ in range(60):
        put_and_get(store, b"x" * 3000)
        store.admin.checkpoint()
    kept = store.status()["journal"]["segments"]
    assert kept > 3
    env = env.crash(outcome="lost")
    store = open_store(env)
    store.admin.checkpoint()
    assert store.status()["journal"]["segments"] >= kept
    ship(env, store, archive)
    store.admin.checkpoint()
    assert store.status()["journal"]["segments"] <= 2
    assert archive.gaps == 0


@pytest.mark.parametrize("crashes", [False, True])
def test_the_old_places_of_what_a_checkpoint_moves_stay(seed: int, *, crashes: bool) -> None:
    """Records that are not shipped name them, though the queue's own records do not any more."""
    with limited({"FILE_SLACK_BYTES": 4096}):
        env = new_machine(seed)
        store, archive = archived(env, grow_bytes=8192)
        for _ in range(40):
            store.put("work", LARGE)
        assert len(store.get_many("work", 40)) == 40
        end = store.integration.ship()
        store.put("work", LARGE)  # behind all that, which is free then
        store.integration.ship(ShippingReport(end.end_lsn, end.end_number, 2))
        archive.number = end.end_number
        at_end = place_of_only(store)
        for _ in range(9):
            if place_of_only(store) == at_end:
                store.admin.checkpoint()
        assert place_of_only(store) < at_end
        if crashes:
            env = env.crash(outcome="lost")
            store = open_store(env)
        for number in range(40):
            store.put("work", b"%d" % number * 9000)
        ship(env, store, archive)
        assert archive.gaps == 0
        assert store.admin.verify().ok


def place_of_only(store: Store) -> int:
    """The address of the only block."""
    [lease] = store.integration.lease_many([("work", *store.integration.positions("work"))])
    store.integration.end_lease(lease.lease_id)
    return int(lease.pieces[0].address)


@pytest.mark.parametrize("crashes", [False, True])
def test_an_archive_that_is_stopped_lets_go_of_all(seed: int, *, crashes: bool) -> None:
    """Also over a crash right after it, or where it is set anew."""
    env = new_machine(seed)
    store, _ = archived(env)
    put_and_get(store)
    put_and_get(store, large=True)
    store.admin.checkpoint()
    if crashes:
        store.admin.stop_archive()
        assert "archive" not in store.status()
        store = open_store(env.crash(outcome="lost"))
        drain_all(store)
    store.admin.set_archive("/another")
    assert held_bytes(store) == 0
    state = store.integration.ship()
    assert (state.gap, state.number) == (True, state.end_number)
    drain_all(store)


def test_a_report_to_another_archive_is_passed_over(seed: int) -> None:
    """A shipper that has not heard yet that the archive is another one lets nothing go."""
    env = new_machine(seed)
    store, _ = archived(env)
    store.admin.set_archive("/another")
    put_and_get(store)
    end = store.integration.ship()
    store.integration.ship(ShippingReport(end.end_lsn, end.end_number, 1, url="/archive"))
    assert held_bytes(store) >= len(LARGE)
    store.integration.ship(ShippingReport(end.end_lsn, end.end_number, 1, url="/another"))
    assert held_bytes(store) == 0


def test_a_base_behind_what_is_shipped_meanwhile_ends_a_gap(seed: int) -> None:
    """[US4] Also one that is older than what a busy store has shipped while it was made."""
    env = new_machine(seed)
    store, _ = archived(env)
    store.admin.set_archive("/another")
    first = store.integration.ship()
    put_and_get(store)
    end = store.integration.ship()
    for base_number, gap in ((first.number - 1, True), (first.number, False)):
        report = ShippingReport(end.end_lsn, end.end_number, 1, base_number)
        assert store.integration.ship(report).gap == gap


def test_over_its_limit_an_archive_has_a_gap(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """The store goes on; status and log say since when, until a base has what was let go of."""
    env = new_machine(seed)
    store, archive = archived(env)
    store.admin.set_archive("/archive", limit=256 << 10, full="gap")
    assert store.status()["archive"]["gap_since"] is None
    with caplog.at_level(logging.WARNING, "quire.archive"):
        for _ in range(60):
            put_and_get(store)
    assert "has a gap" in caplog.text
    assert held_bytes(store) < 256 << 10
    assert store.status()["archive"]["gap_since"] is not None
    env = env.crash(outcome="lost")
    store = open_store(env)
    state = store.integration.ship()
    assert state.gap
    assert state.number > archive.number
    ship(env, store, archive)
    assert archive.gaps == 1
    assert store.status()["archive"]["gap_since"] is None
    drain_all(store)


def test_over_its_limit_puts_wait(seed: int) -> None:
    """For as long as for a full queue; gets, rollbacks and open transactions go on."""
    env = new_machine(seed)
    store, archive = archived(env)
    store.admin.set_archive("/archive", limit=256 << 10, full="wait")
    open_one = store.transaction()
    open_one.put("work", b"before")
    with suppress(ArchiveFull):
        for _ in range(60):
            store.put("work", LARGE)
    with pytest.raises(ArchiveFull, match="shipped to the archive"):
        store.put("work", LARGE)
    waiting = store.queue("work").messages
    assert store.status()["archive"]["puts_wait"]
    with pytest.raises(ArchiveFull), store.transaction() as txn:
        txn.put("work", b"x")
    with store.transaction() as txn:
        assert txn.get("work") is not None
        txn.rollback()
    open_one.commit()
    assert len(store.get_many("work", 100)) == waiting + 1
    store.create_queue("new", kind="work")
    with pytest.raises(ArchiveFull):
        store.put("new", b"x")
    ship(env, store, archive)
    assert archive.gaps == 0
    store.put("new", b"x")
    assert not store.status()["archive"]["puts_wait"]


def test_a_full_disk_is_read_on(seed: int) -> None:
    """Where nothing can be shipped either, segments are let go of when those kept back are used."""
    env = new_machine(seed)
    store, archive = archived(env)
    number = 0
    env.capacity_bytes = env.used_bytes() + (1 << 20)
    with suppress(DiskFull):
        while number < 9000:
            store.put_many("work", [b"%7d" % number + LARGE, b"%7d" % (number + 1) + LARGE[:2000]])
            number += 2
    assert 40 < number < 9000
    for read in range(number):
        message = store.get("work")
        assert message is not None
        assert int(message.payload[:7]) == read
        if read % 9 == 0:
            store.admin.checkpoint()
    assert store.admin.verify().ok
    env = env.crash(outcome="lost")
    store = open_store(env)
    assert store.get("work") is None
    ship(env, store, archive)
    env.capacity_bytes = None
    drain_all(store)


def test_an_archive_is_stopped_on_a_full_disk(seed: int) -> None:
    """It makes room: what waits is let go of. It cannot be set there."""
    env = new_machine(seed)
    store, _ = archived(env)
    put_and_get(store)
    env.capacity_bytes = env.used_bytes()
    with suppress(DiskFull):
        for _ in range(9000):
            put_and_get(store)
    store.admin.stop_archive()
    assert "archive" not in store.status()
    for _ in range(9):
        store.admin.checkpoint()
    assert store.status()["journal"]["segments"] <= 2
    assert store.admin.verify().ok
    env.capacity_bytes = None
    drain_all(store)


# Canaries -----------------------------------------------------------------------------------------

CAUGHT = (Exception, pytest.fail.Exception)


def try_archived(seed: int, variant: str = "plain") -> None:
    """Try a few points on several seeds: an engine that is broken on purpose must not pass."""
    found = VARIANTS["archived"][variant]
    for number in range(seed, seed + 6):
        with limited(found.limits):
            CellRun(Drawn(number, found, direct=False), number, 10).try_fault("power")


@pytest.mark.crash
def test_canary_what_waits_is_left_out_of_checkpoints(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that hands out after a crash what nobody has shipped is caught."""
    document = space_maps.unshipped_document

    def without_places(*args: Any) -> dict[str, Any]:
        found = document(*args)
        nothing = found["unshipped"] | {"files": []}
        nothing["pages"] = [[0, 0] for _ in nothing["pages"]]
        return {"unshipped": nothing}

    monkeypatch.setattr(snapshot, "unshipped_document", without_places)
    with pytest.raises(CAUGHT):
        try_archived(seed)


@pytest.mark.crash
def test_canary_segments_go_before_they_are_shipped(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that releases segments as if there were no archive is caught."""
    monkeypatch.setattr(Checkpointer, "_needed_from", lambda self, taken: taken.restart_lsn)
    with pytest.raises(CAUGHT):
        try_archived(seed, "checkpoints in commits")


@pytest.mark.crash
def test_canary_what_was_released_is_free_at_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that frees pages before they are shipped is caught by what reads them.

    One message after another takes the pages of the one before; a drawn workload reaches that in
    one run of four.
    """
    monkeypatch.setattr(UnshippedPlaces, "keep_pages", lambda self, first, pages: False)
    env = new_machine(seed)
    store, archive = archived(env)
    for number in range(9):
        put_and_get(store, b"%d" % number * 9000)
    with pytest.raises(AssertionError, match="another one is in its place"):
        ship(env, store, archive)


@pytest.mark.crash
def test_canary_the_old_places_of_what_is_moved_are_free_at_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that frees the places which records of the journal name is caught."""
    switch, keep = Checkpointer._switch, UnshippedPlaces.keep_pages

    def switch_freely(self: Checkpointer, *taken: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(UnshippedPlaces, "keep_pages", lambda self, first, pages: False)
            switch(self, *taken)

    monkeypatch.setattr(Checkpointer, "_switch", switch_freely)
    assert UnshippedPlaces.keep_pages is keep
    with pytest.raises(CAUGHT):
        test_the_old_places_of_what_a_checkpoint_moves_stay(seed, crashes=False)
