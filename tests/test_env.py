"""The environment seam: one behaviour suite over the real machine and the simulated one.

Names in brackets (E1, ...) are the guarantees that `quire.env` states.
"""

from __future__ import annotations

import errno
import mmap
import multiprocessing
import os
import random
import resource
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

import quire
from quire.env import Env, File, OsEnv
from quire.env.os_file import OsFile
from quire.env.os_platform import PORTABLE, read_into
from quire.errors import DiskFull, InvalidArgument, StoreCorrupt, StoreLocked, raise_if_refused
from quire.limits import MAPPED_READ_BYTES, PLACES_TOGETHER
from quire.testing import SimEnv
from tests.kit.children import child
from tests.kit.machines import empty_machine

PAGE = 4096

WITHOUT_STREAMS = """
import os, sys
import quire
from quire.env import keep_standard_descriptors
sys.excepthook = lambda *error: open(sys.argv[1] + ".error", "w").write(repr(error))
for fd in range(3):
    os.close(fd)
with quire.open(sys.argv[1]) as store:
    store.create_queue("q")
    store.put("q", b"1")
    for fd in range(3):
        os.write(fd, b"Fatal Python error: Segmentation fault" * 100)
    store.put("q", b"2")
    for fd in range(3):
        os.close(fd)
    store.share(store._env).wait_started()  # its socket is there
    with quire.connect(f"quire+unix://{sys.argv[1]}/run/quire.sock") as joined:
        nothing = os.stat(os.devnull).st_rdev
        def is_nothing(fd):
            try:
                return os.fstat(fd).st_rdev == nothing
            except OSError:  # another thread has just opened a file, and moves it
                return False
        keep_standard_descriptors()  # as each opening of a file does
        while not all(map(is_nothing, range(3))):
            keep_standard_descriptors()
        os.write(2, b"Fatal Python error: Segmentation fault")
        joined.put("q", b"3")
"""
# Each opens what has the lowest number that is free: that of a standard stream.
AS_STREAMS = """
import os, socket, sys
from quire.env import OsEnv, os_linux, os_portable
from quire.env.os_descriptors import moved_up
from quire.remote.wire.sockets import accept, connect, listen
env, place, nothing = OsEnv(), sys.argv[1], os.stat(os.devnull).st_rdev
listener = listen(place + ".sock")
def close_streams():
    for fd in range(3):
        os.close(fd)
close_streams()
file = env.open_file(place, create=True, direct=True)
close_streams()
here = connect(place + ".sock", 60.0)
close_streams()
there = accept(listener)
close_streams()
lock = env.lock(place + ".lock", "test")
numbers = [file._read_fd, file._write_fd, here.fileno(), there.fileno(), lock._fd]
for fd in range(3):
    os.close(fd)
    moved = moved_up(os.open(place, os.O_RDWR))
    assert os.fstat(fd).st_rdev == nothing, fd
    numbers.append(moved)
close_streams()  # what becomes /dev/null stays it: another thread may write there already
first, second = (os.open(place, os.O_RDWR) for _ in range(2))
numbers += [moved_up(second), moved_up(first)]
assert {os.fstat(fd).st_rdev for fd in range(3)} == {nothing}
close_streams()
polled = os_portable.socket_events()
numbers += [polled._waker.fileno(), polled._wakes.fileno()]
close_streams()
numbers.append(os_linux.socket_events().fileno())
assert min(numbers) > 2, numbers
"""
# A program that closes what it has not opened, as some that become daemons do.
CLOSES_ALL = """
import os, resource, sys
import quire
from quire.errors import StoreFailed
path, limit = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
store = quire.open(path, share=False)
store.create_queue("q")
store.put("q", b"1")
os.closerange(3, min(limit, 1000))
strangers = [open(f"{path}.{n}", "w+b", buffering=0) for n in range(40)]
try:
    store.put("q", b"2")
    print("put")
except StoreFailed:
    print("failed")
for n, stranger in enumerate(strangers):
    assert os.path.getsize(f"{path}.{n}") == 0, n
    stranger.write(b"x")
sys.stdout.flush()
os._exit(0)
"""
WITH_UMASK = """
import os, sys
import quire
path, umask = sys.argv[1], int(sys.argv[2], 8)
os.umask(umask)
with quire.open(path) as store:
    store.create_queue("q")
    with store.transaction(large=True) as txn:
        txn.put_many("q", [b"x" * 1000] * 3)
    with quire.open(path) as again, quire.connect(f"quire+unix://{path}/run/quire.sock") as joined:
        joined.put("q", b"y")
    for folder, folders, files in os.walk(path):
        assert os.stat(folder).st_mode & 0o777 == 0o700, folder
        for name in files:
            mode = os.stat(os.path.join(folder, name)).st_mode & 0o777
            assert mode & 0o600 == 0o600, (name, oct(mode))
            assert name.endswith(".sock") or mode == 0o600, (name, oct(mode))
"""


