"""A backup of a store in use, and the store that is restored of it: the same at its record."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from quire.archive import (
    backup,
    backups,
    base_checking,
    base_keeping,
    base_making,
    base_restoring,
    choosing,
    keep,
    restore,
    verify,
)
from quire.archive.base_restoring import RESTORING
from quire.archive.limits import UNNAMED_AGE_SECONDS
from quire.archive.manifest import BackupInfo
from quire.archive.objects.retries import RetriedObjects
from quire.engine import EmbeddedStore as Store
from quire.errors import (
    ArchiveCorrupt,
    ArchiveFailed,
    ArchiveRefused,
    BackupNotFound,
    DiskFull,
    InvalidArgument,
    PositionLost,
    StoreCorrupt,
    StoreLocked,
)
from quire.testing import SimEnv, enumerate_crashes
from tests.engine.test_state_hash import Clock, Follower, told, work
from tests.engine.workload import PATH, new_machine
from tests.kit.faulty_objects import FaultyObjects
from tests.kit.limits import Limits
from tests.kit.memory_objects import MemoryObjects

ARCHIVE = "/disk/archive"
RESTORED = "/disk/restored"
GEOMETRIES: list[dict[str, Any]] = [
    {"page_size": 4096, "data_files": 1},
    {"page_size": 16384, "data_files": 3, "inline_limit_bytes": 2000},
]


def clock_machine(seed: int) -> Clock:
    """With a durable directory for the store and the archive."""
    env = Clock(seed)
    env.make_directory("/disk")
    env.sync_directory("/")
    return env


@contextmanager
def opened(env: SimEnv, path: str = PATH, **options: Any) -> Iterator[Store]:
    """The store, with checkpoints of the test's own."""
    with Store.open(
        path,
        env=env,
        background=False,
        segment_bytes=4 << 20,
        checkpoint_bytes=1 << 40,
        large_flush_bytes=8192,
        **options,
    ) as store:
        yield store


def furnish(env: SimEnv, store: Store, rng: random.Random) -> None:
    """All that a record tells, and what programs do besides."""
    work(store, Follower(env, store), rng, checkpoints=0.0)
    store.create_queue("urgent", kind="work", order="priority")
    for number in range(30):
        store.put("urgent", b"%d" % number, priority=number % 7, delay=number % 3 and 3600.0)
    store.admin.move("urgent", "work", max_messages=5)
    store.cron.create("daily", "work", "@daily", b"morning")
    store.session("caller").put("work", b"asked")
    store.admin.create_alias("jobs", "work")
    store.create_queue("gone", kind="work")
    store.put("gone", bytes(20_000))
    store.drop_queue("gone")


class Beside:
    """What goes on in the store while it is backed up: called as the backup's report."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        self._store = store
        self._rng = rng
        self.count = 0

    def __call__(self, done: int, expected: int) -> None:
        assert 0 < done <= expected
        store, rng, self.count = self._store, self._rng, self.count + 1
        with store.transaction(large=rng.random() < 0.3) as txn:
            txn.put_many("work", [rng.randbytes(rng.randrange(1, 5000)) for _ in range(3)])
            txn.get_many("work", rng.randrange(1, 60))
            txn.get_many("rows", 30)
            txn.get_many("topic/a", 40)
            txn.get_many("topic/b", 40)
        if self.count == 2:
            store.drop_queue("tried")
            store.prepared.rollback("x19")
        if rng.random() < 0.7:
            store.admin.checkpoint()


@pytest.mark.cases(2)
@pytest.mark.promise(10)
@pytest.mark.parametrize("options", GEOMETRIES, ids=["one file", "three files"])
def test_a_restored_store_is_as_it_was(seed: int, options: dict[str, Any], limits: Limits) -> None:
    """Number, state and contents are those of the backup's moment, whatever went on (BM2)."""
    env, rng = clock_machine(seed), random.Random(seed)
    limits(PACK_BYTES=40_000, READ_BYTES=10_000)
    with opened(env, **options) as store:
        furnish(env, store, rng)
        for _ in range(rng.randrange(2)):
            store.admin.checkpoint()
        expected = told(store, "contents")
        beside = Beside(store, rng)
        report = backup(store, ARCHIVE, env=env, report=beside)
        assert beside.count > 3
        assert told(store)[0] > expected[0]
        store_id = store.integration.store_id
    assert (report.backup.number, report.backup.state_hash) == expected[:2]
    assert backups(ARCHIVE, env=env) == [report.backup]
    assert verify(ARCHIVE, env=env).findings == []
    assert restore(ARCHIVE, RESTORED, env=env).backup == report.backup
    with opened(env, RESTORED) as restored:
        assert told(restored, "contents") == expected
        assert restored.integration.store_id == store_id
        restored.prepared.commit("x19")
        restored.put("jobs", b"next")
        restored.admin.checkpoint()
        assert restored.admin.verify().ok
    with opened(env, RESTORED) as restored:
        assert restored.admin.verify().ok
        assert [each.name for each in restored.cron.list()] == ["daily"]
    assert not [path for path in env.files() if RESTORING in path]


