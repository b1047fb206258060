"""In which order a queue hands out its messages, for every form of a store."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import quire
from quire.definitions.order import AttributeOrder, SequenceOrder
from quire.engine import EmbeddedStore as Store
from quire.errors import InvalidArgument, QueueDisabled, QuireError
from quire.messages.message import Message
from tests.behaviour.forms import AnyStore, Clock
from tests.kit.children import child
from tests.kit.registries import order_codes

BY_NUMBER: AttributeOrder = {"attribute": "due", "numeric": True}
TAKER = """
import sys, time, quire
store = quire.open(sys.argv[1])
txn = store.transaction()
print(b" ".join(txn.get_many("q", 2).payloads()).decode(), flush=True)
time.sleep(600)
"""


registry = pytest.fixture(autouse=True)(order_codes)


def put_due(store: AnyStore, *values: str | None) -> None:
    """Messages whose payload is the value of their attribute."""
    for value in values:
        attributes = {} if value is None else {"due": value}
        store.put("q", str(value).encode(), attributes=attributes)


def put_numbers(store: AnyStore, *numbers: int, sender: str | None = "a") -> None:
    """Messages of a sender, whose payloads are their numbers."""
    for number in numbers:
        store.put("q", b"%d" % number, sender=sender, attributes={"seq": str(number)})


def rest(store: AnyStore) -> list[bytes]:
    """All that can be got now."""
    return store.get_many("q").payloads()


def test_priority_is_an_order(store: AnyStore) -> None:
    """When a queue is made and when it is altered; others stand beside it."""
    assert store.create_queue("q", kind="work", order="priority").order == "priority"
    store.create_queue("q", kind="work", order="priority", exist_ok=True)
    orders: list[Any] = ["commit", "priority", BY_NUMBER, "priority", "commit"]
    for order in orders:
        info = store.alter_queue("q", order=order)
        assert info.order == order
        assert store.queue("q") == info


WRONG: list[dict[str, Any]] = [
    {"order": ""},
    {"order": "a b"},
    {"order": "nobody-knows-it"},
    {"order": None},
    {"order": 7},
    {"order": {}},
    {"order": {"attribute": ""}},
    {"order": {"attribute": 1}},
    {"order": {"attribute": "\ud800"}},
    {"order": {"attribute": "x" * 70_000}},
    {"order": {"attribute": "a", "numeric": 1}},
    {"order": {"attribute": "a", "sequence": "b"}},
    {"order": {"numeric": True}},
    {"order": {"sequence": "s", "wait": -1}},
    {"order": {"sequence": "s", "wait": float("nan")}},
    {"order": {"sequence": "s", "wait": True}},
    {"order": {"sequence": "s", "most": 0}},
    {"order": {"sequence": "s", "most": 10_001}},
    {"order": {"sequence": "s", "most": 1.5}},
]


def test_wrong_orders_are_refused(store: AnyStore) -> None:
    """Wrong orders are refused, and nothing is made or changed."""
    before = store.create_queue("q", kind="topic")
    for options in WRONG:
        with pytest.raises(InvalidArgument):
            store.create_queue("r", **options)
        with pytest.raises(InvalidArgument):
            store.alter_queue("q", **options)
    assert store.queues() == [before]


def test_an_attribute_orders(store: AnyStore) -> None:
    """As texts or as numbers, ascending; equal ones in commit order, missing ones last."""
    store.create_queue("q", kind="work", order={"attribute": "due"})
    assert store.queue("q").order == {"attribute": "due", "numeric": False}
    values = ["3", None, "10", "-1", "x", "2.5", "é"]
    put_due(store, *values)
    assert rest(store) == [b"-1", b"10", b"2.5", b"3", b"x", "é".encode(), b"None"]
    store.alter_queue("q", order=BY_NUMBER)
    put_due(store, *values, "1e400", str(2**60 + 1), str(2**60), "nan")
    assert rest(store) == [
        *(b"-1", b"2.5", b"3", b"10", b"%d" % 2**60, b"%d" % (2**60 + 1), b"1e400"),
        *(b"None", b"x", "é".encode(), b"nan"),
    ]


def test_what_is_rolled_back_is_at_its_place(store: AnyStore) -> None:
    """Whoever has got messages meanwhile; what came in between stands where it belongs."""
    store.create_queue("q", kind="work", order=BY_NUMBER)
    put_due(store, "5", "1", "3")
    with store.transaction() as first, store.transaction() as second:
        assert first.get_many("q", 2).payloads() == [b"1", b"3"]
        put_due(store, "2", "0")
        assert second.get_many("q", 2).payloads() == [b"0", b"2"]
        first.rollback()
        assert second.get_many("q", 1).payloads() == [b"1"]
        second.rollback()
    assert rest(store) == [b"0", b"1", b"2", b"3", b"5"]


def test_the_order_is_switched_while_messages_wait(store: AnyStore) -> None:
    """For all of them, also for those that a transaction has got and gives back."""
    store.create_queue("q", kind="work", order="priority")
    for value in ("5", "1", "3"):
        store.put("q", value.encode(), priority=int(value), attributes={"due": value})
    store.alter_queue("q", order="commit")
    with store.transaction() as txn:
        assert txn.get_many("q", 1).payloads() == [b"5"]
        store.alter_queue("q", order=BY_NUMBER)
        assert txn.get_many("q", 1).payloads() == [b"1"]
        store.alter_queue("q", order="priority")
        txn.rollback()
    with store.transaction() as txn:
        assert txn.get_many("q").payloads() == [b"5", b"3", b"1"]
        txn.rollback()
    store.alter_queue("q", order="commit")
    assert rest(store) == [b"5", b"1", b"3"]


def test_each_subscription_is_in_order(store: AnyStore) -> None:
    """Of a topic, also of one in memory."""
    for name, kept in (("t", {}), ("v", {"type": "volatile"})):
        store.create_queue(name, "topic", order=BY_NUMBER, **kept)  # type: ignore[arg-type]
        for subscription in "ab":
            store.subscribe(name, subscription)
        for value in ("2", "3", "1"):
            store.put(name, value.encode(), attributes={"due": value})
        assert store.get_many(f"{name}/a", 2).payloads() == [b"1", b"2"]
        assert store.get_many(f"{name}/b").payloads() == [b"1", b"2", b"3"]
        assert store.get_many(f"{name}/a").payloads() == [b"3"]


def test_groups_are_in_the_order_of_their_queue(store: AnyStore) -> None:
    """The first of a group by its attribute; one reader at a time."""
    store.create_queue("q", kind="work", order=BY_NUMBER, grouped=True)
    for group, value in (("g", "3"), ("g", "1"), ("h", "2"), ("g", "2")):
        store.put("q", (group + value).encode(), group_key=group, attributes={"due": value})
    with store.transaction() as first, store.transaction() as second:
        assert first.get_many("q", 1).payloads() == [b"g1"]
        assert second.get_many("q").payloads() == [b"h2"]
        assert first.get_many("q").payloads() == [b"g2", b"g3"]
        first.rollback()
        assert second.get_many("q").payloads() == [b"g1", b"g2", b"g3"]


def test_a_sender_s_sequence(store: AnyStore) -> None:
    """Each sender's messages by their numbers; what has none, or comes again, waits for nothing."""
    store.create_queue("q", kind="work", order={"sequence": "seq", "wait": 3600})
    assert store.queue("q").order == {"sequence": "seq", "wait": 3600.0, "most": 1000}
    put_numbers(store, 2, 3)
    assert rest(store) == []
    assert store.subscriptions("q")[0].delayed == 2
    put_numbers(store, 2, sender=None)
    store.put("q", b"none", attributes={"seq": "x"})
    put_numbers(store, 1, 1, 5)
    put_numbers(store, 1, sender=None)
    assert rest(store) == [b"none", b"1", b"2", b"3", b"1", b"1", b"2"]
    assert store.subscriptions("q")[0].delayed == 1
    put_numbers(store, 4, 2)
    assert rest(store) == [b"4", b"5", b"2"]
    assert store.subscriptions("q")[0].gaps == 0


