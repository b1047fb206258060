"""The socket of an owner, or what tells of it, is removed or replaced while it serves others."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from quire.env import OsEnv
from quire.errors import ConnectionLost
from quire.opening import open as open_store
from quire.remote import JoinedStore, read_address
from quire.remote.ownership.shared_store import SharedStore
from tests.kit.actors import actor
from tests.kit.waiting import SECONDS, eventually


def _replace_by_another_owner_s(run: Path, stack: ExitStack) -> None:
    """Its socket, which a store elsewhere listens at, and tells its clients so."""
    other = stack.enter_context(open_store(str(run.parent) + ".other"))
    assert isinstance(other, SharedStore)
    url = other.share(OsEnv()).wait_started()
    os.replace(url.removeprefix("quire+unix://"), run / "quire.sock")


def _replace_by_a_directory(run: Path, _: ExitStack | None = None) -> None:
    (run / "quire.sock").unlink()
    (run / "quire.sock").mkdir()


HOW: dict[str, Callable[[Path, ExitStack], object]] = {
    "socket removed": lambda run, _: (run / "quire.sock").unlink(),
    "socket replaced by a file": lambda run, _: shutil.move(run / "address", run / "quire.sock"),
    "socket replaced by a directory": _replace_by_a_directory,
    "socket of another owner": _replace_by_another_owner_s,
    "socket nobody may use": lambda run, _: (run / "quire.sock").chmod(0),
    "address removed": lambda run, _: (run / "address").unlink(),
    "address garbage": lambda run, _: (run / "address").write_bytes(os.urandom(100)),
    "all removed": lambda run, _: shutil.rmtree(run),
}


@pytest.fixture
def owner(store_path: str) -> Iterator[SharedStore]:
    """It serves others, and has a queue with a message."""
    with open_store(store_path) as store:
        assert isinstance(store, SharedStore)
        store.share(OsEnv()).wait_started()
        store.create_queue("work", kind="work")
        store.put("work", b"1")
        yield store
        assert store.admin.verify().ok


@pytest.fixture
def joined(owner: SharedStore) -> Iterator[JoinedStore]:
    """It has joined that owner."""
    with open_store(owner.path) as store:
        assert isinstance(store, JoinedStore)
        yield store


@pytest.mark.promise(12)
@pytest.mark.parametrize("how", HOW)
def test_an_owner_lets_others_in_again(owner: SharedStore, joined: JoinedStore, how: str) -> None:
    """Who has joined goes on with what is open, further calls wait a moment, and others join."""
    connection = joined.owner_session.connection
    run = Path(owner.path) / "run"
    with ExitStack() as stack, joined.transaction() as txn:
        message = txn.get("work")
        HOW[how](run, stack)
        with joined.transaction() as second:  # which needs a connection of its own
            assert second.get("work") is None
            second.put("work", b"2")
        assert message is not None
    assert txn.state == "committed"
    assert joined.owner_session.connection is connection
    with open_store(owner.path) as further:
        assert further.role == "joined"
        assert further.browse("work").payloads() == [b"2"]
    eventually(lambda: stat.S_IMODE((run / "quire.sock").stat().st_mode) == 0o600)
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    assert owner.status()["sharing"]["error"] is None
    assert owner.status()["sharing"]["process_id"] == os.getpid()  # who owns the store


def test_an_owner_that_nobody_can_reach(
    owner: SharedStore, joined: JoinedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that needs a connection says so soon, and what to do; all goes on when it is done."""
    monkeypatch.setattr("quire.remote.client.connection.JOIN_SECONDS", 0.5)
    place = Path(owner.path) / "run" / "quire.sock"
    with joined.transaction() as txn:
        assert txn.get("work") is not None
        shared = joined.owner_session.connection._shared
        assert shared is not None
        shared.is_over = True  # it is for no more requests
        _replace_by_a_directory(place.parent)
        (place / "file").touch()
        with pytest.raises(ConnectionLost, match=f"process {os.getpid()} owns .* nothing else"):
            joined.get("work")
        eventually(lambda: "remove it" in str(owner.status()["sharing"]["error"]))
        assert txn.get("work") is None  # on the connection that it has
        shutil.rmtree(place)
        monkeypatch.setattr("quire.remote.client.connection.JOIN_SECONDS", SECONDS)
        assert joined.get("work") is None
    assert txn.state == "committed"
    assert joined.role == "joined"
    assert owner.status()["sharing"]["error"] is None


def test_an_owner_whose_directory_was_moved_leaves_the_next_one_s_alone(store_path: str) -> None:
    """What is at the path is another store's."""
    with actor(store_path) as first:
        os.rename(store_path, store_path + ".moved")
        with open_store(store_path) as store:
            assert isinstance(store, SharedStore)
            url = store.share(OsEnv()).wait_started()
            number = os.lstat(url.removeprefix("quire+unix://")).st_ino
            eventually(lambda: first.ask("store.failed") == "True")
            assert first.ask("store.close()") == "None"
            assert os.lstat(url.removeprefix("quire+unix://")).st_ino == number
            address = read_address(OsEnv(), store_path)
            assert address is not None
            with JoinedStore.connect(url, epoch=address.epoch) as joined:
                assert joined.owner_process_id == os.getpid()