def furnish_small(store: Store) -> None:
    """A block, and a large transaction's file."""
    store.create_queue("q", kind="work")
    store.put("q", b"a block")
    with store.transaction(large=True) as txn:
        txn.put_many("q", [b"large" * 600] * 5)


def test_ids_of_volatile_queues_do_not_come_again() -> None:
    """The store goes on after its backup, and the restored one beside it: no id is given twice."""
    env = new_machine(1)
    given = []
    with opened(env) as store:
        store.create_queue("memory", kind="work", type="volatile")
        given.append(store.put("memory", b"1"))
        backup(store, ARCHIVE, env=env)
    for path in (PATH, PATH, RESTORED, RESTORED):
        if path == RESTORED and not env.exists(path):
            restore(ARCHIVE, RESTORED, env=env)
        with opened(env, path) as store:
            assert store.get("memory") is None
            given.append(store.put("memory", b"2"))
    assert sorted(map(int, given)) == [*map(int, given)]
    assert len({*map(int, given)}) == len(given)


def small_store(env: SimEnv) -> list[BackupInfo]:
    """Three backups of a store with a block, a large transaction's file, and a prepared one."""
    made = []
    with opened(env, page_size=4096) as store:
        furnish_small(store)
        prepared = store.transaction()
        prepared.put("q", bytes(2000))
        prepared.prepare("x")
        for number in range(3):
            store.put("q", b"%d" % number * 100)
            report = backup(store, ARCHIVE, env=env)
            made.append(report.backup)
            sent = [report.sent_bytes < report.backup.bytes for _ in range(1)]
            assert sent == [number > 0]  # the file went once (BM3)
            env.sleep(24 * 3600.0)
    return made


def objects(env: SimEnv) -> list[str]:
    """The archive's files."""
    return [path for path in env.files() if path.startswith(f"{ARCHIVE}/")]


def test_a_restore_to_a_number_or_a_time() -> None:
    """The newest backup that is not after it; an error names the earliest and the latest."""
    env = new_machine(1)
    first, second, third = small_store(env)
    wanted: list[tuple[dict[str, Any], BackupInfo]] = [
        ({}, third),
        ({"number": second.number}, second),
        ({"number": third.number - 1}, second),
        ({"time": first.time_us}, first),
        ({"time": second.time_us + 1}, second),
    ]
    for index, (at, expected) in enumerate(wanted):
        assert restore(ARCHIVE, f"{RESTORED}{index}", env=env, **at).backup == expected
        with opened(env, f"{RESTORED}{index}") as store:
            assert told(store) == (expected.number, expected.state_hash)
    words = f"of record {first.number} .*of record {third.number} "
    too_old: list[dict[str, Any]] = [{"number": first.number - 1}, {"time": first.time_us - 1}]
    for at in too_old:
        with pytest.raises(BackupNotFound, match=words):
            restore(ARCHIVE, "/disk/no", env=env, **at)
    with pytest.raises(BackupNotFound, match="has no backup"):
        restore("/disk/nothing", "/disk/no", env=env)
    wrong: list[dict[str, Any]] = [
        {"number": -1}, {"number": "1"}, {"time": 5}, {"number": 1, "time": 1e9}
    ]  # fmt: skip
    for bad in wrong:
        with pytest.raises(InvalidArgument):
            restore(ARCHIVE, "/disk/no", env=env, **bad)
    with pytest.raises(InvalidArgument, match="is there already"):
        restore(ARCHIVE, PATH, env=env)
    env.make_directory("/disk/empty")
    restore(ARCHIVE, "/disk/empty", env=env)
    with opened(env, "/disk/empty") as store:
        assert store.admin.verify().ok


