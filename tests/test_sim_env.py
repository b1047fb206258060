"""The simulated machine: what a crash may leave, and that planned faults come as planned.

Names in brackets: guarantees of `quire.env` (E), `quire.testing.sim_env` (S), `sim_calls` (C).
"""

from __future__ import annotations

import errno
import re
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pytest

from quire.errors import DiskFull, ResourceExhausted, StoreCorrupt, StoreError, StoreLocked
from quire.testing import Call, SimEnv, SimFile, SimulatedCrash, enumerate_crashes
from quire.testing.sim_content import SimContent
from tests.kit.limits import Limits

PAGE = 4096
SECTOR = 512


def page(env: SimEnv, fill: int) -> memoryview:
    """An aligned page of one byte."""
    buffer = env.aligned_buffer(PAGE)
    buffer[:] = bytes([fill]) * PAGE
    return buffer


def durable_file(env: SimEnv, path: str = "/file", content: bytes = b"") -> SimFile:
    """A file whose name and content survive."""
    file = env.open_file(path, create=True)
    if content:
        file.write(0, content)
    file.sync()
    env.sync_directory(path.rpartition("/")[0] or "/")
    return file


class TestCrash:
    def test_unsynced_write_is_kept_lost_or_torn(self) -> None:
        """[E1] Over seeds all three are seen, and torn means whole sectors of 512 bytes."""
        seen: Counter[str] = Counter()
        for seed in range(60):
            env = SimEnv(seed)
            file = durable_file(env, content=b"a" * PAGE)
            file.write(0, b"b" * PAGE)
            after = env.crash()
            content = after.contents("/file")
            sectors = {content[n : n + SECTOR] for n in range(0, PAGE, SECTOR)}
            assert sectors <= {b"a" * SECTOR, b"b" * SECTOR}
            name = {b"a" * PAGE: "lost", b"b" * PAGE: "kept"}.get(content, "torn")
            seen[name] += 1
        assert set(seen) == {"kept", "lost", "torn"}
        assert min(seen.values()) >= 5

    def test_unsynced_writes_survive_in_any_combination(self) -> None:
        """[E1] Of two writes the later may be kept and the earlier lost, and the other way."""
        seen = set()
        for seed in range(60):
            env = SimEnv(seed)
            file = durable_file(env, content=bytes(2 * SECTOR))
            file.write(0, b"a" * SECTOR)
            file.write(SECTOR, b"b" * SECTOR)
            content = env.crash().contents("/file")
            seen.add((content[:1], content[SECTOR : SECTOR + 1]))
        assert seen == {(a, b) for a in (b"a", b"\0") for b in (b"b", b"\0")}

    def test_synced_is_always_there(self) -> None:
        """[E1] Synced bytes survive every crash, whatever comes after them."""
        for seed in range(60):
            env = SimEnv(seed)
            file = durable_file(env, content=b"a" * 1000)
            file.write(1000, b"b" * 1000)
            content = env.crash(seed=seed).contents("/file")
            assert content[:1000] == b"a" * 1000
            assert set(content[1000:]) <= {0, ord("b")}

    def test_one_run_many_fates(self) -> None:
        """crash() may be asked again: each fate comes from the same run, repeatably."""
        env = SimEnv(3)
        file = durable_file(env)
        file.write(0, bytes(range(256)) * 16)
        fates = [env.crash(seed=n).contents("/file") for n in range(20)]
        assert len(set(fates)) > 5
        assert fates == [env.crash(seed=n).contents("/file") for n in range(20)]
        assert env.crash(outcome="lost").contents("/file") == b""
        assert env.crash(outcome="kept").contents("/file") == bytes(range(256)) * 16

    def test_the_new_machine_says_what_survived(self) -> None:
        """`survivals` lists each change that was not durable with its outcome."""
        env = SimEnv()
        durable_file(env).write(0, b"x")
        env.open_file("/new", create=True)
        outcomes = [(s.path, s.change, s.outcome) for s in env.crash(outcome="lost").survivals]
        assert outcomes == [("/new", "create", "lost"), ("/file", "write 0+1", "lost")]

    def test_truncate_and_punch_are_kept_or_lost(self) -> None:
        """Unsynced cuts and holes may be undone by a crash."""
        sizes, holes = set(), set()
        for seed in range(30):
            env = SimEnv(seed)
            durable_file(env, "/cut", b"a" * 100).truncate(40)
            durable_file(env, "/hole", b"a" * PAGE).punch(0, PAGE)
            after = env.crash()
            sizes.add(len(after.contents("/cut")))
            holes.add(after.contents("/hole")[:1])
        assert sizes == {40, 100}
        assert holes == {b"a", b"\0"}

    def test_allocated_space_reads_as_zeros(self) -> None:
        """[E5] Also after a crash, whether the size survived or not."""
        for seed in range(20):
            env = SimEnv(seed)
            durable_file(env).allocate(0, 3 * PAGE)
            content = env.crash().contents("/file")
            assert content == bytes(len(content))
            assert len(content) in (0, 3 * PAGE)

    def test_direct_write_is_durable_when_it_returns(self) -> None:
        """[E2] Without any sync, and so are allocate, punch and truncate."""
        for seed in range(20):
            env = SimEnv(seed)
            durable_file(env)
            file = env.open_file("/file", direct=True)
            assert file.direct
            file.allocate(0, 4 * PAGE)
            file.write(0, page(env, 1))
            file.write(PAGE, page(env, 2))
            file.punch(PAGE, PAGE)
            file.truncate(3 * PAGE)
            assert env.crash().contents("/file") == b"\1" * PAGE + bytes(2 * PAGE)

    def test_crash_during_a_direct_write_tears_it(self) -> None:
        """[E2, SC2] The write that the power failure hit is kept, lost or torn; others stay."""
        seen = set()
        for seed in range(40):
            env = SimEnv(seed)
            durable_file(env)
            file = env.open_file("/file", direct=True)
            file.allocate(0, 2 * PAGE)
            file.write(0, page(env, 1))
            env.crash_at = env.calls.last_number + 1
            with pytest.raises(SimulatedCrash):
                file.write(PAGE, page(env, 2))
            content = env.crash().contents("/file")
            assert content[:PAGE] == b"\1" * PAGE
            tail = content[PAGE:]
            seen.add({bytes(PAGE): "lost", b"\2" * PAGE: "kept"}.get(tail, "torn"))
        assert seen == {"kept", "lost", "torn"}

    def test_old_handles_and_the_old_machine_are_dead(self) -> None:
        """[SE3] Everything of the crashed machine raises SimulatedCrash; the new one works."""
        env = SimEnv()
        file = durable_file(env, content=b"abc")
        lock = env.lock("/lock", "me")
        names = env.lock_names("/names", ["a", "b"])
        assert not isinstance(names, str)
        after = env.crash()
        calls: list[Callable[[], object]] = [
            lambda: file.read(0, 1),
            lambda: file.write(0, b"x"),
            file.sync,
            file.size,
            lock.release,
            names.release,
            lambda: env.open_file("/file"),
            lambda: env.exists("/file"),
            lambda: env.lock("/lock", "other"),
            lambda: env.lock_names("/names", ["c"]),
            env.now_us,
            env.monotonic,
            lambda: env.sleep(1),
            env.random_u64,
        ]
        for call in calls:
            with pytest.raises(SimulatedCrash):
                call()
        assert not names.held
        after.lock("/lock", "the next owner").release()
        assert after.lock_names("/names", ["a"]) != "a"
        assert after.open_file("/file").read(0, 3) == b"abc"

    def test_simulated_crash_is_no_exception(self) -> None:
        """[SC2] A handler of errors must not swallow a power failure."""
        assert not issubclass(SimulatedCrash, Exception)

    def test_kill_keeps_what_was_written(self) -> None:
        """A process that dies loses its locks, not the kernel's cache; a later power cut does."""
        env = SimEnv()
        file = durable_file(env)
        file.write(0, b"abc")
        env.lock("/lock", "me")
        after = env.kill()
        assert after.contents("/file") == b"abc"
        after.lock("/lock", "next")
        with pytest.raises(SimulatedCrash):
            file.read(0, 1)
        assert after.crash(outcome="lost").contents("/file") == b""


