"""Store objects that are dropped open: they end their connection, or those of their clients."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import ConnectionLost, QuireError, StoreLocked
from quire.opening import open as open_store
from quire.remote import JoinedStore
from quire.remote.client import owner_session
from tests.kit.children import join
from tests.kit.waiting import eventually

DROPPED = "was dropped while it was"


def drop(held: list[Any]) -> None:
    """Also what is in a cycle of references."""
    held.clear()
    gc.collect()


def test_a_dropped_joined_store_ends_its_connection(owner: Store) -> None:
    """With a warning; the owner's other clients go on."""
    with open_store(owner.path) as other:
        held = [open_store(owner.path)]
        held[0].create_queue("work", kind="work")
        held[0].put("work", b"x")
        assert owner.status()["sharing"]["clients"] == 2
        with pytest.warns(ResourceWarning, match=DROPPED):
            drop(held)
        eventually(lambda: owner.status()["sharing"]["clients"] == 1)
        assert other.queue("work").messages == 1


def test_a_transaction_keeps_a_dropped_joined_store(owner: Store) -> None:
    """A transaction keeps a joined store that was dropped, until it is gone itself."""
    owner.create_queue("work", kind="work")
    held = [open_store(owner.path).transaction()]
    held[0].put("work", b"x")
    held[0].commit()
    assert owner.queue("work").messages == 1
    gc.collect()
    assert owner.status()["sharing"]["clients"] == 1
    with pytest.warns(ResourceWarning, match=DROPPED):
        drop(held)
    eventually(lambda: owner.status()["sharing"]["clients"] == 0)


def test_a_closed_joined_store_is_dropped_in_silence(
    owner: Store, recwarn: pytest.WarningsRecorder
) -> None:
    """Also one that found nobody."""
    open_store(owner.path).close()
    with pytest.raises(ConnectionLost):
        JoinedStore.connect("quire+unix:///nobody/is/here")
    assert [str(warning.message) for warning in recwarn] == []


def test_a_store_dropped_with_its_module_says_nothing(
    owner: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its end the interpreter clears modules, and may drop stores after that."""
    failures: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda given: failures.append(given.exc_value))
    held = [join(owner.path)]
    connection = held[0].owner_session.connection
    monkeypatch.setattr(owner_session, "sys", None)
    drop(held)
    assert failures == []
    connection.close()


def test_a_dropped_owner_cuts_its_clients(store_path: str) -> None:
    """One with an open transaction, too: it is rolled back, and the store can be opened again."""
    owner = open_store(store_path)
    owner.create_queue("work", kind="work")
    with join(store_path) as joined:
        txn = joined.transaction()
        txn.put("work", b"x")
        assert txn.get("work") is None  # it has reached the owner
        with pytest.warns(ResourceWarning, match=DROPPED):
            del owner
        eventually(lambda: joined.owner_session.connection.lost)
        with pytest.raises(QuireError):
            txn.commit()
    found: list[Store] = []

    def opens() -> bool:
        try:
            found.append(Store.open(store_path))
        except StoreLocked:
            return False
        return True

    eventually(opens)
    with found[0] as again:
        assert again.queue("work").messages == 0
