"""Subscriptions with a selector: what it does not hold for counts as read."""

from __future__ import annotations

from typing import Any

import pytest

from quire import Template
from quire.engine import EmbeddedStore as Store
from quire.errors import InvalidArgument, InvalidSelector, QueueFull, SubscriptionExists
from quire.interface.transaction import Transaction
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


@pytest.mark.parametrize("held", [False, True])
def test_what_it_does_not_ask_for_is_not_there(store: AnyStore, held: bool) -> None:
    """From the commit on, whether or not the maintenance has noted it."""
    store.create_queue("t", kind="topic")
    store.subscribe("t", "red", where=RED)
    with store.transaction() as txn:
        puts = [txn.put("t", b"%d" % n, attributes={"colour": "blue"}) for n in range(20)]
        puts.append(txn.put("t", b"red", attributes={"colour": "red"}))
    with store.transaction() as txn:
        if held:  # so the maintenance notes nothing
            txn.seek("t/red", "earliest")
        assert txn.count("t/red") == 1
        assert txn.read_many("t/red").payloads() == [b"red"]
        assert [each.id for each in txn.describe("t/red")] == [int(puts[-1])]
        for put in puts[:-1]:
            assert txn.attributes("t/red", put) is None
    with store.transaction() as txn:
        for put in puts[:-1]:
            assert txn.get("t/red", id=put, timeout=60) is None
            assert not txn.remove("t/red", put, timeout=60)
        got = txn.get("t/red", id=puts[-1])
        assert got is not None
        assert got.payload == b"red"


def put_large(txn: Transaction) -> None:
    """More of what is asked for than there is room for."""
    for _ in range(100):
        txn.put("t", b"red" * 2000, attributes={"colour": "red"})
    txn.commit()


@pytest.mark.parametrize("options", [{"capacity": 200_000}, {"max_messages": 10}], ids=str)
@pytest.mark.parametrize("kind", ["persistent", "volatile"])
def test_what_nobody_asks_for_never_fills_a_topic(
    store: AnyStore, kind: Any, options: dict[str, Any]
) -> None:
    """A put that finds no room has it passed by first; what is asked for stays."""
    store.create_queue("t", kind="topic", type=kind, **options)
    store.subscribe("t", "red", where=RED)
    store.put("t", b"red", attributes={"colour": "red"})
    for _ in range(100):
        store.put("t", b"blue" * 2000, attributes={"colour": "blue"})
    with store.transaction() as txn:
        assert txn.get_many("t/red").payloads() == [b"red"]
        txn.rollback()
    with store.transaction() as txn:
        with pytest.raises(QueueFull):
            put_large(txn)
        txn.rollback()


def test_what_is_rolled_back_is_there_again(store: AnyStore) -> None:
    """What is rolled back is there again, but for what was not asked for."""
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


def test_a_template_is_refused(store: AnyStore) -> None:
    """What a subscription keeps is a text, which the error says how to write."""
    store.create_queue("t", kind="topic")
    template: Any = Template(attributes={"colour": "red"})
    with pytest.raises(InvalidArgument, match="write what it asks for as a selector"):
        store.subscribe("t", "red", where=template)


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