class TestNames:
    def test_a_synced_file_may_vanish_with_its_name(self) -> None:
        """[E4] Syncing the file is not enough for a new file."""
        seen = set()
        for seed in range(20):
            env = SimEnv(seed)
            file = env.open_file("/new", create=True)
            file.write(0, b"abc")
            file.sync()
            after = env.crash()
            seen.add(after.exists("/new"))
            if after.exists("/new"):
                assert after.contents("/new") == b"abc"
        assert seen == {True, False}

    def test_synced_names_stay(self) -> None:
        """[E4] After sync_directory creation, rename and removal survive every crash."""
        for seed in range(20):
            env = SimEnv(seed)
            env.make_directory("/d")
            env.sync_directory("/")
            for name in ("a", "b", "c"):
                durable_file(env, f"/d/{name}", name.encode())
            env.rename("/d/a", "/d/b")
            env.remove("/d/c")
            env.sync_directory("/d")
            after = env.crash()
            assert after.files() == ["/d/b"]
            assert after.contents("/d/b") == b"a"

    def test_rename_is_atomic(self) -> None:
        """[E4] Unsynced, the new name means the old file or the new one; the file has one name."""
        seen = set()
        for seed in range(30):
            env = SimEnv(seed)
            durable_file(env, "/new", b"old content")
            durable_file(env, "/temporary", b"new content")
            env.rename("/temporary", "/new")
            after = env.crash()
            seen.add((after.contents("/new"), after.exists("/temporary")))
        assert seen == {(b"old content", True), (b"new content", False)}

    def test_each_name_of_a_linked_file_is_durable_by_itself(self) -> None:
        """[E4, SD1] Unsynced, a link and the end of the first name are kept or lost, each."""
        seen = set()
        for seed in range(40):
            env = SimEnv(seed)
            env.make_directory("/d")
            env.sync_directory("/")
            durable_file(env, "/a", b"content")
            used = env.used_bytes()
            env.link("/a", "/d/b")
            assert env.used_bytes() == used
            assert env.if_it_crashed(outcome="lost").files() == ["/a"]
            assert env.image().if_it_crashed(outcome="kept").files() == ["/a", "/d/b"]
            env.remove("/a")
            env = env.kill()
            after = env.if_it_crashed(seed=seed)
            assert all(after.contents(path) == b"content" for path in after.files())
            seen.add(tuple(after.files()))
            env.sync_directory("/d")
            assert env.if_it_crashed(outcome="lost").files() == ["/a", "/d/b"]
            env.sync_directory("/")
            assert env.crash(outcome="lost").files() == ["/d/b"]
        assert seen == {(), ("/a",), ("/d/b",), ("/a", "/d/b")}

    def test_a_later_change_of_one_name_makes_no_other_certain(self) -> None:
        """[E3, E4] A link whose sync failed stays uncertain, until its name is made anew."""
        env = SimEnv()
        durable_file(env, "/a", b"content")
        env.link("/a", "/b")
        env.fail("sync_directory")
        with pytest.raises(OSError, match="simulated"):
            env.sync_directory("/")
        env.remove("/a")
        env.sync_directory("/")
        assert env.uncertain == ["/b"]
        assert env.if_it_crashed(outcome="kept").files() == ["/b"]
        env.open_file("/c", create=True)
        env.rename("/c", "/b")
        env.sync_directory("/")
        assert env.uncertain == []
        assert env.crash(outcome="lost").files() == ["/b"]

    def test_chains_of_renames_leave_one_name(self) -> None:
        """A file never has two names, whichever of its renames survive."""
        for seed in range(60):
            env = SimEnv(seed)
            for directory in ("/x", "/y"):
                env.make_directory(directory)
            env.sync_directory("/")
            durable_file(env, "/x/a", b"1")
            env.rename("/x/a", "/x/b")
            env.rename("/x/b", "/y/c")
            env.rename("/y/c", "/y/d")
            assert len(env.crash().files()) == 1

    def test_directories_vanish_too(self) -> None:
        """[E4] A directory whose parent was not synced takes all it holds with it."""
        env = SimEnv()
        env.make_directory("/d")
        durable_file(env, "/d/file", b"x")
        assert env.crash(outcome="lost").files() == []
        assert env.crash(outcome="kept").files() == ["/d/file"]

    def test_a_sync_between_directories_takes_what_came_before(self) -> None:
        """A rename between two directories is durable as a whole when either is synced."""
        env = SimEnv()
        for directory in ("/x", "/y"):
            env.make_directory(directory)
        env.sync_directory("/")
        durable_file(env, "/x/a", b"1")
        env.rename("/x/a", "/y/a")
        env.sync_directory("/y")
        assert env.crash(outcome="lost").files() == ["/y/a"]


