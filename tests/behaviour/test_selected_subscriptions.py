"""Subscriptions with a selector: what it does not hold for counts as read."""

from __future__ import annotations

from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import InvalidArgument, InvalidSelector, SubscriptionExists
from tests.kit.waiting import eventually

from .forms import AnyStore

RED = "colour = 'red'"


def filled(store: AnyStore, **options: Any) -> None:
    """A topic `t`, read whole and in parts, with ten messages of two colours."""
    store.create_queue("t", kind="topic", **options)
    store.subscribe("t", "all")
    store.subscribe("t", "red", where=RED)
    store.subscribe("t", "late", where="n > 7")
    put(store, range(10))


def put(store: AnyStore, numbers: range) -> None:
    """One of each number."""
    for n in numbers:
        colour = "red" if n % 2 else "blue"
        store.put("t", b"%d" % n, attributes={"colour": colour, "n": str(n)})


@pytest.mark.parametrize(
    "options", [{}, {"timed": True}, {"grouped": True}, {"type": "volatile"}], ids=str
)
def test_each_gets_what_it_asks_for(store: AnyStore, options: dict[str, Any]) -> None:
    """In order, also of what comes later; and others get all."""
    filled(store, **options)
    assert store.get_many("t/red").payloads() == [b"1", b"3", b"5", b"7", b"9"]
    assert store.get_many("t/late").payloads() == [b"8", b"9"]
    put(store, range(10, 13))
    assert store.get_many("t/red").payloads() == [b"11"]
    assert store.get("t/red") is None
    assert len(store.get_many("t/all")) == 13


def test_what_it_does_not_ask_for_is_released(store: AnyStore, owner: Store) -> None:
    """By the maintenance, though nobody reads there; it is no delivery."""
    store.create_queue("t", kind="topic")
    store.subscribe("t", "red", where=RED)
    put(store, range(10))
    eventually(lambda: owner.queue("t").messages == 5)
    [info] = store.subscriptions("t")
    assert (info.pending, info.delivered, info.where) == (5, 0, RED)
    got = store.get("t/red")
    assert got is not None
    assert (got.payload, got.delivery_count) == (b"1", 1)


def test_what_is_rolled_back_is_there_again(store: AnyStore) -> None:
    """And nothing that was not asked for."""
    filled(store)
    with store.transaction() as txn:
        assert txn.get_many("t/red", 2).payloads() == [b"1", b"3"]
        txn.rollback()
    assert store.get_many("t/red").payloads() == [b"1", b"3", b"5", b"7", b"9"]


def test_one_that_is_there_has_its_selector(store: AnyStore) -> None:
    """It may be asked for again; with another one it is refused."""
    filled(store)
    assert store.subscribe("t", "red", where=RED).where == RED
    assert store.subscribe("t", "red").where == RED
    with pytest.raises(SubscriptionExists, match="where is"):
        store.subscribe("t", "red", where="colour = 'blue'")
    with pytest.raises(SubscriptionExists, match="where is None"):
        store.subscribe("t", "all", where=RED)


@pytest.mark.parametrize("bad", ["colour =", 5, "x" * 1025, "a = '\ud800'"])
def test_a_wrong_selector_makes_none(store: AnyStore, bad: Any) -> None:
    """It is told where it is wrong."""
    store.create_queue("t", kind="topic")
    with pytest.raises((InvalidSelector, InvalidArgument)):
        store.subscribe("t", "red", where=bad)
    assert store.subscriptions("t") == []


def test_rows_by_their_columns(store: AnyStore) -> None:
    """Of a typed topic, also once it has a column more."""
    store.create_queue("t", kind="topic", schema="city string, amount bigint")
    store.subscribe("t", "large", where="amount >= 5")
    store.put_many("t", [{"city": "Ulm", "amount": n} for n in range(8)])
    store.alter_queue("t", schema="city string, amount bigint, note string")
    store.put_many("t", [{"city": "Ulm", "amount": n, "note": "x"} for n in range(8)])
    got = [each.value for each in store.get_many("t/large")]
    assert [None if row is None else row["amount"] for row in got] == [5, 6, 7, 5, 6, 7]


def test_a_purge_and_a_seek(store: AnyStore) -> None:
    """What is moved back is looked at anew."""
    filled(store)
    assert store.get_many("t/red", 3).payloads() == [b"1", b"3", b"5"]
    with store.transaction() as txn:
        txn.seek("t/red", "earliest")
    assert store.get_many("t/red").payloads() == [b"1", b"3", b"5", b"7", b"9"]
    put(store, range(3))
    purged = store.admin.purge("t", "red")
    assert 1 <= purged <= 8  # what it does not ask for may have gone before
    assert store.get("t/red") is None
