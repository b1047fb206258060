"""The shipper: a store's records are in the archive, all of them, in order, with what they name."""

from __future__ import annotations

import itertools
import random
import sys
from types import FrameType
from typing import Any

import pytest

from quire.archive import format
from quire.archive.entry_reading import ShippedRecord, heads, named, records
from quire.archive.limits import MERGED_SECONDS
from quire.archive.object_reading import ObjectReading
from quire.archive.objects import Objects, open_objects
from quire.archive.shipper import Shipper
from quire.engine import EmbeddedStore as Store
from quire.reports.info import ShippingReport, ShippingState
from quire.testing import SimEnv, enumerate_crashes
from tests.archive.shipping_kit import URL, folded_hash, journal_records, ship_all, shipped
from tests.archive.test_backup_and_restore import clock_machine, opened
from tests.engine.test_state_hash import Follower, told, work
from tests.kit.faulty_objects import FaultyObjects
from tests.kit.memory_objects import MemoryObjects

GROUP_MODULES = ("quire.journal.", "quire.archive.journal_following", "quire.archive.entry_packing")
GEOMETRIES: list[dict[str, Any]] = [
    {"page_size": 4096, "data_files": 1},
    {"page_size": 16384, "data_files": 3, "inline_limit_bytes": 2000},
]


def test_a_lone_put_costs_the_shipper_few_calls(seed: int) -> None:
    """Eleven Python frames: it has to keep up with one thread that puts as fast as it can."""
    env = clock_machine(seed)
    with opened(env) as store:
        store.create_queue("q", kind="work")
        store.admin.set_archive(URL)
        shipper = Shipper(store, MemoryObjects(env), env)

        def calls(puts: int) -> int:
            for _ in range(puts):
                store.put("q", b"x" * 200)
            counted = [0]

            def count(frame: FrameType, event: str, _: object) -> None:
                of_groups = str(frame.f_globals.get("__name__")).startswith(GROUP_MODULES)
                counted[0] += event == "call" and of_groups

            sys.setprofile(count)
            try:
                ship_all(shipper)
            finally:
                sys.setprofile(None)
            return counted[0]

        calls(10)
        assert calls(110) - calls(10) <= 100 * 11


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("steps", ["at the end", "meanwhile"])
def test_all_records_are_shipped(seed: int, geometry: dict[str, Any], steps: str) -> None:
    """Those of every kind of commit: the same bytes as in the journal, and the same state."""
    env = clock_machine(seed)
    objects = MemoryObjects(env)
    with opened(env, **geometry) as store:
        store.admin.set_archive(URL)
        shipper = Shipper(store, objects, env)
        ship_all(shipper)

        class Steps(Follower):
            def catch_up(self) -> tuple[Any, ...]:
                ship_all(shipper)
                return ()

        share = 0.3 if steps == "meanwhile" else 0.0
        work(store, Steps(env, store), random.Random(seed), checkpoints=share)
        ship_all(shipper)
        number, digest = told(store)
        found = shipped(objects)
        first = found[0].number
        assert [record.number for record in found] == list(range(first, number + 1))
        if not share:
            expected = journal_records(env, store)
            assert [record.record for record in found] == expected[first - 1 :]
            before = [ShippedRecord(0, 0, record, b"") for record in expected[: first - 1]]
            assert folded_hash([*before, *found]) == digest
        read = ObjectReading(objects, None)
        names = named(objects, read, heads(objects, read))
        assert any(name.startswith(format.FILES) for name in names)
        assert names <= set(objects.contents)


def machine_with_store(seed: int) -> tuple[SimEnv, MemoryObjects]:
    """A machine whose store has an archive that has all its records; it is closed."""
    env = clock_machine(seed)
    objects = MemoryObjects(env)
    with opened(env) as store:
        store.create_queue("q")
        store.admin.set_archive(URL)
        store.admin.checkpoint()
        put(store, 3)
        ship_all(Shipper(store, objects, env))
        store.admin.checkpoint()
    return env, objects


def put(store: Store, commits: int, payload: bytes = b"x") -> None:
    """Put a message in each of so many commits."""
    for _ in range(commits):
        store.put("q", payload)


def refusal(env: SimEnv, objects: Objects) -> str:
    """The error of a shipper of the machine's store, which is in its status, too."""
    before = shipped(objects)
    with opened(env) as store:
        shipper = Shipper(store, objects, env)
        assert shipper.step() >= 1.0
        assert shipper.step() >= 2.0  # the pauses grow
        assert shipped(objects) == before
        return shipper.error


def test_entries_that_are_there_are_adopted(seed: int) -> None:
    """[SH3] After a crash that has lost the position: none is made twice, all are compared."""
    env, objects = machine_with_store(seed)
    with opened(env) as store:
        shipper = Shipper(store, objects, env)
        for payload in (b"a", b"b" * 9000, b"c"):
            put(store, 2, payload)
            ship_all(shipper)
        names = list(objects.contents)
        env = env.if_it_crashed(seed=seed)
    with opened(env) as store:
        place = store.integration.ship().place
        shipper = Shipper(store, objects, env)
        ship_all(shipper)
        assert list(objects.contents) == names
        assert store.integration.ship().place > place
        put(store, 1)
        ship_all(shipper)
        assert len(objects.contents) == len(names) + 1
        numbers = [record.number for record in shipped(objects)]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))


