"""Entries of records: their log, merging them, and what becomes of damaged ones."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quire.archive import format, merging
from quire.archive.entry_reading import heads, named, opened, records
from quire.archive.limits import MERGED_SECONDS
from quire.archive.log import EntryLog
from quire.archive.object_reading import ObjectReading, reading
from quire.archive.objects import Objects, open_objects
from quire.archive.objects.retries import RetriedObjects
from quire.archive.shipper import Shipper
from quire.checksum import checksum
from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import ArchiveCorrupt, ArchiveFailed, ArchiveRefused
from quire.testing import SimEnv
from tests.archive.shipping_kit import URL, ship_all, shipped
from tests.archive.test_backup_and_restore import clock_machine
from tests.archive.test_backup_and_restore import opened as opened_store
from tests.kit.faulty_objects import FaultyObjects
from tests.kit.memory_objects import MemoryObjects

KINDS = ("memory", "directory", "simulated disk", "faulty")


def objects_of(kind: str, path: Path, seed: int) -> Objects:
    """Empty objects of a kind."""
    env = SimEnv(seed)
    match kind:
        case "directory":
            return open_objects(str(path / "archive"), OsEnv())
        case "simulated disk":
            return open_objects("/archive", env)
        case "faulty":
            faulty = FaultyObjects(MemoryObjects(env), env, seed, late=True)
            return RetriedObjects(faulty, env)
    return MemoryObjects(env)


def fill(
    env: SimEnv, store: Store, objects: Objects, entries: int, *, large: bool = True
) -> Shipper:
    """Ship so many entries: small ones, and one with an attachment in a blob and a file."""
    store.admin.set_archive(URL)
    store.create_queue("q")
    shipper = Shipper(store, objects, env)
    for number in range(entries):
        if number == 2 and large:
            with store.transaction() as txn:
                txn.put("q", bytes(1_500_000))
            with store.transaction(large=True) as txn:
                txn.put_many("q", [bytes(200)] * 200)
        with store.transaction() as txn:
            txn.put("q", b"%d" % number)
            txn.put("q", bytes(700_000 if number == 1 and large else 10))
        ship_all(shipper)
    return shipper


def log_of(objects: Objects) -> EntryLog:
    """The log of an archive."""
    return EntryLog(objects, ObjectReading(objects, None))


@pytest.mark.parametrize("kind", KINDS)
def test_entries_are_read_back(kind: str, tmp_path: Path, seed: int) -> None:
    """[LG1, SH1] Each kind of objects has the same records, in entries that are chained."""
    env = clock_machine(seed)
    objects = objects_of(kind, tmp_path, seed)
    with opened_store(env) as store:
        fill(env, store, objects, 6)
        read = ObjectReading(objects, None)
        found = heads(objects, read)
        assert [head.place for head in found] == list(range(1, len(found) + 1))
        assert len(found) >= 6
        every = list(records(read, found))
        assert [record.number for record in every] == list(range(2, every[-1].number + 1))
        assert sum(len(record.attachment) > 1_000_000 for record in every) == 1
        prefixes = {name.partition("/")[0] for name in named(objects, read, found)}
        assert prefixes == {"blobs", "files"}
        assert log_of(objects).tail() == len(found)


class Answers:
    """Memory, whose creates of entries answer as a test says."""

    def __init__(self, objects: MemoryObjects, *answers: Callable[[str, bytes], bool]) -> None:
        self._objects = objects
        self._answers = list(answers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    def create(self, name: str, data: bytes) -> bool:
        """Make an object, or do what the next answer does."""
        if name.startswith(format.LOG) and self._answers:
            return self._answers.pop(0)(name, data)
        return self._objects.create(name, data)


def test_a_create_that_is_refused_is_read(seed: int) -> None:
    """[LG1] Own bytes are success, none are tried again, for a time; others are handed back."""
    env = clock_machine(seed)
    with opened_store(env) as store:
        objects = MemoryObjects(env)
        fill(env, store, objects, 2, large=False)
        data = objects.read(format.entry_name(1))
        log = log_of(objects)
        assert log.append(1, data) is None
        own = opened(data, "here")
        found = log.append(1, data[:-1] + b"x")
        assert found is not None
        assert found.head.checksum == own.head.checksum
        empty = MemoryObjects(env)

        def lost(name: str, data: bytes) -> bool:
            empty.create(name, data)
            return False

        refusing: Any = Answers(empty, lambda name, data: False, lost)
        assert log_of(refusing).append(1, data) is None
        never: Any = Answers(MemoryObjects(env), *[lambda name, data: False] * 20)
        with pytest.raises(ArchiveFailed, match="cannot be made, and is not there"):
            log_of(never).append(1, data)


def test_the_end_of_a_log_is_found(seed: int) -> None:
    """[LG2] Where the first entries were removed, and where one is missing behind."""
    env = clock_machine(seed)
    with opened_store(env) as store:
        objects = MemoryObjects(env)
        fill(env, store, objects, 12, large=False)
        count = len(heads(objects, ObjectReading(objects, None)))
        for removed in (range(1, 5), [7], [count - 1]):
            objects.delete(map(format.entry_name, removed))
            assert log_of(objects).tail() == count


def test_small_entries_are_merged(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """[ME1, ME2, EY3] All records are there after it, the newest entry alone; shipping goes on."""
    env = SimEnv(seed)
    env.make_directory("/disk")
    env.sync_directory("/")
    with opened_store(env) as store:
        objects = MemoryObjects(env)
        shipper = fill(env, store, objects, 9)
        before = shipped(objects)
        env.advance(MERGED_SECONDS + 1)
        ship_all(shipper)
        ship_all(shipper)
        names = sorted(objects.contents)
        single = [name for name in names if name.startswith(format.LOG)]
        merged = [name for name in names if name.startswith(format.MERGED)]
        count = heads(objects, ObjectReading(objects, None))[-1].place
        assert single == [format.entry_name(count)]
        assert merged == [format.merged_name(1, count - 1)]
        assert shipped(objects) == before
        read = ObjectReading(objects, None)
        assert len(named(objects, read, heads(objects, read))) == 2
        late = objects.contents[format.entry_name(count)]
        objects.contents[format.entry_name(2)] = late  # a late one, of other content
        assert shipped(objects) == before
        store.put("q", b"more")
        ship_all(Shipper(store, objects, env))  # which finds the end, and what was left
        assert [record.number for record in shipped(objects)] == [
            *(record.number for record in before),
            before[-1].number + 1,
        ]
        again = Shipper(store, objects, env)
        ship_all(again)
        ship_all(again)
        assert format.entry_name(2) not in objects.contents


def test_merging_may_end_anywhere(seed: int) -> None:
    """[ME1] Before each of its calls, and with the lost answer of each: every record is there."""
    env = clock_machine(seed)
    with opened_store(env) as store:
        whole = MemoryObjects(env)
        shipper = fill(env, store, whole, 5)
        before = shipped(whole)
        newest = heads(whole, ObjectReading(whole, None))[-1].place
        ended = 0
        for last in range(100):
            objects = MemoryObjects(env)
            objects.contents.update(whole.contents)
            counted = Ending(objects, last)
            read = ObjectReading(counted, None)
            work = merging.EntryMerging(counted, read, EntryLog(counted, read), env)
            try:
                work.step(newest)
                env.shown_us += round(MERGED_SECONDS * 2e6)
                work.step(newest)
            except Ended:
                ended += 1
            assert shipped(objects) == before
            if counted.left >= 0:
                assert format.merged_name(1, newest - 1) in objects.contents
                break
        assert 5 < ended < 99
        shipper.close()


class Ended(BaseException):
    """The end of a process."""


class Ending:
    """Objects, at the n-th call of which the process ends, before or behind it by turns."""

    def __init__(self, objects: MemoryObjects, last: int) -> None:
        self._objects = objects
        self.left = last

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._objects, name)
        if not callable(value):
            return value

        def call(*arguments: Any) -> Any:
            self.left -= 1
            if self.left < 0 and name in ("upload", "delete"):
                value(*arguments)
            if self.left < 0:
                raise Ended
            return value(*arguments)

        return call


# Damage ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def archive() -> MemoryObjects:
    """Six entries, with a blob and a file; each test takes a copy."""
    env = clock_machine(1)
    objects = MemoryObjects(env)
    with opened_store(env) as store:
        fill(env, store, objects, 6)
    return objects


@pytest.fixture(scope="module")
def merged_archive(archive: MemoryObjects) -> MemoryObjects:
    """The same, all entries but the last merged."""
    objects = copy_of(archive)
    env = clock_machine(2)
    read = ObjectReading(objects, None)
    work = merging.EntryMerging(objects, read, EntryLog(objects, read), env)
    work.step(heads(objects, read)[-1].place)
    env.shown_us += round(MERGED_SECONDS * 1e7)
    work.step(heads(objects, read)[-1].place)
    assert [name for name in objects.contents if name.startswith(format.MERGED)]
    return objects


def copy_of(objects: MemoryObjects) -> MemoryObjects:
    """Objects with the same contents."""
    other = MemoryObjects(objects._env)
    other.contents.update(objects.contents)
    return other


def read_all(objects: MemoryObjects) -> int:
    """Read all records and names; how many records there are."""
    read = ObjectReading(objects, None)
    found = heads(objects, read)
    named(objects, read, found)
    return len(list(records(read, found)))


def check_damage(objects: MemoryObjects, name: str, data: bytes) -> None:
    """Other bytes of an object are refused by its name."""
    changed = copy_of(objects)
    changed.contents[name] = data, 0
    with pytest.raises(ArchiveCorrupt, match=name):
        read_all(changed)


def flipped(data: bytes, at: int) -> bytes:
    """Bytes with one that is another."""
    return data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]


def test_each_byte_of_an_entry_is_verified(archive: MemoryObjects) -> None:
    """[EY1] Whichever is another, and wherever the object ends, its name is in the error."""
    name = format.entry_name(5)
    data = archive.read(name)
    assert len(data) < 1000
    for at in range(len(data)):
        check_damage(archive, name, flipped(data, at))
        check_damage(archive, name, data[:at])
    check_damage(archive, name, data + b"\0")


def test_merged_entries_are_verified(merged_archive: MemoryObjects, seed: int) -> None:
    """[EY1] Each byte of their index, and bytes of their entries."""
    (name,) = (name for name in merged_archive.contents if name.startswith(format.MERGED))
    data = merged_archive.read(name)
    index_bytes = format.MERGED_HEAD.size + 5 * format.ENTRY_HEAD.size
    rng = random.Random(seed)
    for at in (*range(index_bytes), *(rng.randrange(index_bytes, len(data)) for _ in range(50))):
        check_damage(merged_archive, name, flipped(data, at))
    for end in (0, 7, 79, 80, index_bytes, len(data) - 1):
        check_damage(merged_archive, name, data[:end])
    check_damage(merged_archive, name, data + b"\0")


@pytest.mark.parametrize("places", [(0, (1 << 64) - 1), (1, 4), (2, 6), (1, 1 << 40)], ids=str)
def test_merged_entries_of_other_places_are_refused(
    merged_archive: MemoryObjects, places: tuple[int, int]
) -> None:
    """[EY1] A name that says so much is not believed."""
    (name,) = (name for name in merged_archive.contents if name.startswith(format.MERGED))
    changed = copy_of(merged_archive)
    other = format.merged_name(*places)
    changed.contents[other] = changed.contents.pop(name)
    with pytest.raises(ArchiveCorrupt, match=other):
        read_all(changed)


class SlowObjects:
    """Memory, each read of which waits until so many reads are under way."""

    def __init__(self, objects: MemoryObjects, reads: int) -> None:
        self._objects = objects
        self._barrier = threading.Barrier(reads, timeout=2)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read as the others are."""
        self._barrier.wait()
        return self._objects.read(name, offset, length)


