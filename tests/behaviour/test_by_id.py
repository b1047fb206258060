"""Messages by their ids: taken, looked at, held, removed; and waiting for one that others have."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import pytest

from quire.errors import (
    Deadlock,
    InvalidArgument,
    LockTimeout,
    TransactionClosed,
    TransactionError,
    TransactionTimeout,
)

from .forms import AnyStore

QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "by priority": {"order": "priority"},
    "by an attribute": {"order": {"attribute": "rank", "numeric": True}},
    "timed": {"timed": True},
    "grouped": {"grouped": True},
    "counted": {"max_deliveries": 5, "dead_letter": "dead"},
    "volatile": {"type": "volatile"},
}


def filled(store: AnyStore, kind: str, count: int = 6) -> list[int]:
    """A queue `q` with messages "0", "1", ...; their ids."""
    store.create_queue("dead")
    store.create_queue("q", **QUEUES[kind])
    group: dict[str, Any] = {"group_key": "a"} if kind == "grouped" else {}
    return [store.put("q", b"%d" % n, **group) for n in range(count)]


@pytest.mark.cases(3)
@pytest.mark.parametrize("kind", QUEUES)
def test_a_message_is_taken_wherever_it_stands(store: AnyStore, kind: str) -> None:
    """By its id; once. A rollback puts it back at its place."""
    ids = filled(store, kind)
    with store.transaction() as txn:
        got = txn.get("q", id=ids[3])
        assert got is not None
        assert (got.payload, got.id) == (b"3", ids[3])
        txn.rollback()
    with store.transaction() as txn:
        assert txn.get_many("q").payloads() == [b"0", b"1", b"2", b"3", b"4", b"5"]
        txn.rollback()
    taken = store.get("q", id=ids[4])
    assert taken is not None
    assert taken.payload == b"4"
    assert store.get("q", id=ids[4]) is None
    assert store.get("q", id=ids[5] + 1000) is None
    assert store.get_many("q").payloads() == [b"0", b"1", b"2", b"3", b"5"]


@pytest.mark.cases(3)
@pytest.mark.parametrize("kind", QUEUES)
def test_a_look_takes_nothing(store: AnyStore, kind: str) -> None:
    """`read` and `attributes` see what is committed, whoever has it; what is read is gone."""
    ids = filled(store, kind)
    with store.transaction() as other, store.transaction() as txn:
        assert other.get("q", id=ids[2]) is not None
        seen = txn.read("q", id=ids[2])
        assert seen is not None
        assert seen.payload == b"2"
        described = txn.attributes("q", ids[2])
        assert described is not None
        assert (described.id, described.size, described.queue) == (ids[2], 1, "q")
        assert txn.count("q") == 6
        assert txn.exists("q", where=ids[2])
        other.commit()
        assert txn.read("q", id=ids[2]) is None
        assert txn.attributes("q", ids[2]) is None
        assert txn.count("q") == 5
        assert [each.id for each in txn.describe("q", 2)] == ids[:2]


@pytest.mark.cases(3)
@pytest.mark.parametrize("kind", QUEUES)
def test_a_message_is_removed(store: AnyStore, kind: str) -> None:
    """With the commit, and it tells whether it was there."""
    ids = filled(store, kind)
    with store.transaction() as txn:
        assert txn.remove("q", ids[1])
        assert not txn.remove("q", ids[5] + 1000)
        txn.rollback()
    with store.transaction() as txn:
        assert txn.remove("q", ids[1])
    with store.transaction() as txn:
        assert not txn.remove("q", ids[1])
    assert store.get_many("q").payloads() == [b"0", b"2", b"3", b"4", b"5"]


@pytest.mark.cases(3)
@pytest.mark.parametrize("kind", QUEUES)
def test_a_removal_that_is_rolled_back_is_no_delivery(store: AnyStore, kind: str) -> None:
    """Beside gets, before and behind it, which are."""
    ids = filled(store, kind, 4)
    with store.transaction() as txn:
        assert txn.get("q", id=ids[0]) is not None
        assert txn.remove("q", ids[1])
        assert txn.get("q", id=ids[2]) is not None
        assert txn.remove("q", ids[3])
        txn.rollback()
    counts = [(each.id, each.delivery_count) for each in store.get_many("q")]
    assert sorted(counts) == [(ids[0], 2), (ids[1], 1), (ids[2], 2), (ids[3], 1)]


def test_a_removal_that_is_rolled_back_has_not_failed(store: AnyStore) -> None:
    """So it comes at once, where what was got comes later."""
    store.create_queue("q", retry={"delay": 3600})
    ids = [store.put("q", b"%d" % n) for n in range(3)]
    with store.transaction() as txn:
        assert txn.get("q", id=ids[0]) is not None
        assert txn.remove("q", ids[1])
        txn.rollback()
    assert [(each.id, each.delivery_count) for each in store.get_many("q")] == [
        *((ids[1], 1), (ids[2], 1)),
    ]


def test_what_is_not_due_yet_is_removed_but_not_got(store: AnyStore) -> None:
    """A get is a delivery, for which it is too early."""
    store.create_queue("q", timed=True)
    later = store.put("q", b"later", delay=3600)
    with store.transaction() as txn:
        assert txn.get("q", id=later) is None
        seen = txn.read("q", id=later)
        assert seen is not None
        assert seen.payload == b"later"
        assert txn.remove("q", later)
    assert store.queue("q").messages == 0


@pytest.mark.parametrize("kind", ["plain", "by priority", "grouped"])
def test_what_comes_again_later_is_removed(store: AnyStore, kind: str) -> None:
    """Of several that have failed that one alone: the others come when they would have."""
    ids = filled(store, kind, 3)
    with store.transaction() as txn:
        for message in txn.get_many("q"):
            txn.reject(message, "not now", 3600)
        txn.rollback()
    with store.transaction() as txn:
        assert txn.get("q", id=ids[1]) is None
        assert txn.remove("q", ids[1])
    with store.transaction() as txn:
        assert not txn.remove("q", ids[1])
        assert txn.get_many("q").payloads() == []
    assert store.queue("q").messages == 2


@pytest.mark.parametrize("kind", ["plain", "by priority", "grouped"])
def test_what_is_held_stays_and_is_nobody_elses(store: AnyStore, kind: str) -> None:
    """Until the transaction ends; then it is there again, and was not delivered."""
    ids = filled(store, kind, 3)
    with store.transaction() as txn:
        held = txn.read("q", id=ids[0], hold=True)
        assert held is not None
        assert held.payload == b"0"
        with store.transaction() as other:
            assert b"0" not in other.get_many("q").payloads()
            with pytest.raises(LockTimeout):
                other.get("q", id=ids[0])
            other.rollback()
        with pytest.raises(TransactionError, match="hold"):
            txn.prepare("x")
        txn.put("dead", b"beside")
    with store.transaction() as txn:
        got = txn.get("q")
        assert got is not None
        assert (got.payload, got.delivery_count) == (b"0", 1)
    assert store.queue("dead").messages == 1


def test_who_holds_a_message_may_move_the_subscription(store: AnyStore) -> None:
    """What it holds is nobody else's until the end, and then there again."""
    store.create_queue("t", kind="topic")
    store.subscribe("t", "a")
    store.subscribe("t", "b")  # which keeps what the other one reads
    ids = [store.put("t", b"%d" % n) for n in range(4)]
    assert store.get("t/a") is not None
    for ending in ("rollback", "commit"):
        with store.transaction() as txn:
            assert txn.read("t/a", id=ids[2], hold=True) is not None
            txn.seek("t/a", "earliest")
            assert store.get("t/a", id=ids[2]) is None
            getattr(txn, ending)()
        info, _ = store.subscriptions("t")
        assert (info.delivered, info.pending) == (0, 3 + (ending == "commit"))
    assert store.get_many("t/a").payloads() == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("name", ["get", "read", "remove"])
