"""Opening: one owner, the others join; owner processes that start when they are needed and end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    StoreError,
    StoreFailed,
    StoreLocked,
    StoreNotFound,
)
from quire.opening import connect, open_or_serve
from quire.opening import open as open_store
from quire.remote import notify, read_address
from quire.remote.limits import LONG_JOINED_SECONDS, MAX_PREPARATION_SECONDS
from quire.remote.ownership.election import Election
from quire.remote.ownership.shared_store import SharedStore
from quire.remote.server.signals import SignalFlag
from tests.kit.actors import actor
from tests.kit.children import Child, child, join
from tests.kit.waiting import SECONDS, is_running, wait_for_end
from tests.source_tree import ROOT

SERVING = """
import sys
from quire.opening import serve
serve(sys.argv[1], say=lambda line: print(line, flush=True))
"""


@pytest.fixture
def served(store_path: str) -> Iterator[str]:
    """A path at which owner processes may start; the last one is ended after the test."""
    yield store_path
    address = read_address(OsEnv(), store_path)
    if address is not None:
        end(address.process_id)


def end(process_id: int) -> None:
    """End an owner process of this test."""
    if is_running(process_id):
        os.kill(process_id, signal.SIGTERM)
        if not wait_for_end(process_id):
            os.kill(process_id, signal.SIGKILL)


@pytest.mark.promise(12)
def test_an_owner_that_does_not_share(store_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """StoreLocked names the owner, for one that would join and one that would not."""
    monkeypatch.setattr("quire.opening.JOIN_SECONDS", 0.3)
    with open_store(store_path, share=False) as owner:
        assert owner.role == "owner"
        assert not os.path.exists(os.path.join(store_path, "run", "quire.sock"))
        for share in (False, True):
            with pytest.raises(StoreLocked, match=str(os.getpid())):
                open_store(store_path, share=share)


def test_an_owner_that_gets_no_thread(store_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so in its status, works alone, shares once there are threads, and can be closed."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if vars(thread)["_target"].__qualname__ == "StoreServer._run":
            raise RuntimeError("can't start new thread")
        start(thread)

    for shares in (False, True):
        monkeypatch.setattr(threading.Thread, "start", refuse)
        store = open_store(store_path)
        assert isinstance(store, SharedStore)
        assert store._server is not None
        with pytest.raises(RuntimeError):
            store._server.wait_started()
        assert store.status()["sharing"]["error"] == "can't start new thread"
        store.create_queue(f"q{shares}")
        if shares:
            monkeypatch.undo()
            store._server.look()
            with join(store_path) as joined:
                assert joined.admin.queue_names() == ["qFalse", "qTrue"]
        store.close()


@pytest.mark.promise(12)
def test_one_that_does_not_share_does_not_join(store_path: str) -> None:
    """share=False means this process or none."""
    with open_store(store_path), pytest.raises(StoreLocked, match=str(os.getpid())):
        open_store(store_path, share=False)


def test_connect_by_url(store_path: str) -> None:
    """The URL of the socket gives the same store; other strings are refused."""
    with open_store(store_path), join(store_path) as joined, connect(joined.url) as again:
        assert again.integration.store_id == joined.integration.store_id
        assert again.path == joined.path
    with pytest.raises(ConnectionLost):
        connect(joined.url)
    for url in (
        "",
        "http://x",
        "quire+unix://relative",
        "quire://10.0.0.1:80",
        "quire://127.0.0.1:x",
        None,
    ):
        with pytest.raises(InvalidArgument):
            connect(url)  # type: ignore[arg-type]


@pytest.mark.promise(13)
def test_bad_paths_and_options(tmp_path: Path) -> None:
    """Clear errors, and nothing is made."""
    with pytest.raises(InvalidArgument):
        open_store(5)  # type: ignore[arg-type]
    with pytest.raises(StoreNotFound):
        open_store(str(tmp_path / "none"), create=False)
    with pytest.raises(InvalidArgument, match="speed"):
        open_store(str(tmp_path / "none"), speed=9)
    with pytest.raises(StoreError):
        open_or_serve(str(tmp_path / "none"), create=False)
    assert os.listdir(tmp_path) == []


def test_a_path_object_will_do(tmp_path: Path) -> None:
    """os.PathLike is taken as well as str."""
    with open_store(tmp_path / "store") as store:
        assert store.path == str(tmp_path / "store")


def test_a_lingering_owner_ends_when_its_store_has_failed(
    store_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though clients are connected: the next owner recovers, and they go on with it."""
    never = SignalFlag()
    with SharedStore.open(store_path) as store:
        server = store.share(OsEnv())
        server.wait_started()
        given_up = threading.Timer(SECONDS, never.set)
        given_up.start()
        with open_or_serve(store_path) as client:
            assert client.owner_process_id == os.getpid()
            monkeypatch.setattr(SharedStore, "failed", True)
            server.wait_until_idle(SECONDS, never)
        assert not never.wait(0.0)
        never.close()
        given_up.cancel()


