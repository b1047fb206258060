"""Who owns a store, and who does not any more (`quire.engine.ownership`, OD4)."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.env import Env, OsEnv, os_descriptors, os_lock
from quire.errors import QuireError, StoreFailed, StoreLocked
from quire.testing import SimEnv

SEGMENT = 1 << 16


@pytest.fixture(params=["os", "sim"])
def env(request: pytest.FixtureRequest) -> Env:
    """The real machine, and a simulated one."""
    return OsEnv() if request.param == "os" else SimEnv(seed=1)


@pytest.fixture
def path(env: Env, tmp_path: Path) -> str:
    """Of a store there."""
    return str(tmp_path / "store") if isinstance(env, OsEnv) else "/store"


def open_store(path: str, env: Env) -> Store:
    """Own it, with small segments."""
    return Store.open(path, env=env, background=False, segment_bytes=SEGMENT)


def contents(env: Env, path: str) -> dict[str, bytes]:
    """All files of a store, by name."""
    found: dict[str, bytes] = {}
    for name in env.list_directory(path):
        inner = f"{path}/{name}"
        if name in ("checkpoint", "data", "journal", "ltds", "run"):
            found |= contents(env, inner)
            continue
        with contextlib.closing(env.open_file(inner, read_only=True)) as file:
            found[inner] = file.read(0, file.size())
    return found


def test_without_its_lock_a_store_has_one_owner(env: Env, path: str) -> None:
    """OW1: LOCK removed, nobody else owns the store for as long as its owner lives."""
    store = open_store(path, env)
    store.create_queue("q", kind="work")
    store.put("q", b"one")
    for _ in range(2):
        env.remove(f"{path}/LOCK")
        with pytest.raises(StoreLocked, match="in use by a process that owns its store"):
            open_store(path, env)
    with contextlib.suppress(StoreFailed):
        store.close()
    with open_store(path, env) as again:
        assert again.browse("q").payloads() == [b"one"]
        assert again.admin.verify().ok


@pytest.mark.parametrize("replaced", [False, True])
def test_a_lost_owner_changes_nothing(env: Env, path: str, replaced: bool) -> None:
    """OW3: whatever it is asked, and with everything under way; reads go on."""
    store = open_store(path, env)
    for name in ("q", "other"):
        store.create_queue(name, kind="work")
    for _ in range(30):
        store.put("q", bytes(3000))
    store.admin.checkpoint()
    for _ in range(30):
        with store.transaction() as transaction:  # leaves the data file mostly free
            transaction.get("q")
    open_one = store.transaction()
    open_one.put("other", b"x")
    large = store.transaction(large=True)
    late = store.transaction(large=True)
    large.put_many("other", [bytes(100_000)] * 20)
    env.remove(f"{path}/LOCK")
    if replaced:
        env.open_file(f"{path}/LOCK", create=True).close()
    with pytest.raises(StoreFailed, match="removed, moved or replaced"):
        store.admin.checkpoint()
    before = contents(env, path)
    asked: list[Callable[[], object]] = [
        store.admin.checkpoint,
        store.sync,
        open_one.commit,
        large.commit,
        lambda: store.put("q", b"late"),
        lambda: store.put("q", bytes(3_000_000)),
        lambda: store.create_queue("late", kind="topic"),
        lambda: store.drop_queue("q"),
        lambda: store.admin.purge("q"),
        lambda: store.alter_queue("q", order="priority"),
        store._maintenance.step,
        store._opened.places.sweep,
        store._opened.places.trim,
        store.status,
        store.admin.verify,
        lambda: store.browse("q"),
        lambda: late.put_many("q", [bytes(100_000)] * 20),
        store.close,
        store.close,
    ]
    for ask in asked:
        with contextlib.suppress(QuireError):
            ask()
        assert contents(env, path) == before
    with open_store(path, env) as again:
        assert again.admin.verify().ok
        assert again.queue("q").messages == 0
        assert again.queue("other").messages == 0


def test_a_failed_owner_that_let_go_changes_nothing(env: Env, path: str) -> None:
    """OW3: what was under way as it failed does not reach the files of who has taken over."""
    store = open_store(path, env)
    for name in ("q", "other"):
        store.create_queue(name, kind="work")
    for _ in range(30):
        store.put("q", bytes(3000))
    store.admin.checkpoint()
    large, light = store.transaction(large=True), store.transaction()
    large.put_many("other", [bytes(100_000)] * 20)
    light.put("other", b"x")
    with store.transaction(large=True) as done:
        done.put_many("other", [bytes(100_000)] * 20)
    store.admin.purge("other")  # its file is to be removed
    with contextlib.suppress(StoreFailed), store._context.sequencer.fail_stop("a trial"):
        raise OSError(5, "injected")
    assert store.failed
    file = store._opened.env.open_file(f"{path}/late", create=True)  # of a thread that is late
    store.let_go_failed()
    with pytest.raises(StoreFailed, match="let go of for another process"):
        file.truncate(0)
    with pytest.raises(StoreFailed, match="let go of for another process"):
        store._opened.env.remove(f"{path}/late")
    with open_store(path, env) as again:
        again.put("q", b"one")
        kept = again.browse("q").payloads()
        before = contents(env, path)
        asked: list[Callable[[], object]] = [
            lambda: store.put("q", b"late"),
            lambda: store.browse("q"),
            light.commit,
            large.commit,
            large.rollback,
            store.admin.checkpoint,
            store._maintenance.step,
            store._opened.places.sweep,
            store._opened.places.trim,
            store._opened.places.discarded.remove_all,
            store.let_go_failed,
            store.close,
        ]
        for ask in asked:
            with contextlib.suppress(QuireError, OSError):
                ask()
            assert contents(env, path) == before
        assert again.browse("q").payloads() == kept
        assert again.admin.verify().ok


def test_the_close_looks(env: Env, path: str) -> None:
    """OW3: an owner that has had no occasion to look before changes nothing as it closes."""
    store = open_store(path, env)
    store.create_queue("q", kind="work")
    for _ in range(200):
        store.put("q", bytes(3000))
    env.remove(f"{path}/LOCK")
    before = contents(env, path)
    with pytest.raises(StoreFailed, match="removed, moved or replaced"):
        store.close()
    assert contents(env, path) == before
    with open_store(path, env) as again:
        assert again.queue("q").messages == 200
        assert again.admin.verify().ok


def test_the_guard_goes_with_the_journal(env: Env, path: str) -> None:
    """OW2: where the data file was replaced, too, the segment that is written to is guarded."""
    store = open_store(path, env)
    store.create_queue("q", kind="work")
    last, met = b"", 0
    for number in range(60):
        store.put("q", b"%d" % number + bytes(6000))
        if number % 7 == 0:
            env.rename(f"{path}/data/0.dat", f"{path}/aside")
            env.rename(f"{path}/LOCK", f"{path}/aside.lock")
            env.open_file(f"{path}/data/0.dat", create=True).close()
            with pytest.raises(StoreLocked, match=r"journal/.*\.log is in use"):
                open_store(path, env)
            met += 1
            env.rename(f"{path}/aside", f"{path}/data/0.dat")
            env.rename(f"{path}/aside.lock", f"{path}/LOCK")
            last = b"%d" % number
    assert met == 9
    assert last == b"56"
    assert store._opened.journal.status().segments[-1] > 3
    store.close()
    with open_store(path, env) as again:
        assert again.queue("q").messages == 60


def test_a_file_of_it_was_replaced(env: Env, path: str) -> None:
    """OW3: what it would write to is not the store's any more."""
    store = open_store(path, env)
    store.create_queue("q", kind="work")
    store.put("q", b"one")
    env.rename(f"{path}/data/0.dat", f"{path}/aside")
    with pytest.raises(StoreFailed, match="a file of it was removed, moved or replaced"):
        store.admin.checkpoint()
    store.close()
    env.rename(f"{path}/aside", f"{path}/data/0.dat")
    with open_store(path, env) as again:
        assert again.browse("q").payloads() == [b"one"]