def test_a_gap_is_waited_for_and_told(store: AnyStore, clock: Clock) -> None:
    """Who waits gets what comes late in order; after the time the message, with what is missing."""
    store.create_queue("q", kind="work", order={"sequence": "seq", "wait": 600.0})
    put_numbers(store, 1, 2, 5, 6)
    assert rest(store) == [b"1", b"2"]
    clock.forward(599.7)
    message = store.get("q", timeout=120.0)
    assert message is not None
    assert (message.payload, message.attributes["quire.missing"]) == (b"5", "2")
    put_numbers(store, 3)
    late = store.get_many("q")
    assert late.payloads() == [b"6", b"3"]
    assert [message.attributes for message in late] == [{"seq": "6"}, {"seq": "3"}]
    put_numbers(store, 8, 10, 9)
    clock.forward(599.7)
    with store.transaction() as txn:
        batch = txn.get_many("q", timeout=120.0)
        assert batch.payloads() == [b"8", b"9", b"10"]
        assert [m.attributes.get("quire.missing") for m in batch] == ["1", None, None]
        txn.rollback()
    assert [m.attributes.get("quire.missing") for m in store.get_many("q")] == ["1", None, None]
    assert store.subscriptions("q")[0].gaps == 2


def test_rows_are_in_order(store: AnyStore, clock: Clock) -> None:
    """Of a typed queue, by their attributes; a row behind a gap is a row."""
    order: SequenceOrder = {"sequence": "seq", "wait": 600.0}
    store.create_queue("q", kind="work", schema="id long", order=order)
    with store.transaction() as txn:
        for number in (2, 1, 4):
            txn.put("q", {"id": number}, attributes={"seq": str(number)})
    assert [m.decode() for m in store.get_many("q")] == [{"id": 1}, {"id": 2}]
    clock.forward(599.9)
    message = store.get("q", timeout=120.0)
    assert message is not None
    assert (message.decode(), message.attributes["quire.missing"]) == ({"id": 4}, "1")


