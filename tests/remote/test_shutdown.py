"""Shutting down a served store: it ends in order, by a call as by a signal (EO1, EO2)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import quire
from quire.cli import main
from quire.engine import EmbeddedStore
from quire.errors import ConnectionLost, NotAllowed
from quire.interface.store import Store
from quire.remote.server.shutdown import Shutdown
from quire.remote.server.signals import SignalFlag
from tests.kit.children import join
from tests.kit.users import as_user
from tests.kit.waiting import SECONDS, eventually
from tests.remote.test_served_ports import Server, serving


@pytest.fixture
def end() -> Iterator[SignalFlag]:
    """A flag of which signals tell."""
    flag = SignalFlag()
    yield flag
    flag.close()


def test_of_several_graces_the_shortest_counts(end: SignalFlag) -> None:
    """Those of calls, and that of a signal."""
    shutdown = Shutdown(end, 1000.0)
    shutdown.request(500.0)
    assert end.wait(0.0)
    assert 400.0 < shutdown.begin() <= 500.0
    shutdown.request(900.0)
    assert not shutdown.is_over()
    shutdown.request(0.0)
    assert shutdown.is_over()


def test_a_signal_has_the_grace_of_the_server_and_ends_that_of_a_call(end: SignalFlag) -> None:
    """And the one of a signal before it."""
    by_signal = Shutdown(end, 1000.0)
    end.set_by(signal.SIGTERM)
    assert 900.0 < by_signal.begin() <= 1000.0
    assert not by_signal.is_over()
    end.set_by(signal.SIGTERM)
    assert by_signal.is_over()
    by_call = Shutdown(end, 0.0)
    by_call.request(1000.0)
    by_call.begin()
    end.set_by(signal.SIGTERM)
    assert by_call.is_over()


def joined_to(server: Server, path: str, opening: Callable[[str], Store] = join) -> Store:
    """The store that it serves, once it does."""
    server.line("ready")
    return opening(path)


def ended(server: Server) -> None:
    """Wait for the server's process, which ends in order."""
    assert server.process.process.wait(SECONDS) == 0


def test_open_transactions_end_and_the_server_does(store_path: str) -> None:
    """No more are begun, the open one commits, and what it has put is there."""
    with serving(store_path) as server, joined_to(server, store_path) as store:
        store.create_queue("jobs", kind="work")
        with store.transaction() as txn:
            txn.put("jobs", b"kept")
            assert txn.get("jobs") is None  # it has reached the owner
            store.admin.shutdown(grace=SECONDS)

            def is_refused() -> bool:
                try:
                    with store.transaction() as later:
                        later.get("jobs")
                except ConnectionLost:
                    return True
                return False

            eventually(is_refused)
        ended(server)
    with quire.open(store_path) as after:
        assert [message.payload for message in after.get_many("jobs")] == [b"kept"]


def test_without_a_grace_what_is_open_is_rolled_back(store_path: str) -> None:
    """At once; so it is when the grace is over, or a second call or a signal ends it."""
    with serving(store_path) as server, joined_to(server, store_path) as store:
        store.create_queue("jobs", kind="work")
        txn = store.transaction()
        txn.put("jobs", b"lost")
        assert txn.get("jobs") is None
        store.admin.shutdown(grace=SECONDS * 10)
        store.admin.shutdown()
        ended(server)
        with pytest.raises(quire.QuireError):
            txn.commit()
    with quire.open(store_path) as after:
        assert after.get_many("jobs").payloads() == []


def test_who_has_the_store_open_goes_on(store_path: str) -> None:
    """It takes over, as after a signal; and is no `quire serve`."""
    with serving(store_path) as server, joined_to(server, store_path, quire.open) as store:
        store.create_queue("jobs", kind="work")
        store.admin.shutdown()
        ended(server)
        store.put("jobs", b"1")
        assert store.role == "owner"
        with pytest.raises(NotAllowed):
            store.admin.shutdown()


def test_a_user_needs_the_right_to_it(owner: EmbeddedStore, tmp_path: Path) -> None:
    """Others are refused before anything is done."""
    asked: list[float] = []
    owner._context.registry.on_shutdown = asked.append
    rights = "put,get,browse,manage queue:*"
    with as_user(owner, tmp_path, rights) as store, pytest.raises(NotAllowed, match="admin"):
        store.admin.shutdown()
    assert asked == []


def test_the_command_shuts_a_server_down(
    store_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its directory, and by its port; it returns once the store is closed."""
    for place in ("path", "url"):
        with serving(store_path) as server:
            server.line("ready")
            where = store_path if place == "path" else server.url
            assert main(["shutdown", where, "--grace", "10"]) == 0
            assert capsys.readouterr().out == f"process {server.id} closes {where}\n"
            ended(server)
    assert main(["shutdown", store_path]) == 3
    assert "no process has" in capsys.readouterr().err


def test_the_command_owns_no_store(store_path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A program that does is not shut down; certificates are for a port."""
    with quire.open(store_path):
        assert main(["shutdown", store_path]) == 1
        assert "not `quire serve`" in capsys.readouterr().err
    assert main(["shutdown", store_path, "--tls-ca", "ca.pem"]) == 1
    assert "leave them out" in capsys.readouterr().err
