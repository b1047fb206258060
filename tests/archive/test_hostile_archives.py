"""Archives that are damaged on purpose, and places that are not an archive's alone."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from xxhash import xxh3_64

import quire
from quire.archive import backup, backups, base_checking, keep, restore, verify
from quire.archive.base_restoring import RESTORING
from quire.archive.limits import UNNAMED_AGE_SECONDS
from quire.archive.manifest import FoundManifest, manifests
from quire.archive.objects import Objects
from quire.checksum import checksum
from quire.cli import main
from quire.cli.command import ExitStatus
from quire.engine.records.checkpoint_file import IntegerRuns, decode, encode
from quire.errors import ArchiveCorrupt, ArchiveRefused, InvalidArgument, StoreFailed
from quire.testing import SimEnv
from tests.archive.test_backup_and_restore import ARCHIVE, RESTORED, objects, opened, small_store
from tests.engine.workload import new_machine

DEEP = b'{"version":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
VALUES: list[Any] = [
    None, -1, 0, 1, 1 << 31, 1 << 63, 1 << 64, 10**30, 1.5, "", "x", "../../../etc/passwd",
    "files/../../x", "files/-1", "files/zz", "a" * 10_000, [], {}, [[]] * 3, True, "\0",
]  # fmt: skip


@pytest.fixture(scope="module")
def machine() -> SimEnv:
    """One that has an archive; each test takes a copy."""
    env = new_machine(1)
    small_store(env)
    return env


def rewrite(env: SimEnv, path: str, data: bytes) -> None:
    """Give a file other bytes."""
    env.remove(path)
    file = env.open_file(path, create=True)
    file.write(0, data)
    file.close()


def sealed(text: bytes) -> bytes:
    """A document with the checksum that belongs to it."""
    return f"{checksum(text):016x}\n".encode() + text


def newest(env: SimEnv) -> str:
    """The path of the newest manifest."""
    return max(path for path in objects(env) if path.endswith("/manifest"))


def document(env: SimEnv) -> dict[str, Any]:
    """What the newest manifest says."""
    found: dict[str, Any] = json.loads(env.contents(newest(env)).partition(b"\n")[2])
    return found


def replace_object(env: SimEnv, kind: str, data: bytes) -> None:
    """Give the newest backup another state or table, as its manifest says then."""
    manifest = document(env)
    named = manifest["state"] if kind == "state" else manifest["tables"][0]
    rewrite(env, f"{ARCHIVE}/{named['name']}", data)
    named.update(bytes=len(data), checksum=xxh3_64(data).hexdigest())
    rewrite(env, newest(env), sealed(msgspec.json.encode(manifest)))


def check_refused(env: SimEnv) -> None:
    """A restore says that the archive is damaged, and leaves nothing; nothing else fails."""
    before = env.files()
    with pytest.raises(ArchiveCorrupt):
        restore(ARCHIVE, RESTORED, env=env)
    assert env.files() == before
    assert len(backups(ARCHIVE, env=env)) == 3
    verify(ARCHIVE, env=env)


def change(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return what sets a value of a manifest."""

    def apply(manifest: Any) -> None:
        *way, last = path
        for name in way:
            manifest = manifest[name]
        manifest[last] = value

    return apply


BAD_MANIFESTS: list[Callable[[dict[str, Any]], object]] = [
    change("files", 0, "name", value="files/../../../disk/other"),
    change("files", 0, "name", value="files/-1"),
    change("files", 0, "name", value="files/" + "f" * 40),
    change("state", "name", value="../store"),
    change("packs", 0, "name", value="store"),
    change("tables", 0, "bytes", value=-1),
    change("packs", 0, "bytes", value=10**30),
    change("packs", 0, "bytes", value=1 << 62),
    change("state", "bytes", value=1 << 62),
    change("store_id", value="zz"),
    change("store_id", value="-1"),
    change("time_us", value=1 << 62),
    change("generation", value="zz"),
    change("generation", value="f" * 16),
    change("number", value=-1),
    change("tables", value=[]),
    change("packs", value=[]),
    lambda manifest: manifest["files"].append(manifest["files"][0]),
    lambda manifest: manifest["packs"].append(manifest["packs"][0]),
    lambda manifest: manifest.pop("state"),
]


@pytest.mark.promise(13)
@pytest.mark.parametrize("number", range(len(BAD_MANIFESTS)))
def test_a_manifest_that_cannot_be_is_damage(machine: SimEnv, number: int) -> None:
    """Whoever wrote it: no name leads elsewhere, and no length takes memory or time."""
    env = machine.crash(outcome="kept")
    manifest = document(env)
    BAD_MANIFESTS[number](manifest)
    rewrite(env, newest(env), sealed(msgspec.json.encode(manifest)))
    check_refused(env)


