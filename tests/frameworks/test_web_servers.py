"""The applications of docs/frameworks.md behind the servers that they are for."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import quire
from quire.env import OsEnv
from quire.remote import read_address
from tests.frameworks.recipe_files import blocks, environment, write_files
from tests.kit.waiting import SECONDS, eventually

SOCKET = "server.sock"
UVICORN = ["uvicorn", "shop:app", "--uds", SOCKET, "--workers", "2"]
GUNICORN = ["gunicorn", "shop:app", "--bind", f"unix:{SOCKET}", "--workers", "2", "--threads", "2"]


class SocketConnection(http.client.HTTPConnection):
    """To a server that listens at a path."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        """By that path."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask(folder: Path, method: str, path: str, key: str) -> tuple[int, str]:
    """The status of the answer, and its text. Raises OSError, HTTPException where there is none."""
    connection = SocketConnection(folder / SOCKET)
    try:
        connection.request(method, path, f"order {key}", {"Idempotency-Key": key})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


class Client:
    """Sends orders until it is told to stop; each one again until it is answered."""

    def __init__(self, folder: Path, name: str) -> None:
        self.sent: list[str] = []
        self.acknowledged: list[str] = []
        self.stop = threading.Event()
        self._folder, self._name = folder, name
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.stop.wait(0.02):
            key = f"{self._name}-{len(self.sent)}"
            self.sent.append(key)
            while not self._is_answered(key) and not self.stop.wait(0.05):
                pass

    def _is_answered(self, key: str) -> bool:
        try:
            status, text = ask(self._folder, "POST", "/orders", key)
        except (OSError, http.client.HTTPException):
            return False
        assert status == 202, text
        self.acknowledged.append(key)
        return True


@contextmanager
def serving(folder: Path, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A server that is ready; it is killed after a failure."""
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=folder, env=environment(folder), stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield server
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def owner_of(folder: Path) -> int:
    """The process that owns the shop's store; 0 while there is none."""
    address = read_address(OsEnv(), str(folder / "shop.quire"))
    return 0 if address is None else address.process_id


@pytest.mark.long
@pytest.mark.parametrize(
    ("heading", "command"),
    [
        pytest.param("FastAPI", UVICORN, id="uvicorn"),
        pytest.param("Flask behind gunicorn", [*GUNICORN, "--max-requests", "15"], id="gunicorn"),
        pytest.param(
            "Flask behind gunicorn",
            [*GUNICORN, "--preload"],
            marks=pytest.mark.long,  # the test below has a worker of such a server, too
            id="gunicorn-preload",
        ),
    ],
)
def test_no_order_is_lost_or_doubled(tmp_path: Path, heading: str, command: list[str]) -> None:
    """While workers end after so many requests, the store's owner is killed, and SIGTERM comes.

    What was answered is there once; what was sent and not answered once at most.
    """
    assert "shop.py" in write_files(heading, tmp_path)
    with serving(tmp_path, command) as server:
        eventually(lambda: owner_of(tmp_path))
        clients = [Client(tmp_path, name) for name in "ab"]

        def answered(number: int) -> bool:
            assert server.poll() is None, (tmp_path / "log").read_text()
            return sum(len(client.acknowledged) for client in clients) >= number

        try:
            eventually(lambda: answered(10))
            killed = owner_of(tmp_path)
            assert killed != server.pid
            subprocess.run(["kill", "-9", str(killed)], check=True)
            eventually(lambda: answered(30))
            assert owner_of(tmp_path) != killed
            server.send_signal(signal.SIGTERM)
            assert server.wait(SECONDS) == 0, (tmp_path / "log").read_text()
        finally:
            for client in clients:
                client.stop.set()
                client.thread.join()
    assert "Traceback" not in (tmp_path / "log").read_text()
    with quire.open(str(tmp_path / "shop.quire"), create=False) as store:
        there = [payload.decode() for payload in store.get_many("orders").payloads()]
        bills = [payload.decode() for payload in store.get_many("bills").payloads()]
        there += [bill.removeprefix("bill for ") for bill in bills]
    orders = [order.removeprefix("order ") for order in there]
    assert len(orders) == len(set(orders))
    assert {key for client in clients for key in client.acknowledged} <= set(orders)
    assert set(orders) <= {key for client in clients for key in client.sent}
    assert len(bills) >= 10


OPENED_AT_THE_TOP = """
import functools
import os

import quire
from flask import Flask

app = Flask(__name__)
of_the_parent = quire.open("parent.quire")
of_the_parent.create_queue("orders")


{forgotten}

@app.post("/parent")
def parent():
    return str(of_the_parent.put("orders", b""))


@app.post("/own")
def own():
    store().create_queue("orders", exist_ok=True)
    return str(store().put("orders", b""))


store()
"""


@pytest.mark.cases(3)
def test_a_store_that_was_opened_before_the_fork(tmp_path: Path) -> None:
    """Its calls say what to do; one that is forgotten in a fork is opened anew there."""
    forgotten = blocks("Flask behind gunicorn")[-1]
    assert "register_at_fork" in forgotten
    (tmp_path / "shop.py").write_text(OPENED_AT_THE_TOP.format(forgotten=forgotten))
    command = [*GUNICORN, "--preload", "--workers", "1"]
    with serving(tmp_path, command) as server:
        eventually(lambda: "Booting worker" in (tmp_path / "log").read_text())
        assert ask(tmp_path, "POST", "/own", "1") == (200, "1")
        assert ask(tmp_path, "POST", "/parent", "2")[0] == 500
        eventually(lambda: "open the store here, too" in (tmp_path / "log").read_text())
        server.send_signal(signal.SIGTERM)
        assert server.wait(SECONDS) == 0
