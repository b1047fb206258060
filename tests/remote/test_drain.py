"""A server that ends in order: open transactions may end, and no further ones begin."""

from __future__ import annotations

import threading

import pytest

from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import ConnectionLost
from quire.remote.ownership.shared_store import SharedStore
from tests.kit.children import join
from tests.kit.waiting import SECONDS, eventually


def test_open_transactions_end_and_no_more_begin(owner: Store) -> None:
    """The drain waits for the one that is open, which commits; another one is refused."""
    assert isinstance(owner, SharedStore)
    owner.create_queue("jobs", kind="work")
    server = owner.share(OsEnv())
    with join(owner.path) as store:
        with store.transaction() as txn:
            txn.put("jobs", b"kept")
            assert txn.get("jobs") is None  # it has reached the owner
            draining = threading.Thread(target=server.drain, args=(SECONDS,))
            draining.start()
            eventually(lambda: server._is_draining)
            with pytest.raises(ConnectionLost, match="begin the transaction again"):
                store.transaction().get("jobs")
            assert draining.is_alive()
        draining.join(SECONDS)
        assert not draining.is_alive()
        assert [message.payload for message in owner.get_many("jobs")] == [b"kept"]


def test_the_drain_is_bounded(owner: Store) -> None:
    """A transaction that does not end is waited for no longer than that."""
    assert isinstance(owner, SharedStore)
    owner.create_queue("jobs", kind="work")
    with join(owner.path) as store, store.transaction() as txn:
        assert txn.get("jobs") is None
        owner.share(OsEnv()).drain(0.05)
        assert txn.state == "open"
