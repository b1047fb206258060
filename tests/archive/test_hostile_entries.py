"""Entries of any bytes: a restore says that the archive is damaged, and leaves nothing."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from quire.archive import format, restore, verify
from quire.checksum import checksum
from quire.engine.records import format as records
from quire.errors import ArchiveCorrupt, ArchiveRefused, BackupNotFound
from quire.journal.format import RECORD_HEADER, RECORD_HEADER_BYTES
from quire.testing import SimEnv
from tests.archive.test_backup_and_restore import ARCHIVE, RESTORED, objects
from tests.archive.test_entry_checks import PUTS, SmallArchive
from tests.archive.test_hostile_archives import rewrite, sealed

HEAD = format.ENTRY_HEAD.size
NAME = format.ENTRY_NAME.size


@pytest.fixture(scope="module")
def small() -> SmallArchive:
    """An archive; each test takes a copy of its machine."""
    return SmallArchive()


def sealed_entry(data: bytearray) -> bytes:
    """The entry with the checksums that belong to its bytes, as far as it has them."""
    if len(data) >= HEAD:
        names = min(format.ENTRY_HEAD.unpack_from(data)[9], 1000)
        end = HEAD + NAME * names
        struct.pack_into("<Q", data, 88, checksum(memoryview(data)[end:]))
        struct.pack_into("<Q", data, 56, max(len(data) - end, 0))
        struct.pack_into("<Q", data, 0, checksum(memoryview(data)[8:end]))
    return bytes(data)


def check(env: SimEnv) -> bool:
    """Restore: a whole store, or an error of the archive and nothing else. True: it was refused."""
    verify(ARCHIVE, env=env)
    try:
        restore(ARCHIVE, RESTORED, env=env)
    except (ArchiveCorrupt, ArchiveRefused, BackupNotFound):
        assert not env.exists(RESTORED)
        assert not [path for path in env.files() if path.startswith(RESTORED)]
        return True
    return False


@pytest.mark.cases(3)
@pytest.mark.fuzz
@pytest.mark.promise(13)
def test_any_bytes_of_an_entry_are_refused(small: SmallArchive, seed: int, rounds: int) -> None:
    """Whose checksums are right: of its head, of its names, of its records; cut and lengthened."""
    rng, refused = random.Random(seed), 0
    for number in range(rounds):
        env = small.env.crash(outcome="kept")
        place = rng.choice([1, 4, 6, PUTS, PUTS, PUTS, PUTS])  # behind another the chain ends
        path = f"{ARCHIVE}/{format.entry_name(place)}"
        data = bytearray(env.contents(path))
        way = number % 4
        if way == 0:  # a field of the head
            offset = rng.choice([8, 12, 14, 16, 24, 32, 40, 48, 52, 64, 72, 80])
            value = rng.choice([b"\xff" * 4, bytes(4), rng.randbytes(4)])
            data[offset : offset + 4] = value
        elif way == 1:  # bytes of the records
            offset = rng.randrange(HEAD, len(data) - 4)
            data[offset : offset + 4] = rng.choice([b"\xff" * 4, bytes(4), rng.randbytes(4)])
        elif way == 2:
            del data[rng.randrange(len(data)) :]
        else:
            data += rng.randbytes(rng.randrange(1, 100))
        rewrite(env, path, sealed_entry(data))
        refused += check(env)
    assert refused


@pytest.mark.cases(3)
@pytest.mark.fuzz
@pytest.mark.promise(13)
def test_any_bytes_of_merged_entries_are_refused(
    small: SmallArchive, seed: int, rounds: int
) -> None:
    """Of their index, whose checksum is right; and of a boundary and a blob."""
    rng, refused = random.Random(seed), 0
    [merged] = [path for path in objects(small.env) if f"/{format.MERGED}" in path]
    [blob] = [path for path in objects(small.env) if f"/{format.BLOBS}" in path]
    for number in range(rounds):
        env = small.env.crash(outcome="kept")
        path = (merged, merged, blob)[number % 3]
        data = bytearray(env.contents(path))
        entries, names = format.MERGED_HEAD.unpack_from(data)[7:9]
        end = format.MERGED_HEAD.size + format.ENTRY_HEAD.size * entries + NAME * names
        offset = rng.randrange(8, (end if path == merged else len(data)) - 4)
        data[offset : offset + 4] = rng.choice([b"\xff" * 4, bytes(4), rng.randbytes(4)])
        if path == merged:
            end = min(end, len(data))
            struct.pack_into("<Q", data, 0, checksum(memoryview(data)[8:end]))
        rewrite(env, path, bytes(data))
        boundary = f"{ARCHIVE}/{format.boundary_name(1)}"
        env.make_directory(f"{ARCHIVE}/boundary")
        env.open_file(boundary, create=True).close()
        rewrite(env, boundary, rng.choice([b"", b"x" * 100, sealed(b'{"version":1,"place":-1}')]))
        refused += check(env)
    assert rounds < 3 or refused


def changed(record: bytearray, kind: int, flags: int, body: bytes) -> None:
    """Give a record other contents."""
    record[:] = RECORD_HEADER.pack(RECORD_HEADER_BYTES + len(body), kind, flags, 0) + body


def huge_parts(record: bytearray) -> None:
    """It says that it has four billion parts."""
    struct.pack_into("<I", record, RECORD_HEADER_BYTES + 16, 0xFFFFFFFF)


def unknown_queue(record: bytearray) -> None:
    """Its part is put to a queue that is not there."""
    struct.pack_into("<I", record, RECORD_HEADER_BYTES + records.COMMIT_HEADER.size + 24, 9999)


def with_tail(record: bytearray) -> None:
    """It has the places of another machine."""
    struct.pack_into("<H", record, 6, records.TAIL)


def data_without_attachment(record: bytearray) -> None:
    """Its block is on a page, it says, and there is no attachment."""
    record[RECORD_HEADER_BYTES + records.COMMIT_HEADER.size + 36] = records.DATA


def missing_file(record: bytearray) -> None:
    """Its messages are in a file that the entry does not name."""
    record[RECORD_HEADER_BYTES + records.COMMIT_HEADER.size + 36] = records.LTDS


WAYS: list[Callable[[bytearray], None]] = [
    huge_parts,
    unknown_queue,
    with_tail,
    data_without_attachment,
    missing_file,
    lambda record: changed(record, records.CATALOG, 0, b"[" * 100_000),
    lambda record: changed(record, records.CATALOG, 0, b'[["queue",1,{"name":"../x"}]]'),
    lambda record: changed(record, records.CATALOG, 0, b'[["alias",-1,null]]'),
    lambda record: changed(record, records.COMMIT, records.SECTIONS, bytes(32)),
    lambda record: changed(record, 77, 0, b"of a newer release"),
    lambda record: changed(record, records.COMMIT, 0, b""),
]


@pytest.mark.promise(13)
@pytest.mark.parametrize("way", range(len(WAYS)))
def test_a_record_that_cannot_be_is_refused(small: SmallArchive, way: int) -> None:
    """In an entry whose checksums are right."""
    env = small.env.crash(outcome="kept")
    path = f"{ARCHIVE}/{format.entry_name(PUTS)}"
    data = bytearray(env.contents(path))
    record = data[HEAD:]
    assert format.ENTRY_HEAD.unpack_from(data)[9] == 0  # it needs nothing beside it
    (length, *_) = RECORD_HEADER.unpack_from(record)
    del record[length:]
    WAYS[way](record)
    data[HEAD:] = record + bytes(-len(record) & 7)
    rewrite(env, path, sealed_entry(data))
    assert check(env)