class TestFaults:
    def test_what_a_failed_sync_left_is_uncertain(self) -> None:
        """[E3, SI1] Readable ever after, and a second sync changes nothing: kept, lost or torn."""
        seen = set()
        for seed in range(40):
            env = SimEnv(seed)
            file = durable_file(env, content=b"a" * 2 * SECTOR)
            file.write(0, b"b" * 2 * SECTOR)
            env.fail("sync")
            with pytest.raises(OSError, match="simulated") as caught:
                file.sync()
            assert caught.value.errno == errno.EIO
            file.write(2 * SECTOR, b"c")
            file.sync()
            assert file.read(0, SECTOR) == b"b" * SECTOR
            assert env.uncertain == ["/file"]
            assert env.crash(outcome="lost").contents("/file") == b"a" * 2 * SECTOR + b"c"
            assert env.crash(outcome="kept").contents("/file") == b"b" * 2 * SECTOR + b"c"
            content = env.crash(seed=seed).contents("/file")
            assert content[2 * SECTOR :] == b"c"
            seen.add((content[:1], content[SECTOR : SECTOR + 1]))
        assert seen == {(one, two) for one in (b"a", b"b") for two in (b"a", b"b")}

    @pytest.mark.parametrize("direct", [False, True])
    @pytest.mark.parametrize("killed", [False, True])
    def test_a_failed_write_is_uncertain_until_it_is_written_again(
        self, direct: bool, killed: bool
    ) -> None:
        """[E3, SI3] Neither later syncs nor later writes elsewhere make it certain."""
        env = SimEnv()
        durable_file(env, content=bytes(2 * PAGE))
        file = env.open_file("/file", direct=direct)
        env.fail("write", lands=True)
        with pytest.raises(OSError, match="simulated"):
            file.write(0, page(env, 1))
        if killed:
            env = env.kill()
            file = env.open_file("/file", direct=direct)
        assert file.read(0, PAGE) == b"\1" * PAGE
        file.write(PAGE, page(env, 2))
        file.sync()
        assert env.crash(outcome="lost").contents("/file") == bytes(PAGE) + b"\2" * PAGE
        env = env.if_it_crashed(outcome="kept")
        assert env.contents("/file") == b"\1" * PAGE + b"\2" * PAGE
        assert env.uncertain == []

    @pytest.mark.parametrize("direct", [False, True])
    def test_writing_again_makes_certain(self, direct: bool) -> None:
        """[E3, SI3] The bytes that were written again, and no others of the failed write."""
        env = SimEnv()
        durable_file(env, content=bytes(3 * PAGE))
        file = env.open_file("/file", direct=direct)
        buffer = env.aligned_buffer(3 * PAGE)
        buffer[:] = b"\1" * 3 * PAGE
        env.fail("write", lands=True)
        with pytest.raises(OSError, match="simulated"):
            file.write(0, buffer)
        file.write(PAGE, buffer[:PAGE])
        file.sync()
        assert env.crash(outcome="lost").contents("/file") == (
            bytes(PAGE) + b"\1" * PAGE + bytes(PAGE)
        )
        seen = {env.crash(seed=n).contents("/file")[::SECTOR] for n in range(40)}
        assert {content[8:16] for content in seen} == {b"\1" * 8}
        assert len(seen) > 5

    def test_a_later_cut_or_hole_is_certain(self) -> None:
        """[SI3] What was cut off or punched since, durably, does not come back."""
        for change in ("truncate", "punch"):
            env = SimEnv()
            file = durable_file(env, content=bytes(PAGE))
            env.fail("write", lands=True)
            with pytest.raises(OSError, match="simulated"):
                file.write(0, b"x" * 2 * PAGE)
            if change == "truncate":
                file.truncate(0)
                file.truncate(PAGE)
            else:
                file.punch(0, 2 * PAGE)
            file.sync()
            assert not any(env.crash(outcome="kept").contents("/file"))

    def test_a_direct_write_that_a_kill_met_is_uncertain(self) -> None:
        """[E2, E3] Nobody was told that it is durable; no later direct write makes it so."""
        env = SimEnv()
        durable_file(env, content=bytes(2 * PAGE))
        file = env.open_file("/file", direct=True)
        env.crash_at = env.calls.last_number + 1
        with pytest.raises(SimulatedCrash):
            file.write(0, page(env, 1))
        env = env.kill()
        assert env.contents("/file")[:PAGE] == b"\1" * PAGE
        env.open_file("/file", direct=True).write(PAGE, page(env, 2))
        assert env.crash(outcome="lost").contents("/file") == bytes(PAGE) + b"\2" * PAGE

    def test_what_was_written_before_a_direct_write_does_not_come_after_it(self) -> None:
        """[E2] A process that was killed had written the page, and not synced it."""
        env = SimEnv()
        durable_file(env, content=bytes(2 * PAGE))
        env.open_file("/file", direct=True).write_cached(0, b"\1" * (2 * PAGE))
        env = env.kill()
        file = env.open_file("/file", direct=True)
        file.write(0, page(env, 2))
        file.write_cached(PAGE, b"\3" * PAGE)
        file.sync()
        assert env.crash(outcome="lost").contents("/file") == b"\2" * PAGE + b"\3" * PAGE

    def test_each_kill_gives_a_machine_of_its_own(self) -> None:
        """One run can be followed by many: what one of them does, the others do not see."""
        env = SimEnv()
        file = durable_file(env, content=b"abc")
        file.write(0, b"x")
        one, two = env.kill(), env.kill()
        one.open_file("/file").write(0, b"111")
        one.open_file("/new", create=True)
        assert two.contents("/file") == b"xbc"
        assert two.files() == ["/file"]
        assert two.crash(outcome="lost").contents("/file") == b"abc"

    def test_names_of_a_failed_sync_are_uncertain(self) -> None:
        """[E3, SD1] The same for directory entries: shown, and kept or lost whatever comes."""
        seen = set()
        for seed in range(40):
            env = SimEnv(seed)
            env.open_file("/new", create=True)
            env.fail("sync_directory")
            with pytest.raises(OSError, match="simulated"):
                env.sync_directory("/")
            env = env.kill()
            env.open_file("/other", create=True)
            env.sync_directory("/")
            assert env.exists("/new")
            assert env.uncertain == ["/new"]
            assert env.crash(outcome="lost").files() == ["/other"]
            assert env.crash(outcome="kept").files() == ["/new", "/other"]
            seen.add(env.crash(seed=seed).exists("/new"))
        assert seen == {True, False}

    def test_a_name_is_made_certain_by_a_later_one(self) -> None:
        """[SD1] A new file renamed over it, durably; a removal ends all names of its file."""
        env = SimEnv()
        env.make_directory("/d")
        env.sync_directory("/")
        durable_file(env, "/d/new", b"1")
        env.rename("/d/new", "/d/name")
        env.fail("sync_directory")
        with pytest.raises(OSError, match="simulated"):
            env.sync_directory("/d")
        other = env.kill()
        durable_file(other, "/d/new", b"2")
        other.rename("/d/new", "/d/name")
        assert other.if_it_crashed(outcome="lost").files() == ["/d/new"]
        other.sync_directory("/d")
        after = other.crash(outcome="lost")
        assert [(path, after.contents(path)) for path in after.files()] == [("/d/name", b"2")]
        env = env.kill()
        env.remove("/d/name")
        env.sync_directory("/d")
        assert env.crash(outcome="lost").files() == []
        assert env.crash(outcome="kept").files() == []

    def test_a_durable_rename_ends_names_that_a_failed_sync_left(self) -> None:
        """[E3, E4] After a failed sync of a directory and a later, durable rename: one name."""
        for seed in range(20):
            env = SimEnv(seed)
            env.make_directory("/d")
            env.sync_directory("/")
            durable_file(env, "/d/a", b"content")
            env.rename("/d/a", "/d/b")
            fault = env.fail("sync_directory")
            with pytest.raises(OSError, match="simulated"):
                env.sync_directory("/d")
            assert fault.hits == 1
            env.rename("/d/b", "/d/c")
            env.sync_directory("/d")
            assert env.crash(outcome="lost").files() == ["/d/c"]

    def test_a_failed_write_shows_a_part_at_most(self) -> None:
        """What a failed write shows is a prefix: nothing, a part, or all of it."""
        landed = set()
        for seed in range(20):
            env = SimEnv(seed)
            file = durable_file(env, content=b"a" * PAGE)
            env.fail("write", "file")
            with pytest.raises(OSError, match="simulated"):
                file.write(0, b"b" * PAGE)
            content = env.contents("/file")
            assert content == b"b" * content.count(b"b") + b"a" * content.count(b"a")
            landed.add(content.count(b"b"))
        assert {0, PAGE} < landed

    def test_faults_by_kind_pattern_and_count(self) -> None:
        """The nth matching call fails, once; with forever all from there on, until cancelled."""
        env = SimEnv()
        one, two = durable_file(env, "/d-1"), durable_file(env, "/e-2")
        fault = env.fail("write", "d-*", nth=2, error=OSError(errno.EROFS, "read-only"))
        two.write(0, b"x")
        one.write(0, b"x")
        two.write(0, b"x")
        with pytest.raises(OSError, match="read-only"):
            one.write(0, b"x")
        one.write(0, b"x")
        assert fault.hits == 1
        fault = env.fail("sync", forever=True)
        for _ in range(3):
            with pytest.raises(OSError, match="simulated"):
                one.sync()
        fault.cancel()
        one.sync()

    def test_faults_by_number(self) -> None:
        """[SC1] fail_at names a call, or with forever all from there on."""
        env = SimEnv()
        file = durable_file(env)
        number = env.calls.last_number
        env.fail_at(number + 2)
        file.write(0, b"x")
        with pytest.raises(OSError, match="simulated"):
            file.write(0, b"x")
        file.write(0, b"x")
        env.fail_at(number + 5, forever=True)
        file.write(0, b"x")
        for _ in range(3):
            with pytest.raises(OSError, match="simulated"):
                file.sync()
        assert file.read(0, 1) == b"x"

    @pytest.mark.parametrize("kind", ["open", "read", "list_directory"])
    def test_reads_fail_too(self, kind: str) -> None:
        """Damaged media fail when they are read."""
        env = SimEnv()
        file = durable_file(env, content=b"abc")
        env.fail(kind)
        calls: dict[str, Callable[[], object]] = {
            "open": lambda: env.open_file("/file"),
            "read": lambda: file.read(0, 3),
            "list_directory": lambda: env.list_directory("/"),
        }
        kinds = (StoreCorrupt,) if kind == "read" else (OSError,)
        with pytest.raises(kinds, match="simulated"):
            calls[kind]()
        calls[kind]()

    @pytest.mark.parametrize("kind", ["open", "read"])
    def test_what_cannot_be_read_is_an_error_of_quire(self, kind: str) -> None:
        """[E6] Of the medium it is damage, with file and place; of this process it is not."""
        env = SimEnv()
        durable_file(env, content=b"abc")

        def read() -> object:
            return env.open_file("/file", read_only=True).read(1, 2)

        place = "/file cannot be opened" if kind == "open" else "/file: 2 bytes at offset 1"
        doing = "/file: cannot open" if kind == "open" else "/file: cannot read 2 bytes at 1"
        for number, error, words in (
            (errno.EIO, StoreCorrupt, place),
            (errno.EACCES, StoreError, place),
            (errno.EMFILE, ResourceExhausted, doing),
        ):
            env.fail(kind, error=OSError(number, "it is told"))
            with pytest.raises(error, match=rf"{words}.*it is told") as raised:
                read()
            assert type(raised.value) is error
        env.fail("open", error=FileNotFoundError(errno.ENOENT, "no such file"))
        with pytest.raises(FileNotFoundError):
            read()

    @pytest.mark.parametrize(
        "kind",
        ["create", "remove", "rename", "link", "make_directory", "allocate", "punch", "truncate"],
    )
    def test_failed_changes_change_nothing(self, kind: str) -> None:
        """[E7] Names, sizes and bytes are as before."""
        env = SimEnv()
        file = durable_file(env, content=b"a" * PAGE)
        env.fail(kind)
        calls: dict[str, Callable[[], object]] = {
            "create": lambda: env.open_file("/new", create=True),
            "remove": lambda: env.remove("/file"),
            "rename": lambda: env.rename("/file", "/new"),
            "link": lambda: env.link("/file", "/new"),
            "make_directory": lambda: env.make_directory("/new"),
            "allocate": lambda: file.allocate(0, 9 * PAGE),
            "punch": lambda: file.punch(0, PAGE),
            "truncate": lambda: file.truncate(0),
        }
        with pytest.raises(OSError, match="simulated"):
            calls[kind]()
        assert env.list_directory("/") == ["file"]
        assert env.contents("/file") == b"a" * PAGE
        calls[kind]()

    def test_full_disk(self) -> None:
        """[E7] Writes that grow and allocations fail with DiskFull; others go on; space returns."""
        env = SimEnv(capacity_bytes=4 * PAGE)
        file = durable_file(env, content=b"a" * PAGE)
        file.allocate(PAGE, 2 * PAGE)
        with pytest.raises(DiskFull, match="free space"):
            file.allocate(3 * PAGE, 2 * PAGE)
        assert file.size() == 3 * PAGE
        other = durable_file(env, "/other", b"b" * PAGE)
        with pytest.raises(DiskFull) as caught:
            other.write(PAGE, b"x")
        assert caught.value.errno == errno.ENOSPC
        file.write(2 * PAGE, b"allocated before")
        assert env.used_bytes() == 4 * PAGE
        file.punch(0, PAGE)
        other.write(PAGE, b"x")
        env.remove("/other")
        assert env.used_bytes() == 2 * PAGE

    def test_bit_flips(self) -> None:
        """corrupt() changes what is read, and what survives."""
        env = SimEnv()
        file = durable_file(env, content=b"abc")
        env.corrupt("/file", 1, 0x03)
        env.corrupt("/file", 2, b"\x01\x01")
        assert file.read(0, 3) == b"aab"
        assert env.crash().contents("/file") == b"aab"

    def test_forbidden_overwrite(self) -> None:
        """A synced page that is not zero must not be written again, until it is recycled."""
        env = SimEnv()
        env.forbid_overwrite("journal-*")
        env.open_file("/journal-1", create=True).allocate(0, 4 * PAGE)
        env.sync_directory("/")
        file = env.open_file("/journal-1", direct=True)
        file.write(0, page(env, 0))
        file.write(0, page(env, 1))  # zeros may be overwritten
        file.write(PAGE, page(env, 2))
        with pytest.raises(AssertionError, match="overwrites synced pages"):
            file.write(0, page(env, 2))
        env.rename("/journal-1", "/journal-2")
        file.write(0, page(env, 3))
        file.write(0, page(env, 3))  # the same bytes again
        with pytest.raises(AssertionError):
            file.write(0, page(env, 4))
        file.truncate(0)
        file.write(0, page(env, 4))
        other = durable_file(env, "/data", b"x" * PAGE)
        other.write(0, b"y")
        after = env.crash()
        with pytest.raises(AssertionError):
            after.open_file("/journal-2").write(0, b"z")

    def test_unsynced_pages_may_be_overwritten(self) -> None:
        """Only what was synced is forbidden."""
        env = SimEnv()
        env.forbid_overwrite("*")
        file = env.open_file("/file", create=True)
        file.write(0, b"a")
        file.write(0, b"b")
        file.sync()
        with pytest.raises(AssertionError):
            file.write(1, b"c")