def test_another_stores_archive_is_refused() -> None:
    """Nothing is written into it."""
    env = new_machine(1)
    small_store(env)
    before = objects(env)
    with (
        opened(env, "/disk/other") as other,
        pytest.raises(ArchiveRefused, match="give another place"),
    ):
        backup(other, ARCHIVE, env=env)
    assert objects(env) == before


def test_each_object_that_is_gone_or_damaged_is_found(rng: random.Random) -> None:
    """By `verify`, with its name; a restore refuses it (BR2), and leaves nothing behind."""
    env = new_machine(1)
    newest = small_store(env)[-1]
    needed = [path for path in objects(env) if newest.base in path or "/files/" in path]
    assert len(needed) == 5
    for path in needed:
        for fault in ("gone", "flipped", "longer"):
            hurt = env.crash(outcome="kept")
            if fault == "gone":
                hurt.remove(path)
            elif fault == "flipped":
                hurt.corrupt(path, rng.randrange(len(hurt.contents(path))), 1 << rng.randrange(8))
            else:
                file = hurt.open_file(path)
                file.write(file.size(), b"x")
                file.close()
            report = verify(ARCHIVE, env=hurt)
            name = path.removeprefix(f"{ARCHIVE}/")
            if fault == "gone" and name.endswith("manifest"):
                assert len(backups(ARCHIVE, env=hurt)) == 2
                assert len(report.warnings) == 1
                continue
            assert not report.ok
            assert any(name in finding for finding in report.damage), (name, report)
            with pytest.raises(ArchiveCorrupt, match=name):
                restore(ARCHIVE, RESTORED, env=hurt)
            assert not [path for path in hurt.files() if path.startswith(RESTORED)]
            assert not hurt.exists(RESTORED)


def test_keep_removes_old_backups() -> None:
    """But for the newest (BK1), and what it needs; a second call finds nothing to do (BK2)."""
    env = new_machine(1)
    made = small_store(env)
    assert keep(ARCHIVE, 7 * 24 * 3600.0, env=env) == []
    assert keep(ARCHIVE, 1.5 * 24 * 3600.0, env=env) == made[:2]
    assert backups(ARCHIVE, env=env) == made[2:]
    assert len(objects(env)) == 6
    assert keep(ARCHIVE, 1.0, env=env) == []
    assert verify(ARCHIVE, env=env).findings == []
    restore(ARCHIVE, RESTORED, env=env)
    with opened(env, RESTORED) as store:
        assert store.admin.verify().ok


def test_a_failed_backup_leaves_no_backup(seed: int) -> None:
    """Whatever call of the archive fails: the store goes on, and `keep` removes what is left."""
    env = new_machine(seed)
    with opened(env, page_size=4096) as store:
        store.create_queue("q", kind="work")
        store.put_many("q", [bytes(9000)] * 3)
        backup(store, ARCHIVE, env=env)
        for kind in ("write", "sync", "sync_directory"):
            for pattern in ("/disk/archive/.tmp/*", "/disk/archive/bases/*"):
                fault = env.fail(kind, pattern)
                before = len(backups(ARCHIVE, env=env))
                try:
                    backup(store, ARCHIVE, env=env)
                except ArchiveFailed:
                    assert len(backups(ARCHIVE, env=env)) == before
                env._faults.remove(fault) if fault in env._faults else None
                assert store._leases is not None
                assert len(store._leases) == 0
                with store.transaction() as txn:
                    txn.put("q", b"more")
                assert store.admin.verify().ok


class Interrupt(BaseException):
    """As of a signal."""