def test_what_is_given_back_is_at_its_place_in_its_sequence(store: AnyStore, name: str) -> None:
    """Though what its sender numbered before it came later."""
    store.create_queue("q", order={"sequence": "n"})
    numbers = [0, 2, 1, 5, 4, 3]
    ids = [store.put("q", b"%d" % n, sender="s", attributes={"n": str(n)}) for n in numbers]
    for _ in range(2):
        for id in ids:
            with store.transaction() as txn:
                if name == "remove":
                    assert txn.remove("q", id)
                elif name == "read":
                    assert txn.read("q", id=id, hold=True) is not None
                else:
                    assert txn.get("q", id=id) is not None
                txn.rollback()
    assert store.get_many("q").payloads() == [b"%d" % n for n in range(6)]


def test_what_another_one_has_is_waited_for(store: AnyStore) -> None:
    """Until that one ends; LockTimeout leaves the transaction as it was."""
    ids = filled(store, "plain")
    with store.transaction() as txn:
        assert txn.get("q", id=ids[0]) is not None
        with store.transaction() as other:
            with pytest.raises(LockTimeout, match="transaction"):
                other.get("q", id=ids[0], timeout=0.02)
            with pytest.raises(LockTimeout):
                other.remove("q", ids[0])
            assert other.state == "open"
            assert other.get("q", id=ids[1]) is not None
    assert store.get_many("q").payloads() == [b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_the_end_of_who_has_it_is_told_to_who_waits(store: AnyStore, ending: str) -> None:
    """A rollback hands it over; after a commit there is nothing to wait for."""
    ids = filled(store, "plain")
    found: list[object] = []
    with store.transaction() as txn, store.transaction() as other:
        assert txn.get("q", id=ids[0]) is not None
        waiter = threading.Thread(
            target=lambda: found.append(other.get("q", id=ids[0], timeout=60))
        )
        waiter.start()
        time.sleep(0.05)
        getattr(txn, ending)()
        waiter.join(30)
        assert not waiter.is_alive()
        [got] = found
        assert (got is None) == (ending == "commit")


@pytest.mark.parametrize("name", ["get", "read", "describe", "count", "remove"])
def test_a_wait_ends_with_its_transaction(store: AnyStore, name: str) -> None:
    """At once, and with why it ended, not as if there were nothing."""
    ids = filled(store, "plain")
    with store.transaction() as holder:
        assert holder.get("q", id=ids[0]) is not None
        asked: Any = {"get": {"id": ids[0]}, "remove": {"id": ids[0]}}
        txn = store.transaction(timeout=0.1)
        wait = partial(getattr(txn, name), "q", timeout=60, **asked.get(name, {"where": "n = 5"}))
        with pytest.raises(TransactionTimeout):
            wait()


def test_a_message_that_comes_is_waited_for(store: AnyStore) -> None:
    """`read` and `count` wait for the first, too."""
    store.create_queue("q")
    with store.transaction() as txn:
        assert txn.read("q", timeout=0.01) is None
        assert txn.count("q", timeout=0.01) == 0
        found: list[object] = []
        waiter = threading.Thread(target=lambda: found.append(txn.read("q", timeout=60)))
        waiter.start()
        time.sleep(0.05)
        store.put("q", b"new")
        waiter.join(30)
        [got] = found
        assert got is not None


@pytest.mark.parametrize("count", [2, 3])
def test_who_closes_a_circle_of_those_who_wait_is_rolled_back(store: AnyStore, count: int) -> None:
    """At once; so the others go on, each with what the next one had."""
    ids = filled(store, "plain", count)
    txns = [store.transaction() for _ in range(count)]
    for txn, id in zip(txns, ids, strict=True):
        assert txn.get("q", id=id) is not None
    ends: dict[int, object] = {}

    def wait(n: int) -> None:
        try:
            ends[n] = txns[n].get("q", id=ids[(n + 1) % count], timeout=60)
        except Deadlock as error:
            ends[n] = error
        else:
            txns[n].commit()

    waiters = [threading.Thread(target=wait, args=(n,)) for n in range(count)]
    for waiter in waiters:
        waiter.start()
    for waiter in waiters:
        waiter.join(30)
    [refused] = [n for n, end in ends.items() if isinstance(end, Deadlock)]
    assert len(ends) == count
    assert "by way of" in str(ends[refused])
    assert txns[refused].state == "rolled back"
    with pytest.raises((Deadlock, TransactionClosed)):
        txns[refused].commit()
    taken = [end for n, end in ends.items() if n != refused and end is not None]
    assert len(taken) == 1  # what the refused one had; of the others each found its message read
    assert store.queue("q").messages == 0


def test_of_a_topic_each_subscription_has_its_own(store: AnyStore) -> None:
    """What one has taken, removed or holds is there for another."""
    store.create_queue("t", kind="topic")
    store.subscribe("t", "a")
    store.subscribe("t", "b")
    ids = [store.put("t", b"%d" % n) for n in range(3)]
    with store.transaction() as txn:
        assert txn.get("t/a", id=ids[1]) is not None
        assert txn.remove("t/a", ids[2])
        assert txn.get("t/b", id=ids[1]) is not None
    assert store.get_many("t/a").payloads() == [b"0"]
    assert store.get_many("t/b").payloads() == [b"0", b"2"]


def test_an_id_is_given_as_its_put_has_returned_it(store: AnyStore) -> None:
    """To each call; before the commit nobody can use it."""
    store.create_queue("q")
    with store.transaction() as txn:
        early, late = txn.put("q", b"early"), txn.put("q", b"late")
        for look in (txn.get, txn.read):
            with pytest.raises(TransactionError, match="before its transaction"):
                look("q", id=early)
        with pytest.raises(TransactionError, match="before its transaction"):
            txn.count("q", where=early)
    with store.transaction() as txn:
        assert txn.count("q", where=early) == 1
        assert txn.exists("q", where=early)
        assert [each.id for each in txn.describe("q", where=late)] == [late]
        assert txn.read_many("q", where=late, hold=True).payloads() == [b"late"]
        seen = txn.attributes("q", early)
        assert seen is not None
        assert seen.id == early
        assert txn.remove("q", early)
    got = store.get("q", where=late)
    assert got is not None
    assert got.payload == b"late"


@pytest.mark.parametrize("bad", [0, -1, "x", 2.5, True, 1 << 70])
def test_what_is_no_id_is_refused(store: AnyStore, bad: Any) -> None:
    """With the same words in each form."""
    store.create_queue("q")
    with store.transaction() as txn:
        with pytest.raises(InvalidArgument, match="message id"):
            txn.get("q", id=bad)
        with pytest.raises(InvalidArgument, match="message id"):
            txn.remove("q", bad)
        with pytest.raises(InvalidArgument, match="give one of them"):
            txn.get("q", id=1, where=1)


def test_descriptions_are_waited_for(store: AnyStore) -> None:
    """By their id, too: of a message that is not committed yet."""
    store.create_queue("q")
    first = store.put("q", b"0")
    found: list[Any] = []

    def look() -> None:
        with store.transaction() as txn:
            found.append(txn.attributes("q", first + 1, timeout=60.0))

    with store.transaction() as txn:
        assert txn.attributes("q", first, timeout=60.0) is not None
        assert txn.attributes("q", first + 1, timeout=0.01) is None
    waiter = threading.Thread(target=look)
    waiter.start()
    time.sleep(0.05)
    while not found:
        store.put("q", b"1", sender="me")
        waiter.join(0.2)
    [seen] = found
    assert (seen.sender, seen.size) == ("me", 1)


def test_nobody_waits_for_what_its_own_transaction_has(store: AnyStore) -> None:
    """It would wait for its own end: it is told at once, and goes on."""
    ids = filled(store, "plain", 2)
    with store.transaction() as txn:
        assert txn.get("q", id=ids[0]) is not None
        assert txn.remove("q", ids[1])
        for each in ids:
            with pytest.raises(TransactionError, match="itself"):
                txn.get("q", id=each, timeout=None)
            with pytest.raises(TransactionError, match="itself"):
                txn.read("q", id=each, timeout=None, hold=True)
            with pytest.raises(TransactionError, match="itself"):
                txn.remove("q", each, timeout=None)
        assert txn.state == "open"
    assert store.queue("q").messages == 0


@pytest.mark.parametrize("kind", ["plain", "grouped", "counted"])
def test_what_is_held_is_taken_by_its_own_transaction(store: AnyStore, kind: str) -> None:
    """By id, got or removed; held twice is once. Others have it at no moment."""
    ids = filled(store, kind, 4)
    with store.transaction() as txn:
        for id in ids[:3]:
            assert txn.read("q", id=id, hold=True) is not None
            assert txn.read("q", id=id, hold=True) is not None
        got = txn.get("q", id=ids[0])
        assert got is not None
        assert (got.payload, got.delivery_count) == (b"0", 1)
        assert txn.remove("q", ids[1])
        with store.transaction() as other:
            for id in ids[:3]:
                with pytest.raises(LockTimeout):
                    other.get("q", id=id)
    assert store.get_many("q").payloads() == [b"2", b"3"]


@pytest.mark.parametrize("kind", ["plain", "grouped", "counted"])
def test_what_was_held_and_taken_is_there_after_a_rollback(store: AnyStore, kind: str) -> None:
    """What was got was delivered, what was held or removed was not."""
    ids = filled(store, kind, 3)
    with store.transaction() as txn:
        for id in ids:
            assert txn.read("q", id=id, hold=True) is not None
        assert txn.get("q", id=ids[1]) is not None
        assert txn.remove("q", ids[2])
        txn.rollback()
    counts = [(each.payload, each.delivery_count) for each in store.get_many("q")]
    assert sorted(counts) == [(b"0", 1), (b"1", 2), (b"2", 1)]


def test_what_was_held_is_held_again_where_its_get_is_undone(store: AnyStore) -> None:
    """As if it had not been made; what is rejected goes back to the queue."""
    ids = filled(store, "plain", 2)
    with store.transaction() as txn:
        for id in ids:
            assert txn.read("q", id=id, hold=True) is not None
        for take in (txn.get, txn.remove):
            assert take("q", id=ids[0])
            txn.unget()
            with store.transaction() as other, pytest.raises(LockTimeout):
                other.get("q", id=ids[0])
        got = txn.get("q", id=ids[1])
        assert got is not None
        txn.reject(got)
        with store.transaction() as other:
            again = other.get("q", id=ids[1])
            assert again is not None
            assert again.delivery_count == 2
            other.rollback()
        assert txn.get("q", id=ids[1]) is not None
        txn.unget()
    assert store.get_many("q").payloads() == [b"0", b"1"]


def test_a_removal_that_is_undone_is_no_delivery(store: AnyStore) -> None:
    """Where deliveries are counted it takes none away, either. What is held counts when got."""
    store.create_queue("dead")
    store.create_queue("q", max_deliveries=4, dead_letter="dead")
    id = store.put("q", b"x")

    def counted() -> int:
        got = txn.get("q", id=id)
        assert got is not None
        return got.delivery_count

    with store.transaction() as txn:
        assert counted() == 1
        txn.rollback()
    with store.transaction() as txn:
        assert txn.remove("q", id)
        txn.unget()
        assert counted() == 2
        txn.rollback()
    with store.transaction() as txn:
        assert txn.read("q", id=id, hold=True) is not None
        assert counted() == 3
        txn.unget()
        assert counted() == 3
        txn.rollback()
    with store.transaction() as txn:
        assert counted() == 4
