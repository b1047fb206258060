"""Objects in a directory: what is left of them when the power fails, or a call does."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from quire.archive.limits import TEMPORARY_AGE_SECONDS
from quire.archive.objects import Objects, open_objects
from quire.env import OsEnv
from quire.errors import ArchiveFailed, DiskFull, InvalidArgument, ObjectNotFound
from quire.testing import Call, SimEnv, enumerate_crashes

ARCHIVE = "/archives/store"


class Oracle:
    """What was tried, and what of it was acknowledged."""

    def __init__(self) -> None:
        self.tried: dict[str, set[bytes]] = {}
        self.acknowledged: dict[str, bytes] = {}
        self.deleted: set[str] = set()

    def create(self, objects: Objects, name: str, data: bytes) -> None:
        """Make an object, or find it made."""
        self.deleted.discard(name)
        self.tried.setdefault(name, set()).add(data)
        assert objects.create(name, data) or objects.read(name) == data
        self.acknowledged[name] = data

    def write(self, objects: Objects, name: str, data: bytes) -> None:
        """Make or replace an object by an upload of pieces."""
        self.tried.setdefault(name, set()).add(data)
        self.acknowledged.pop(name, None)
        objects.upload(name, [data[:700], data[700:]])
        self.acknowledged[name] = data

    def delete(self, objects: Objects, name: str) -> None:
        """Delete an object."""
        self.acknowledged.pop(name, None)
        objects.delete([name])
        self.deleted.add(name)


def workload(env: SimEnv, oracle: Oracle) -> None:
    """Objects in two folders: made, uploaded, replaced, deleted."""
    objects = open_objects(ARCHIVE, env)
    oracle.create(objects, "log/0/1", b"1" * 600)
    oracle.write(objects, "lease", b"a" * 900)
    oracle.create(objects, "log/0/2", b"2" * 1600)
    oracle.write(objects, "lease", b"b" * 1500)
    oracle.delete(objects, "log/0/1")
    oracle.create(objects, "log/1/3", b"3")


def check(env: SimEnv, oracle: Oracle) -> None:
    """All that was acknowledged is there; nothing is torn; what is read stays."""
    objects = open_objects(ARCHIVE, env)
    found = {info.name: objects.read(info.name) for info in objects.list()}
    for name, data in oracle.acknowledged.items():
        assert found.get(name) == data, name
    for name, data in found.items():
        assert data in oracle.tried[name], name
        assert name not in oracle.deleted
    later = open_objects(ARCHIVE, env.crash(outcome="lost"))
    assert {info.name for info in later.list()} >= set(found)
    for name, data in found.items():
        assert later.read(name) == data or (
            name == "lease" and later.read(name) in oracle.tried[name]
        )


@pytest.mark.crash
def test_no_crash_and_no_error_loses_or_tears_an_object(seed: int) -> None:
    """[AO1, DO1, DO2, DO3, DO4] At every call of a process that writes."""
    assert enumerate_crashes(workload, check, Oracle, seed=seed, rounds=3) > 250


@pytest.mark.crash
def test_a_process_that_takes_up_the_work_loses_nothing(seed: int) -> None:
    """[AO1, DO1, DO2, DO3] After an error of each kind, at some of its calls."""
    cases = enumerate_crashes(
        workload, check, Oracle, seed=seed, rounds=1, every=7, resume=workload
    )
    assert cases > 200


class Killed(BaseException):
    """The end of a simulated process."""


@pytest.mark.crash
def test_what_a_killed_process_left_is_durable_once_it_is_found() -> None:
    """[DO1, DO4] Killed before any call: what the next one reads, or finds in its way, stays."""
    whole = SimEnv()
    workload(whole, Oracle())
    seen = 0
    for last in range(1, whole.calls.last_number):
        env, oracle = SimEnv(), Oracle()

        def kill(call: Call, last: int = last) -> None:
            if call.number > last:
                raise Killed

        env.before_call = kill
        with pytest.raises(Killed):
            workload(env, oracle)
        check(env.kill(), oracle)
        after = env.kill()
        objects = open_objects(ARCHIVE, after)
        names = [name for name in oracle.tried if not objects.create(name, b"new")]
        after = after.crash(outcome="lost")
        for name in names:
            assert open_objects(ARCHIVE, after).read(name) in oracle.tried[name]
        seen += bool(names)
    assert seen > 20


def hasty(env: SimEnv, oracle: Oracle) -> None:
    """The workload, on a machine whose links need no sync of their folder, as it believes."""
    sync = env.sync_directory
    env.sync_directory = lambda path: None if "log" in path else sync(path)  # type: ignore[method-assign]
    workload(env, oracle)


def test_the_checker_catches_names_that_are_not_synced() -> None:
    """A canary: without the sync of a folder objects are lost."""
    with pytest.raises(AssertionError, match="log"):
        enumerate_crashes(hasty, check, Oracle, rounds=1)


def test_old_temporary_files_go_and_young_ones_stay() -> None:
    """A killed process's file is removed a day later by the next that writes."""
    env = SimEnv()
    open_objects(ARCHIVE, env).create("a", b"x")
    left = f"{ARCHIVE}/.tmp/left"
    env.open_file(left, create=True).write(0, b"half")
    env.advance(TEMPORARY_AGE_SECONDS - 1)
    open_objects(ARCHIVE, env).create("b", b"x")
    assert env.exists(left)
    env.advance(2)
    assert [info.name for info in open_objects(ARCHIVE, env).list()] == ["a", "b"]
    assert env.exists(left)
    open_objects(ARCHIVE, env).create("c", b"x")
    assert not env.exists(left)
    assert not env.list_directory(f"{ARCHIVE}/.tmp")