class TestSeam:
    def test_calls_are_counted(self) -> None:
        """[SC1] A test can say: this costs one write and one sync of so many bytes."""
        env = SimEnv()
        file = durable_file(env)
        number = env.calls.last_number
        env.calls.clear()
        file.write(0, b"abc")
        file.sync()
        file.read(0, 3)
        assert env.calls.kinds() == ["write", "sync"]
        assert env.calls.count("write") == 1
        assert env.calls.count("sync", "/fi*") == 1
        assert env.calls.count("sync", "other") == 0
        assert env.calls.count("read") == 1
        assert env.calls.bytes("write") == 3
        assert env.calls.log[0] == Call(number + 1, "write", "/file", 0, 3)

    def test_a_sync_covers_only_what_had_returned(self) -> None:
        """[E1] A write that comes while a sync is under way is not covered by it."""
        env = SimEnv()
        file = durable_file(env)
        file.write(0, b"a")
        in_sync, go_on = threading.Event(), threading.Event()

        def hold(call: Call) -> None:
            if call.kind == "sync":
                in_sync.set()
                go_on.wait(100)

        env.before_call = hold
        thread = threading.Thread(target=file.sync)
        thread.start()
        assert in_sync.wait(100)
        file.write(1, b"b")
        go_on.set()
        thread.join()
        assert env.durable_contents("/file") == b"a"
        assert env.contents("/file") == b"ab"

    def test_time(self) -> None:
        """[SE4] The clocks move a little per look, by advance and by sleep, and over a crash."""
        env = SimEnv()
        start, steady = env.now_us(), env.monotonic()
        assert env.now_us() - start < 10
        env.advance(3600)
        env.sleep(0.5)
        assert env.now_us() - start == pytest.approx(3_600_500_000, abs=10)
        env.jump_wall_clock(-7200)
        assert env.now_us() < start
        assert env.monotonic() - steady == pytest.approx(3600.5, abs=0.001)
        assert env.crash().monotonic() > steady + 3600

    def test_same_seed_same_machine(self) -> None:
        """[SE2] Randomness, times and calls repeat."""

        def run(seed: int) -> tuple[int, int, bytes]:
            env = SimEnv(seed)
            durable_file(env).write(0, bytes(range(256)) * 30)
            return env.random_u64(), env.now_us(), env.crash(seed=5).contents("/file")

        assert run(7) == run(7)
        assert run(7) != run(8)

    def test_locks(self) -> None:
        """[E8] One holder; the error names it."""
        env = SimEnv()
        env.lock("/lock", "pid 7")
        with pytest.raises(StoreLocked, match="pid 7"):
            env.lock("/lock", "pid 8")