def test_a_backup_without_a_manifest_is_told_of(machine: SimEnv) -> None:
    """It is no backup any more; the warning names an object of it."""
    env = machine.crash(outcome="kept")
    gone = newest(env)
    env.remove(gone)
    [warning] = verify(ARCHIVE, env=env).warnings
    assert f"bases/{gone.split('/')[-2]}/" in warning


def test_the_object_of_another_archive_that_says_whose_it_is(machine: SimEnv) -> None:
    """It is whole, and names another store than the backups beside it: `verify` tells of each."""
    env = machine.crash(outcome="kept")
    store_id = document(env)["store_id"]
    other = f"{int(store_id, 16) ^ 1:016x}"
    text = msgspec.json.encode({"store_id": other, "made_us": 0, "version": 1})
    rewrite(env, f"{ARCHIVE}/store", sealed(text))
    report = verify(ARCHIVE, env=env)
    for info in backups(ARCHIVE, env=env):
        words = f"object store is that of store {other}, and backup {info.base} is of store"
        assert any(f"{words} {store_id}" in found for found in report.damage), report.findings


@pytest.mark.parametrize("data", [b"", b"\n", b"x" * 10_000, DEEP, sealed(DEEP), sealed(b"7")])
def test_garbage_is_no_manifest(machine: SimEnv, data: bytes) -> None:
    """Such as one of many brackets."""
    env = machine.crash(outcome="kept")
    rewrite(env, newest(env), data)
    check_refused(env)


def mutate(value: Any, rng: random.Random) -> None:
    """Change something in a document."""
    while True:
        place = rng.choice(sorted(value)) if isinstance(value, dict) else rng.randrange(len(value))
        if not value[place] or not isinstance(value[place], dict | list) or rng.random() < 0.15:
            break
        value = value[place]
    if rng.random() < 0.2:
        del value[place]
    else:
        value[place] = rng.choice(VALUES)


def changed_state(env: SimEnv, rng: random.Random) -> bytes:
    """The state of the newest backup with another value."""
    found = decode(env.contents(newest(env).replace("manifest", "state")), "state")
    values = json.loads(json.dumps(found.document))
    mutate(values, rng)
    numbers = IntegerRuns()
    numbers.add(found.numbers)
    return bytes(encode(found.store_id, 0, values, numbers))


def changed_table(env: SimEnv, rng: random.Random) -> bytes:
    """Its table with other bytes."""
    data = bytearray(env.contents(newest(env).replace("manifest", "table-00000000")))
    offset = rng.randrange(8, len(data) - 4)
    data[offset : offset + 4] = rng.choice([b"\xff" * 4, bytes(4), rng.randbytes(4)])
    struct.pack_into("<Q", data, 0, checksum(memoryview(data)[8:]))
    return bytes(data)


@pytest.mark.fuzz
@pytest.mark.promise(13)
def test_values_that_contradict_each_other_are_damage(
    machine: SimEnv, seed: int, rounds: int
) -> None:
    """In a state or a table whose checksums are right: a whole store is restored, or none.

    Some look like those of a newer release, which are refused.
    """
    rng, refused = random.Random(seed), 0
    for number in range(rounds):
        env = machine.crash(outcome="kept")
        kind, changed = [("state", changed_state), ("table", changed_table)][number % 2]
        replace_object(env, kind, changed(env, rng))
        try:
            restore(ARCHIVE, RESTORED, env=env)
        except (ArchiveCorrupt, ArchiveRefused):
            refused += 1
            assert not env.exists(RESTORED)
    assert refused