def test_an_owner_process_is_started_and_ends(served: str) -> None:
    """It serves while a client is connected, and ends a while after the last one left."""
    with open_or_serve(served, linger=0.5) as first:
        assert first.role == "joined"
        with open_or_serve(served, linger=0.5) as second:
            assert second.owner_process_id == first.owner_process_id
            assert second.owner_process_id != os.getpid()
        first.create_queue("work", kind="work")
        time.sleep(1.0)
        first.put("work", b"x")
        process_id = first.owner_process_id
    assert wait_for_end(process_id)
    assert not os.path.exists(os.path.join(served, "run", "address"))
    with open_store(served) as store:
        assert isinstance(store, Store)
        assert store.queue("work").messages == 1


def test_who_joins_an_owner_does_without_the_engine_and_tls(store_path: str) -> None:
    """Their import would take most of the time, in each of Spark's workers for one."""
    code = (
        "import sys; from quire.opening import open_or_serve; open_or_serve(sys.argv[1]).close();"
        "print([name for name in sys.modules if name.startswith(('quire.engine', 'ssl', '_ssl'))])"
    )
    with open_store(store_path):
        command = [sys.executable, "-c", code, store_path]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_processes_that_joined_together_prepare_at_different_times(store_path: str) -> None:
    """Each draws when it loads the engine; none does it in its first second, all soon after."""
    times = [Election(OsEnv(), store_path, {}).preparation_seconds for _ in range(50)]
    assert all(LONG_JOINED_SECONDS <= each <= MAX_PREPARATION_SECONDS for each in times)
    assert max(times) - min(times) > (MAX_PREPARATION_SECONDS - LONG_JOINED_SECONDS) / 2


@pytest.mark.cases(8)
def test_a_killed_owner_process_is_replaced(served: str) -> None:
    """What it left behind is no hindrance."""
    with open_or_serve(served, linger=5) as first:
        first.create_queue("work", kind="work")
        os.kill(first.owner_process_id, signal.SIGKILL)
        assert wait_for_end(first.owner_process_id)
    with open_or_serve(served, linger=0.2) as second:
        assert second.owner_process_id != first.owner_process_id
        assert second.queue("work").messages == 0