def test_content_is_as_a_bytearray_is(rng: Random) -> None:
    """Whatever is written, cleared, cut and flipped; the zeros at its end take nothing."""
    for _ in range(300):
        content, model = SimContent(), bytearray()
        for _ in range(rng.randrange(12)):
            start, length = rng.randrange(60), rng.randrange(40)
            data = rng.randbytes(length)
            change = rng.choice(["write", "clear", "grow", "cut", "flip"])
            if change == "write":
                content.write(start, data)
                model.extend(bytes(max(start + length - len(model), 0)))
                model[start : start + length] = data
            elif change == "clear":
                content.clear(start, length)
                end = max(min(start + length, len(model)), start)
                model[start:end] = bytes(min(end, len(model)) - min(start, len(model)))
            elif change == "grow":
                content.grow(length)
                model.extend(bytes(max(length - len(model), 0)))
            elif change == "cut":
                content.cut(start)
                del model[start:]
            else:
                content.flip(start, data)
                for index, flip in enumerate(data, start):
                    if index < len(model):
                        model[index] ^= flip
            assert bytes(content) == model
            assert len(content) == len(model)
            assert content.read(start, length) == model[start : start + length]
        copied = content.copy()
        assert copied.holds(content)
        copied.write(len(model), b"x")
        assert not copied.holds(content)
        assert bytes(content) == model
    content = SimContent()
    content.grow(1 << 40)
    assert content.stored_bytes == 0