@pytest.mark.parametrize("removed", [1, 2], ids=["one", "two"])
def test_a_hole_before_the_newest_entry_is_left(seed: int, removed: int) -> None:
    """[SH3] After a crash that has lost the position: what is behind is adopted, and followed."""
    env, objects = machine_with_store(seed)
    with opened(env) as store:
        shipper = Shipper(store, objects, env)
        first = store.integration.ship().place + 1
        for payload in (b"a", b"b", b"c"):
            put(store, 2, payload)
            ship_all(shipper)
        env = env.if_it_crashed(seed=seed)
    holes = {format.entry_name(first + n) for n in range(removed)}
    for name in holes:
        del objects.contents[name]
    with opened(env) as store:
        shipper = Shipper(store, objects, env)
        ship_all(shipper)
        put(store, 2)
        ship_all(shipper)
        number, _ = told(store)
        read = ObjectReading(objects, None)
        behind = [head for head in heads(objects, read) if head.place >= first + removed]
        assert [record.number for record in records(read, behind)][-1] == number
    assert behind[-1].place == first + 3
    assert holes.isdisjoint(objects.contents)


def test_an_older_copy_of_the_store_is_refused(seed: int) -> None:
    """[SH3] One that was copied, and whose original has gone on."""
    env, objects = machine_with_store(seed)
    copy = env.kill()
    original = env.kill()
    with opened(original) as store:
        put(store, 20)
        ship_all(Shipper(store, objects, original))
    assert "older copy" in refusal(copy, objects)


def test_a_copy_that_went_another_way_is_refused(seed: int) -> None:
    """[SH3] It has more records than the archive, and others."""
    env, objects = machine_with_store(seed)
    copy, original = env.kill(), env.kill()
    with opened(original) as store:
        put(store, 20)
        ship_all(Shipper(store, objects, original))
    with opened(copy) as store:
        put(store, 30, b"others")
    assert "has other records" in refusal(copy, objects)


def test_another_history_and_another_store_are_refused(seed: int) -> None:
    """[SH3] Each with what to do: give another place."""
    env, objects = machine_with_store(seed)
    with opened(env) as store:
        store.admin.stop_archive(forget=True)
        store.admin.set_archive(URL)
        put(store, 3)
    text = refusal(env, objects)
    assert "another history" in text
    assert "quire archive set" in text
    other, _ = machine_with_store(seed + 1)
    assert "is the archive of store" in refusal(other, objects)


class OlderAnswers:
    """A store whose first answer to a shipper is one from before."""

    def __init__(self, store: Store, answer: ShippingState) -> None:
        self.path = store.path
        self.integration = self
        self._store = store
        self._answers = [answer]

    def ship(self, report: ShippingReport | None) -> ShippingState:
        """Report to the owner."""
        now = self._store.integration.ship(report)
        return self._answers.pop() if self._answers else now


def test_a_shipper_that_is_slower_than_another_goes_on_behind_it(seed: int) -> None:
    """[SH3] With an answer of the owner from before: no record is shipped twice, none refused."""
    env, objects = machine_with_store(seed)
    with opened(env) as store:
        put(store, 3)
        answer = store.integration.ship()
        put(store, 3)
        ship_all(Shipper(store, objects, env))
        older: Any = OlderAnswers(store, answer)
        slower = Shipper(older, objects, env)
        put(store, 3)
        ship_all(slower)
        assert slower.state is not None
        assert slower.state.number == told(store)[0]
    numbers = [record.number for record in shipped(objects)]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))


def test_an_entry_at_a_place_that_was_merged_counts_for_nothing(seed: int) -> None:
    """[SH5] A slower shipper makes it; the owner takes no report of it, so its records are shipped
    once more, by an entry that is read."""
    env, objects = machine_with_store(seed)
    with opened(env) as store:
        faster, slower = (Shipper(store, objects, env) for _ in range(2))
        put(store, 1)
        ship_all(faster)
        ship_all(slower)
        for _ in range(3):
            put(store, 1)
            ship_all(faster)
        clock: Any = env
        clock.shown_us += round(MERGED_SECONDS * 2e6)
        for _ in range(2):
            ship_all(faster)
        assert len(list(objects.list(format.LOG))) == 1
        put(store, 5)
        for _ in range(2):  # the second time anew
            ship_all(slower)
        number, _ = told(store)
        assert slower.state is not None
        assert slower.state.number == number
    numbers = [record.number for record in shipped(objects)]
    assert numbers == list(range(numbers[0], number + 1))