def test_keep_removes_nothing_of_others() -> None:
    """Files that were in the directory before, or that look like an archive's (BK4)."""
    env = new_machine(1)
    made = small_store(env)
    foreign = ["notes", "packs/mine", "bases/x/manifest", "bases/x/a name", "files/0", "my photo"]
    env.make_directory(f"{ARCHIVE}/bases/x")
    for name in foreign:
        env.open_file(f"{ARCHIVE}/{name}", create=True).close()
    own = f"packs/{'0' * 16}-{'0' * 16}-00000000"
    env.open_file(f"{ARCHIVE}/{own}", create=True).close()
    env.sleep(UNNAMED_AGE_SECONDS + 1)
    assert len(verify(ARCHIVE, env=env).findings) == 1
    assert keep(ARCHIVE, 1.0, env=env) == made[:2]
    assert backups(ARCHIVE, env=env) == made[2:]
    left = {path.removeprefix(f"{ARCHIVE}/") for path in objects(env)}
    assert left >= {*foreign}
    assert own not in left
    assert verify(ARCHIVE, env=env).findings == []


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a store and its archive."""
    with quire.open(tmp_path / "shop.quire") as store:
        store.create_queue("q", kind="work")
        store.put("q", b"apples")
        backup(store, tmp_path / "archive")
    return tmp_path


def names(path: Path) -> list[str]:
    """All that is below a directory."""
    return sorted(str(each.relative_to(path)) for each in path.rglob("*"))


def test_an_archive_in_its_stores_directory_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or a store in its archive's, whatever leads there; nothing is written."""
    (place / "link").symlink_to("shop.quire")
    before = names(place)
    with quire.open(place / "shop.quire") as store:
        for url in ("shop.quire", "shop.quire/data/new", "link", "link/new", ".", "no/../link"):
            with pytest.raises(InvalidArgument, match="a directory for each of them"):
                backup(store, f"{place}/{url}")
        with pytest.raises(InvalidArgument, match="a directory for each of them"):
            backup(store, f"file://{place}/shop.quire/")
    for path in ("archive/new", "archive/bases", "archive", "."):
        with pytest.raises(InvalidArgument):
            restore(str(place / "archive"), place / path)
    shop = str(place / "shop.quire")
    assert main(["backup", shop, shop]) == ExitStatus.ERROR
    assert "a directory for each of them" in capsys.readouterr().err
    assert [name for name in names(place) if "/journal/" not in name and "/run" not in name] == [
        name for name in before if "/journal/" not in name and "/run" not in name
    ]