def test_a_failing_disk_is_named(tmp_path: Path) -> None:
    """The error has the path and what to do; a full disk stays a full disk, and leaves nothing."""
    env = SimEnv()
    objects = open_objects(ARCHIVE, env)
    for kind in ("create", "write", "sync", "link", "sync_directory"):
        env.fail(kind, f"{ARCHIVE}*")
        with pytest.raises(ArchiveFailed, match=r"/archives/store/a: cannot .*repeat"):
            objects.create("a", b"x" * 100)
        with pytest.raises(ObjectNotFound):
            objects.read("a")
    env.fail("write", error=OSError(errno.ENOSPC, "full"))
    with pytest.raises(DiskFull):
        objects.create("a", b"x" * 100)
    env.fail("link", error=PermissionError(errno.EPERM, "Operation not permitted"))
    with pytest.raises(ArchiveFailed, match="hard links"):
        objects.create("a", b"x" * 100)
    assert objects.create("a", b"x" * 100)
    env.fail("open", "*/a")
    with pytest.raises(ArchiveFailed, match="/archives/store/a: cannot read it"):
        objects.read("a")


@pytest.mark.parametrize("form", ["{}", "file://{}", "file://localhost{}", "{}/"])
def test_a_directory_is_named_by_path_or_url(tmp_path: Path, form: str) -> None:
    """Its files are the objects; folders above are made, and nothing is before the first object."""
    place = tmp_path / "a b" / "c"
    url = form.format(str(place).replace(" ", "%20") if "file" in form else place)
    objects = open_objects(url, OsEnv())
    assert list(objects.list()) == []
    assert not place.exists()
    objects.create("log/1", b"x")
    assert (place / "log" / "1").read_bytes() == b"x"
    objects.close()


@pytest.mark.parametrize("url", ["", "file:", "file://elsewhere/a", "ftp://a/b", "a\0b"])
def test_another_url_is_refused(url: str) -> None:
    """With words on what to give."""
    with pytest.raises(InvalidArgument, match="give"):
        open_objects(url, OsEnv())


@pytest.mark.parametrize(
    "url", ["s3://key:secret@bucket/a", "az://a/b?sig=secret", "s3://b#secret"]
)
def test_credentials_in_a_url_are_refused(url: str) -> None:
    """[AO3] In words that do not repeat them."""
    with pytest.raises(InvalidArgument, match="environment") as caught:
        open_objects(url, OsEnv())
    assert "secret" not in str(caught.value)