def test_a_gap_is_gone_over(seed: int) -> None:
    """[SH2] What was committed while the archive was off is missing; places and chain go on."""
    env, objects = machine_with_store(seed)
    with opened(env) as store:
        store.admin.stop_archive()
        put(store, 5)
        store.admin.set_archive(URL)
        put(store, 2)
        ship_all(Shipper(store, objects, env))
        number, _ = told(store)
    numbers = [record.number for record in shipped(objects)]
    steps = {after - before for before, after in itertools.pairwise(numbers)}
    assert steps == {1, 8}  # with the two records that say so
    assert numbers[-1] == number


def test_an_archive_that_is_set_elsewhere_ends_the_shipper(seed: int) -> None:
    """It makes nothing more; so does one whose archive is off."""
    env, objects = machine_with_store(seed)
    with opened(env) as store:
        for url in ("memory:other", ""):
            shipper = Shipper(store, objects, env)
            ship_all(shipper)
            was_over = shipper.is_over
            put(store, 1)
            if url:
                store.admin.set_archive(url)
            else:
                store.admin.stop_archive()
            before = dict(objects.contents)
            shipper.step()
            assert (was_over, shipper.is_over) == (False, True)
            assert objects.contents == before
            store.admin.set_archive(URL)


def test_an_archive_that_fails_is_told_and_tried_again(seed: int) -> None:
    """[SH4] Its error is reported; what is shipped later is whole."""
    env, objects = machine_with_store(seed)
    faulty = FaultyObjects(objects, env, seed, share=1.0)
    with opened(env) as store:
        put(store, 3)
        shipper = Shipper(store, faulty, env)
        pauses = [shipper.step() for _ in range(9)]
        assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
        assert shipper.error.startswith(URL)
        faulty.share = 0.0
        while shipper.error:
            shipper.step()
        ship_all(shipper)
        assert shipped(objects)[-1].number == told(store)[0]


def test_what_is_shipped_for_a_fixed_load(seed: int) -> None:
    """Objects and bytes of 1,000 commits of a message of 200 bytes, and of one of 3 MiB.

    Whoever changes them changes what an archive costs: docs/archive.md has the figures.
    """
    env, objects = machine_with_store(seed)

    def weigh() -> tuple[int, int]:
        return len(objects.contents), sum(len(data) for data, _ in objects.contents.values())

    with opened(env) as store:
        shipper = Shipper(store, objects, env)
        ship_all(shipper)
        figures = []
        for commits, size in ((1000, 200), (1, 3 << 20)):
            before = weigh()
            put(store, commits, bytes(size))
            ship_all(shipper)
            figures.append(tuple(now - then for now, then in zip(weigh(), before, strict=True)))
    assert figures == [(1, 368_096), (2, 3_146_040)]


# Crashes -----------------------------------------------------------------------------------------

ARCHIVE = "/archives/store"


class Shipments:
    """What a run has reported as shipped."""

    def __init__(self) -> None:
        self.number = 0
        self.store_is_there = False


def ship_through(shipper: Shipper) -> None:
    """Ship all, whatever error comes before."""
    for _ in range(20):
        if shipper.step() and not shipper.error:
            return
    raise AssertionError(shipper.error)


def workload(env: SimEnv, done: Shipments) -> None:
    """Commits that are shipped into a directory on the same machine, and merged."""
    env.make_directory("/disk")
    env.sync_directory("/")
    with opened(env) as store:
        store.create_queue("q")
        store.admin.set_archive(ARCHIVE)
        store.admin.checkpoint()
        done.store_is_there = True
        shipper = Shipper(store, open_objects(ARCHIVE, env), env)
        for number in range(6):
            with store.transaction(large=number == 4) as txn:
                txn.put_many("q", [bytes(100 if number < 3 else 2_000)] * (30 if number > 1 else 1))
            ship_through(shipper)
            state = shipper.state
            assert state is not None
            done.number = state.number
            if number == 2:
                store.admin.checkpoint()
                txn = store.transaction()
                txn.get_many("q", 10)
                txn.commit()
            if number == 4:
                env.advance(MERGED_SECONDS + 1)
                ship_through(shipper)
                ship_through(shipper)


def check(env: SimEnv, done: Shipments) -> None:
    """What was reported is in the archive; the next shipper goes on, and everything can be read."""
    if not done.store_is_there:
        return
    objects = open_objects(ARCHIVE, env)
    found = shipped(objects)
    numbers = [record.number for record in found]
    assert max(numbers, default=0) >= done.number
    with opened(env) as store:
        put(store, 1)
        ship_all(Shipper(store, objects, env))
        number, _ = told(store)
    numbers = [record.number for record in shipped(objects)]
    assert numbers == list(range(numbers[0], number + 1))
    read = ObjectReading(objects, None)
    for name in named(objects, read, heads(objects, read)):
        assert objects.size(name)


@pytest.mark.crash
def test_no_crash_loses_what_was_shipped(seed: int) -> None:
    """[SH1, SH3, ME1] At calls of a machine that has the archive, too, and after their errors."""
    assert enumerate_crashes(workload, check, Shipments, seed=seed, rounds=1, every=9) > 40
