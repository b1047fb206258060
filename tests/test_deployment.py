"""Where a store may live, who may use it, and what a copy of one is: docs/deployment.md."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.cli.running import main
from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv, os_env, os_mount
from quire.env.file_systems import DOUBTFUL, NETWORK
from quire.env.os_mount import file_system_of
from quire.errors import FileSystemWarning, InvalidArgument, StoreCorrupt
from quire.read_only import look
from quire.remote.wire.address import run_directory
from quire.testing import SimEnv
from tests.engine.mounted import small_disk
from tests.kit.children import child, is_stopped
from tests.kit.waiting import eventually
from tests.source_tree import ROOT

warned = pytest.mark.filterwarnings("error::quire.FileSystemWarning")


def kinds(table: dict[str, tuple[str, ...]]) -> list[str]:
    """All of a table."""
    return [kind for several in table.values() for kind in several]


@pytest.mark.parametrize("kind", kinds(NETWORK))
@warned
def test_a_network_file_system_is_refused(kind: str) -> None:
    """Nothing is made there; whoever insists is warned each time, and has a store."""
    env = SimEnv()
    env.file_system_kind = kind
    with pytest.raises(InvalidArgument, match=r"network file system.*network_file_system=True"):
        Store.open("/store", env=env)
    assert env.files() == []
    for _ in range(2):
        with pytest.warns(FileSystemWarning, match=f"network file system .{re.escape(kind)}."):
            store = Store.open("/store", env=env, network_file_system=True)
        store.close()


@pytest.mark.parametrize("kind", [*kinds(DOUBTFUL), "fuse.of-somebody"])
@warned
def test_what_is_doubtful_is_warned_of(kind: str) -> None:
    """And opened, also where network file systems are allowed."""
    env = SimEnv()
    env.file_system_kind = kind
    for allowed in (False, True):
        with pytest.warns(FileSystemWarning, match=rf"/store is on {re.escape(kind)}"):
            store = Store.open("/store", env=env, network_file_system=allowed)
        store.close()


@pytest.mark.parametrize("kind", ["", "ext4", "xfs", "btrfs", "tmpfs", "zfs", "9pnet"])
@warned
def test_a_file_system_of_this_machine_is_taken_silently(kind: str) -> None:
    """So is one of which nothing is known."""
    env = SimEnv()
    env.file_system_kind = kind
    Store.open("/store", env=env).close()


def test_the_option_is_a_switch() -> None:
    """What is none is refused."""
    with pytest.raises(InvalidArgument, match="network_file_system = 1: give True or False"):
        Store.open("/store", env=SimEnv(), network_file_system=1)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("24 1 0:5 / / rw - ext4 /dev/sda1 rw", "ext4"),
        ("24 1 0:5 / /a\\040-\\040b rw shared:1 master:2 - nfs4 server:/x rw,vers=4.2", "nfs4"),
        ("24 1 0:5 / /x rw - 9p host rw,trans=tcp,port=564", "9p over tcp"),
        ("24 1 0:5 / /x rw - 9p host rw,access=any,trans=virtio", "9p"),
        ("24 1 0:5 / /x rw - fuse.sshfs me@there:/x rw,user_id=0", "fuse.sshfs"),
    ],
)
def test_a_mount_is_read_as_the_kernel_writes_it(line: str, kind: str) -> None:
    """Of 9p the way to the server counts."""
    assert os_mount._kind_of(line + "\n") == kind


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_the_kind_of_a_real_mount(kind: str) -> None:
    """Of the directory, of what is not there yet, and of a file."""
    with small_disk(kind, 16 << 20) as place:
        (place / "file").touch()
        for path in (place, place / "file", place / "not" / "there"):
            assert OsEnv().file_system(str(path)) == kind
    assert OsEnv().file_system("/proc") == "proc"


def test_a_store_in_the_layers_of_a_container() -> None:
    """A real overlay: the store is warned of, and works there, also after a change of its files."""
    with small_disk("tmpfs", 64 << 20) as place:
        folders = {name: place / name for name in ("lower", "upper", "work", "merged")}
        for folder in folders.values():
            folder.mkdir()
        with quire.open(str(folders["lower"] / "s.quire")) as store:  # in the image
            store.create_queue("q", kind="work")
            store.put("q", b"in the image")
        layers = ",".join(f"{name}dir={folders[name]}" for name in ("lower", "upper", "work"))
        with mounted(["-t", "overlay", "-o", layers, "overlay"], folders["merged"]):
            path = str(folders["merged"] / "s.quire")
            for expected in ([b"in the image"], [b"in the container"]):
                with pytest.warns(FileSystemWarning, match="on overlay, the layers of a container"):
                    store = quire.open(path)
                with store:
                    assert [message.payload for message in store.get_many("q", 9)] == expected
                    store.put("q", b"in the container")


def test_a_real_file_system_behind_a_program() -> None:
    """Refused where the program is one to another machine, and warned of where it is not."""
    if shutil.which("bindfs") is None:
        pytest.skip("there is no bindfs on this machine")
    with small_disk("tmpfs", 64 << 20) as place:
        source, there = place / "source", place / "there"
        source.mkdir()
        there.mkdir()
        with mounted(["-t", "fuse.bindfs", "-o", "subtype=sshfs", str(source)], there):
            with pytest.raises(InvalidArgument, match=r"network file system \(fuse\.sshfs\)"):
                quire.open(str(there / "s.quire"))
            assert list(source.iterdir()) == []
        with mounted(["-t", "fuse.bindfs", str(source)], there):
            with pytest.warns(FileSystemWarning, match="where a program decides"):
                store = quire.open(str(there / "s.quire"))
            store.create_queue("q", kind="work")
            store.put("q", b"one")
            assert store.get("q") is not None
            store.close()


class mounted:  # noqa: N801 - a context
    """A mount for the length of a block; skips where it is refused."""

    def __init__(self, arguments: list[str], place: Path) -> None:
        self._arguments, self._place = arguments, place

    def __enter__(self) -> None:
        command = ["mount", *self._arguments, str(self._place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"mount is refused here: {done.stderr.strip()}")

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", str(self._place)], check=True)


@pytest.fixture
def on_nfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of this process's files seem to be on another machine."""
    monkeypatch.setattr(os_env, "file_system_of", lambda _: "nfs4")