def test_an_image_crashes_as_the_machine_would_have() -> None:
    """In the midst of any call: names, bytes, what is uncertain, clocks and chance are the same."""

    def run(env: SimEnv) -> None:
        env.make_directory("/d")
        file = env.open_file("/d/a", create=True)
        env.fail("sync", "a", nth=2)
        for number in range(8):
            file.write(number * PAGE, bytes([number]) * PAGE)
            with suppress(OSError):
                file.sync()
        env.open_file("/d/b", create=True, direct=True).write(0, env.aligned_buffer(PAGE))
        env.rename("/d/b", "/d/c")
        env.sync_directory("/d")
        env.remove("/d/a")
        file.write(0, b"without a name")
        env.sync_directory("/")
        env.sync_directory("/d")

    def shown(env: SimEnv) -> list[Any]:
        files = [(path, env.contents(path), env.durable_contents(path)) for path in env.files()]
        return [
            files,
            env.survivals,
            env.uncertain,
            env.used_bytes(),
            env.now_us(),
            env.random_u64(),
        ]

    images: dict[int, SimEnv] = {}
    env = SimEnv(3)
    env.within_call = lambda call: images.update(
        {call.number: env.image(images.get(call.number - 1))}
    )
    run(env)
    assert len(images) > 20
    for number, image in images.items():
        crashed = SimEnv(3, crash_at=number)
        with pytest.raises(SimulatedCrash):
            run(crashed)
        with pytest.raises(SimulatedCrash):
            image.now_us()
        assert image.uncertain == crashed.uncertain
        for seed in range(4):
            assert shown(image.crash(seed=seed)) == shown(crashed.crash(seed=seed))