@dataclass
class Machine:
    """An environment and an empty directory in it."""

    env: Env
    directory: str

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def create(self, name: str = "file", *, direct: bool = False) -> File:
        return self.env.open_file(self.path(name), create=True, direct=direct)

    def page(self, fill: int) -> memoryview:
        page = self.env.aligned_buffer(PAGE)
        page[:] = bytes([fill]) * PAGE
        return page


@pytest.fixture(params=["os", "sim"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    """Each environment in turn, with an empty directory."""
    return Machine(*empty_machine(request.param, tmp_path))


class TestFiles:
    def test_read_gives_what_was_written(self, machine: Machine) -> None:
        """A positioned write is read back; a read ends at the end of the file."""
        file = machine.create()
        file.write(3, b"abc")
        assert file.read(0, 100) == b"\0\0\0abc"
        assert file.read(4, 1) == b"b"
        assert file.read(6, 1) == b""
        assert file.size() == 6

    @pytest.mark.parametrize("direct", [False, True])
    def test_data_is_told_from_holes(
        self, machine: Machine, rng: random.Random, direct: bool
    ) -> None:
        """No byte but zeros is passed over, in whatever order they were written and given back."""
        file = machine.create(direct=direct)
        pages = 4096
        file.allocate(0, 16 * PAGE)
        file.truncate(pages * PAGE)
        written = set(rng.sample(range(pages), 24))
        for page in written:
            file.write(page * PAGE, machine.page(1))
        for page in rng.sample(sorted(written), 8):
            file.punch(page * PAGE, PAGE)
        passed, offset = bytearray(), 0
        while data := file.next_data(offset):
            passed += file.read(offset, data.start - offset)
            offset = data.stop
        passed += file.read(offset, pages * PAGE - offset)
        assert not passed.strip(b"\0")
        assert file.next_data(pages * PAGE) == range(0)

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_write_takes_bytes_of_every_kind(
        self, machine: Machine, kind: Callable[[bytes], bytes | bytearray | memoryview]
    ) -> None:
        """bytes, bytearray and memoryview."""
        file = machine.create()
        file.write(0, kind(b"abc"))
        file.sync()
        assert file.read(0, 3) == b"abc"

    def test_create_and_exclusive(self, machine: Machine) -> None:
        """Opening makes no file unless asked; exclusive wants a free name."""
        env = machine.env
        with pytest.raises(FileNotFoundError):
            env.open_file(machine.path("x"))
        env.open_file(machine.path("x"), exclusive=True).write(0, b"1")
        with pytest.raises(FileExistsError):
            env.open_file(machine.path("x"), exclusive=True)
        with pytest.raises(FileExistsError):
            env.open_file(machine.path("x"), create=True, exclusive=True)
        assert env.open_file(machine.path("x"), create=True).read(0, 9) == b"1"

    def test_parent_must_exist(self, machine: Machine) -> None:
        """A file in a directory that is not there is FileNotFoundError."""
        with pytest.raises(FileNotFoundError):
            machine.create("nowhere/file")

    @pytest.mark.parametrize("size", [0, 1, MAPPED_READ_BYTES - 1, MAPPED_READ_BYTES + 1])
    def test_a_block_is_read_as_anything_else(self, machine: Machine, size: int) -> None:
        """Whatever its size; large ones into memory that is mapped for them, which stays."""
        file = machine.create()
        file.write(5, bytes(range(256)) * (size // 256) + bytes(size % 256))
        block = file.read_block(5, size)
        assert block == file.read(5, size)
        assert memoryview(block).readonly
        assert isinstance(block, memoryview) == (size >= MAPPED_READ_BYTES)
        if isinstance(block, memoryview):
            assert isinstance(block.obj, mmap.mmap)
            array = np.frombuffer(block, np.uint8)
            assert not array.flags.owndata
        before = bytes(block)
        file.write(5, bytes(size))
        file.truncate(0)
        file.close()
        assert block == before

    @pytest.mark.parametrize("size", [10, MAPPED_READ_BYTES + 10])
    def test_a_block_ends_with_its_file(self, machine: Machine, size: int) -> None:
        """[E6] Fewer bytes; none behind it."""
        file = machine.create()
        file.write(0, bytes(size))
        assert len(file.read_block(7, 2 * size)) == size - 7
        assert len(file.read_block(3 * size, size)) == 0

    def test_read_only_refuses_writes(self, machine: Machine) -> None:
        """A handle for reading cannot change the file, and is never direct."""
        machine.create().write(0, b"abc")
        file = machine.env.open_file(machine.path("file"), read_only=True, direct=True)
        assert not file.direct
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.write(0, b"x")
        assert file.read(0, 3) == b"abc"

    def test_closed_handle_refuses_everything(self, machine: Machine) -> None:
        """After close, which may come twice, each call is OSError."""
        file = machine.create()
        file.write(0, b"abc")
        file.close()
        file.close()
        calls: list[Callable[[], object]] = [
            lambda: file.read(0, 1),
            lambda: file.write(0, b"x"),
            file.sync,
            file.size,
            lambda: file.truncate(0),
            lambda: file.allocate(0, 1),
        ]
        for call in calls:
            with pytest.raises(OSError, match=r"Bad file descriptor|is closed"):
                call()

    def test_truncate_cuts_and_grows(self, machine: Machine) -> None:
        """Bytes beyond the cut are gone; growing shows zeros (E5)."""
        file = machine.create()
        file.write(0, b"abcdef")
        file.truncate(2)
        file.truncate(4)
        assert file.read(0, 9) == b"ab\0\0"

    def test_allocate_keeps_data_and_reads_zeros(self, machine: Machine) -> None:
        """[E5] Allocated space is zeros, data in the range stays, the size covers it."""
        for direct in (False, True):
            file = machine.create(f"file-{direct}", direct=direct)
            file.write(PAGE, machine.page(7))
            file.allocate(0, 4 * PAGE)
            assert file.size() == 4 * PAGE
            assert file.read(0, 9 * PAGE) == bytes(PAGE) + b"\7" * PAGE + bytes(2 * PAGE)
            file.allocate(PAGE, PAGE)
            assert file.size() == 4 * PAGE

    def test_punch_zeros_and_keeps_the_size(self, machine: Machine) -> None:
        """The punched range reads as zeros, or stays; its neighbours stay."""
        for direct in (False, True):
            file = machine.create(f"file-{direct}", direct=direct)
            for n in range(3):
                file.write(n * PAGE, machine.page(n + 1))
            file.sync()
            file.punch(PAGE, PAGE)
            keeps = PORTABLE and isinstance(machine.env, OsEnv)
            middle = b"\2" * PAGE if keeps else bytes(PAGE)
            assert file.read(0, 9 * PAGE) == b"\1" * PAGE + middle + b"\3" * PAGE

    def test_direct_file(self, machine: Machine) -> None:
        """[E2] Aligned writes work and need no sync; others are refused and change nothing."""
        file = machine.create(direct=True)
        if not file.direct:
            pytest.skip("the file system grants no direct writes")
        file.allocate(0, 2 * PAGE)
        file.write(PAGE, machine.page(5))
        file.sync()
        with pytest.raises(InvalidArgument):
            file.write(100, machine.page(6))
        with pytest.raises(InvalidArgument):
            file.write(0, machine.page(6)[:100])
        with pytest.raises(InvalidArgument):
            file.write(0, machine.env.aligned_buffer(2 * PAGE)[8 : PAGE + 8])
        assert file.read(0, 2 * PAGE) == bytes(PAGE) + b"\5" * PAGE

    def test_write_cached(self, machine: Machine) -> None:
        """[E1] It is read back at once, needs no alignment, and has its sync, direct or not."""
        for direct in (False, True):
            file = machine.create(f"file-{direct}", direct=direct)
            file.allocate(0, 3 * PAGE)
            file.write_cached(5, b"abc")
            file.write(PAGE, machine.page(5))
            file.write_cached(2 * PAGE, memoryview(machine.page(6)))
            file.sync()
            file.sync()
            found = file.read(0, 3 * PAGE)
            assert found[:PAGE] == bytes(5) + b"abc" + bytes(PAGE - 8)
            assert found[PAGE:] == b"\5" * PAGE + b"\6" * PAGE
            file.close()
            with pytest.raises(OSError, match=r"Bad file descriptor|is closed"):
                file.write_cached(0, b"x")

    def test_write_cached_is_not_durable(self) -> None:
        """[E1, E2] Not before its own sync, whatever is written directly meanwhile."""
        for direct in (False, True):
            env = SimEnv(direct=direct)
            file = env.open_file("/file", create=True, direct=True)
            env.sync_directory("/")
            file.allocate(0, 2 * PAGE)
            file.sync()
            file.write_cached(0, b"abc")
            if direct:
                page = env.aligned_buffer(PAGE)
                page[:] = b"d" * PAGE
                file.write(PAGE, page)
            after = env.if_it_crashed(outcome="lost")
            found = after.open_file("/file").read(0, 2 * PAGE)
            assert found == bytes(PAGE) + (b"d" * PAGE if direct else bytes(PAGE))
            file.sync()
            after = env.if_it_crashed(outcome="lost")
            assert after.open_file("/file").read(0, 3) == b"abc"

    def test_direct_not_granted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file system that refuses direct writes gives a plain file that works."""

        def refuse(*_: object) -> int:
            raise OSError(errno.EINVAL, "refused")

        monkeypatch.setattr("quire.env.os_file.os.preadv", refuse)
        (tmp_path / "file").write_bytes(b"abc")
        sim = SimEnv(direct=False)
        for file in (
            OsEnv().open_file(str(tmp_path / "file"), direct=True),
            sim.open_file("/file", create=True, direct=True),
        ):
            assert not file.direct
            file.write(1, b"x")
            file.sync()
            assert file.read(1, 1) == b"x"


class TestWhatIsGone:
    def test_a_file_that_got_shorter_gives_fewer_bytes(self, machine: Machine) -> None:
        """[E6] Whoever cut it: what is left is read, and beyond it nothing, without a fault."""
        for direct in (False, True):
            name = f"file-{direct}"
            file = machine.create(name, direct=direct)
            file.allocate(0, 3 * PAGE)
            file.write(0, machine.page(1))
            assert len(file.read(0, 3 * PAGE)) == 3 * PAGE
            machine.env.open_file(machine.path(name)).truncate(PAGE + 5)
            assert file.read(0, 3 * PAGE) == bytes(machine.page(1)) + bytes(5)
            assert file.read(2 * PAGE, PAGE) == b""

    def test_a_removed_file(self, machine: Machine) -> None:
        """Removing the name does not harm the handle."""
        file = machine.create()
        file.write(0, b"abc")
        machine.env.remove(machine.path("file"))
        assert file.read(0, 3) == b"abc"


class TestDirectories:
    def test_names(self, machine: Machine) -> None:
        """Directories are made once or twice, listed in order, and removed when empty."""
        env = machine.env
        sub = machine.path("sub")
        env.make_directory(sub)
        env.make_directory(sub)
        machine.create("sub/b").close()
        machine.create("sub/a").close()
        assert list(env.list_directory(sub)) == ["a", "b"]
        assert env.exists(sub)
        assert env.exists(f"{sub}/a")
        assert not env.exists(f"{sub}/c")
        with pytest.raises(OSError, match="not empty"):
            env.remove(sub)
        env.remove(f"{sub}/a")
        env.remove(f"{sub}/b")
        env.remove(sub)
        assert list(env.list_directory(machine.directory)) == []
        with pytest.raises(FileNotFoundError):
            env.remove(sub)
        with pytest.raises(FileNotFoundError):
            env.list_directory(sub)
        with pytest.raises(FileNotFoundError):
            env.make_directory(machine.path("x/y"))

    def test_rename_replaces(self, machine: Machine) -> None:
        """The new name means the renamed file; handles go on."""
        env = machine.env
        old = machine.create("old")
        old.write(0, b"old")
        machine.create("new").write(0, b"new file")
        env.rename(machine.path("old"), machine.path("new"))
        env.sync_directory(machine.directory)
        assert list(env.list_directory(machine.directory)) == ["new"]
        assert env.open_file(machine.path("new")).read(0, 9) == b"old"
        old.write(0, b"OLD")
        assert env.open_file(machine.path("new")).read(0, 9) == b"OLD"
        with pytest.raises(FileNotFoundError):
            env.rename(machine.path("old"), machine.path("new"))

    def test_a_linked_file_has_two_names(self, machine: Machine) -> None:
        """Both mean the file, and either can go; a name that is taken is not replaced."""
        env = machine.env
        machine.create("old").write(0, b"old")
        machine.create("taken").write(0, b"taken")
        env.make_directory(machine.path("d"))
        env.link(machine.path("old"), machine.path("d/new"))
        for taken in ("taken", "old", "d"):
            with pytest.raises(FileExistsError):
                env.link(machine.path("old"), machine.path(taken))
        for missing in (("none", "new"), ("old", "none/new")):
            with pytest.raises(FileNotFoundError):
                env.link(*map(machine.path, missing))
        env.open_file(machine.path("d/new")).write(0, b"OLD")
        assert env.open_file(machine.path("old")).read(0, 9) == b"OLD"
        env.remove(machine.path("old"))
        assert env.open_file(machine.path("d/new")).read(0, 9) == b"OLD"
        assert env.open_file(machine.path("taken")).read(0, 9) == b"taken"

    def test_rename_of_a_directory_takes_its_files_along(self, machine: Machine) -> None:
        """Files are found under the directory's new name."""
        env = machine.env
        env.make_directory(machine.path("a"))
        machine.create("a/file").write(0, b"x")
        env.rename(machine.path("a"), machine.path("b"))
        assert env.open_file(machine.path("b/file")).read(0, 1) == b"x"

    def test_a_file_is_no_directory(self, machine: Machine) -> None:
        """Listing, syncing or entering a file is NotADirectoryError."""
        machine.create("file").close()
        with pytest.raises(NotADirectoryError):
            machine.env.list_directory(machine.path("file"))
        with pytest.raises(NotADirectoryError):
            machine.env.sync_directory(machine.path("file"))
        with pytest.raises(FileExistsError):
            machine.env.make_directory(machine.path("file"))

    def test_modified_us(self, machine: Machine) -> None:
        """The time of the last write, in the same microseconds as the clock (to a tick)."""
        before = machine.env.now_us()
        machine.create().write(0, b"x")
        modified = machine.env.modified_us(machine.path("file"))
        assert before - 20_000 <= modified <= machine.env.now_us()


class TestLocks:
    def test_one_holder_per_machine(self, machine: Machine) -> None:
        """[E8] A second lock names the first's owner; after release (twice) it is free."""
        env = machine.env
        lock = env.lock(machine.path("lock"), "the first owner")
        with pytest.raises(StoreLocked, match="the first owner"):
            env.lock(machine.path("lock"), "the second")
        lock.release()
        lock.release()
        env.lock(machine.path("lock"), "the third").release()

    def test_one_holder_for_each_name(self, machine: Machine) -> None:
        """[E8] All names or none; which is taken is told; after release (twice) they are free."""
        env, path = machine.env, machine.path("names")
        lock = env.lock_names(path, ["a", "b", "c/d"])
        assert not isinstance(lock, str)
        assert lock.held
        assert env.lock_names(path, ["x", "b", "y"]) == "b"
        others = env.lock_names(path, ["x", "y", "a/b"])
        assert not isinstance(others, str)
        assert env.lock_names(machine.path("elsewhere"), ["a"]) != "a"
        for _ in range(2):
            lock.release()
        assert [lock.held, others.held] == [False, True]
        assert env.lock_names(path, ["b", "x"]) == "x"
        others.release()
        again = env.lock_names(path, [str(number) for number in range(2000)] + ["b"])
        assert not isinstance(again, str)
        assert env.lock_names(path, ["b"]) == "b"
        again.release()

    def test_no_file_of_a_store_is_standard_error(self, tmp_path: Path) -> None:
        """[E8] Of a program that was started with its standard streams closed: what it writes to
        them would go into the file that has got their number.
        """
        path = str(tmp_path / "store")
        with child(WITHOUT_STREAMS, path) as process:
            status = process.wait()
        error = tmp_path / "store.error"
        assert (status, error.exists() and error.read_text()) == (0, False)
        with quire.open(path) as store:
            assert store.admin.verify().ok
            assert store.browse("q").payloads() == [b"1", b"2", b"3"]

    def test_no_number_of_a_standard_stream_is_kept(self, tmp_path: Path) -> None:
        """[DN1] Whatever is opened while they are closed, and by whichever thread."""
        with child(AS_STREAMS, str(tmp_path / "file")) as process:
            assert process.wait() == 0

    def test_numbers_that_a_program_closes_are_not_the_files(self, tmp_path: Path) -> None:
        """[DN2] A store goes on where the limit of open files lets it have numbers above those."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard != resource.RLIM_INFINITY and hard < 2000:
            pytest.skip("the limit of open files is too low here")
        path = str(tmp_path / "store")
        with child(CLOSES_ALL, path, "2000") as process:
            assert process.line() == "put"
            assert process.wait() == 0
        with quire.open(path) as store:
            assert store.browse("q").payloads() == [b"1", b"2"]

    def test_nothing_is_written_to_a_file_that_has_the_number(self, tmp_path: Path) -> None:
        """[O4, DN3] The store fails instead, and what was put before is there."""
        path = str(tmp_path / "store")
        with child(CLOSES_ALL, path, "200") as process:
            assert process.line() == "failed"
            assert process.wait() == 0
        with quire.open(path) as store:
            assert store.browse("q").payloads() == [b"1"]

    @pytest.mark.parametrize("umask", ["777", "277", "077", "000"])
    def test_files_are_their_owners_whatever_the_umask(self, tmp_path: Path, umask: str) -> None:
        """Directories have mode 0700, files 0600, and the socket can be connected to."""
        with child(WITH_UMASK, str(tmp_path / "store"), umask) as process:
            assert process.wait() == 0

    def test_names_end_with_their_process(self, tmp_path: Path) -> None:
        """[E8] A killed holder leaves nothing behind, and a living one is seen by others."""
        path = str(tmp_path / "names")
        lock = OsEnv().lock_names(path, ["a"])
        assert not isinstance(lock, str)
        other = OsEnv().lock_names(path, ["b"])
        assert not isinstance(other, str)
        assert in_child(path, "a") == "a is taken"
        other.release()  # which lets go of nothing else
        assert in_child(path, "a") == "a is taken"
        lock.release()
        assert in_child(path, "a") == "locked"  # it ended without releasing
        again = OsEnv().lock_names(path, ["a"])
        assert not isinstance(again, str)
        again.release()

    def test_a_refused_lock_leaves_the_held_one(self, tmp_path: Path) -> None:
        """[E8] POSIX drops a lock when its process closes any descriptor: not here."""
        path = str(tmp_path / "lock")
        lock = OsEnv().lock(path, "parent")
        with pytest.raises(StoreLocked):
            OsEnv().lock(path, "again")
        answer = in_child(path)
        assert "parent" in answer
        assert str(os.getpid()) in answer
        lock.release()
        assert in_child(path) == "locked"

    def test_the_lock_dies_with_its_process(self, tmp_path: Path) -> None:
        """[E8] A killed holder leaves nothing behind, but for its name in the file."""
        path = str(tmp_path / "lock")
        assert in_child(path) == "locked"  # it ended without releasing
        OsEnv().lock(path, "next").release()


def in_child(path: str, name: str | None = None) -> str:
    """What another process gets when it locks the path, or a name there, and dies with it."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lock_and_die, args=(path, name, sender))
    child.start()
    sender.close()
    answer = str(receiver.recv())
    child.join()
    receiver.close()
    return answer


def lock_and_die(path: str, name: str | None, sender: Connection) -> None:
    """Say what became of the lock, and end without any clean-up."""
    try:
        lock = OsEnv().lock_names(path, [name]) if name else OsEnv().lock(path, "child")
        sender.send("locked" if not isinstance(lock, str) else f"{lock} is taken")
    except StoreLocked as error:
        sender.send(str(error))
    os._exit(0)


class TestClocksAndBuffers:
    def test_clocks_go_on(self, machine: Machine) -> None:
        """Neither clock goes back; sleep lets time pass."""
        env = machine.env
        wall, steady = env.now_us(), env.monotonic()
        env.sleep(0.002)
        assert env.monotonic() - steady >= 0.002
        assert env.now_us() - wall >= 1_000

    def test_random_u64(self, machine: Machine) -> None:
        """64 bits, not the same twice."""
        drawn = {machine.env.random_u64() for _ in range(50)}
        assert len(drawn) == 50
        assert all(0 <= number < 1 << 64 for number in drawn)

    def test_aligned_buffer(self, machine: Machine) -> None:
        """Writable, of the size asked for, zeros, on a page boundary."""
        for size in (0, 1, PAGE, 3 * PAGE + 5):
            buffer = machine.env.aligned_buffer(size)
            assert len(buffer) == size
            assert not buffer.readonly
            assert bytes(buffer) == bytes(size)
            if size:
                assert np.frombuffer(buffer, np.uint8).ctypes.data % PAGE == 0

    def test_threads_share_a_file(self, machine: Machine) -> None:
        """Positioned reads and writes of threads do not disturb each other."""
        file = machine.create()
        wrong: list[int] = []

        def work(n: int) -> None:
            for round_number in range(50):
                data = bytes([n, round_number]) * 50
                file.write(n * 100, data)
                if file.read(n * 100, 100) != data:
                    wrong.append(n)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


class TestTheRealMachine:
    def test_modes(self, tmp_path: Path) -> None:
        """Files are 0600, directories 0700, whatever the process's mask allows more."""
        env = OsEnv()
        env.make_directory(str(tmp_path / "d"))
        env.open_file(str(tmp_path / "d/f"), create=True).close()
        env.lock(str(tmp_path / "d/lock"), "me").release()
        assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "d/f").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "d/lock").stat().st_mode & 0o777 == 0o600

    def test_descriptors_are_closed(self, tmp_path: Path) -> None:
        """Closing gives all descriptors back, also those that were for direct writes."""
        before = len(os.listdir("/proc/self/fd"))
        for n in range(5):
            file = OsEnv().open_file(str(tmp_path / f"{n}"), create=True, direct=True)
            file.allocate(0, PAGE)
            file.read(0, PAGE)
            file.close()
        assert len(os.listdir("/proc/self/fd")) == before

    @pytest.mark.parametrize("step", [1, 7, PAGE])
    def test_short_writes_and_reads_are_continued(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
    ) -> None:
        """The kernel may take or give less than asked for: the rest follows."""
        file = OsEnv().open_file(str(tmp_path / "file"), create=True)
        real_write, real_read = os.pwrite, os.pread
        monkeypatch.setattr(
            "quire.env.os_file.os.pwrite",
            lambda fd, data, offset: real_write(fd, memoryview(data)[:step], offset),
        )
        monkeypatch.setattr(
            "quire.env.os_file.os.pread",
            lambda fd, length, offset: real_read(fd, min(length, step), offset),
        )
        data = bytes(range(256)) * 2
        file.write(10, data)
        assert file.read(10, 1000) == data

    def test_a_large_read_is_continued(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The kernel may give less of a large block than asked for: the rest follows."""
        size = MAPPED_READ_BYTES + 12345
        file = OsEnv().open_file(str(tmp_path / "file"), create=True)
        content = random.Random(1).randbytes(size)
        file.write(3, content)
        real_read = read_into
        monkeypatch.setattr(
            "quire.env.os_file.read_into",
            lambda fd, memory, offset: real_read(fd, memory[: size // 3], offset),
        )
        assert file.read_block(3, size) == content
        assert file.read_block(3, 2 * size) == content

    @pytest.mark.parametrize("is_cached", [True, False])
    def test_several_places_are_read_as_one_by_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cached: bool
    ) -> None:
        """[E6] Whole, short or beyond the end; where a medium is read all of it is asked for."""
        file = OsEnv().open_file(str(tmp_path / "file"), create=True)
        assert isinstance(file, OsFile)
        content = random.Random(1).randbytes(20_000)
        file.write(0, content)
        blocks, expected = count(0, 0 if is_cached else 8), list[tuple[int, int]]()
        monkeypatch.setattr("quire.env.os_file.blocks_read", lambda: next(blocks))
        monkeypatch.setattr(
            "quire.env.os_file.expect_pages", lambda fd, at, length: expected.append((at, length))
        )
        places = [(at, 90) for at in range(0, 20_100, 100)]
        for _ in range(2):
            file.expect_several(places)
            assert file.read_several(places) == [content[at : at + 90] for at, _ in places]
        assert expected == places * (1 if is_cached else 2)
        assert file.read_several([]) == []
        if is_cached:  # and is so no more, which is seen by the first ones
            blocks = count(0, 8)
            assert file.read_several(places)[-2:] == [content[19_900:19_990], b""]
            assert expected == places + places[PLACES_TOGETHER:]
        real_read = os.pread
        monkeypatch.setattr(
            "quire.env.os_file.os.pread", lambda fd, length, at: real_read(fd, min(7, length), at)
        )
        assert file.read_several(places[:9]) == [content[at : at + 90] for at, _ in places[:9]]

    def test_places_that_the_medium_does_not_give_are_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """[E6] As by a read of one place."""
        file = OsEnv().open_file(str(tmp_path / "file"), create=True)
        assert isinstance(file, OsFile)
        file.write(0, bytes(300))
        real_read = os.pread

        def read(fd: int, length: int, offset: int) -> bytes:
            if offset == 200:
                raise OSError(errno.EIO, "Input/output error")
            return real_read(fd, length, offset)

        monkeypatch.setattr("quire.env.os_file.os.pread", read)
        with pytest.raises(StoreCorrupt, match="50 bytes at offset 200"):
            file.read_several([(0, 50), (200, 50)])

    def test_disk_full_says_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """[E7] ENOSPC becomes DiskFull; a failed allocate leaves the size as it was."""
        file = OsEnv().open_file(str(tmp_path / "file"), create=True)
        file.write(0, b"abc")

        def full(fd: int, *_: object) -> int:
            os.ftruncate(fd, 100)  # half of the work was done
            raise OSError(errno.ENOSPC, "No space left on device")

        takes_space = "pwrite" if PORTABLE else "posix_fallocate"
        monkeypatch.setattr(f"quire.env.os_file.os.{takes_space}", full)
        with pytest.raises(DiskFull, match="free space") as caught:
            file.allocate(0, 10_000)
        assert caught.value.errno == errno.ENOSPC
        assert file.read(0, 200) == b"abc"

        def full_write(*_: object) -> int:
            raise OSError(errno.EDQUOT, "Quota exceeded")

        monkeypatch.setattr("quire.env.os_file.os.pwrite", full_write)
        with pytest.raises(DiskFull, match="cannot write 1 bytes at 3"):
            file.write(3, b"x")

    def test_other_errors_stay_what_they_are(self) -> None:
        """Only a lack of room is DiskFull."""
        raise_if_refused(OSError(errno.EIO, "broken"), "file", "write")

    def test_direct_space_is_written_not_reserved(self, tmp_path: Path) -> None:
        """A direct file's allocated space is data to the file system: no write needs metadata."""
        file = OsEnv().open_file(str(tmp_path / "file"), create=True, direct=True)
        assert isinstance(file, OsFile)
        if not file.direct:
            pytest.skip("the file system grants no direct writes")
        file.allocate(0, 8 * PAGE)
        fd = os.open(tmp_path / "file", os.O_RDONLY)
        try:
            assert os.lseek(fd, 0, os.SEEK_HOLE) == 8 * PAGE
        finally:
            os.close(fd)
