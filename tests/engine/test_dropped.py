"""A store object that is dropped open: it lets go of the store, its threads and its files."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import StoreClosed, StoreLocked
from quire.testing import SimEnv

from .kit import WAIT, take


def until(there: Callable[[], bool]) -> None:
    """Wait for something that comes soon."""
    end = time.monotonic() + WAIT
    while not there():
        assert time.monotonic() < end
        time.sleep(0.02)


def reopened(path: str, **options: Any) -> Store:
    """The store, as soon as it is free."""
    found: list[Store] = []

    def opens() -> bool:
        try:
            found.append(Store.open(path, **options))
        except StoreLocked:
            return False
        return True

    until(opens)
    return found[0]


def open_files(path: str) -> list[str]:
    """What this process has open or mapped of the store."""
    names = []
    for name in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    maps = Path("/proc/self/maps").read_text().splitlines()
    return [name for name in (*names, *maps) if path in name]


def own_threads() -> set[str]:
    """The names of Quire's threads."""
    return {t.name for t in threading.enumerate() if t.name.startswith("quire")}


def use(store: Store, files: int, share: bool) -> None:
    """What starts all its threads and opens all its files."""
    if share:
        until(lambda: store.status()["sharing"]["url"] is not None)
    for number in range(files):
        store.create_queue(f"q{number}", kind="work", data_file=number)
    with store.transaction() as txn:
        for number in range(files):
            txn.put_many(f"q{number}", [b"x" * 100_000] * 10)
    store.checkpoint()
    with store.transaction(large=True) as txn:
        txn.put_many("q0", [b"y" * 100_000] * 100)
    store.put("q0", b"last")


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("files", [1, 2])
def test_a_dropped_store_lets_go(store_path: str, share: bool, files: int) -> None:
    """Soon, with a warning; nothing that was committed is lost, what was open is rolled back."""
    threads = own_threads()
    store = quire.open(store_path, share=share, data_files=files)
    assert isinstance(store, Store)
    use(store, files, share)
    there = weakref.ref(store)
    with pytest.warns(ResourceWarning, match="was dropped while it was open"):
        del store
    with reopened(store_path) as again:
        assert len(take(again, "q0")) == 111
        assert again.verify().ok
    until(lambda: there() is None)
    gc.collect()
    until(lambda: own_threads() <= threads)
    assert open_files(store_path) == []


@pytest.mark.parametrize("background", [True, False])
def test_a_transaction_keeps_a_dropped_store(store_path: str, background: bool) -> None:
    """Until it ends: its user may not have the store at hand at all."""
    with pytest.warns(ResourceWarning, match="was dropped while it was open"):
        txn = new_store(store_path, background).transaction()
    time.sleep(0.7)
    with pytest.raises(StoreLocked):
        Store.open(store_path)
    txn.put("q", b"x")
    txn.commit()
    with reopened(store_path) as again:
        assert take(again, "q") == [b"x"]


def new_store(path: str, background: bool) -> Store:
    """With a queue."""
    store = Store.open(path, background=background)
    store.create_queue("q", kind="work")
    return store


@pytest.mark.parametrize("background", [True, False])
def test_what_is_prepared_stays_so(store_path: str, background: bool) -> None:
    """The next opening decides it; the object of before cannot."""
    store = new_store(store_path, background)
    txn = store.transaction()
    txn.put("q", b"x")
    txn.prepare("xid")
    with pytest.warns(ResourceWarning, match="was dropped while it was open"):
        del store
    with reopened(store_path) as again:
        with pytest.raises(StoreClosed):
            txn.commit()
        again.commit_prepared("xid")
        assert take(again, "q") == [b"x"]


def test_it_may_be_dropped_by_the_garbage_collector(store_path: str) -> None:
    """In a cycle, with an open transaction in the same one, in any thread."""
    store = new_store(store_path, True)
    txn = store.transaction()
    txn.put("q", b"x")
    cycle: list[Any] = [store, txn]
    cycle.append(cycle)
    del store, txn, cycle
    with pytest.warns(ResourceWarning):
        gc.collect()
    with reopened(store_path) as again:
        assert take(again, "q") == []


def test_it_may_be_dropped_while_another_store_is_opened(store_path: str) -> None:
    """By a finaliser under any lock of the package: it takes none that it would wait for."""
    store = new_store(store_path, False)
    held: list[Store] = [store]
    del store

    class Env(OsEnv):
        def lock(self, path: str, owner: str) -> Any:
            from quire import os_lock

            with os_lock._registry_lock, pytest.warns(ResourceWarning):
                held.clear()
            return super().lock(path, owner)

    with Store.open(store_path, env=Env()) as again:
        again.put("q", b"x")


def drop(held: list[Store]) -> None:
    """Also what an error has seen on its way."""
    held.clear()
    gc.collect()


def test_a_store_that_failed_lets_go_as_well() -> None:
    """Its thread has nothing to do any more but that."""
    env = SimEnv()
    held = [Store.open("/s", env=env)]
    held[0].create_queue("q", kind="work")
    env.fail("write", "*.log")
    with pytest.raises(quire.StoreFailed):
        held[0].put("q", b"y")
    time.sleep(0.7)
    with pytest.warns(ResourceWarning, match="was dropped while it was open"):
        drop(held)
    until(lambda: not env.locks)


def test_a_closed_store_is_dropped_in_silence(
    store_path: str, recwarn: pytest.WarningsRecorder
) -> None:
    """Also one that could not be opened, and one on a machine that is no more."""
    store = new_store(store_path, True)
    store.close()
    del store
    with pytest.raises(quire.InvalidArgument):
        Store.open(store_path, page_size=8192)
    env = SimEnv()
    store = Store.open("/s", env=env, background=False)
    env.crash()
    del store
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []
