"""Restores to any record, by its number or a time: the store as it was then."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from quire.archive import (
    backup,
    backups,
    base_checking,
    base_restoring,
    format,
    restore,
    verify,
)
from quire.archive.base_restoring import RESTORING
from quire.archive.limits import ENTRY_HEAD_READ_BYTES
from quire.archive.objects import Objects, open_objects
from quire.engine import EmbeddedStore as Store
from quire.engine.built_beside import remove_tree
from quire.engine.layout import Layout
from quire.errors import BackupNotFound, DiskFull
from quire.ltds import path_of
from quire.testing import SimEnv, enumerate_crashes
from tests.archive.made_entries import EntryMaker
from tests.archive.shipped_records import Shipper
from tests.archive.test_backup_and_restore import (
    ARCHIVE,
    GEOMETRIES,
    RESTORED,
    clock_machine,
    furnish,
    opened,
    restoring,
)
from tests.archive.test_record_appending import go_on
from tests.engine.test_state_hash import Clock
from tests.engine.workload import PATH
from tests.kit.limits import Limits


class Archived(NamedTuple):
    """A machine with a store whose records are in an archive."""

    env: Clock
    maker: EntryMaker
    shipper: Shipper
    seen: dict[int, tuple[Any, ...]]  # what the store was like: number, hash, contents
    base: int  # the number of its first base


def entry_maker(env: SimEnv, store: Store, *, blob_bytes: int = 4000) -> EntryMaker:
    """Of the store's archive."""
    info = store.admin.archive()
    assert info is not None
    ltds = Layout(PATH).ltds
    return EntryMaker(
        open_objects(ARCHIVE, env),
        store.integration.store_id,
        info.history,
        lambda ltds_id: env.contents(path_of(ltds, ltds_id)),
        blob_bytes=blob_bytes,
    )


def ship(shipper: Shipper, maker: EntryMaker, rng: random.Random, begin: int = 0) -> None:
    """Make entries of the records behind the first ones, some of them merged."""
    rest, merged = shipper.records[begin:], maker.place
    while rest:
        count = rng.randrange(1, 12)
        maker.add(rest[:count], in_blob=rng.random() < 0.1)
        rest = rest[count:]
        if maker.place - merged > 3 and rng.random() < 0.3:
            last = maker.place - rng.randrange(2)
            maker.merge(merged + 1, last, keep=[merged + 2])
            merged = last


@contextmanager
def archived(
    seed: int, options: dict[str, Any], steps: int = 30
) -> Iterator[tuple[Archived, Store]]:
    """A store that goes on after its base, and is shipped to the end."""
    env, rng = clock_machine(seed), random.Random(seed)
    with opened(env, **options) as store:
        store.admin.set_archive(ARCHIVE)
        furnish(env, store, rng)
        base = backup(store, ARCHIVE, env=env).backup.number
        shipper = Shipper(env, store, base)
        seen = go_on(env, store, shipper, rng, steps)
        maker = entry_maker(env, store)
        ship(shipper, maker, rng)
        yield Archived(env, maker, shipper, seen, base), store


def check_point(env: SimEnv, path: str, expected: tuple[Any, ...], **at: Any) -> None:
    """Restore to a point; the store is as it was, and goes on without an archive (BR3)."""
    made = restore(ARCHIVE, path, env=env, **at)
    assert (made.number, made.state_hash) == expected[:2]
    with opened(env, path) as store:
        report = store.admin.verify(contents=True)
        assert report.ok, report.findings
        assert report.checked["contents"] == expected[2]
        assert report.checked["number"] == made.number + 1  # the archive's removal
        assert store.admin.archive() is None
        store.put("work", b"next")
        store.admin.checkpoint()
        assert store.admin.verify().ok


@pytest.mark.promise(8)
@pytest.mark.parametrize("points", [3, pytest.param(50, marks=pytest.mark.long)])
def test_a_store_is_restored_as_of_any_record(seed: int, points: int, limits: Limits) -> None:
    """By number and by time; with moves, drops, large and prepared transactions, streams,
    schedules, sessions, values and aliases, in entries alone and merged, and in blobs.
    """
    limits(APPENDED_BYTES=60_000, PACK_BYTES=40_000)
    with archived(seed, GEOMETRIES[seed % 2], steps=30 + points) as (made, _):
        env = made.env
    rng = random.Random(seed)
    times = {each.number: each.time_us for each in made.shipper.records}
    numbers = sorted(made.seen)
    for index in range(points - 1):
        number = rng.choice(numbers)
        at = {"number": number}
        if index % 3 == 1 and times.get(number + 1, 1 << 62) > times.get(number, 1 << 62):
            at = {"time": times[number]}
        check_point(env, f"{RESTORED}{index}", made.seen[number], **at)
        remove_tree(env, f"{RESTORED}{index}")
    check_point(env, f"{RESTORED}-latest", made.seen[numbers[-1]])
    assert not [path for path in env.files() if RESTORING in path]