@pytest.mark.usefixtures("on_nfs")
@pytest.mark.filterwarnings("always::quire.FileSystemWarning")
def test_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It refuses, opens with its option, says so, and looks anywhere."""
    path = str(tmp_path / "s.quire")
    assert main(["create-queue", path, "q"]) == 1
    assert "InvalidArgument" in capfd.readouterr().err
    assert not os.path.exists(path)
    assert main(["create-queue", path, "q", "--network-file-system"]) == 0
    assert "quire: warning: the store at" in capfd.readouterr().err
    assert main(["put", path, "q", "one"]) == 1
    assert "give --network-file-system" in capfd.readouterr().err
    assert main(["put", path, "q", "one", "--network-file-system"]) == 0
    assert main(["queues", path]) == 0
    capfd.readouterr()


def test_the_page_lists_them() -> None:
    """Each that is refused or warned of, and no other."""
    text = (ROOT / "docs" / "deployment.md").read_text()
    for said, table in (("refused", NETWORK), ("warned of", DOUBTFUL)):
        rows = dict(re.findall(rf"^\| (.+?) \| (.+?) \| {said} \|", text, re.MULTILINE))
        shown = {name: tuple(re.findall("`(.+?)`", cell)) for name, cell in rows.items()}
        assert shown == table


def test_without_proc_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is refused."""

    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(os_mount, "open", refuse, raising=False)
    assert file_system_of("/") == ""


# Other users -------------------------------------------------------------------------------------

OTHER_USER = """
import contextlib, io, json, os, sys
import quire, quire.remote, quire.opening
from quire.cli.running import main
from quire.libraries.late_modules import load_rest
from quire.opening import open_or_serve
from quire.remote.wire.address import run_directory
path, url, scratch = sys.argv[1:]
with quire.open(scratch) as store:  # so that nothing is left to be loaded
    store.create_queue("q", kind="work")
    store.put_many("q", [b"1", b"2"])
    open_or_serve(scratch).close()
quire.remote.OwnerProcess, quire.remote.StoreServer
with quire.open(scratch) as store:
    with contextlib.suppress(quire.QuireError):
        quire.connect(f"quire+unix://{run_directory(scratch)}/quire.sock").close()
for words in (["put", scratch, "q", "1"], ["status", scratch], ["dump", scratch]):
    with open(os.devnull, "w") as sys.stdout:
        main(words)
load_rest(("quire",))  # the files of this interpreter may be closed to that user
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
quire.opening.JOIN_SECONDS = 0.1
WAYS = {
    "open": lambda: quire.open(path),
    "open, create=False": lambda: quire.open(path, create=False),
    "open, share=False": lambda: quire.open(path, share=False),
    "serve": lambda: quire.serve(path),
    "open_or_serve": lambda: open_or_serve(path),
    "connect": lambda: quire.connect(url),
    "dump": lambda: list(quire.dump(path)),
    "put": lambda: main(["put", path, "q", "1"]),
    "status": lambda: main(["status", path]),
    "verify": lambda: main(["verify", path]),
    "command dump": lambda: main(["dump", path]),
    "command serve": lambda: main(["serve", path]),
    "a new store": lambda: quire.open(f"{os.path.dirname(path)}/new.quire"),
}
for name, call in WAYS.items():
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            print("status", call())
        except quire.QuireError as error:
            print(f"{type(error).__name__}: {error}")
    os.write(1, (json.dumps([name, said.getvalue()]) + chr(10)).encode())
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A directory that every user may enter; pytest's own are their user's."""
    if os.geteuid() != 0:
        pytest.skip("it takes root to be another user")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def as_another_user(path: Path) -> dict[str, str]:
    """What each way to a store gives to somebody else, in words."""
    url = f"quire+unix://{run_directory(str(path))}/quire.sock"
    with (
        tempfile.TemporaryDirectory() as scratch,
        child(OTHER_USER, str(path), url, f"{scratch}/s.quire") as process,
    ):
        return dict(json.loads(process.line()) for _ in range(13))