def test_calls_of_other_threads_are_crash_points_too() -> None:
    """They have runs of their own, as only the workload's thread stands still for an image."""
    alone: list[int] = []

    def work(env: SimEnv, done: Acknowledged) -> None:
        alone.append(1)
        append_log(env, done, early=False)
        thread = Thread(target=crashing, args=(env,))
        thread.start()
        thread.join()

    def crashing(env: SimEnv) -> None:
        with suppress(SimulatedCrash, OSError):
            file = env.open_file("/other", create=True)
            file.write(0, b"x")

    cases = enumerate_crashes(work, check_log, Acknowledged, rounds=0)
    assert cases == 2 * (1 + 26 + 2) + 2 * (24 + 1)
    assert len(alone) == 1 + 2 + 25  # what counts, up to each call of the other, for each error


def test_images_that_take_much_are_kept_of_several_runs(limits: Limits) -> None:
    """Each goes on where the one before it has ended; the cases are the same."""
    runs: list[int] = []

    def work(env: SimEnv, done: Acknowledged) -> None:
        runs.append(1)
        append_log(env, done, early=False)

    limits(IMAGES_BYTES=100)
    cases = enumerate_crashes(work, check_log, Acknowledged, rounds=0)
    assert cases == 2 * 27 + 2 * 24
    assert len(runs) > 1 + 1 + 24