RACER = """
import sys
from quire.opening import open_or_serve
print("ready", flush=True)
sys.stdin.readline()
with open_or_serve(sys.argv[1], linger=2.0) as store:
    print(store.owner_process_id, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.promise(12)
def test_processes_that_start_an_owner_at_once_get_one(served: str) -> None:
    """Four at a time: the lock decides, and all join the same owner."""
    racers = [Child(RACER, served) for _ in range(4)]
    try:
        for racer in racers:
            assert racer.line() == "ready"
        for racer in racers:
            racer.say("go")
        owners = {int(racer.line()) for racer in racers}
        assert len(owners) == 1
        assert is_running(owners.pop())
    finally:
        for racer in racers:
            racer.close()


def test_an_owner_process_that_cannot_start(served: str) -> None:
    """The error repeats what the owner said."""
    with open_store(served):
        pass
    for checkpoint in Path(served, "checkpoint").iterdir():
        checkpoint.write_bytes(b"damaged")
    with pytest.raises(StoreFailed, match=r"StoreCorrupt|StoreVersion"):
        open_or_serve(served)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serving(served: str, tmp_path: Path, number: signal.Signals) -> None:
    """It says when others can join, and its status at SIGHUP; it ends cleanly on a signal.

    A service manager is told as well.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(SECONDS)
        process = subprocess.Popen(
            [sys.executable, "-m", "quire", "serve", served],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"process {process.pid} opens {served}\n"
            ready = process.stdout.readline()
            assert manager.recv(1000) == f"READY=1\nSTATUS=owns {served}".encode()
            with join(served) as store:
                assert ready == f"ready: process {process.pid} serves {served} at {store.url}\n"
                store.create_queue("work", kind="work")
                process.send_signal(signal.SIGHUP)
                kind, _, status = process.stdout.readline().partition(" ")
                assert kind == "status:"
                assert json.loads(status)["queues"][0]["name"] == "work"
                assert json.loads(status)["checkpoints"]["count"] == 1
                process.send_signal(number)
                assert manager.recv(100) == b"STOPPING=1"
                output, _ = process.communicate(timeout=SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    assert process.returncode == 0
    assert output == f"process {process.pid} closed {served}\n"
    assert read_address(OsEnv(), served) is None


@pytest.mark.parametrize("takes_over", [True, False])
def test_serving_a_store_that_another_process_owns(
    served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes_over: bool
) -> None:
    """It says who owns it and is ready while it waits; it takes over, or ends by a signal before.

    Meanwhile SIGHUP makes a checkpoint at the owner.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, actor(served) as first:
        owner = first.process.pid
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(SECONDS)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        waiting = Child(SERVING, served)
        try:
            said = f"waiting: process {owner} owns {served}"
            assert waiting.line() == f"{said}; process {waiting.process.pid} has joined it"
            assert manager.recv(1000) == f"READY=1\nSTATUS={said}".encode()
            waiting.process.send_signal(signal.SIGHUP)
            kind, _, status = waiting.line().partition(" ")
            assert (kind, json.loads(status)["checkpoints"]["count"]) == ("status:", 1)
            if takes_over:
                first.kill()
                assert waiting.line().startswith(f"ready: process {waiting.process.pid} serves")
                assert manager.recv(1000) == f"READY=1\nSTATUS=owns {served}".encode()
            waiting.process.send_signal(signal.SIGTERM)
            assert manager.recv(1000) == b"STOPPING=1"
            assert waiting.wait() == 0
        finally:
            waiting.close()


def test_a_service_manager_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so, and nothing else happens."""
    monkeypatch.setenv("NOTIFY_SOCKET", "@quire nobody")
    notify("READY=1")
    assert "cannot be told 'READY=1'" in caplog.text


def test_opening_while_the_owner_closes(store_path: str) -> None:
    """Two processes that open and close in turns never fail: they own the store, join, succeed."""
    code = """
import sys
from quire.opening import open
for _ in range(15):
    with open(sys.argv[1], segment_bytes=4 << 20) as store:
        store.queues()
print("done", flush=True)
"""
    with child(code, store_path) as one, child(code, store_path) as two:
        assert one.line() == "done"
        assert two.line() == "done"


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        "ä",
        "p%41",
        "h#x",
        "q?y",
        "b[1]",
        "c*",
        "d:e",
        "it's",
        "n\nl",
        "b\\s",
        "$HOME",
        "~",
        "long" * 30,
    ],
)
def test_any_path_can_be_joined(tmp_path: Path, name: str) -> None:
    """Whatever letters it has; two such stores do not meet."""
    path = str(tmp_path / name / name)
    (tmp_path / name).mkdir()
    with open_store(path) as owner:
        owner.create_queue("q", kind="work")
        with open_store(path) as joined:
            assert joined.role == "joined"
            joined.put("q", name.encode())
        with open_store(path + "2") as other, open_store(path + "2") as second:
            assert other.queues() == second.queues() == []
        with owner.transaction() as txn:
            message = txn.get("q")
            assert message is not None
            assert message.payload == name.encode()


def test_a_store_that_cannot_be_shared_is_open_all_the_same(
    store_path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The status says why others cannot join, and so does the log."""

    def fail(*_: object) -> str:
        raise InvalidArgument("no place for a socket")

    monkeypatch.setattr("quire.remote.server.entrance.choose_socket_path", fail)
    monkeypatch.setattr("quire.opening.JOIN_SECONDS", 0.3)
    with open_store(store_path) as store:
        store.create_queue("q", kind="topic")
        with pytest.raises(StoreLocked, match="could not be joined"):
            open_store(store_path)
        assert store.status()["sharing"]["error"] == "no place for a socket"
    assert "cannot be joined by other processes: no place for a socket" in caplog.text