def test_an_interrupted_backup_ends_its_lease() -> None:
    """In its midst: there is no backup (BM1); what it has left goes when it is a day old (BK3)."""
    env = new_machine(1)
    with opened(env) as store:
        store.create_queue("q", kind="work")
        store.put("q", bytes(9000))

        def interrupt(done: int, expected: int) -> None:
            raise Interrupt

        with pytest.raises(Interrupt):
            backup(store, ARCHIVE, env=env, report=interrupt)
        assert len(store._leases) == 0
        assert backups(ARCHIVE, env=env) == []
        backup(store, ARCHIVE, env=env)
        several = len(objects(env))
        keep(ARCHIVE, 1.0, env=env)
        assert len(objects(env)) == several
        with pytest.raises(Interrupt):
            backup(store, ARCHIVE, env=env, report=interrupt)
        env.sleep(UNNAMED_AGE_SECONDS + 1)
        keep(ARCHIVE, 1e9, env=env)
        assert verify(ARCHIVE, env=env).findings == []


def test_a_lease_that_has_ended_ends_the_backup() -> None:
    """The owner has ended, or the archive took too long: there is no backup."""
    env = new_machine(1)
    with opened(env) as store:
        store.create_queue("q", kind="work")
        store.put("q", bytes(9000))

        def too_long(done: int, expected: int) -> None:
            env.sleep(3600.0)
            store.put("q", b"x")
            store._leases.expire()

        with pytest.raises(PositionLost, match="make the backup anew"):
            backup(store, ARCHIVE, env=env, report=too_long)
        assert backups(ARCHIVE, env=env) == []


def test_damage_in_the_store_ends_the_backup() -> None:
    """A damaged block gets into no archive (SF1)."""
    env = new_machine(1)
    with opened(env, page_size=4096) as store:
        store.create_queue("q", kind="work")
        store.put("q", b"x" * 90_000)
        store.admin.checkpoint()
        env.corrupt(f"{PATH}/data/0.dat", 3 * 4096)
        with pytest.raises(StoreCorrupt, match=r"0\.dat"):
            backup(store, ARCHIVE, env=env)
        assert backups(ARCHIVE, env=env) == []


def restoring(env: SimEnv, oracle: list[str]) -> None:
    """The workload of the crashes."""
    restore(ARCHIVE, RESTORED, env=env)
    oracle.append("restored")


def check_restored(env: SimEnv, oracle: list[str]) -> None:
    """A whole store or none; a later restore takes up where nothing is."""
    if not env.exists(RESTORED):
        assert not oracle
        restore(ARCHIVE, RESTORED, env=env)
        assert not [name for name in env.list_directory("/disk") if RESTORING in name]
    with opened(env, RESTORED) as store:
        report = store.admin.verify()
        assert report.ok, report.findings
        [made] = backups(ARCHIVE, env=env)
        assert (report.checked["number"], report.checked["state_hash"]) == (
            made.number, made.state_hash
        )  # fmt: skip


@pytest.mark.crash
@pytest.mark.parametrize("every", [pytest.param(20), pytest.param(1, marks=pytest.mark.long)])
def test_half_a_store_is_never_restored(seed: int, every: int) -> None:
    """A power failure or an error in each call: a whole store has the path, or nothing (BR1)."""

    def prepared(number: int) -> SimEnv:
        env = new_machine(number)
        with opened(env, page_size=4096) as store:
            furnish_small(store)
            store.put("q", b"x" * 100)
            backup(store, ARCHIVE, env=env)
        return env.crash(outcome="kept")

    cases = enumerate_crashes(
        restoring, check_restored, list, seed=seed, rounds=1, every=every, new_env=prepared
    )
    assert cases > 3


def test_a_full_disk_refuses_a_restore() -> None:
    """Nothing is left, whenever it is full; with room it is done."""
    env = new_machine(1)
    small_store(env)
    before = env.used_bytes()
    restore(ARCHIVE, PATH + "2", env=env)
    needed = env.used_bytes() - before
    for percent in range(5, 30, 5):  # what is not needed at once is only taken if there is room
        env.capacity_bytes = env.used_bytes() + needed * percent // 100
        with pytest.raises(DiskFull):
            restore(ARCHIVE, RESTORED, env=env)
        assert not env.exists(RESTORED)
        assert not [path for path in env.files() if RESTORING in path]
    env.capacity_bytes = env.used_bytes() + 2 * needed
    restore(ARCHIVE, RESTORED, env=env)
    with opened(env, RESTORED) as store:
        assert store.admin.verify().ok