class Acknowledged(list[int]):
    """The numbers whose append returned."""


def append_log(env: SimEnv, done: Acknowledged, *, early: bool, name_synced: bool = True) -> None:
    """Twelve records of 8 bytes in a file; `early` acknowledges before the sync."""
    file = env.open_file("/log", create=True)
    if name_synced:
        env.sync_directory("/")
    for number in range(1, 13):
        file.write((number - 1) * 8, number.to_bytes(8, "little"))
        if early:
            done.append(number)
        file.sync()
        if not early:
            done.append(number)


def check_log(env: SimEnv, done: Acknowledged) -> None:
    """All that was acknowledged is there, in order."""
    content = env.contents("/log") if env.exists("/log") else b""
    numbers = [int.from_bytes(content[n : n + 8], "little") for n in range(0, len(content), 8)]
    assert numbers[: len(done)] == list(done)


class TestEnumeration:
    def test_a_right_log_passes_at_every_crash_point(self) -> None:
        """26 points and the end, each with five fates; and 24 calls whose error is survived."""
        cases = enumerate_crashes(
            lambda env, done: append_log(env, done, early=False), check_log, Acknowledged, rounds=3
        )
        assert cases == 27 * 5 + 24 * 2

    def test_canary_acknowledges_before_the_sync(self) -> None:
        """The enumeration catches it, and says at which call and how."""
        with pytest.raises(AssertionError) as caught:
            enumerate_crashes(
                lambda env, done: append_log(env, done, early=True), check_log, Acknowledged
            )
        notes = " ".join(caught.value.__notes__)
        assert "kind='sync'" in notes
        assert "all lost" in notes

    def test_canary_forgets_the_directory(self) -> None:
        """A new file whose name was never synced is caught."""
        with pytest.raises(AssertionError):
            enumerate_crashes(
                lambda env, done: append_log(env, done, early=False, name_synced=False),
                check_log,
                Acknowledged,
            )

    def test_canary_trusts_a_torn_record(self) -> None:
        """Without a checksum a record over two sectors is caught half written."""

        def write_pairs(env: SimEnv, done: Acknowledged) -> None:
            file = durable_file(env, content=bytes(2 * SECTOR))
            for number in range(1, 5):
                file.write(0, bytes([number]) * 2 * SECTOR)
                file.sync()
                done.append(number)

        def check_whole(env: SimEnv, done: Acknowledged) -> None:
            if done:
                assert len(set(env.contents("/file"))) == 1

        with pytest.raises(AssertionError):
            enumerate_crashes(write_pairs, check_whole, Acknowledged, rounds=8)

    def test_crash_points_have_all_kinds(self) -> None:
        """[SC1] Every mutating call is a crash point, in its number's order."""
        env = SimEnv()
        env.make_directory("/d")
        file = env.open_file("/d/a", create=True)
        file.write(0, b"x")
        file.sync()
        file.allocate(0, PAGE)
        file.punch(0, PAGE)
        file.truncate(0)
        env.rename("/d/a", "/d/b")
        env.remove("/d/b")
        env.sync_directory("/d")
        assert [call.number for call in env.calls.log] == list(range(1, 11))
        assert env.calls.kinds() == [
            "make_directory",
            "create",
            "write",
            "sync",
            "allocate",
            "punch",
            "truncate",
            "rename",
            "remove",
            "sync_directory",
        ]

    def test_crash_in_a_sync_makes_some_writes_durable(self) -> None:
        """[SC2] Some, none or all of the writes that the sync was to cover are there."""
        counts = set()
        for seed in range(40):
            env = SimEnv(seed)
            file = durable_file(env, content=bytes(8))
            for n in range(8):
                file.write(n, b"x")
            env.crash_at = env.calls.last_number + 1
            with pytest.raises(SimulatedCrash):
                file.sync()
            counts.add(env.crash().contents("/file").count(b"x"))
        assert {0, 8} < counts


@pytest.mark.cases(3)
def test_the_examples_of_the_documentation() -> None:
    """docs/simulated-machine.md: what it says can be run."""
    text = (Path(__file__).parents[1] / "docs" / "simulated-machine.md").read_text()
    scope: dict[str, int] = {}
    exec("".join(re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)), scope)
    assert scope["cases"] > 100
