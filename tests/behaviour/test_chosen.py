"""Selectors and templates where messages are browsed, purged, put back, moved, and consumed."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import quire
from quire import Template
from quire.batches.moved_messages import QUEUE
from quire.errors import (
    InvalidArgument,
    InvalidSelector,
    QueueFull,
    QueueInUse,
    QueueNotFound,
)
from quire.limits import REDRIVEN_AT_ONCE
from tests.kit.waiting import eventually

from .forms import WITH_CALLBACKS, AnyStore, Clock

ODD = "odd = '1'"
ODD_TEMPLATE = Template(attributes={"odd": "1"})
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "by priority": {"order": "priority"},
    "timed": {"timed": True},
    "grouped": {"grouped": True},
    "counted": {"max_deliveries": 5, "dead_letter": "dead"},
    "volatile": {"type": "volatile"},
    "indexed": {"indexed": ["odd"]},
}


def fill(store: AnyStore, queue: str, count: int, **options: Any) -> list[int]:
    """Messages "0", "1", ..., of which each second is odd; their ids."""
    with store.transaction() as txn:
        made = [
            txn.put(queue, b"%d" % n, attributes={"odd": str(n % 2), "n": str(n)}, **options)
            for n in range(count)
        ]
    return list(map(int, made))


def numbers(messages: quire.Messages) -> list[int]:
    """What they are."""
    return list(map(int, messages.payloads()))


@pytest.mark.cases(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", [ODD, ODD_TEMPLATE], ids=["selector", "template"])
def test_browse_chooses(store: AnyStore, kind: str, where: str | Template) -> None:
    """In commit order, whoever has them; with no more than is asked for, and from a position on."""
    store.create_queue("dead")
    store.create_queue("q", **KINDS[kind])
    ids = fill(store, "q", 40)
    assert numbers(store.browse("q", where=where)) == list(range(1, 40, 2))
    assert numbers(store.browse("q", 3, start=11, where=where)) == [11, 13, 15]
    with store.transaction() as txn:
        assert txn.get("q", where="n = 3") is not None
        assert numbers(store.browse("q", max_messages=3, where=where)) == [1, 3, 5]
    assert numbers(store.browse("q", max_messages=3, where=where)) == [1, 5, 7]
    assert numbers(store.browse("q", where=ids[8])) == [8]
    assert numbers(store.browse("q", start=9, where=ids[8])) == []
    assert numbers(store.browse("q", where=ids[3])) == []


def test_a_page_goes_on_where_the_last_one_ended(store: AnyStore) -> None:
    """Behind its last message, also where that has gone meanwhile."""
    store.create_queue("q", kind="topic")
    store.subscribe("q", "s")
    ids = fill(store, "q", 25)
    seen: list[int] = []
    page = store.browse("q/s", max_messages=4, where=ODD)
    while page:
        seen += numbers(page)
        assert len(store.get_many("q/s", 2)) <= 2
        page = store.browse("q/s", max_messages=4, after=page[-1], where=ODD)
    assert seen == list(range(1, 25, 2))
    assert numbers(store.browse("q/s", max_messages=2, after=ids[20])) == [21, 22]
    assert numbers(store.browse("q/s", max_messages=2, after=ids[2])) == [6, 7]
    assert len(store.browse("q", after=ids[24])) == 0
    with pytest.raises(InvalidArgument):
        store.browse("q", after=0)
    with pytest.raises(InvalidArgument):
        store.browse("q", after="x")  # type: ignore[arg-type]


def test_browse_of_a_subscription_shows_what_it_asks_for(store: AnyStore) -> None:
    """The rest counts as read, be it noted already or not."""
    store.create_queue("t", kind="topic")
    store.subscribe("t", "odd", where=ODD)
    fill(store, "t", 10)
    assert numbers(store.browse("t/odd")) == [1, 3, 5, 7, 9]
    assert numbers(store.browse("t/odd", where="n > 4")) == [5, 7, 9]


def test_browse_of_rows(store: AnyStore) -> None:
    """By their columns."""
    store.create_queue("r", schema="city string, amount bigint")
    store.put_many("r", [{"city": f"c{n % 7}", "amount": n} for n in range(1000)])
    found = store.browse("r", where="city = 'c3' AND amount >= 990")
    assert found.to_arrow().column("amount").to_pylist() == [990, 997]
    with pytest.raises(InvalidSelector):
        store.browse("r", where="amount LIKE 'x'")


@pytest.mark.cases(3)
@pytest.mark.parametrize("kind", KINDS)
def test_purge_chooses(store: AnyStore, kind: str) -> None:
    """What others have stays theirs; how many went is told, and the rest is where it was."""
    store.create_queue("dead")
    store.create_queue("q", **KINDS[kind])
    ids = fill(store, "q", 20)
    with store.transaction() as txn:
        assert txn.get("q", where="n = 5") is not None
        assert store.admin.purge("q", where=ODD) == 9
        txn.rollback()
    assert numbers(store.browse("q")) == [0, 2, 4, 5, *range(6, 20, 2)]
    assert store.admin.purge("q", where=ODD_TEMPLATE) == 1
    assert store.admin.purge("q", where=ODD) == 0
    assert store.admin.purge("q", where=ids[4]) == 1
    assert store.admin.purge("q", where=ids[4]) == 0
    assert sorted(numbers(store.get_many("q"))) == [0, 2, *range(6, 20, 2)]
    assert store.queue("q").messages == 0


def test_purge_takes_also_what_is_not_due(store: AnyStore, clock: Clock) -> None:
    """And what waits for a retry; what is left comes when it would have."""
    store.create_queue("q", timed=True, retry={"delay": 600.0})
    fill(store, "q", 4, delay=100.0)
    fill(store, "q", 4)
    with store.transaction() as txn:
        for message in txn.get_many("q"):
            txn.reject(message)
    assert store.admin.purge("q", where=ODD) == 4
    assert store.get("q") is None
    clock.forward(101.0)
    assert numbers(store.get_many("q")) == [0, 2]
    clock.forward(601.0)
    assert numbers(store.get_many("q")) == [0, 2]
    assert store.queue("q").messages == 0


def test_purge_of_a_topic(store: AnyStore) -> None:
    """Of one subscription, of all, and of what is kept after all have read it."""
    store.create_queue("t", kind="topic", keep_messages=1000)
    for name in ("a", "b"):
        store.subscribe("t", name)
    fill(store, "t", 10)
    assert store.admin.purge("t", "a", where=ODD) == 5
    assert numbers(store.browse("t/a")) == [0, 2, 4, 6, 8]
    assert numbers(store.browse("t/b")) == list(range(10))
    assert numbers(store.get_many("t/a", 2)) == [0, 2]
    assert numbers(store.get_many("t/b", 3)) == [0, 1, 2]
    assert numbers(store.browse("t")) == list(range(10))
    assert store.admin.purge("t", where="n < 2 OR n = 9") == 3
    assert numbers(store.browse("t")) == list(range(2, 9))
    assert numbers(store.get_many("t/b")) == list(range(3, 9))
    assert numbers(store.get_many("t/a")) == [4, 6, 8]
    assert store.admin.purge("t") == 7
    assert store.queue("t").messages == 0


def test_purge_of_a_topic_that_nobody_reads(store: AnyStore) -> None:
    """There only all of it can go."""
    store.create_queue("t", kind="topic", overflow="drop_oldest")
    fill(store, "t", 3)
    with pytest.raises(InvalidArgument, match="subscribe first"):
        store.admin.purge("t", where=ODD)
    assert store.admin.purge("t") == 3


def test_purge_while_a_subscription_is_moved(store: AnyStore) -> None:
    """It is refused, as without a condition."""
    store.create_queue("q")
    fill(store, "q", 3)
    with store.transaction() as txn:
        txn.seek("q", 1)
        with pytest.raises(QueueInUse):
            store.admin.purge("q", where=ODD)
        txn.rollback()
    with pytest.raises(InvalidSelector):
        store.admin.purge("q", where="odd =")
    with pytest.raises(InvalidArgument):
        store.admin.purge("q", where=1.5)  # type: ignore[arg-type]
    assert store.queue("q").messages == 3


def test_redrive_chooses(store: AnyStore) -> None:
    """By a selector, a template or an id, in the owner; more than one look of it."""
    store.create_queue("dead")
    store.create_queue("work")
    with store.transaction() as txn:
        for n in range(2 * REDRIVEN_AT_ONCE + 100):
            txn.put("dead", b"%d" % n, attributes={QUEUE: "work", "odd": str(n % 2), "n": str(n)})
    assert store.admin.redrive("dead", ODD, max_messages=30) == 30
    assert store.admin.redrive("dead", "odd = '1' AND n > 2000") == 50
    assert store.admin.redrive("dead", Template(attributes={"n": "0"})) == 1
    assert store.admin.redrive("dead", ODD) == REDRIVEN_AT_ONCE + 50 - 80
    assert store.admin.redrive("dead", ODD) == 0
    letter = store.browse("dead", max_messages=1)[0]
    assert store.admin.redrive("dead", letter.id, to="work") == 1
    assert len(store.browse("work", max_messages=5000)) == REDRIVEN_AT_ONCE + 52
    with pytest.raises(InvalidSelector):
        store.admin.redrive("dead", "n <")


def test_a_transaction_moves_what_is_chosen(store: AnyStore) -> None:
    """With its commit; a list of messages is chosen from already."""
    store.create_queue("a")
    store.create_queue("b")
    ids = fill(store, "a", 10)
    with store.transaction() as txn:
        assert txn.move("a", "b", 3, where=ODD) == 3
        assert txn.move("a", "b", where=ids[8]) == 1
        assert txn.move("a", "b", where="n = 100") == 0
        with pytest.raises(InvalidArgument, match="where"):
            txn.move(txn.get_many("a", 1), "b", where=ODD)
        txn.unget()
    assert numbers(store.get_many("b")) == [1, 3, 5, 8]
    assert numbers(store.get_many("a")) == [0, 2, 4, 6, 7, 9]


@pytest.mark.cases(3)
@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_chosen_is_moved(store: AnyStore, kind: str) -> None:
    """Some with each commit; with what they had, and a word on where they come from."""
    store.create_queue("dead")
    store.create_queue("a", **KINDS[kind])
    store.create_queue("b")
    fill(store, "a", 2 * REDRIVEN_AT_ONCE + 10)
    with store.transaction() as txn:
        assert txn.get("a", where="n = 7") is not None
        assert store.admin.move("a", "b", where=ODD, max_messages=3) == 3
        assert store.admin.move("a", "b", where=ODD_TEMPLATE) == REDRIVEN_AT_ONCE + 1
        assert store.admin.move("a", "b", where=ODD) == 0
        txn.unget()
    moved = store.browse("b", max_messages=5000)
    odd = [n for n in range(1, 2 * REDRIVEN_AT_ONCE + 10, 2) if n != 7]
    assert numbers(moved) == odd
    told = moved[0].attributes
    assert (told["n"], told[QUEUE], told["quire.reason"]) == ("1", "a", "moved")
    assert told["quire.deliveries"] == "0"
    assert store.admin.move("a", "b") == REDRIVEN_AT_ONCE + 6
    assert store.queue("a").messages == 0
    assert store.admin.redrive("b", "n < 4") == 4
    assert sorted(numbers(store.get_many("a"))) == [0, 1, 2, 3]


def test_what_is_moved_within_its_queue_moves_once(store: AnyStore) -> None:
    """It ends where the queue ended when it began."""
    store.create_queue("a")
    fill(store, "a", REDRIVEN_AT_ONCE + 5)
    assert store.admin.move("a", "a") == REDRIVEN_AT_ONCE + 5
    assert len(store.get_many("a", 5000)) == REDRIVEN_AT_ONCE + 5


def test_moves_that_fail(store: AnyStore) -> None:
    """What went before stays moved, and the error tells how many."""
    store.create_queue("a")
    store.create_queue("small", max_messages=REDRIVEN_AT_ONCE + 100)
    fill(store, "a", 2 * REDRIVEN_AT_ONCE)
    with pytest.raises(QueueFull, match="messages were moved before, and stay so"):
        store.admin.move("a", "small")
    there = len(store.browse("small", max_messages=5000))
    assert REDRIVEN_AT_ONCE <= there <= REDRIVEN_AT_ONCE + 100
    assert store.queue("a").messages == 2 * REDRIVEN_AT_ONCE - there
    with pytest.raises(QueueNotFound):
        store.admin.move("a", "none")
    with pytest.raises(InvalidSelector):
        store.admin.move("a", "small", where="(")
    with pytest.raises(InvalidArgument):
        store.admin.move("a", "small", max_messages=0)


def test_a_loop_is_given_what_it_asks_for(store: AnyStore) -> None:
    """One by one, or several at once; the rest stays for others."""
    store.create_queue("q")
    fill(store, "q", 10)
    with store.consume("q", timeout=0.0, where=ODD) as messages:
        assert [int(each.payload) for each in messages] == [1, 3, 5, 7, 9]
    with store.consume("q", 3, timeout=0.05, where="n IN ('0', '2', '4', '6')") as batches:
        assert [numbers(each) for each in batches] == [[0, 2, 4], [6]]
    assert numbers(store.get_many("q")) == [8]
    with pytest.raises(InvalidArgument, match="where"):
        store.consume("q", where=5)  # type: ignore[call-overload]
    with pytest.raises(InvalidSelector), store.consume("q", timeout=0.0, where="a <") as messages:
        list(messages)


@pytest.mark.parametrize("ack", ["auto", "block"])
def test_a_loop_waits_for_what_it_asks_for(store: AnyStore, ack: Any) -> None:
    """What others put besides does not end it, and what fails is there again."""
    store.create_queue("q")
    fill(store, "q", 3)
    found: list[bytes] = []

    def work() -> None:
        with store.consume("q", timeout=60.0, ack=ack, where="n > 10") as messages:
            for each in messages:
                found.append(each.payload)
                if len(found) == 2:
                    break

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.1)
    for n in (4, 11, 5, 12):
        store.put("q", b"%d" % n, attributes={"n": str(n)})
    thread.join(30)
    assert found == [b"11", b"12"]
    left = [0, 1, 2, 4, 5, 12] if ack == "auto" else [0, 1, 2, 4, 5]
    assert numbers(store.get_many("q")) == left


@pytest.mark.parametrize("store", WITH_CALLBACKS, indirect=True)
def test_a_loop_that_waits_is_stopped(store: AnyStore) -> None:
    """By any thread, soon."""
    store.create_queue("q")
    fill(store, "q", 3)
    messages = store.consume("q", where="n = 100")
    thread = threading.Thread(target=lambda: list(messages))
    thread.start()
    time.sleep(0.05)
    messages.stop()
    thread.join(20)
    assert not thread.is_alive()
    assert store.queue("q").messages == 3


@pytest.mark.parametrize("store", WITH_CALLBACKS, indirect=True)
def test_workers_are_given_what_they_ask_for(store: AnyStore) -> None:
    """Each handler its own; a wrong selector is told before any runs."""
    store.create_queue("q")
    fill(store, "q", 20)
    workers = quire.Workers(store)
    odd: list[int] = []
    rest: list[int] = []

    @workers.on("q", where=ODD)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        odd.append(int(message.payload))

    @workers.on("q", max_messages=4, where=Template(attributes={"odd": "0"}))
    def handle_more(messages: quire.Messages, txn: quire.Transaction) -> None:
        rest.extend(numbers(messages))

    thread = threading.Thread(target=workers.run)
    thread.start()
    eventually(lambda: len(odd) + len(rest) == 20)
    workers.stop()
    thread.join(30)
    assert sorted(odd) == list(range(1, 20, 2))
    assert sorted(rest) == list(range(0, 20, 2))
    with pytest.raises(InvalidArgument):
        workers.on("q", where=5)  # type: ignore[arg-type]
    wrong = quire.Workers(store)
    wrong.on("q", where="n <")(print)
    with pytest.raises(InvalidSelector):
        wrong.run()