def test_so_many_wait(store: AnyStore) -> None:
    """Of one sender; then the lowest number is handed out, and what follows it."""
    store.create_queue("q", kind="work", order={"sequence": "seq", "wait": 3600, "most": 2})
    put_numbers(store, 1, 3, 7, sender="a")
    put_numbers(store, 9, 8, sender="b")
    assert rest(store) == [b"1"]
    put_numbers(store, 4, sender="a")
    got = store.get_many("q")
    assert got.payloads() == [b"3", b"4"]
    assert got[0].attributes["quire.missing"] == "1"
    put_numbers(store, 6, sender="b")
    got = store.get_many("q")
    assert got.payloads() == [b"6"]
    assert got[0].attributes["quire.missing"] == "unknown"


def test_a_sequence_that_is_rolled_back(store: AnyStore) -> None:
    """It comes again in order, though its numbers are in no order of their positions."""
    store.create_queue("q", kind="work", order={"sequence": "seq"})
    put_numbers(store, 4, 3, 2, 1)
    store.put("q", b"last")
    with store.transaction() as first, store.transaction() as second:
        assert first.get_many("q", 2).payloads() == [b"1", b"2"]
        assert second.get_many("q", 1).payloads() == [b"3"]
        first.rollback()
        assert second.get_many("q", 1).payloads() == [b"1"]
        second.rollback()
    assert rest(store) == [b"1", b"2", b"3", b"4", b"last"]


def test_a_sequence_of_groups(store: AnyStore) -> None:
    """A sender as a group: its messages are in order, and with one reader at a time."""
    store.create_queue("q", kind="work", order={"sequence": "seq"}, grouped=True)
    for number, sender in ((2, "a"), (1, "b"), (3, "a"), (1, "a"), (2, "b")):
        payload = f"{sender}{number}".encode()
        attributes = {"seq": str(number)}
        store.put("q", payload, sender=sender, group_key=sender, attributes=attributes)
    with store.transaction() as first, store.transaction() as second:
        assert first.get_many("q", 1).payloads() == [b"b1"]
        assert second.get_many("q", 2).payloads() == [b"a1", b"a2"]
        assert first.get_many("q").payloads() == [b"b2"]
        second.rollback()
        assert first.get_many("q").payloads() == [b"a1", b"a2", b"a3"]


def test_who_waits_gets_what_is_let_through(store: AnyStore, clock: Clock) -> None:
    """By the message that was missing, or when the time is over, in a thread that waits."""
    store.create_queue("q", kind="work", order={"sequence": "seq", "wait": 600.0})
    got: list[Message | None] = []
    waiting = threading.Thread(target=lambda: got.append(store.get("q", timeout=60.0)))
    put_numbers(store, 2)
    waiting.start()
    put_numbers(store, 1)
    waiting.join()
    assert [message and message.payload for message in got] == [b"1"]
    put_numbers(store, 4)
    clock.forward(599.7)
    with store.consume("q", timeout=120.0) as messages:
        assert next(iter(messages)).payload == b"2"
        assert next(iter(messages)).attributes["quire.missing"] == "1"


