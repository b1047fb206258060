"""Clean-up of an archive: what no kept restore point needs goes, and the store's records say so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest

from quire.archive import (
    backup,
    backups,
    base_checking,
    base_keeping,
    base_making,
    base_restoring,
    choosing,
    format,
    keep,
    restore,
    verify,
)
from quire.archive.base_keeping import ArchiveCleaning
from quire.archive.boundaries import newest_boundary
from quire.archive.entry_reading import heads
from quire.archive.manifest import BackupInfo
from quire.archive.object_reading import ObjectReading
from quire.archive.objects import Objects, open_objects
from quire.archive.objects.retries import RetriedObjects
from quire.archive.shipper import Shipper
from quire.engine import EmbeddedStore as Store
from quire.errors import ArchiveFailed, InvalidArgument
from quire.testing import SimEnv
from tests.archive.shipping_kit import ship_all
from tests.archive.test_backup_and_restore import (
    ARCHIVE,
    RESTORED,
    clock_machine,
    objects,
    opened,
)
from tests.archive.test_restore_points import messages
from tests.engine.test_state_hash import Clock, told
from tests.engine.workload import new_machine
from tests.kit.faulty_objects import FaultyObjects
from tests.kit.memory_objects import MemoryObjects

DAY_US = 24 * 3600 * 10**6


class Days:
    """A store that is shipped continuously, day by day."""

    def __init__(self, env: Clock, store: Store) -> None:
        self.env, self.store = env, store
        self.objects: Objects = open_objects(ARCHIVE, env)
        self.read = ObjectReading(self.objects, None)
        self.shipper = Shipper(store, self.objects, env)
        self.bases: list[BackupInfo] = []
        self.ends: list[tuple[int, int]] = []  # of days: number, messages

    def day(self, *, base: bool) -> None:
        """Put blocks, a blob and a file, get some; ship all. With a base in the morning."""
        env, store = self.env, self.store
        env.shown_us += DAY_US
        if base:
            self.bases.append(backup(store, ARCHIVE, env=env).backup)
        for size in (10, 3000, 1_200_000):
            env.shown_us += 1_000_000
            store.put("q", bytes(size))
            ship_all(self.shipper)
        with store.transaction(large=True) as txn:
            txn.put_many("q", [b"large" * 600] * 5)
        store.get_many("q", 6)
        ship_all(self.shipper)
        self.ends.append((told(store)[0], store.queue("q").messages))

    def cleaning(self, days: float) -> ArchiveCleaning:
        """One clean-up."""
        return ArchiveCleaning(self.objects, self.read, self.env, days * 24 * 3600.0, self.store)


@contextmanager
def days() -> Iterator[Days]:
    """A store with an archive."""
    env = clock_machine(1)
    with opened(env, page_size=4096, inline_limit_bytes=100) as store:
        store.admin.set_archive(ARCHIVE)
        store.create_queue("q", kind="work")
        yield Days(env, store)


def names(env: SimEnv, *prefixes: str) -> set[str]:
    """The archive's objects of these kinds."""
    found = {path.removeprefix(f"{ARCHIVE}/") for path in objects(env)}
    return {name for name in found if name.startswith(prefixes)}


def test_what_is_older_goes_once_the_store_has_said_so() -> None:
    """Not before its record is in the archive (BK5); what a kept point needs stays (BK1)."""
    with days() as made:
        env = made.env
        for number in range(5):
            made.day(base=number % 2 == 0)
        before = names(env, "")
        env.shown_us += 1
        cleaning = made.cleaning(1.5)  # so the base of the third day is needed
        assert not cleaning.step()
        assert names(env, "") == before
        assert not cleaning.step()
        assert names(env, "") == before
        ship_all(made.shipper)
        assert cleaning.step()
        assert cleaning.removed == made.bases[:1]
        info = made.store.admin.archive()
        assert info is not None
        boundary = newest_boundary(made.objects).boundary
        assert boundary.place == info.boundary_place == cleaning.boundary_place > 0
        assert boundary.number <= made.bases[1].number
        left = [head.place for head in heads(made.objects, made.read)]
        assert boundary.place + 1 in left
        gone = {format.entry_name(place) for place in range(1, boundary.place + 1)}
        assert gone & names(env, "") == set()
        assert verify(ARCHIVE, env=env).findings == []
        assert len(names(env, format.BLOBS)) < sum(name.startswith("blobs/") for name in before)
        for number, count in made.ends[2:]:
            path = f"{RESTORED}{number}"
            assert restore(ARCHIVE, path, number=number, env=env).number == number
            assert messages(env, path) == count
        again = made.cleaning(1.5)
        assert again.step()
        assert again.removed == []


def test_the_newest_base_and_entry_stay() -> None:
    """However old they are (BK1, BK6); the shipper goes on."""
    with days() as made:
        made.day(base=True)
        made.bases.append(backup(made.store, ARCHIVE, env=made.env).backup)
        made.env.shown_us += 1000 * DAY_US
        cleaning = made.cleaning(1.0)
        assert not cleaning.step()
        ship_all(made.shipper)
        assert cleaning.step()
        assert backups(ARCHIVE, env=made.env)[-1].base == made.bases[-1].base
        assert len(names(made.env, format.LOG)) >= 1
        made.day(base=False)
        again = Shipper(made.store, made.objects, made.env)
        ship_all(again)
        assert verify(ARCHIVE, env=made.env).findings == []
        assert restore(ARCHIVE, RESTORED, env=made.env).number == told(made.store)[0]


