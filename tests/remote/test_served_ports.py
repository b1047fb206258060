"""Ports of a process that serves a store, while it owns the store and while another one does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.errors import ConnectionLost, NotAllowed
from quire.interface.store import Store
from quire.remote import JoinedStore
from tests.kit.actors import OPTIONS, Actor, actor
from tests.kit.children import Child
from tests.kit.network import certificates
from tests.kit.users import Users
from tests.kit.waiting import SECONDS, eventually
from tests.remote.test_failed_owner import FAIL

# Serves a store at a port, and runs what comes by its standard input.
SERVING = f"""
import ast, sys, threading
from quire.opening import serve
from quire.tls import Tls

path, tls, more = sys.argv[1], ast.literal_eval(sys.argv[2]), ast.literal_eval(sys.argv[3])
threading.Thread(target=lambda: [exec(line, globals()) for line in sys.stdin], daemon=True).start()
serve(
    path,
    listen=["localhost:0"],
    tls=Tls(**tls) if tls else None,
    insecure=not tls,
    say=lambda line: print(line, flush=True),
    **more,
    **{OPTIONS},
)
"""


class Server:
    """A process that serves a store, and the URL of its port."""

    def __init__(self, path: str, *, tls: bool = False, **more: Any) -> None:
        server, client = certificates()
        self._tls = client if tls else None
        files = tls and {name: str(getattr(server, name)) for name in ("cert", "key", "ca")}
        self.process = Child(SERVING, path, repr(files), repr(more))
        first = self.process.line()
        assert first.startswith("listening: quire://localhost:"), first
        self.url = first.removeprefix("listening: ")
        self.id = self.process.process.pid

    def line(self, start: str) -> str:
        """The next line that it prints, which begins so."""
        found = self.process.line()
        assert found.startswith(start), found
        return found

    def open(self) -> JoinedStore:
        """The store, by the port."""
        store = quire.open(self.url, tls=self._tls)
        assert isinstance(store, JoinedStore)
        return store

    def signal(self) -> None:
        """Have it end in order."""
        self.process.process.send_signal(signal.SIGTERM)


@contextmanager
def serving(path: str, **more: Any) -> Iterator[Server]:
    """One for the length of a block."""
    server = Server(path, **more)
    try:
        yield server
    finally:
        server.process.close()


@contextmanager
def owning(path: str) -> Iterator[Actor]:
    """A process that owns the store, with a work queue "jobs"."""
    with actor(path) as owner:
        assert owner.ask('store.create_queue("jobs", kind="work")') != ""
        yield owner


def payloads(store: Store) -> list[bytes]:
    """Those of all messages in the queue."""
    return list(store.browse("jobs").payloads())


@pytest.mark.parametrize("tls", [True, False])
def test_a_process_that_does_not_own_the_store_lets_clients_in(store_path: str, tls: bool) -> None:
    """NP1: they put, get and commit as at the owner, whose clients they are; long messages too."""
    with owning(store_path) as owner, serving(store_path, tls=tls) as server:
        server.line("waiting: ")
        with server.open() as store:
            assert store.owner_process_id == owner.process.pid
            with store.transaction() as txn:
                txn.put("jobs", b"first")
                txn.put("jobs", bytes(3_000_000))
            assert payloads(store) == [b"first", bytes(3_000_000)]
            assert owner.ask('store.get("jobs").payload') == "b'first'"
            assert store.get("jobs", SECONDS).payload == bytes(3_000_000)  # type: ignore[union-attr]


def test_the_server_becomes_the_owner(store_path: str) -> None:
    """NP1: its port stays; the client goes on, and who comes then is served without a relay."""
    with owning(store_path) as owner, serving(store_path) as server, server.open() as store:
        server.line("waiting: ")
        txn = store.transaction()
        txn.put("jobs", b"lost")
        assert txn.get("jobs") is None
        store.put("jobs", b"kept")
        owner.kill()
        with pytest.raises(ConnectionLost):
            txn.get("jobs")
        assert payloads(store) == [b"kept"]
        assert store.owner_process_id == server.id
        server.line("ready: ")
        with server.open() as other:
            other.put("jobs", b"more")
            assert payloads(store) == [b"kept", b"more"]


def test_a_get_that_waits_goes_on_when_the_server_becomes_the_owner(store_path: str) -> None:
    """Its connection is lost with the owner, and it waits on at the same port."""
    with owning(store_path) as owner, serving(store_path) as server, server.open() as store:
        found: list[Any] = []
        getting = threading.Thread(target=lambda: found.append(store.get("jobs", SECONDS)))
        getting.start()
        eventually(lambda: owner.ask("store.status()['sharing']['waiting']") == "1")
        owner.kill()
        server.line("waiting: ")
        server.line("ready: ")
        with server.open() as other:
            other.put("jobs", b"at last")
        getting.join(SECONDS)
        assert [message.payload for message in found] == [b"at last"]


def test_the_server_loses_the_store(store_path: str) -> None:
    """NP1: its disk fails, another process recovers the store; the client goes on at its port.

    It ends with an error when that process has ended, as nobody owns the store then.
    """
    with serving(store_path) as server, server.open() as store:
        server.line("ready: ")
        store.create_queue("jobs", kind="work")
        store.put("jobs", b"kept")
        with actor(store_path) as other:
            assert other.role == "joined"
            server.process.say(f"exec({FAIL.format(after=0)!r}, globals())")
            eventually(lambda: fails(store))
            eventually(lambda: other.ask("store.role") == "'owner'")
            server.line(f"relaying: process {other.process.pid} owns {store_path}")
            eventually(lambda: store.owner_process_id == other.process.pid)
            assert payloads(store)[0] == b"kept"
        assert server.process.wait() == 1


def test_users_are_not_relayed(store_path: str, tmp_path: Path) -> None:
    """NP2: the owner would let them do everything; they come once the server is the owner."""
    users = Users(tmp_path)
    users.grant("anna", "put queue:jobs")
    token = users.tokens["anna"].text
    with owning(store_path) as owner, serving(store_path, users=str(users.file.path)) as server:
        server.line("waiting: ")
        with pytest.raises(ConnectionLost):
            quire.open(server.url, token=token)
        owner.kill()
        server.line("ready: ")
        with quire.open(server.url, token=token) as store:
            store.put("jobs", b"allowed")
            with pytest.raises(NotAllowed):
                store.get("jobs")


def fails(store: Store) -> bool:
    """Return True if a put fails."""
    try:
        store.put("jobs", b"perhaps")
    except quire.QuireError:
        return True
    return False


@pytest.mark.parametrize("owns", [True, False])
def test_open_transactions_have_a_grace(store_path: str, owns: bool) -> None:
    """At SIGTERM the one that is open ends, a further one is refused, in both roles: status 0."""
    with owning(store_path) as owner:
        if owns:
            owner.end()
        with serving(store_path, grace=SECONDS) as server, quire.connect(server.url) as store:
            with store.transaction() as txn:
                txn.put("jobs", b"kept")
                assert txn.get("jobs") is None
                server.signal()
                eventually(lambda: is_refused(store))
                txn.put("jobs", b"kept, too")
            assert server.process.wait() == 0
        if owns:
            with actor(store_path) as looks:
                assert looks.ask('store.browse("jobs").payloads()') == "[b'kept', b'kept, too']"
        else:
            assert owner.ask('store.browse("jobs").payloads()') == "[b'kept', b'kept, too']"


def is_refused(store: Store) -> bool:
    """Return True if no transaction can be begun, as the server is to end."""
    try:
        with store.transaction() as txn:
            txn.get("jobs")
    except ConnectionLost as error:
        return "begin the transaction again" in str(error)
    return False


@pytest.mark.parametrize("owns", [True, False])
def test_a_transaction_that_outlives_the_grace(store_path: str, owns: bool) -> None:
    """It is rolled back, and the server ends with status 0."""
    with owning(store_path) as owner:
        owner.ask('store.put("jobs", b"first")')
        if owns:
            owner.end()
        with serving(store_path, grace=0.05) as server, server.open() as store:
            txn = store.transaction()
            txn.put("jobs", b"never")
            assert txn.get("jobs").payload == b"first"  # type: ignore[union-attr]
            server.signal()
            assert server.process.wait() == 0
            with pytest.raises(ConnectionLost):
                txn.commit()
        with actor(store_path) as looks:
            eventually(lambda: looks.ask('store.get("jobs", 1.0).payload') == "b'first'")
            assert looks.ask('store.browse("jobs").payloads()') == "[]"
