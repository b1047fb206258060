"""Messages by a template or a selector: taken, looked at, counted; waiting for one that fits."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import quire
from quire import ANY, Template
from quire.errors import InvalidArgument, InvalidSelector
from quire.limits import LATE_INDEXED

from .forms import AnyStore

RED_TWO = "colour = 'red' AND size = 2"


def filled(store: AnyStore, **options: Any) -> list[int]:
    """A queue `q` of twelve messages in two colours and three sizes, which are priorities."""
    store.create_queue("q", **options)
    is_ranked = options.get("order") == "priority"
    return [
        store.put(
            "q",
            b"%d" % n,
            correlation_id=f"c{n}",
            attributes={
                "colour": "red" if n % 2 else "blue",
                "n": str(n),
                "size": str(n % 3),
            },
            priority=n % 3 if is_ranked else None,
        )
        for n in range(12)
    ]


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    ("where", "payloads"),
    [
        ("colour = 'red'", [1, 3, 5, 7, 9, 11]),
        (RED_TWO, [5, 11]),
        ("n BETWEEN 3 AND 5", [3, 4, 5]),
        ("payload LIKE '1_'", [10, 11]),
        ("JMSCorrelationID IN ('c1', 'c7') OR missing IS NOT NULL", [1, 7]),
        (Template(attributes={"colour": "red", "size": "2"}), [5, 11]),
        (Template(correlation_id="c8"), [8]),
        (Template(attributes={"colour": ANY}, payload=b"4"), [4]),
        (Template(reply_to=ANY), []),
        (Template(), list(range(12))),
    ],
    ids=str,
)
def test_a_condition_finds_the_same_by_every_call(
    store: AnyStore, where: str | Template, payloads: list[int]
) -> None:
    """Looked at, described, counted, taken, in the order of delivery."""
    ids = filled(store)
    expected = [b"%d" % n for n in payloads]
    with store.transaction() as txn:
        assert txn.count("q", where=where) == len(expected)
        assert txn.exists("q", where=where) == bool(expected)
        assert txn.read_many("q", where=where).payloads() == expected
        described = txn.describe("q", where=where)
        assert [each.id for each in described] == [ids[n] for n in payloads]
        assert all(each.attributes["n"] == str(each.position) for each in described)
        first = txn.get("q", where=where)
        assert (None if first is None else first.payload) == (expected[0] if expected else None)
        assert txn.get_many("q", where=where).payloads() == expected[1:]
    others = [b"%d" % n for n in range(12) if n not in payloads]
    assert store.get_many("q").payloads() == others


@pytest.mark.parametrize(
    ("options", "payloads"),
    [
        ({"order": "priority"}, [5, 11, 1, 7, 3, 9]),
        ({"order": {"attribute": "n", "numeric": True}}, [1, 3, 5, 7, 9, 11]),
        ({"order": {"attribute": "n"}}, [1, 11, 3, 5, 7, 9]),
        ({"type": "volatile"}, [1, 3, 5, 7, 9, 11]),
    ],
    ids=str,
)
def test_first_is_first_in_the_order_of_delivery(
    store: AnyStore, options: dict[str, Any], payloads: list[int]
) -> None:
    """First is first in the order of delivery, whatever the queue's order is."""
    filled(store, **options)
    expected = [b"%d" % n for n in payloads]
    with store.transaction() as txn:
        assert txn.read_many("q", where="colour = 'red'").payloads() == expected
        for payload in expected[:3]:
            got = txn.get("q", where="colour = 'red'")
            assert got is not None
            assert got.payload == payload
        assert txn.get_many("q", where="colour = 'red'").payloads() == expected[3:]
        txn.rollback()
    assert store.get_many("q", where="colour = 'red'").payloads() == expected


def test_priorities_are_asked_for(store: AnyStore) -> None:
    """By the header, in a selector and in a template."""
    filled(store, order="priority")
    with store.transaction() as txn:
        assert txn.count("q", where="JMSPriority >= 1") == 8
        assert txn.count("q", where=Template(priority=2)) == 4


def test_what_others_have_is_passed_over(store: AnyStore) -> None:
    """A condition asks for any message: it waits for none that is another transaction's."""
    filled(store)
    with store.transaction() as txn:
        assert txn.get("q", where=RED_TWO) is not None
        with store.transaction() as other:
            got = other.get("q", where=RED_TWO)
            assert got is not None
            assert got.payload == b"11"
            assert other.get("q", where=RED_TWO) is None
            assert other.count("q", where=RED_TWO) == 2


@pytest.mark.parametrize("order", ["commit", "priority"])
def test_groups_that_others_have_are_passed_over(store: AnyStore, order: str) -> None:
    """The first that fits of those that may be had, however many of others come before it."""
    store.create_queue("q", grouped=True, order=order)
    for key in "abc":
        for n in range(3):
            store.put("q", f"{key}{n}".encode(), group_key=key, attributes={"n": str(n)})
    with store.transaction() as txn, store.transaction() as other:
        assert txn.get_many("q", 2).payloads() == [b"a0", b"a1"]
        got = other.get("q", where="n > 0")
        assert got is not None
        assert got.payload == b"b1"
        assert other.get_many("q", where="n <> 1").payloads() == [b"b0", b"b2", b"c0", b"c2"]
        assert txn.get_many("q", where="n >= 0").payloads() == [b"a2"]
        other.rollback()
        assert txn.read_many("q", where="n = 2", hold=True).payloads() == [b"b2", b"c2"]
        txn.rollback()
    assert len(store.get_many("q")) == 9