def test_a_store_has_to_say_what_is_not_needed() -> None:
    """Without it, with another one, or with a shipper that does not work nothing is removed."""
    with days() as made:
        env = made.env
        for _ in range(3):
            made.day(base=True)
        before = names(env, "")
        with pytest.raises(InvalidArgument, match="give that store"):
            keep(ARCHIVE, 1.0, env=env)
        with (
            opened(env, "/disk/other") as other,
            pytest.raises(InvalidArgument, match="give the store that ships there"),
        ):
            keep(ARCHIVE, 1.0, store=other, env=env)
        with pytest.raises(ArchiveFailed, match="was not shipped"):
            keep(ARCHIVE, 1.0, store=made.store, env=env)
        assert names(env, "") == before
        ship_all(made.shipper)
        assert verify(ARCHIVE, env=env).findings == []


class WatchedObjects:
    """Objects of which a call is watched."""

    def __init__(self, inner: Objects, before_delete: Callable[[list[str]], None]) -> None:
        self._inner = inner
        self._before_delete = before_delete
        self.url = inner.url
        self.create, self.upload, self.overwrite = inner.create, inner.upload, inner.overwrite
        self.read, self.size, self.list, self.close = (
            inner.read, inner.size, inner.list, inner.close,
        )  # fmt: skip

    def delete(self, names: Iterable[str]) -> None:
        some = list(names)
        self._before_delete(some)
        self._inner.delete(some)


@contextmanager
def two_bases() -> Iterator[tuple[SimEnv, Store, str]]:
    """A plain archive with a base that has a file; the file's object."""
    env = new_machine(1)
    with opened(env, page_size=4096) as store:
        store.create_queue("q", kind="work")
        with store.transaction(large=True) as txn:
            txn.put_many("q", [b"large" * 600] * 5)
        backup(store, ARCHIVE, env=env)
        [file] = names(env, format.FILES)
        env.sleep(10 * 24 * 3600.0)
        yield env, store, file


def test_a_base_whose_file_was_removed_meanwhile_is_taken_back() -> None:
    """A newer one was made, and a clean-up removed the one whose file was to be shared (BM4)."""
    with two_bases() as (env, store, _):
        done: list[int] = []

        def meanwhile(done_bytes: int, expected: int) -> None:
            if not done:
                done.append(1)
                store.get_many("q", 5)
                backup(store, ARCHIVE, env=env)
                env.sleep(7200.0)
                assert len(keep(ARCHIVE, 3600.0, env=env)) == 1

        with pytest.raises(ArchiveFailed, match="repeat the operation"):
            backup(store, ARCHIVE, env=env, report=meanwhile)
        assert done
        assert len(backups(ARCHIVE, env=env)) == 1
        assert verify(ARCHIVE, env=env).damage == []
        backup(store, ARCHIVE, env=env)
        assert verify(ARCHIVE, env=env).damage == []


def test_a_base_that_is_made_during_a_clean_up_keeps_its_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its manifest comes before that of the base with which it shares a file goes: so it is seen
    (BM4).
    """
    with two_bases() as (env, store, file):
        inner = open_objects(ARCHIVE, env)
        begun, go_on = threading.Event(), threading.Event()
        made: list[BackupInfo] = []

        def wait(done_bytes: int, expected: int) -> None:
            begun.set()
            assert go_on.wait(30)

        maker = threading.Thread(
            target=lambda: made.append(backup(store, ARCHIVE, env=env, report=wait).backup)
        )
        maker.start()
        assert begun.wait(30)
        store.get_many("q", 5)
        newer = backup(store, ARCHIVE, env=env).backup
        env.sleep(7200.0)

        def before_delete(going: list[str]) -> None:
            go_on.set()
            maker.join(30)

        monkeypatch.setattr(
            base_keeping, "open_objects", lambda url, env: WatchedObjects(inner, before_delete)
        )
        assert len(keep(ARCHIVE, 3600.0, env=env)) == 1
        assert file in names(env, format.FILES)
        assert [info.base for info in backups(ARCHIVE, env=env)] == [made[0].base, newer.base]
        assert verify(ARCHIVE, env=env).damage == []
        assert restore(ARCHIVE, RESTORED, number=made[0].number, env=env).number == made[0].number


def test_over_a_busy_network(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests fail, or their answers are lost: shipped, cleaned up, verified and restored."""
    env = clock_machine(seed)
    memory = MemoryObjects(env)
    memory.url = ARCHIVE
    faulty = FaultyObjects(memory, env, seed, share=0.1, late=True)
    distant = RetriedObjects(faulty, env)
    for module in (base_making, base_restoring, base_checking, base_keeping, choosing):
        monkeypatch.setattr(module, "open_objects", lambda url, env: distant)
    with opened(env, page_size=4096, inline_limit_bytes=100) as store:
        store.admin.set_archive(ARCHIVE)
        store.create_queue("q", kind="work")
        made = Days(env, store)
        made.objects, made.read = distant, ObjectReading(distant, None)
        made.shipper = Shipper(store, distant, env)
        for number in range(4):
            made.day(base=number % 2 == 0)
        env.shown_us += 1
        cleaning = made.cleaning(0.5)
        assert not cleaning.step()
        ship_all(made.shipper)
        assert cleaning.step()
        assert cleaning.removed == made.bases[:1]
        faulty.land()
        assert verify(ARCHIVE, env=env).damage == []
        number, count = made.ends[-1]
    assert restore(ARCHIVE, RESTORED, number=number, env=env).number == number
    assert messages(env, RESTORED) == count
    assert faulty.faults
