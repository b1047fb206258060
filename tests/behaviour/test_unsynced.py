"""`durable=False` and `sync`, of every form of a store."""

from __future__ import annotations

from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import InvalidArgument
from tests.behaviour.forms import AnyStore


@pytest.fixture
def work(owner: Store) -> str:
    """A work queue."""
    owner.create_queue("work", kind="work")
    return "work"


def unsynced(store: AnyStore) -> int:
    """How much of the journal is not durable yet, in bytes."""
    found: int = store.status()["journal"]["unsynced_bytes"]
    return found


def test_a_commit_may_be_durable_later(store: AnyStore, owner: Store, work: str) -> None:
    """It is there at once, not durable, and durable after `sync`."""
    with store.transaction(durable=False) as txn:
        first = txn.put(work, b"1")
    assert unsynced(owner) > 0
    assert store.put(work, b"2", durable=False, group=3) == int(first) + 1
    assert store.put(work, b"3", durable=False) == int(first) + 2
    assert store.browse(work).payloads() == [b"1", b"2", b"3"]
    store.sync()
    assert unsynced(store) == 0
    store.sync()  # of nothing


def test_the_next_durable_commit_takes_along_what_came_before(
    store: AnyStore, owner: Store, work: str
) -> None:
    """One sync makes both durable, in their order."""
    store.put(work, b"1", durable=False)
    assert unsynced(owner) > 0
    store.put(work, b"2")
    assert unsynced(owner) == 0


def test_a_durable_commit_of_nothing_does_so_too(store: AnyStore, owner: Store, work: str) -> None:
    """Whether it has looked for something or not; one that need not be durable syncs nothing."""
    owner.create_queue("empty", kind="work")
    for looks in (False, True):
        store.put(work, b"1", durable=False)
        for durable in (False, True):
            assert unsynced(owner) > 0
            with store.transaction(durable=durable) as txn:
                assert not (looks and txn.get("empty"))
        assert unsynced(owner) == 0


def test_a_lazy_loop(store: AnyStore, owner: Store, work: str) -> None:
    """It handles each message in a transaction that is not durable when it has committed."""
    store.put_many(work, [b"1", b"2"])
    assert unsynced(owner) == 0
    with store.consume(work, timeout=0.0, ack="lazy") as messages:
        for message in messages:
            if len(message.payload) == 1:
                messages.transaction.put(work, message.payload + b"!")
    assert store.queue(work).messages == 0
    assert unsynced(owner) > 0
    store.put(work, b"3")
    with store.consume(work, timeout=0.0, ack="lazy") as messages:
        for _ in messages:
            break  # is rolled back
    assert store.queue(work).messages == 1


def test_what_is_not_durable_cannot_be_prepared(store: AnyStore, work: str) -> None:
    """InvalidArgument, and the transaction is open."""
    with store.transaction(durable=False) as txn:
        txn.put(work, b"1")
        with pytest.raises(InvalidArgument, match="durable=False"):
            txn.prepare("x")
    assert store.queue(work).messages == 1


@pytest.mark.parametrize("durable", [None, 0, 1, "no"])
def test_what_is_no_flag(store: AnyStore, work: str, durable: Any) -> None:
    """A clear error, and nothing is put."""
    with pytest.raises(InvalidArgument, match="durable"):
        store.put(work, b"1", durable=durable)
    with pytest.raises(InvalidArgument, match="durable"):
        store.put(work, b"1", durable=durable, group=1)
    with pytest.raises(InvalidArgument, match="durable"), store.transaction(durable=durable):
        pass
    assert store.queue(work).messages == 0


def test_a_lease_is_of_what_is_durable(store: AnyStore, owner: Store, work: str) -> None:
    """Who reads the files may note durably how far it has come."""
    store.put(work, b"1", durable=False)
    lease = store.integration.lease(work, 0, 1)
    assert unsynced(owner) == 0
    store.integration.end_lease(lease.lease_id)
