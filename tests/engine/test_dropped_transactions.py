"""Transactions that nobody holds any more are rolled back; none leaves cycles behind."""

from __future__ import annotations

import gc
import warnings

import pytest

from quire.engine import EmbeddedStore as Store
from quire.testing import SimEnv


@pytest.fixture
def store() -> Store:
    """With three queues."""
    store = Store.open("/s", env=SimEnv(), background=False)
    for name in ("a", "b", "c"):
        store.create_queue(name, kind="work")
    return store


def test_a_dropped_transaction_gives_back_what_it_holds(store: Store) -> None:
    """Its messages can be got again at once, its space is free, and its user is told."""
    store.put("a", b"1")
    used = store.queue("a").used_bytes
    transaction = store.transaction()
    assert transaction.get("a") is not None
    transaction.put("a", b"2")
    transaction.put("b", b"3")
    with pytest.warns(ResourceWarning, match="was dropped while it was open"):
        del transaction
    with store.transaction() as other:
        message = other.get("a")
        assert message is not None
        assert (message.payload, message.delivery_count) == (b"1", 2)
        assert other.get("a") is None
        other.rollback()
    assert store.queue("a").used_bytes == used
    assert store.queue("a").open_transactions == store.queue("b").open_transactions == 0
    assert store.admin.transactions() == []
    assert store.admin.verify().ok
    store.close()


def test_a_get_finds_what_was_dropped_in_a_cycle(store: Store) -> None:
    """The collector may find it anywhere, under any lock: it is only noted there."""
    store.put("a", b"1")
    holder: dict[str, object] = {}
    transaction = store.transaction()
    holder["self"], holder["transaction"] = holder, transaction
    assert transaction.get("a") is not None
    del transaction, holder
    waiting = store.transaction()
    assert waiting.get("a") is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    message = waiting.get("a")
    assert message is not None
    waiting.commit()
    store.close()


def test_ended_transactions_say_nothing(store: Store) -> None:
    """Committed, rolled back, failed or prepared ones may be dropped."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        committed, rolled_back, prepared = (store.transaction() for _ in range(3))
        committed.put("a", b"1")
        committed.commit()
        rolled_back.put("a", b"2")
        rolled_back.rollback()
        prepared.put("a", b"3")
        prepared.prepare("x")
        del committed, rolled_back, prepared
    store.prepared.rollback("x")
    store.close()


def test_no_cycles_are_left_by_a_transaction(store: Store) -> None:
    """Light or full, committed or rolled back: all of it goes with the last reference."""
    for _ in range(3):
        store.put("a", b"1")
    gc.collect()
    gc.disable()
    try:
        for ending in ("commit", "rollback"):
            transaction = store.transaction()
            transaction.get("a")
            transaction.put("b", b"x")
            transaction.put("c", b"y", group=3)
            getattr(transaction, ending)()
            transaction = store.transaction()
            transaction.put_many("b", [b"x"] * 100)
            transaction.put("b", b"x")
            getattr(transaction, ending)()
            del transaction
        assert gc.collect() == 0
    finally:
        gc.enable()
    store.close()