def test_a_store_that_was_moved_is_still_its_owners(tmp_path: Path) -> None:
    """OW1: its files are guarded wherever their names lead from; a copy is a store of its own."""
    path, moved, copy = (str(tmp_path / name) for name in ("store", "moved", "copy"))
    store = Store.open(path)
    store.create_queue("q", kind="work")
    store.put("q", b"one")
    shutil.copytree(path, copy)
    os.remove(f"{path}/LOCK")
    os.rename(path, moved)
    with pytest.raises(StoreLocked):
        Store.open(moved)
    with Store.open(copy) as own:
        assert own.browse("q").payloads() == [b"one"]
        own.put("q", b"two")
    with contextlib.suppress(StoreFailed):
        store.close()
    with Store.open(moved) as again:
        assert again.browse("q").payloads() == [b"one"]


def test_a_forked_child_holds_nothing(tmp_path: Path) -> None:
    """OL2 of what is guarded: the next owner need not wait for the owner's children."""
    path = str(tmp_path / "store")
    script = """
import os, sys, quire
store = quire.open(sys.argv[1], share=False)
store.create_queue("q", kind="work")
ready, told = os.pipe()
if os.fork() == 0:
    os.write(told, b"x")
    sys.stdin.read()
    os._exit(0)
os.read(ready, 1)
print("forked", flush=True)
os._exit(0)  # as if it was killed: nothing is closed
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdin is not None
        assert owner.stdout.readline() == "forked\n"
        owner.wait()
        with quire.open(path, share=False) as store:  # its child lives still
            assert store.queue("q").messages == 0
        owner.stdin.close()


def test_going_on_while_it_is_looked_is_no_loss(path: str, env: Env) -> None:
    """OW2, OW3: a guard that is let go of because the journal went on does not count."""
    store = open_store(path, env)
    ownership, segment = store._opened.ownership, store._opened.journal.segment_path
    first, other = ownership._guards[segment], f"{path}/other"
    env.open_file(other, create=True).close()

    class Late:
        """The guard, looked at when the journal has gone on."""

        held = True

        @property
        def in_place(self) -> bool:
            ownership.go_on_to(other)
            return first.in_place

        def release(self) -> None:
            first.release()
            env.remove(segment)

    ownership._guards[segment] = Late()
    ownership.check()
    assert not first.in_place
    env.remove(other)
    with pytest.raises(StoreFailed, match="removed, moved or replaced"):
        ownership.check()


@pytest.mark.parametrize(
    ("step", "looked_at"),
    [("leads_to", "data file"), ("key_of", "segment"), ("leads_to", "segment")],
)
def test_a_commit_goes_on_to_the_next_segment_in_the_midst_of_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, looked_at: str
) -> None:
    """OW3: the guard is let go of before its descriptor is asked, as it is, and after that.

    Asked for by a number that is no file's any more, the system says EBADF: no failure of the disk.
    """
    store = open_store(str(tmp_path / "store"), OsEnv())
    store.create_queue("q", kind="work")
    ownership, journal = store._opened.ownership, store._opened.journal
    before = journal.segment_path
    path = before if looked_at == "segment" else f"{store.path}/data/0.dat"
    number = os.stat(path).st_ino
    guard = ownership._guards[before]
    real = getattr(os_lock, step)

    def go_on() -> None:
        while journal.segment_path == before:
            store.put("q", bytes(3000))

    def late(*arguments: Any) -> Any:
        asked = os.fstat(arguments[0]) if step == "key_of" else os.stat(arguments[0])
        if asked.st_ino == number:
            monkeypatch.undo()
            committing = threading.Thread(target=go_on)
            committing.start()
            committing.join()
            assert not guard.held
        return real(*arguments)

    monkeypatch.setattr(os_lock, step, late)
    store._maintenance.step()
    assert journal.segment_path != before
    assert not store.failed
    store.put("q", b"last")
    store.close()


def test_a_disk_that_fails_as_an_owner_looks_at_its_guards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OW3: one that it has not let go of is what it was asked for."""
    store = open_store(str(tmp_path / "store"), OsEnv())
    segment = os.stat(store._opened.journal.segment_path).st_ino
    real = os_descriptors.key_of

    def failing(fd: int) -> tuple[int, int]:
        if os.fstat(fd).st_ino == segment:
            raise OSError(errno.EIO, "injected")
        return real(fd)

    monkeypatch.setattr(os_lock, "key_of", failing)
    with pytest.raises(StoreFailed, match="injected"):
        store._maintenance.step()
    assert store.failed
    with contextlib.suppress(QuireError):
        store.close()