class Timed(NamedTuple):
    """A small archive: a base, and records that were committed at times of their own."""

    env: Clock
    base: int
    base_us: int
    times: dict[int, int]  # of commits, by number
    maker: EntryMaker


def timed(records: int = 6, skipped: int = 0) -> Timed:
    """One entry for each record but for some, which were never shipped, behind the second."""
    env = clock_machine(1)
    with opened(env, page_size=4096) as store:
        store.admin.set_archive(ARCHIVE)
        store.create_queue("q", kind="work")
        made = backup(store, ARCHIVE, env=env).backup
        shipper = Shipper(env, store, made.number)
        for number in range(records):
            env.shown_us += 1_000_000
            store.put("q", b"%d" % number)
        shipper.ship()
        maker = entry_maker(env, store)
        for index, each in enumerate(shipper.records):
            if not 2 <= index < 2 + skipped:
                maker.add([each])
    times = {each.number: each.time_us for each in shipper.records}
    return Timed(env, made.number, made.time_us, times, maker)


def messages(env: SimEnv, path: str) -> int:
    """How many wait in the restored queue."""
    with opened(env, path) as store:
        return store.queue("q").messages


def test_a_time_means_the_latest_commit_up_to_it() -> None:
    """Exactly at a commit it is there, right before it not; between two the earlier one is."""
    made = timed()
    third = made.base + 3
    cases = [
        (made.times[third], 3), (made.times[third] - 1, 2), (made.times[third] + 1, 3),
        (made.times[third + 1] - 1, 3), (made.base_us, 0), (made.base_us + 1, 0),
        (made.times[made.base + 6] + 10**9, 6),
    ]  # fmt: skip
    for index, (time_us, count) in enumerate(cases):
        path = f"{RESTORED}{index}"
        report = restore(ARCHIVE, path, time=time_us, env=made.env)
        assert report.number == made.base + count
        assert messages(made.env, path) == count
    with pytest.raises(BackupNotFound, match="the earliest one is of record"):
        restore(ARCHIVE, f"{RESTORED}-no", time=made.base_us - 1, env=made.env)


def test_a_point_that_is_not_covered_is_refused() -> None:
    """With the earliest and the latest one, and the gap; nothing is left at the path."""
    made = timed(records=6, skipped=2)
    [info] = backups(ARCHIVE, env=made.env)
    assert (info.until_number, info.end) == (made.base + 2, "gap")
    words = f"record {made.base} .*, the latest one of record {made.base + 2} "
    bad: list[dict[str, Any]] = [
        {"number": made.base + 3}, {"number": made.base + 5}, {"number": 10**9},
        {"time": made.times[made.base + 3]}, {"time": made.times[made.base + 6] + 1},
    ]  # fmt: skip
    for at in bad:
        with pytest.raises(BackupNotFound, match=words):
            restore(ARCHIVE, RESTORED, env=made.env, **at)
        assert not made.env.exists(RESTORED)
    with pytest.raises(BackupNotFound, match="the earliest one is of record"):
        restore(ARCHIVE, RESTORED, env=made.env, number=made.base - 1)
    assert restore(ARCHIVE, RESTORED, env=made.env).number == made.base + 2


def test_a_base_behind_a_gap_covers_what_follows() -> None:
    """The gap is named; on both sides of it points are restored."""
    made = timed(records=6, skipped=2)
    env = made.env
    with opened(env, page_size=4096) as store:
        newer = backup(store, ARCHIVE, env=env).backup
        shipper = Shipper(env, store, newer.number)
        store.put("q", b"later")
        shipper.ship()
        made.maker.add(shipper.records)
    first, second = backups(ARCHIVE, env=env)
    assert (first.until_number, first.end) == (made.base + 2, "gap")
    assert (second.number, second.until_number, second.end) == (
        newer.number, newer.number + 1, ""
    )  # fmt: skip
    for index, number in enumerate((made.base + 1, newer.number, newer.number + 1)):
        assert restore(ARCHIVE, f"{RESTORED}{index}", number=number, env=env).number == number
    words = f"no record from {made.base + 3} to {newer.number - 1}, the latest one of record"
    with pytest.raises(BackupNotFound, match=words):
        restore(ARCHIVE, RESTORED, number=made.base + 4, env=env)
    assert restore(ARCHIVE, RESTORED, env=env).number == newer.number + 1