def test_names_of_single_entries_are_read_at_a_time(archive: MemoryObjects) -> None:
    """All entries that stand alone have their reads under way at once, as in a restore."""
    found = heads(archive, ObjectReading(archive, None))
    slow = SlowObjects(archive, len(found))
    assert len(found) > 5
    with reading(slow) as read:
        names = named(slow, read, found)
    assert names == named(archive, ObjectReading(archive, None), found)
    assert len(names) > 1


def test_entries_that_are_merged_while_they_are_read_are_found(
    archive: MemoryObjects, merged_archive: MemoryObjects
) -> None:
    """[EY4] Their names, and their records: those that were read before the merge and after it."""
    objects = copy_of(archive)
    read = ObjectReading(objects, None)
    found = heads(objects, read)
    expected = [record.record for record in records(read, found)]
    names = named(objects, read, found)
    for read_before in range(len(expected)):
        objects.contents = dict(archive.contents)
        cursor = records(read, found)
        before = [next(cursor).record for _ in range(read_before)]
        objects.contents = dict(merged_archive.contents)
        assert [*before, *(record.record for record in cursor)] == expected
    assert named(objects, read, found) == names
    objects.contents = {
        name: data for name, data in archive.contents.items() if not name.startswith(format.LOG)
    }
    with pytest.raises(ArchiveCorrupt, match=f"{format.entry_name(1)}.*missing"):
        list(records(read, found))


