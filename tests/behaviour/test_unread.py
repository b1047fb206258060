"""A topic that nobody reads: whoever puts is told once, and what is put there has a bound."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import quire
from quire import NobodyReads
from quire.engine import EmbeddedStore as Store
from quire.errors import QueueFull, SubscriptionNotFound
from tests.behaviour.forms import AnyStore
from tests.kit.children import join


def _in_transaction(store: AnyStore, put: Callable[[Any], object]) -> None:
    with store.transaction() as txn:
        put(txn)


WAYS: dict[str, Callable[[AnyStore], object]] = {
    "put": lambda store: store.put("t", b"x"),
    "put with a header": lambda store: store.put("t", b"x", sender="me"),
    "put_many": lambda store: store.put_many("t", [b"x"]),
    "put in a transaction": lambda store: _in_transaction(store, lambda txn: txn.put("t", b"x")),
    "put_many in a transaction": lambda store: _in_transaction(
        store, lambda txn: txn.put_many("t", [b"x"])
    ),
    "put_stream": lambda store: store.put_stream("t", [b"x" * 100]),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_first_put_says_that_nobody_reads(store: AnyStore, way: str) -> None:
    """Once for a queue and a store object, by whatever way; it is put all the same."""
    store.create_queue("t", kind="topic")
    put = WAYS[way]
    with pytest.warns(NobodyReads, match=r"'t'.*subscribe.*drop_oldest") as told:
        put(store)
    assert len(told) == 1
    for again in WAYS.values():
        again(store)
    assert store.queue("t").messages == 1 + len(WAYS)


@pytest.mark.parametrize("store", ["embedded", "joined", "elected"], indirect=True)
def test_it_tells_the_line_that_puts(store: AnyStore) -> None:
    """It tells the line that puts, not one of Quire's."""
    store.create_queue("t", kind="topic")
    with pytest.warns(NobodyReads) as told:
        store.put("t", b"x")
    assert told[0].filename == __file__


@pytest.mark.parametrize("way", WAYS)
def test_as_an_error_it_changes_nothing(store: AnyStore, way: str) -> None:
    """Warnings are errors here: what was to be put is not; the next one is."""
    store.create_queue("t", kind="topic")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NobodyReads):
            WAYS[way](store)
        info = store.queue("t")
        assert (info.messages, info.used_bytes, info.open_transactions) == (0, 0, 0)
        WAYS[way](store)
    assert store.queue("t").messages == 1


def test_a_queue_is_a_work_queue_unless_it_is_told(store: AnyStore) -> None:
    """What a newcomer means: what is put can be got."""
    store.create_queue("orders")
    [other] = store.admin.create_queues(["other"])
    assert (store.queue("orders").kind, other.kind) == ("work", "work")
    store.put("orders", b"apples")
    message = store.get("orders")
    assert message is not None
    assert message.payload == b"apples"
    store.create_queue("events", kind="topic")
    with pytest.raises(SubscriptionNotFound, match=r"as 'events/subscription'; subscribe first"):
        store.get("events")


BOUNDED: list[dict[str, Any]] = [
    {"overflow": "drop_oldest"},
    {"keep_messages": 5},
    {"keep_bytes": 0},
    {"keep_seconds": 60.0},
    {"keep_forever": True},
]


def test_it_is_not_said_where_somebody_reads_or_a_bound_is_set(store: AnyStore) -> None:
    """Work queues, topics with a subscription, and those that say what is kept."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.create_queue("work")
        store.put("work", b"x")
        store.create_queue("read", kind="topic")
        assert store.queue("read").subscriptions == ()
        store.subscribe("read", "a")
        store.put("read", b"x")
        for number, options in enumerate(BOUNDED):
            store.create_queue(f"t{number}", kind="topic", **options)
            store.put(f"t{number}", b"x")


def test_it_is_said_when_the_last_one_has_gone(store: AnyStore) -> None:
    """And not any more once somebody has subscribed."""
    store.create_queue("t", kind="topic")
    store.subscribe("t", "a")
    store.put("t", b"x")
    store.unsubscribe("t", "a")
    with pytest.warns(NobodyReads):
        store.put("t", b"x")
    store.subscribe("t", "a")
    store.put("t", b"x")


def test_the_process_that_puts_is_told(owner: Store) -> None:
    """Not the owner, by whom it goes; and the owner when it puts itself."""
    owner.create_queue("t", kind="topic")
    with join(owner.path) as joined:
        with pytest.warns(NobodyReads) as told:
            joined.put("t", b"x")
        assert len(told) == 1
        with joined.transaction() as txn:
            txn.put_many("t", [b"x"] * 10)
    with pytest.warns(NobodyReads) as told:
        owner.put("t", b"x")
    assert len(told) == 1


def test_what_the_store_puts_by_itself_is_no_matter(store: AnyStore, owner: Store) -> None:
    """Dead letters that go to a topic."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.create_queue("dead", kind="topic")
        store.create_queue("work", max_deliveries=1, dead_letter="dead")
        store.put("work", b"x")
        with store.transaction() as txn:
            message = txn.get("work")
            assert message is not None
            txn.reject(message, "poison")
        owner.admin.checkpoint()


@pytest.mark.filterwarnings("ignore::quire.NobodyReads")
def test_a_full_one_says_what_to_do(store: AnyStore) -> None:
    """The error tells of its subscriptions; and what it advises helps."""
    store.create_queue("t", kind="topic", max_messages=2)
    store.put_many("t", [b"0", b"1"])
    with pytest.raises(QueueFull, match=r"without subscriptions.*drop_oldest"):
        store.put("t", b"2")
    store.alter_queue("t", overflow="drop_oldest")
    store.put("t", b"2")
    assert store.browse("t").payloads() == [b"1", b"2"]
    store.alter_queue("t", overflow="fail", keep_messages=1)
    store.put("t", b"3")
    assert store.browse("t").payloads()[-1] == b"3"
    store.alter_queue("t", keep_messages=None)
    store.subscribe("t", "a")
    store.put_many("t", [b"x"] * (2 - store.queue("t").messages))
    with pytest.raises(QueueFull, match="read and commit from it"):
        store.put("t", b"4")


def test_one_in_memory_says_it_too() -> None:
    """`:memory:` is as any other."""
    with quire.open(":memory:") as store:
        store.create_queue("t", kind="topic")
        with pytest.warns(NobodyReads):
            store.put("t", b"x")