@pytest.mark.cases(3)
def test_a_full_disk_leaves_nothing(limits: Limits) -> None:
    """Whenever it is full: while the base is copied, or records are appended; else it is done."""
    limits(APPENDED_BYTES=20_000)
    env = clock_machine(1)
    with opened(env, page_size=4096, inline_limit_bytes=100) as store:
        store.admin.set_archive(ARCHIVE)
        store.create_queue("q", kind="work")
        made = backup(store, ARCHIVE, env=env).backup
        shipper = Shipper(env, store, made.number)
        for number in range(40):
            with store.transaction(large=number == 20) as txn:
                txn.put_many("q", [bytes(3000)] * 10)
        shipper.ship()
        maker = entry_maker(env, store)
        for each in shipper.records:
            maker.add([each])
    before = env.used_bytes()
    restore(ARCHIVE, f"{RESTORED}-first", env=env)
    needed = env.used_bytes() - before
    for percent in (5, 35, 70):  # what is not needed at once is only taken if there is room
        env.capacity_bytes = env.used_bytes() + needed * percent // 100
        with pytest.raises(DiskFull):
            restore(ARCHIVE, RESTORED, env=env)
        assert not env.exists(RESTORED)
        assert not [path for path in env.files() if RESTORING in path]
    env.capacity_bytes = env.used_bytes() + 3 * needed
    assert restore(ARCHIVE, RESTORED, env=env).number == shipper.records[-1].number
    assert messages(env, RESTORED) == 400


def check_restored(env: SimEnv, oracle: list[str]) -> None:
    """A whole store or none; a later restore takes up where nothing is."""
    if not env.exists(RESTORED):
        assert not oracle
        restore(ARCHIVE, RESTORED, env=env)
        assert not [name for name in env.list_directory("/disk") if RESTORING in name]
    with opened(env, RESTORED) as store:
        assert store.admin.verify().ok
        assert store.admin.archive() is None
        assert store.queue("q").messages == 6


@pytest.mark.crash
@pytest.mark.parametrize("every", [pytest.param(60), pytest.param(2, marks=pytest.mark.long)])
def test_half_a_store_is_never_restored_of_records(seed: int, every: int) -> None:
    """A power failure or an error in each call: a whole store has the path, or nothing (BR1)."""

    def prepared(number: int) -> SimEnv:
        return timed().env.crash(outcome="kept")

    cases = enumerate_crashes(
        restoring, check_restored, list, seed=seed, rounds=1, every=every, new_env=prepared
    )
    assert cases > 3


def test_sessions_and_prepared_transactions_are_as_at_the_point() -> None:
    """A transaction that is decided later is prepared again; a later request is not known."""
    env = clock_machine(1)
    with opened(env, page_size=4096) as store:
        store.admin.set_archive(ARCHIVE)
        store.create_queue("q", kind="work")
        base = backup(store, ARCHIVE, env=env).backup.number
        shipper = Shipper(env, store, base)
        session = store.session("caller")
        session.put("q", b"first")
        prepared = store.transaction()
        prepared.put("q", bytes(2000))
        prepared.prepare("x")
        shipper.ship()
        point = shipper.records[-1].number
        store.prepared.commit("x")
        session.put("q", b"second")
        known = session.unfinished()
        shipper.ship()
        maker = entry_maker(env, store)
        for each in shipper.records:
            maker.add([each])
    restore(ARCHIVE, RESTORED, number=point, env=env)
    with opened(env, RESTORED) as restored:
        assert [each.xid for each in restored.prepared.list()] == ["x"]
        assert restored.session("caller").unfinished() == known[:1]
        restored.prepared.commit("x")
        assert restored.queue("q").messages == 2
        assert restored.session("caller").put("q", b"second") == known[1]
    restore(ARCHIVE, f"{RESTORED}-later", env=env)
    with opened(env, f"{RESTORED}-later") as restored:
        assert restored.prepared.list() == []
        assert restored.session("caller").unfinished() == known
        assert restored.queue("q").messages == 3


class MergingObjects:
    """Objects whose entries are merged before the first of them is read as a whole."""

    def __init__(self, inner: Objects, merge: Callable[[], object]) -> None:
        self._inner = inner
        self._merge: list[Callable[[], object]] = [merge]
        self.url = inner.url
        self.create, self.upload, self.overwrite = inner.create, inner.upload, inner.overwrite
        self.size, self.list, self.delete, self.close = (
            inner.size, inner.list, inner.delete, inner.close,
        )  # fmt: skip

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        is_head = length == ENTRY_HEAD_READ_BYTES
        if name.startswith(format.LOG) and not is_head and self._merge:
            self._merge.pop()()
        return self._inner.read(name, offset, length)


@pytest.mark.parametrize("call", ["restore", "verify"])
def test_entries_are_merged_meanwhile(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are looked for again: nothing is missing."""
    made = timed()
    objects = MergingObjects(
        open_objects(ARCHIVE, made.env), lambda: [made.maker.merge(1, 3), made.maker.merge(4, 5)]
    )
    for module in (base_checking, base_restoring):
        monkeypatch.setattr(module, "open_objects", lambda url, env: objects)
    if call == "verify":
        assert verify(ARCHIVE, env=made.env).findings == []
    else:
        assert restore(ARCHIVE, RESTORED, env=made.env).number == made.base + 6
        assert messages(made.env, RESTORED) == 6
    assert not objects._merge