def test_blobs_are_verified(archive: MemoryObjects, seed: int) -> None:
    """[EY1] Each block of an attachment has to be the one that the record names."""
    (name,) = (name for name in archive.contents if name.startswith(format.BLOBS))
    data = archive.read(name)
    rng = random.Random(seed)
    for at in (0, 8, 16, *(rng.randrange(1_500_000) for _ in range(20))):
        check_damage(archive, name, flipped(data, at))
    check_damage(archive, name, data[:-8])
    gone = copy_of(archive)
    del gone.contents[name]
    with pytest.raises(ArchiveCorrupt, match=f"{name}.*missing"):
        read_all(gone)


def forged(data: bytes, **values: int) -> bytes:
    """An entry whose head says something else, and is whole in itself."""
    fields = ("digest", "magic", "version", "flags", "store_id", "history", "place",
              "first_number", "records", "names", "length", "first_us", "last_us", "previous",
              "records_checksum")  # fmt: skip
    size = format.ENTRY_HEAD.size
    head = dict(zip(fields, format.ENTRY_HEAD.unpack_from(data), strict=True)) | values
    names = data[size : size + 16 * min(head["names"], (len(data) - size) // 16)]
    body = bytearray(format.ENTRY_HEAD.pack(*(head[field] for field in fields)) + names)
    struct.pack_into("<Q", body, 0, checksum(memoryview(body)[8:]))
    return bytes(body) + data[len(body) :]


@pytest.mark.parametrize(
    "values",
    [
        {"records": 1 << 31}, {"records": 0}, {"records": 2}, {"names": 1 << 31}, {"names": 1},
        {"length": 1 << 63}, {"length": 0}, {"length": 1 << 40}, {"place": 4}, {"place": 1 << 63},
        {"history": 1}, {"first_number": 1}, {"previous": 7}, {"flags": 1}, {"magic": 0},
        {"flags": 1, "length": 1 << 62},
    ],
    ids=str,
)  # fmt: skip
def test_a_forged_head_is_refused(archive: MemoryObjects, values: dict[str, int]) -> None:
    """[EY1, EY2] Counts and sizes that are not there, another place, chain, or history."""
    name = format.entry_name(5)
    check_damage(archive, name, forged(archive.read(name), **values))


def test_a_newer_format_is_refused(archive: MemoryObjects) -> None:
    """[EY1] It is not called damaged."""
    changed = copy_of(archive)
    name = format.entry_name(5)
    changed.contents[name] = forged(archive.read(name), version=2), 0
    with pytest.raises(ArchiveRefused, match="newer"):
        read_all(changed)


def test_a_missing_entry_is_named(archive: MemoryObjects) -> None:
    """[EY2] So is one that stands in another's place."""
    changed = copy_of(archive)
    del changed.contents[format.entry_name(4)]
    with pytest.raises(ArchiveCorrupt, match=format.entry_name(4)):
        read_all(changed)
    changed.contents[format.entry_name(4)] = archive.contents[format.entry_name(3)]
    with pytest.raises(ArchiveCorrupt, match=format.entry_name(4)):
        read_all(changed)


RECORDS = [
    b"", b"\0" * 8, b"\0" * 16, b"\xff" * 16, struct.pack("<IHHQ", 1 << 31, 1, 0, 0),
    struct.pack("<IHHQ", 16, 1, 0, 0), struct.pack("<IHHQ", 48, 1, 2, 0) + bytes(32),
    struct.pack("<IHHQ", 48, 1, 1, 0) + bytes(32), struct.pack("<IHHQ", 24, 2, 3, 0) + bytes(8),
    struct.pack("<IHHQ", 48, 1, 2, 0) + bytes(16) + b"\xff" * 16,
    struct.pack("<IHHQ", 48 + 32, 1, 2, 0) + bytes(32) + struct.pack("<IIHHIQQ", 1, 0, 3, 0, 16, 9,
                                                                    1 << 62),
]  # fmt: skip


@pytest.mark.parametrize("body", RECORDS)
def test_records_that_contradict_themselves_are_refused(
    archive: MemoryObjects, body: bytes
) -> None:
    """[EY1] In an entry whose checksums are right."""
    name = format.entry_name(5)
    head = forged(
        archive.read(name)[: format.ENTRY_HEAD.size],
        length=len(body), records=1, names=0, records_checksum=checksum(body),
    )  # fmt: skip
    check_damage(archive, name, head + body)