def test_a_reader_that_is_killed_gives_back_in_order(store: AnyStore, owner: Store) -> None:
    """By SIGKILL, what it had of a sequence."""
    store.create_queue("q", kind="work", order={"sequence": "seq"})
    put_numbers(store, 3, 1, 2)
    with child(TAKER, owner.path) as taker:
        assert taker.line() == "1 2"
        taker.kill()
        message = store.get("q", timeout=120.0)
        while message is not None and message.payload == b"3":  # before the owner has seen it
            put_numbers(store, 3)
            message = store.get("q", timeout=120.0)
        assert message is not None
        assert (message.payload, message.delivery_count) == (b"1", 2)


def test_code_orders(store: AnyStore, registry: dict[str, Any]) -> None:
    """By numbers, floats or times that it makes of the headers, all at once; None comes last."""

    def shortest(headers: pa.RecordBatch) -> Any:
        assert headers.schema == quire.HEADER_SCHEMA
        return headers["group"].to_numpy() - 10

    def oldest(headers: pa.RecordBatch) -> Any:
        return headers["expires_at"]

    def by_sender(headers: pa.RecordBatch) -> Any:
        return [None if text is None else len(text) / 2 for text in headers["sender"].to_pylist()]

    for code in (shortest, oldest, by_sender):
        quire.register_order(code.__name__, code)
    store.create_queue("q", kind="work", order="shortest")
    with store.transaction() as txn:
        txn.put("q", b"a", group=7, expires_at=(1 << 55) + 5, sender="long")
        txn.put("q", b"b", group=2)
        txn.put("q", b"c", group=9, expires_at=(1 << 55) + 1, sender="s")
    for order, expected in (
        ("shortest", [b"b", b"a", b"c"]),
        ("oldest", [b"c", b"a", b"b"]),
        ("by_sender", [b"c", b"a", b"b"]),
    ):
        store.alter_queue("q", order=order)
        with store.transaction() as txn:
            assert txn.get_many("q").payloads() == expected
            txn.rollback()


def test_code_that_fails_stops_its_queue(store: AnyStore, registry: dict[str, Any]) -> None:
    """In its words, until the order is altered or given anew; other queues go on."""
    keys: list[Any] = [1 / 2]

    def steered(headers: pa.RecordBatch) -> Any:
        if keys[0] is None:
            raise RuntimeError("no key")
        return keys[0] if not isinstance(keys[0], float) else np.full(len(headers), keys[0])

    quire.register_order("steered", steered)
    store.create_queue("q", kind="work", order="steered")
    store.create_queue("other", kind="work")
    store.put("q", b"m")
    wrong = (
        (None, "no key"),
        (np.zeros(2), "shape"),
        (np.array(["x"]), "type"),
        (np.array([b"x"], object), "neither numbers"),
        (7, "shape"),
    )
    for keys[0], why in wrong:
        with pytest.raises(QueueDisabled, match=f"order 'steered' failed.*{why}"):
            store.get("q")
        with pytest.raises(QueueDisabled, match="queue 'q' is stopped"):
            store.put("q", b"m")
        store.put("other", b"m")
        store.alter_queue("q", order="steered")
    keys[0] = None
    with pytest.raises(QueueDisabled):
        store.get("q", timeout=120.0)
    store.alter_queue("q", order="commit")
    assert rest(store) == [b"m"]
    store.alter_queue("q", order="steered")
    keys[0] = 0.5
    store.put("q", b"n")
    assert rest(store) == [b"n"]


def test_orders_meet_the_other_rules(store: AnyStore) -> None:
    """Deliveries that are counted, retries, times, moves, purges and prepared transactions."""
    store.create_queue("dead", kind="work")
    store.create_queue(
        "q", kind="work", order=BY_NUMBER, timed=True, max_deliveries=2, dead_letter="dead"
    )
    put_due(store, "2", "1")
    store.put("q", b"0", attributes={"due": "0"}, ttl=0.001)
    with store.transaction() as txn:
        message = txn.get("q")
        assert isinstance(message, Message)
        assert message.payload in (b"0", b"1")
        txn.reject(message, "bad")
    txn = store.transaction()
    assert txn.get_many("q", 2).payloads()[-1] in (b"1", b"2")
    txn.prepare("x")
    put_due(store, "9", "8")
    assert store.get_many("q", 1).payloads() in ([b"8"], [b"2"])
    store.prepared.rollback("x")
    assert store.admin.purge("q") > 0
    with pytest.raises(QuireError):
        store.alter_queue("q", order="nobody-knows-it")
    put_due(store, "3")
    assert rest(store) == [b"3"]
