"""Linux's calls and the portable ones: where each may be made, and that both do the same.

What is shown of the portable forms is shown on Linux, where a whole test run is made with them too
(`make test-portable`); none was made on macOS.
"""

from __future__ import annotations

import ast
import errno
import fcntl
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from quire.env import OsEnv, os_file, os_linux, os_platform, os_portable
from tests.platform_names import SYSTEM_MODULES, only_on_linux
from tests.source_tree import ROOT, all_sources, module_name, nodes, parsed
from tests.test_seam import CallFinder

# What macOS has too, but not so: its locks of open files have another `struct flock`, its O_DSYNC
# leaves the disk's cache as it is, and it has preadv since version 11.
OTHERWISE = frozenset(
    {"fcntl.F_OFD_SETLK", "fcntl.F_OFD_SETLKW", "fcntl.F_OFD_GETLK", "os.O_DSYNC", "os.preadv"}
)
PLACES = ("/proc/", "/dev/shm", "/sys/")
CANDIDATE = re.compile(
    rf"^\s*(from|import) .*\b({'|'.join(SYSTEM_MODULES)}|ctypes)\b|{'|'.join(PLACES)}", re.MULTILINE
)  # all other modules have nothing to look at
LINUX_FORMS = Path("quire/env/os_linux.py")
# Asked for what only the kernel of Linux tells; without it, nothing is known.
ASKED = {
    ("quire.env.os_mount", "/proc/self/mountinfo"),
    ("quire.env.os_mount", "/proc/self/fdinfo/"),
}


def linux_calls(source: str) -> list[tuple[int, str]]:
    """Line and name of what a module has of Linux alone."""
    if not CANDIDATE.search(source):
        return []
    tree = parsed(source)
    finder = CallFinder(tree)
    used = list(finder.used)
    for node in nodes(tree, ast.Call, ast.Constant):
        match node:
            case ast.Call(
                func=ast.Name(id="getattr"), args=[ast.Name(id=name), ast.Constant(value=str(part))]
            ):
                used.append((node.lineno, f"{finder.aliases.get(name, '?')}.{part}"))
            case ast.Constant(value=str(text)):
                used.append((node.lineno, text))
            case ast.Constant(value=bytes(text)):
                used.append((node.lineno, text.decode(errors="replace")))
    return sorted({(line, name) for line, name in used if is_of_linux(name)})


def is_of_linux(name: str) -> bool:
    """Whether a dotted name, or a text, is something that macOS has not."""
    if name.startswith(PLACES) or name in OTHERWISE:
        return True
    top, _, rest = name.partition(".")
    return top == "ctypes" or (top in SYSTEM_MODULES and rest.split(".")[0] in only_on_linux(top))


def test_linux_calls_are_made_in_one_place() -> None:
    """All but one module do with what macOS has as well, and that one does not."""
    found = {path: linux_calls((ROOT / path).read_text()) for path in all_sources()}
    assert found.pop(LINUX_FORMS)
    left = {(module_name(path), name) for path, calls in found.items() for _, name in calls}
    assert left == ASKED


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.fdatasync(3)\n",
        "import os as o\no.eventfd(0)\n",
        "from select import epoll\nepoll()\n",
        "import fcntl\nfcntl.fcntl(3, fcntl.F_OFD_SETLK, b'')\n",
        "import os\ngetattr(os, 'sched_getaffinity')(0)\n",
        "import socket as s\ns.socket().getsockopt(s.SOL_SOCKET, s.SO_PEERCRED)\n",
        "def f():\n    import ctypes\n    return ctypes.CDLL(None)\n",
        "open('/proc/self/status')\n",
        "name = b'/proc/self/fd/%d' % 3\n",
    ],
)
def test_the_search_finds_each_kind_of_call(source: str) -> None:
    """Canary: the check above would notice."""
    assert linux_calls(source)


def test_both_forms_have_the_same_names() -> None:
    """What is chosen from one module is in the other; `os_platform` has all of it."""
    chosen = set(os_platform.__all__) - {"PORTABLE"}
    for form in (os_linux, os_portable):
        assert chosen <= set(vars(form))