def test_one_restore_at_a_time() -> None:
    """Another one to the same path is refused, and what was broken off is removed."""
    env = new_machine(1)
    small_store(env)
    left = f"{RESTORED}{RESTORING}{7:016x}"
    env.make_directory(left)
    lock = env.lock(f"{left}/LOCK", "another")
    with pytest.raises(StoreLocked, match="is under way"):
        restore(ARCHIVE, RESTORED, env=env)
    lock.release()
    restore(ARCHIVE, RESTORED, env=env)
    assert not env.exists(left)


def test_what_is_no_store_is_refused() -> None:
    """A store for asyncio, and anything else."""
    for bad in (None, 5, object()):
        with pytest.raises(InvalidArgument, match="give an open store"):
            backup(bad, ARCHIVE)  # type: ignore[arg-type]


def test_over_a_busy_network(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests fail, or their answers are lost: they are repeated, and the store is the same."""
    env = new_machine(seed)
    faulty = FaultyObjects(MemoryObjects(env), env, seed, share=0.15, late=True)
    for module in (base_making, base_restoring, base_checking, base_keeping, choosing):
        monkeypatch.setattr(module, "open_objects", lambda url, env: RetriedObjects(faulty, env))
    with opened(env, page_size=4096) as store:
        furnish_small(store)
        expected = told(store, "contents")
        backup(store, "s3://there", env=env)
        store.put("q", b"more")
        backup(store, "s3://there", env=env)
    assert len(backups("s3://there", env=env)) == 2
    assert verify("s3://there", env=env).damage == []
    restore("s3://there", RESTORED, number=expected[0], env=env)
    with opened(env, RESTORED) as store:
        assert told(store, "contents") == expected
    env.sleep(3600.0)
    assert len(keep("s3://there", 60.0, env=env)) == 1
    assert verify("s3://there", env=env).damage == []
    assert faulty.faults


class ArchiveOracle:
    """The backups that were acknowledged, and those that may be gone."""

    def __init__(self) -> None:
        self.made: list[BackupInfo] = []
        self.going = 0  # so many of the first ones


def backing_up(env: SimEnv, oracle: ArchiveOracle) -> None:
    """The workload of the crashes: three backups, of which the last call removes two."""
    with opened(env, page_size=4096) as store:
        furnish_small(store)
        for number in range(3):
            store.put("q", b"%d" % number * 3000)
            oracle.made.append(backup(store, ARCHIVE, env=env).backup)
            env.sleep(100.0)
        oracle.going = 2
        keep(ARCHIVE, 150.0, env=env)


def check_archive(env: SimEnv, oracle: ArchiveOracle) -> None:
    """What was acknowledged is listed; all that is listed is whole; the store goes on."""
    found = backups(ARCHIVE, env=env)
    assert [info for info in oracle.made[oracle.going :] if info not in found] == []
    assert verify(ARCHIVE, env=env).damage == []
    if found:
        restore(ARCHIVE, RESTORED, env=env)
        with opened(env, RESTORED) as store:
            assert told(store) == (found[-1].number, found[-1].state_hash)
    with opened(env, page_size=4096) as store:
        if "q" in store.admin.queue_names():
            store.put("q", b"on")
        assert store.admin.verify().ok
        backup(store, ARCHIVE, env=env)
    env.sleep(UNNAMED_AGE_SECONDS + 1)
    keep(ARCHIVE, 1.0, env=env)
    assert len(backups(ARCHIVE, env=env)) == 1
    assert verify(ARCHIVE, env=env).findings == []


@pytest.mark.crash
@pytest.mark.parametrize("every", [pytest.param(150), pytest.param(3, marks=pytest.mark.long)])
def test_every_backup_that_is_listed_is_whole(seed: int, every: int) -> None:
    """A power failure or an error in each call of a backup, or of `keep` (BM1, BK2)."""
    cases = enumerate_crashes(
        backing_up, check_archive, ArchiveOracle, seed=seed, rounds=1, every=every,
        new_env=new_machine,
    )  # fmt: skip
    assert cases > 3