def test_an_archives_files_do_not_break_a_store(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where they are in its directory: it is opened, verified as a store, and copied out."""
    shop = place / "shop.quire"
    shutil.copytree(place / "archive", shop, dirs_exist_ok=True)
    with quire.open(shop, create=False) as store:
        assert store.get("q") is not None
        backup(store, str(place / "archive"))
    assert main(["verify", str(shop)]) == ExitStatus.DONE
    assert "record " in capsys.readouterr().out
    assert main(["restore", str(shop), str(place / "restored")]) == ExitStatus.DONE
    assert main(["get", str(place / "restored"), "q"]) == ExitStatus.DONE


def test_a_restore_removes_nothing_of_others(place: Path) -> None:
    """No directory whose name is like that of a broken-off restore, and nothing behind a link."""
    mine, victim = place / f"new{RESTORING}notes", place / "victim"
    left = place / f"new{RESTORING}{7:016x}"
    for directory in (mine, victim, left):
        directory.mkdir()
        (directory / "file").write_text("x")
    (left / "link").symlink_to(victim)
    (place / f"new{RESTORING}{8:016x}").symlink_to(victim)
    restore(str(place / "archive"), place / "new")
    assert (mine / "file").exists()
    assert (victim / "file").exists()
    assert [each.name for each in place.glob(f"new{RESTORING}*")] == [mine.name]


def test_a_restore_follows_a_link(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a directory that is empty, or not there; a file and what no path is are refused."""
    (place / "empty").mkdir()
    (place / "link").symlink_to("empty")
    (place / "dangling").symlink_to("later")
    for link, real in (("link", "empty"), ("dangling", "later")):
        restore(str(place / "archive"), place / link)
        assert (place / link).is_symlink()
        assert (place / real / "checkpoint").exists()
        with quire.open(place / link, create=False) as store:
            assert store.get("q") is not None
    (place / "file").write_text("x")
    bad: list[tuple[Any, str]] = [
        ("file", "is there already"), ("file/new", "is not there"), ("no/new", "is not there"),
    ]  # fmt: skip
    for path, words in bad:
        with pytest.raises(InvalidArgument, match=words):
            restore(str(place / "archive"), place / path)
    for wrong in ("", 5, None, b"x", "a\0b"):
        with pytest.raises(InvalidArgument):
            restore(str(place / "archive"), wrong)  # type: ignore[arg-type]
    for wrong in (5, None, b"x", "http://[x"):
        with pytest.raises(InvalidArgument):
            backups(wrong)  # type: ignore[arg-type]
    (place / "here").mkdir()
    monkeypatch.chdir(place / "here")
    restore("../archive", ".")
    assert os.listdir(place / "here")


def test_a_number_is_found_beside_a_newer_history() -> None:
    """A restored store that is backed up to the old archive has lower numbers, later."""
    env = new_machine(1)
    first, _, last = small_store(env)
    restore(ARCHIVE, RESTORED, number=first.number, env=env)
    with opened(env, RESTORED) as store:
        store.put("q", b"a new history")
        newer = backup(store, ARCHIVE, env=env).backup
    assert newer.number < last.number
    assert restore(ARCHIVE, f"{RESTORED}1", number=last.number, env=env).backup == last
    assert restore(ARCHIVE, f"{RESTORED}2", number=newer.number, env=env).backup == newer
    assert restore(ARCHIVE, f"{RESTORED}3", env=env).backup == newer
    assert verify(ARCHIVE, env=env).findings == []


def test_a_backup_that_is_removed_meanwhile_is_no_damage(
    machine: SimEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verify that runs beside `keep` finds nothing wrong; without its manifest gone it does."""
    env = machine.crash(outcome="kept")

    def removed_later(objects: Objects) -> list[FoundManifest]:
        found = manifests(objects)
        assert len(keep(ARCHIVE, 1.0, env=env)) == 2
        return found

    monkeypatch.setattr(base_checking, "manifests", removed_later)
    report = verify(ARCHIVE, env=env)
    assert report.findings == []


def test_times_that_keep_takes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Very long ones; 0 is refused before a backup is made."""
    shop, url = str(place / "shop.quire"), str(place / "archive")
    assert keep(url, 1e308) == []
    assert main(["backup", shop, url, "--keep", "0"]) == ExitStatus.ERROR
    assert "give a number above 0" in capsys.readouterr().err
    assert len(backups(url)) == 1


def test_backups_are_ordered_whatever_the_clock_shows(
    machine: SimEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By record number: one that is made after the clock was put back is the newest one."""
    env = machine.crash(outcome="kept")
    made = backups(ARCHIVE, env=env)
    back_us = made[0].time_us - 3_600_000_000
    monkeypatch.setattr(SimEnv, "now_us", lambda env: back_us)
    with opened(env) as store:
        store.put("q", b"later")
        newer = backup(store, ARCHIVE, env=env).backup
    assert newer.time_us < made[0].time_us
    assert backups(ARCHIVE, env=env) == [*made, newer]
    monkeypatch.undo()
    assert keep(ARCHIVE, 1e-6, env=env) == made
    assert restore(ARCHIVE, RESTORED, env=env).backup == newer


def test_a_damaged_store_object_is_refused_with_advice(machine: SimEnv) -> None:
    """A backup says what to do; with the object deleted it makes it again."""
    env = machine.crash(outcome="kept")
    env.corrupt(f"{ARCHIVE}/store", 20)
    with opened(env) as store:
        with pytest.raises(ArchiveCorrupt, match="give another place, or"):
            backup(store, ARCHIVE, env=env)
        env.remove(f"{ARCHIVE}/store")
        backup(store, ARCHIVE, env=env)
    assert verify(ARCHIVE, env=env).findings == []


def test_a_file_is_no_archive(place: Path) -> None:
    """Every call says so."""
    (place / "file").write_text("x")
    with quire.open(place / "shop.quire") as store:
        calls: list[Callable[[str], object]] = [
            lambda url: backup(store, url),
            backups,
            lambda url: verify(f"file://{url}"),
            lambda url: keep(url, 1.0),
            lambda url: restore(url, place / "new"),
        ]
        for url in ("file", "file/below", "file/below/that"):
            for call in calls:
                with pytest.raises(InvalidArgument, match="file is a file: give a directory"):
                    call(str(place / url))
    assert backups(str(place / "no" / "archive")) == []


def test_a_mounted_directory_is_refused_at_once(machine: SimEnv) -> None:
    """An empty one, which nothing can replace: before anything is copied."""
    env = machine.crash(outcome="kept")
    env.make_directory(RESTORED)
    before = env.list_directory("/disk")
    env.fail("remove", RESTORED, error=OSError(errno.EBUSY, "Device or resource busy"))
    with pytest.raises(StoreFailed, match="a disk is mounted there: give a path below it"):
        restore(ARCHIVE, RESTORED, env=env, report=lambda done, expected: pytest.fail("copied"))
    assert env.list_directory("/disk") == before


def test_a_store_in_memory_takes_no_archive(tmp_path: Path) -> None:
    """It has no files to be backed up: it is refused, and the place is free for another store."""
    place = tmp_path / "archive"
    with quire.open(":memory:") as store, pytest.raises(InvalidArgument, match="in memory"):
        backup(store, place)
    assert not place.exists()