@pytest.mark.parametrize(
    ("place", "is_open"),
    [("its own folder", False), ("a folder that is closed", True), ("opened to look", True)],
)
def test_other_users_are_told_that_it_is_not_theirs(
    open_folder: Path, place: str, is_open: bool
) -> None:
    """By every way in, whether the store is open or not, and wherever it is: permission denied.

    Nobody is told to stop somebody else's process, or that there is no store.
    """
    path = open_folder / "s.quire"
    with quire.open(str(path)) as store:
        store.create_queue("q", kind="work")
        if place == "a folder that is closed":
            open_folder.chmod(0o700)
        elif place == "opened to look":
            path.chmod(0o755)
            (path / "LOCK").chmod(0o666)
        if not is_open:
            store.close()
        told = as_another_user(path)
    if not is_open:
        assert told.pop("connect").startswith(("ConnectionLost", "InvalidArgument"))
    # Here nothing is somebody's yet: there is only no right to make it.
    assert "no store can be made" in told["a new store"]
    for way, words in told.items():
        assert re.search("[Pp]ermission denied|belongs to user 0", words), (way, words)
        assert "Error: [Errno" not in words
        for wrong in ("stop that process", "there is no store", "does not answer"):
            assert wrong not in words, (way, words)


# Copies ------------------------------------------------------------------------------------------


def put_and_read(store: quire.Store, numbers: Iterator[int]) -> None:
    """Some work, with a checkpoint: files are made and removed."""
    for _ in range(20):
        with store.transaction() as txn:
            for _ in range(5):
                txn.put("q", b"%09d" % next(numbers) + bytes(3000))
    store.admin.checkpoint()
    while store.queue("q").messages > 50:
        store.get_many("q", 50)


@pytest.mark.parametrize(
    "order", [("checkpoint", "journal", "data"), ("data", "journal", "checkpoint")]
)
def test_a_copy_of_several_moments_is_refused(tmp_path: Path, order: tuple[str, ...]) -> None:
    """File by file, while the owner works and makes checkpoints."""
    path, copy = tmp_path / "s.quire", tmp_path / "copy"
    sizes: dict[str, Any] = {
        "segment_bytes": 256 << 10,
        "checkpoint_bytes": 64 << 10,
        "grow_bytes": 256 << 10,
    }
    numbers = itertools.count()
    with quire.open(str(path), share=False, **sizes) as store:
        store.create_queue("q", kind="work")
        put_and_read(store, numbers)
        for part in (*order, "ltds"):
            shutil.copytree(path / part, copy / part)
            put_and_read(store, numbers)
    with pytest.raises(StoreCorrupt, match="the segment is missing"):
        quire.open(str(copy), create=False)


PUTS = """
import sys, quire
with quire.open(sys.argv[1]) as store:
    store.create_queue("q", kind="work")
    for number in range(10**9):
        store.put("q", b"%d" % number)
        print(number, flush=True)
"""


def test_a_copy_of_a_stopped_owner_has_all_that_was_acknowledged(tmp_path: Path) -> None:
    """Looks at the copy, and other processes, find the copy, whose address is the first one's."""
    path, copy = tmp_path / "s.quire", tmp_path / "copy"
    with child(PUTS, str(path)) as process:
        last = [int(process.line()) for _ in range(50)][-1]
        os.kill(process.process.pid, signal.SIGSTOP)
        eventually(lambda: is_stopped(process.process.pid))
        subprocess.run(["cp", "-a", str(path), str(copy)], check=True)
        os.kill(process.process.pid, signal.SIGCONT)
        process.line()
        assert json.loads((copy / "run" / "address").read_text())["url"].startswith(
            f"quire+unix://{path}/"
        )
        waiting = look(str(copy), lambda store: store.queue("q").messages)
        with quire.open(str(copy)) as store:
            assert store.role == "owner"
            assert [int(m.payload) for m in store.get_many("q", 10**6)] == list(range(waiting))
    assert waiting > last


def test_a_store_is_moved_as_it_is(tmp_path: Path) -> None:
    """Nothing in it names its path."""
    with quire.open(str(tmp_path / "here")) as store:
        store.create_queue("q", kind="work")
        store.put("q", b"one")
    (tmp_path / "here").rename(tmp_path / "there")
    with quire.open(str(tmp_path / "there"), create=False) as store:
        message = store.get("q")
        assert message is not None
        assert message.payload == b"one"