def test_one_that_fits_is_waited_for(store: AnyStore) -> None:
    """Others that come meanwhile do not end the wait, and are there."""
    store.create_queue("q")
    with store.transaction() as txn:
        assert txn.get("q", where="n > 5", timeout=0.01) is None
        found: list[Any] = []
        waiter = threading.Thread(
            target=lambda: found.append(txn.get("q", where="n > 5", timeout=60))
        )
        waiter.start()
        for n in range(7):
            time.sleep(0.01)
            store.put("q", b"%d" % n, attributes={"n": str(n)})
        waiter.join(30)
        [got] = found
        assert got is not None
        assert got.payload == b"6"
    assert store.queue("q").messages == 6


def test_what_is_rolled_back_is_found_again(store: AnyStore) -> None:
    """Who waits for it is told."""
    filled(store)
    txn, found = store.transaction(), []
    assert len(txn.get_many("q", where=RED_TWO)) == 2
    waiter = threading.Thread(
        target=lambda: found.append(store.get("q", where=RED_TWO, timeout=60))
    )
    waiter.start()
    time.sleep(0.05)
    txn.rollback()
    waiter.join(30)
    [got] = found
    assert got is not None
    assert got.payload == b"5"


@pytest.mark.parametrize("where", ["colour =", "a = 'x", "1", "a LIKE 5", "JMSPriority = 'x'"])
def test_a_wrong_selector_is_refused(store: AnyStore, where: str) -> None:
    """With its place, and nothing is taken."""
    filled(store)
    with store.transaction() as txn:
        with pytest.raises(InvalidSelector, match="line 1"):
            txn.get("q", where=where)
        with pytest.raises(InvalidSelector):
            txn.count("q", where=where)
        assert txn.state == "open"
    assert store.queue("q").messages == 12


@pytest.mark.parametrize("where", [b"x", 1.5, [], {"colour": "red"}])
def test_what_is_no_condition_is_refused(store: AnyStore, where: Any) -> None:
    """What is no condition is refused in each form."""
    filled(store)
    with store.transaction() as txn, pytest.raises(InvalidArgument):
        txn.get("q", where=where)


def test_rows_are_found_by_their_columns(store: AnyStore) -> None:
    """The rows of a typed queue are found by their columns."""
    store.create_queue("q", schema="city: string, amount: bigint")
    with store.transaction() as txn:
        txn.put_many("q", [{"city": "Bern" if n % 2 else "Ulm", "amount": n} for n in range(100)])
    with store.transaction() as txn:
        assert txn.count("q", where="city = 'Bern' AND amount > 90") == 5
        got = txn.get("q", where=Template(columns={"city": "Ulm", "amount": 42}))
        assert got is not None
        assert got.value == {"city": "Ulm", "amount": 42}
        with pytest.raises(InvalidSelector, match="amount"):
            txn.count("q", where="amount LIKE 'x'")


def test_a_template_says_what_it_asks() -> None:
    """Its words are those that make it."""
    assert quire.Template(priority=1) == Template(priority=1)
    with pytest.raises(InvalidArgument):
        Template(attributes=3)  # type: ignore[arg-type]


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "where",
    [
        "colour = 'red' AND n = '7'",
        Template(attributes={"n": "7"}),
        Template(correlation_id="c7"),
        "JMSCorrelationID = 'c7'",
        "colour = 'red' AND n IN ('7')",
    ],
    ids=str,
)
@pytest.mark.parametrize("others", [0, LATE_INDEXED])
def test_an_index_finds_the_same(store: AnyStore, where: str | Template, others: int) -> None:
    """Before and after more comes, goes, and is there again; few that are new are not in it."""
    ids = filled(store, indexed=["n", "correlation_id"])
    if others:
        store.put_many("q", [b"other"] * others)
    assert store.queue("q").indexed == ("n", "correlation_id")
    with store.transaction() as txn:
        found = txn.describe("q", where=where)
        assert [each.id for each in found] == [ids[7]]
        again = txn.put("q", b"again", correlation_id="c7", attributes={"n": "7", "colour": "red"})
        assert txn.count("q", where=where) == 1  # that is not committed
    if others:
        with store.transaction() as txn:
            assert [each.position for each in txn.describe("q", where=where)] == [7, 12 + others]
        store.put_many("q", [b"other"] * others)
    with store.transaction() as txn:
        assert txn.get_many("q", where=where).ids == [ids[7], int(again)]
        txn.rollback()
    assert store.get_many("q", where=where).payloads() == [b"7", b"again"]
    with store.transaction() as txn:
        assert not txn.exists("q", where=where)
        assert txn.count("q") == 11 + 2 * others


@pytest.mark.parametrize(
    "bad", ["n", ["a", "a"], [""], [1], ["x" * 201], list("abcdefghijklmnopq")]
)
def test_what_cannot_be_indexed_is_refused(store: AnyStore, bad: Any) -> None:
    """The names are a list."""
    with pytest.raises(InvalidArgument, match="indexed"):
        store.create_queue("q", indexed=bad)


def test_indexed_columns(store: AnyStore) -> None:
    """Of texts and whole numbers; of others it is told that they cannot be."""
    store.create_queue(
        "q", schema="city string, amount bigint, at timestamp", indexed=["city", "amount", "free"]
    )
    store.put_many("q", [{"city": f"c{n % 7}", "amount": n % 5} for n in range(70)])
    with store.transaction() as txn:
        assert txn.count("q", where="city = 'c3' AND amount = 2") == 2
        assert txn.count("q", where="amount = 2") == 14
        assert txn.count("q", where=Template(columns={"city": "c3"})) == 10
    with pytest.raises(InvalidArgument, match="indexed"):
        store.alter_queue("q", indexed=["at"])