def test_windows_is_refused_in_words() -> None:
    """Before anything of the package is loaded that would fail in a way nobody understands."""
    code = "import sys; sys.platform = 'win32'; import quire"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("ImportError: Quire runs on Linux and macOS, and not on Windows")
    assert "WSL" in last


WITHOUT_LINUX = """
import asyncio, importlib, multiprocessing, os, random, selectors, shutil, subprocess, sys
import tempfile, uuid
from tests.platform_names import SYSTEM_MODULES, only_on_linux
import msgspec, numpy, sortedcontainers, xxhash  # these and the ones above may have it
for module in SYSTEM_MODULES:
    for name in only_on_linux(module):
        vars(importlib.import_module(module)).pop(name, None)
sys.platform = "darwin"
import quire
from quire.env.os_platform import PORTABLE
assert PORTABLE and not hasattr(os, "fdatasync")
path = {path!r}
with quire.open(path) as store:
    if {owns}:
        for name in ("asked", "answered"):
            store.create_queue(name, kind="work")
        print("open", flush=True)
        assert store.get("asked", timeout=60).payload == b"one"
        store.put("answered", b"two")
        sys.stdin.readline()
    else:
        store.put("asked", b"one")
        assert store.get("answered", timeout=60).payload == b"two"
"""


@pytest.mark.cases(3)
def test_two_processes_share_a_store_without_anything_of_linux(tmp_path: Path) -> None:
    """The names that macOS has not are taken away, before Quire is imported; paths are long."""
    path = str(tmp_path / ("long" * 30) / "store")
    os.mkdir(os.path.dirname(path))

    def start(owns: bool) -> subprocess.Popen[str]:
        code = WITHOUT_LINUX.format(path=path, owns=owns)
        return subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    with start(owns=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline()
        with start(owns=False) as other:
            _, complaint = other.communicate(timeout=120)
        assert (other.returncode, complaint) == (0, "")
        _, complaint = owner.communicate("\n", timeout=60)
        assert (owner.returncode, complaint) == (0, "")


SLICE = (
    "tests/test_env.py", "tests/remote/test_processes.py::test_a_second_process_joins",
    "-k", "not sim",
)  # fmt: skip


@pytest.mark.cases(6)
def test_a_slice_of_the_tests_passes_with_the_portable_forms(tmp_path: Path) -> None:
    """Forced in that run, and in the processes that it starts; the whole: `make test-portable`."""
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "--seed", "1",
            f"--basetemp={tmp_path / 'slice'}", "-p", "no:cacheprovider", *SLICE,
        ],
        cwd=ROOT, env={**os.environ, "QUIRE_PORTABLE": "1"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(params=[os_linux, os_portable], ids=["linux", "portable"])
def forms(request: pytest.FixtureRequest) -> ModuleType:
    """Both in turn."""
    found: ModuleType = request.param
    return found


@pytest.fixture(params=["unix", "tcp"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A server's end of a connection, and a client's."""
    if request.param == "unix":
        server, client = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            server = listener.accept()[0]
    with server, client:
        yield server, client


Pair = tuple[socket.socket, socket.socket]


class TestSocketEvents:
    def test_what_comes_is_told_until_it_is_read(self, forms: ModuleType, pair: Pair) -> None:
        """Whoever reads a part is told of the rest."""
        server, client = pair
        with closing(forms.socket_events()) as events:
            events.register(server, forms.READ)
            client.send(b"ab")
            for _ in range(2):
                [(fd, event)] = events.poll(-1, 64)
                assert fd == server.fileno()
                assert event & forms.READ
                assert not event & forms.ENDED
                server.recv(1)

    def test_the_end_is_told_once_to_who_asks_for_it_alone(
        self, forms: ModuleType, pair: Pair
    ) -> None:
        """What comes is not told meanwhile; another socket still is, also by a poll for one."""
        server, client = pair
        other, sender = socket.socketpair()
        with other, sender, closing(forms.socket_events()) as events:
            events.register(server, forms.HANG_UP)
            events.register(other, forms.READ)
            sender.send(b"x")
            assert [fd for fd, _ in events.poll(-1, 1)] == [other.fileno()]
            client.close()
            told = 0
            for _ in range(20):
                for fd, event in events.poll(-1, 1):
                    if fd == server.fileno():
                        assert event & forms.ENDED
                        told += 1
            assert told == 1

    def test_the_end_is_told_though_something_is_to_be_read(self, forms: ModuleType) -> None:
        """A client dies that had sent more than was read of it; its Unix socket tells."""
        server, client = socket.socketpair()
        ended: list[tuple[int, int]] = []
        with server, client, closing(forms.socket_events()) as events:
            events.register(server, forms.HANG_UP)
            client.send(b"for later")
            waiting = threading.Thread(target=lambda: ended.extend(events.poll(-1, 64)))
            waiting.start()
            time.sleep(0.02)
            assert not ended
            client.close()
            waiting.join(10)
            [(fd, event)] = ended
            assert fd == server.fileno()
            assert event & forms.ENDED
            assert server.recv(9) == b"for later"

    def test_a_poll_takes_what_other_threads_change(self, forms: ModuleType, pair: Pair) -> None:
        """A socket is registered, armed anew and taken out while a poll waits."""
        server, client = pair
        silent, _ = socket.socketpair()
        found: list[tuple[int, int]] = []
        with silent, _, closing(forms.socket_events()) as events:
            events.register(silent, forms.READ)
            waiting = threading.Thread(target=lambda: found.extend(events.poll(-1, 64)))
            waiting.start()
            time.sleep(0.01)
            client.send(b"x")
            events.register(server, 0)
            events.unregister(silent.fileno())
            time.sleep(0.01)
            assert not found
            events.modify(server.fileno(), forms.READ | forms.WRITE)
            waiting.join(10)
            [(fd, event)] = found
            assert fd == server.fileno()
            assert event & forms.READ
            assert event & forms.WRITE
            with pytest.raises(OSError, match=r"regist|No such file"):
                events.unregister(silent.fileno())


def test_a_socket_is_reached_by_a_short_path(forms: ModuleType, tmp_path: Path) -> None:
    """It is made in its directory, and nothing stays of the way there."""
    directory = tmp_path / ("d" * 200)
    directory.mkdir()
    path = os.fsencode(directory / "quire.sock")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        with forms.short_path(path) as short:
            assert len(short) <= 103
            listener.bind(short)
        listener.listen()
        with forms.short_path(path) as short:
            client.connect(short)
        assert os.listdir(directory) == ["quire.sock"]
        assert not os.path.exists(os.path.dirname(short))


def test_space_is_made_by_writing_where_there_is_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Holes before the old end get space too, as a store has them that was copied; data stays."""
    monkeypatch.setattr(os_file, "reserve", os_portable.reserve)
    env = OsEnv()
    file = env.open_file(str(tmp_path / "file"), create=True)
    size = (3 << 20) + 5000
    file.write(1 << 20, b"kept")
    file.truncate(size - 5000)
    assert os.stat(file.path).st_blocks * 512 < 1 << 20
    file.allocate(0, size)
    assert os.stat(file.path).st_blocks * 512 >= size
    assert file.size() == size
    assert file.read(0, size) == bytes(1 << 20) + b"kept" + bytes(size - (1 << 20) - 4)


def test_a_sync_reaches_the_medium_on_macos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F_FULLFSYNC where the file system knows it, else fsync; a failed one is not tried again."""
    calls: list[str] = []
    refused = 0

    def full_sync(fd: int, command: int) -> int:
        calls.append(f"fcntl {command}")
        if refused:
            raise OSError(refused, os.strerror(refused))
        return 0

    monkeypatch.setattr(os_portable, "_FULL_SYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", full_sync)
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append("fsync"))
    os_portable.sync_data(3)
    assert calls == ["fcntl 51"]
    refused = errno.ENOTSUP
    os_portable.sync_data(3)
    assert calls == ["fcntl 51", "fcntl 51", "fsync"]
    refused = errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        os_portable.sync_data(3)
    assert calls[3:] == ["fcntl 51"]
