"""What a joined transaction has in common with an embedded one, though its puts wait elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import (
    QueueFull,
    QueueInUse,
    QuireError,
    TransactionClosed,
    TransactionTimeout,
)
from quire.interface.transaction import Transaction
from quire.opening import open as open_store
from quire.remote.limits import SEND_AHEAD_BYTES
from tests.behaviour.forms import FORMS, JOINED, AnyStore, Clock
from tests.kit.messages import take
from tests.kit.waiting import eventually

CAPACITY = 100_000


@pytest.fixture
def small(store: AnyStore) -> str:
    """A work queue with little room."""
    return store.create_queue("small", kind="work", capacity=CAPACITY).name


def too_much(store: AnyStore, queue: str) -> tuple[Transaction, list[object]]:
    """A transaction whose puts the queue does not admit, but for the first; and their ids."""
    txn = store.transaction()
    ids: list[object] = [txn.put(queue, b"first")]
    ids += [txn.put(queue, b"x" * 60_000), txn.put(queue, b"last", group=3)]
    return txn, ids


@pytest.mark.promise(5)
@pytest.mark.parametrize("store", JOINED, indirect=True)
@pytest.mark.parametrize("ending", ["commit", "prepare", "with records"])
def test_promise_5_what_is_full_leaves_it_open(store: AnyStore, ending: str) -> None:
    """RT2: the puts are kept, and the same transaction commits once there is room, whole."""
    store.create_queue("small", kind="work", capacity=CAPACITY)
    store.put("small", b"in the way" * 5000)
    txn, ids = too_much(store, "small")
    if ending == "with records":
        txn.enter("key", 1)
    end: Callable[[], object] = (lambda: txn.prepare("x1")) if ending == "prepare" else txn.commit
    for _ in range(3):
        with pytest.raises(QueueFull):
            end()
        assert txn.state == "open"
    assert take(store, "small") == [b"in the way" * 5000]
    end()
    if ending == "prepare":
        txn.commit()
    messages = list(store.browse("small"))
    assert [m.payload for m in messages] == [b"first", b"x" * 60_000, b"last"]
    assert [m.group for m in messages] == [0, 0, 3]
    assert [int(i) for i in ids] == [m.id for m in messages]  # type: ignore[call-overload]


def test_what_is_full_can_be_rolled_back(store: AnyStore, small: str) -> None:
    """Nothing of it was there, and nothing is left of it."""
    store.put(small, b"in the way" * 5000)
    with pytest.raises(QueueFull), store.transaction() as txn:  # noqa: PT012
        txn.put(small, b"first")
        txn.put(small, b"x" * 60_000)
    assert txn.state == "rolled back"
    with pytest.raises(TransactionClosed):
        txn.put(small, b"more")
    assert take(store, small) == [b"in the way" * 5000]
    assert store.queue(small).used_bytes == 0


@pytest.mark.parametrize("store", JOINED, indirect=True)
def test_a_refused_put_that_is_sent_ahead(store: AnyStore) -> None:
    """RT2: a later put raises it, and is not made itself; memory at the client is bounded."""
    store.create_queue("small", kind="work", capacity=CAPACITY)
    store.create_queue("large", kind="work")
    txn = store.transaction()
    txn.put("small", b"x" * 2 * CAPACITY)
    txn.put_many("large", [bytes(1 << 20)] * (SEND_AHEAD_BYTES >> 20))
    for _ in range(3):
        with pytest.raises(QueueFull):
            txn.put("large", b"not made")
        assert txn.state == "open"
    txn.rollback()
    assert store.queue("large").used_bytes == 0


def test_a_put_is_known_to_the_owner_at_once(owner: Store, store: AnyStore) -> None:
    """RT1: it is listed with its queue, counted there, and holds the queue."""
    for name in ("a", "b"):
        store.create_queue(name, kind="work")
    txn = store.transaction(owner="the importer")
    txn.put("a", b"1")
    txn.put("b", b"2", attributes={"k": "v"})
    eventually(lambda: [info.queues for info in owner.admin.transactions()] == [("a", "b")])
    [info] = store.admin.transactions()
    assert (info.owner, info.messages) == ("the importer", 2)
    assert [store.queue(name).open_transactions for name in "ab"] == [1, 1]
    with pytest.raises(QueueInUse):
        store.drop_queue("a")
    store.admin.abort(info.id)
    with pytest.raises(QuireError, match="on demand"):
        txn.commit()
    assert [store.queue(name).open_transactions for name in "ab"] == [0, 0]


def ended_by_the_store(owner: Store, store: AnyStore, clock: Clock) -> None:
    """A transaction that has put, and is open for longer than the store lets it be."""
    store.create_queue("work", kind="work")
    txn = store.transaction()
    txn.put("work", b"x")
    eventually(lambda: owner.queue("work").open_transactions == 1)
    clock.forward(600)
    eventually(lambda: not owner.admin.transactions())
    for call in (txn.commit, lambda: txn.put("work", b"y"), lambda: txn.prepare("x1")):
        with pytest.raises(TransactionTimeout) as caught:
            call()
        assert str(caught.value) == (
            "the transaction was open for too long and has been rolled back: begin anew, or "
            "give transaction(timeout=...) more seconds"
        )
    assert owner.queue("work").used_bytes == 0


@pytest.mark.parametrize("form", FORMS)
def test_the_stores_own_timeout_ends_puts(store_path: str, form: str, clock: Clock) -> None:
    """Its option `transaction_timeout`, in the same words."""
    with open_store(store_path, transaction_timeout=600.0) as owner:
        assert isinstance(owner, Store)
        with FORMS[form](owner) as store:
            ended_by_the_store(owner, store, clock)


def test_a_dropped_transaction_is_rolled_back(owner: Store, store: AnyStore) -> None:
    """With the same warning; the owner hears of it."""
    store.create_queue("work", kind="work")
    store.put("work", b"x")
    txn = store.transaction()
    assert txn.get("work") is not None
    held = [txn]
    del txn
    with pytest.warns(ResourceWarning, match="was dropped while it was open: it is rolled back"):
        _let_go(owner, held)
    assert take(store, "work") == [b"x"]


def _let_go(owner: Store, held: list[Any]) -> None:
    """Perhaps another thread does so last."""
    held.clear()
    eventually(lambda: not owner.admin.transactions())


def test_the_transaction_after_a_rollback_is_clean(store: AnyStore, small: str) -> None:
    """What was refused of one is no other's."""
    for _ in range(3):
        txn = store.transaction()
        txn.put(small, b"x")
        txn.rollback()
        with store.transaction() as txn:
            txn.put(small, b"y")
    assert take(store, small) == [b"y"] * 3
