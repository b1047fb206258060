"""Bad arguments: a clear error of the tree, and nothing has changed (promise 13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from quire.block import encode_one
from quire.engine import EmbeddedStore as Store
from quire.errors import (
    InvalidArgument,
    QueueNotFound,
    QuireError,
    SubscriptionNotFound,
)
from quire.limits import MAX_ATTRIBUTES, MAX_LEDGER_KEY_BYTES, MAX_STRING_BYTES, MAX_TIME_US
from tests.engine.unchanged import numbers
from tests.kit.messages import take

Call = Callable[..., object]

BAD_NAMES: list[Any] = ["", ".", "a b", "a/b", "é", "x" * 201, "../x", "a\0", None, 5, b"q", [], {}]
BAD_PAYLOADS: list[Any] = [None, "text", 5, 5.0, ["x"], object(), {}]


@pytest.mark.promise(13)
@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_bad_queue_names(store: Store, work: str, name: Any) -> None:
    """Every call that takes a queue or a source refuses what is none, and nothing changes."""
    txn = store.transaction()
    before = numbers(store)
    for call in (
        lambda: txn.put(name, b"x"),
        lambda: txn.put(name, b"x", group=1),
        lambda: txn.put_many(name, [b"x"]),
        lambda: txn.put_many(name, pa.array([b"x"])),
        lambda: txn.get(name),
        lambda: txn.get_many(name),
        lambda: txn.get_arrow(name),
        lambda: txn.read_to(name, 0),
        lambda: store.put(name, b"x"),
        lambda: store.put(name, b"x", group=1),
        lambda: store.browse(name),
        lambda: store.create_queue(name),
        lambda: store.queue(name),
        lambda: store.drop_queue(name),
        lambda: store.subscribe(name, "s"),
        lambda: store.subscriptions(name),
        lambda: store.integration.positions(name),
        lambda: store.unsubscribe(name, "s"),
        lambda: store.integration.lease(name, 0, 0),
    ):
        if name == "a/b" and call.__code__.co_names[0] in ("get", "get_many"):
            continue
        with pytest.raises((InvalidArgument, QueueNotFound)) as caught:
            call()
        assert len(str(caught.value)) > 20
    assert numbers(store) == before
    txn.put(work, b"still usable")
    txn.commit()


@pytest.mark.promise(13)
@pytest.mark.parametrize("payload", BAD_PAYLOADS, ids=repr)
def test_bad_payloads(store: Store, work: str, payload: Any) -> None:
    """What is not bytes is refused, alone and among others, and nothing of the call is put."""
    txn = store.transaction()
    txn.put(work, b"before")
    before = numbers(store)
    for call in (
        lambda: txn.put(work, payload),
        lambda: txn.put(work, payload, group=1),
        lambda: txn.put_many(work, [b"good", payload]),
        lambda: txn.put_many(work, [[payload]]),
        lambda: store.put(work, payload),
    ):
        with pytest.raises(InvalidArgument):
            call()
    if not isinstance(payload, (list, dict)):
        with pytest.raises(InvalidArgument):
            txn.put_many(work, payload)
    assert numbers(store) == before
    txn.put(work, b"after")
    txn.commit()
    assert take(store, work) == [b"before", b"after"]


@pytest.mark.promise(13)
@pytest.mark.parametrize(
    "batch",
    [
        pa.array([1, 2]),
        pa.array([b"a", None]),
        pa.record_batch({"text": pa.array([b"a"])}),
        pa.record_batch({"payload": pa.array([b"a"]), "colour": pa.array(["red"])}),
        pa.record_batch({"payload": pa.array([b"a"]), "priority": pa.array([65536])}),
        pa.record_batch({"payload": pa.array([b"a"]), "priority": pa.array([-1])}),
        pa.record_batch({"payload": pa.array([b"a"]), "priority": pa.array(["high"])}),
        pa.record_batch({"payload": pa.array([b"a"]), "sender": pa.array(["x" * 70_000])}),
        pa.record_batch({"payload": pa.array([b"a"]), "id": pa.array([1])}),
    ],
    ids=["ints", "null", "no payload", "unknown", "too high", "negative", "type", "long", "id"],
)  # fmt: skip
def test_bad_arrow_data(store: Store, work: str, batch: Any) -> None:
    """Wrong types, columns and values are refused as a whole."""
    with store.transaction() as txn:
        before = numbers(store)
        with pytest.raises(InvalidArgument):
            txn.put_many(work, batch)
        assert numbers(store) == before
    assert take(store, work) == []


@pytest.mark.cases(2)
@pytest.mark.promise(13)
@pytest.mark.parametrize(
    "fields",
    [
        {"priority": -1}, {"priority": 65536}, {"priority": "1"}, {"priority": 1.0},
        {"order": "priority"}, {"group": 65536}, {"group": None},
        {"sender": 5}, {"sender": b"x"}, {"sender": "x" * (MAX_STRING_BYTES + 1)},
        {"sender": "\ud800"}, {"correlation_id": 1}, {"reply_to": []}, {"content_type": {}},
        {"expires_at": -1}, {"expires_at": 1_700_000_000}, {"expires_at": MAX_TIME_US + 1},
        {"expires_at": 1e15}, {"deliver_at": True},
        {"deliver_at": "now"}, {"attributes": []}, {"attributes": {"a": 1}},
        {"attributes": {1: "a"}}, {"attributes": {"a": None}}, {"attributes": "a=b"},
        {"attributes": {str(n): "" for n in range(MAX_ATTRIBUTES + 1)}},
        {"attributes": {"a": "x" * (MAX_STRING_BYTES + 1)}},
        {"colour": "red"}, {"id": 5}, {"time": 5}, {"delivery_count": 1},
    ],
    ids=lambda fields: f"{next(iter(fields))}={next(iter(fields.values()))!r:.20}",
)  # fmt: skip
def test_bad_fields(store: Store, work: str, fields: dict[str, Any]) -> None:
    """Each field has its type and its bounds; an unknown one is named."""
    with store.transaction() as txn:
        before = numbers(store)
        with pytest.raises(InvalidArgument, match=next(iter(fields)).rstrip("s")):
            txn.put(work, b"x", **fields)
        with pytest.raises(InvalidArgument, match=next(iter(fields)).rstrip("s")):
            store.put(work, b"x", **fields)
        assert numbers(store) == before
    assert take(store, work) == []


@pytest.mark.promise(13)
def test_bad_limits_positions_times_and_keys(store: Store, topic: str, work: str) -> None:
    """Numbers of the wrong type or range, and keys that the ledger cannot hold."""
    store.put(work, b"x")
    txn = store.transaction()
    before = numbers(store)
    nan = float("nan")
    readers: tuple[Call, ...] = (txn.get_many, txn.get_arrow, store.browse)
    getters: tuple[Call, ...] = (txn.get, txn.get_many, txn.get_arrow)
    limits: list[Any] = [0, -1, 1.5, "1", None, True]
    timeouts: list[Any] = [-1, -0.5, nan, "1", True, []]  # None waits for ever
    positions: list[Any] = [-1, 2, 1.0, "0", None, True]
    keys: list[Any] = ["", 5, None, b"k", [], "x" * (MAX_LEDGER_KEY_BYTES + 1), "\ud800"]
    versions: list[Any] = [-1, 1 << 63, 1.0, "1", None, True]
    waits: list[Any] = [0, -1, nan, "1", True, []]
    larges: list[Any] = [None, 1, "yes"]
    for limit in limits:
        for call in readers:
            with pytest.raises(InvalidArgument, match="max_messages"):
                call(work, max_messages=limit)
    for timeout in timeouts:
        for call in getters:
            with pytest.raises(InvalidArgument, match="timeout"):
                call(work, timeout=timeout)
    for position in positions:
        with pytest.raises(InvalidArgument, match="position"):
            txn.read_to(work, position)
    starts: list[Any] = [-1, 1.0, "0", True]
    for start in starts:
        with pytest.raises(InvalidArgument, match="start"):
            store.browse(work, start=start)
    for key in keys:
        with pytest.raises(InvalidArgument, match="key"):
            txn.enter(key, 1)
        with pytest.raises(InvalidArgument, match="key"):
            store.integration.ledger(key)
    for version in versions:
        with pytest.raises(InvalidArgument, match="version"):
            txn.enter("key", version)
    for seconds in waits:
        with pytest.raises(InvalidArgument, match="timeout"):
            store.transaction(timeout=seconds)
    for large in larges:
        with pytest.raises(InvalidArgument, match="large"):
            store.transaction(large=large)
    assert numbers(store) == before
    assert txn.get(work, timeout=float("inf")) is not None
    txn.enter("k" * MAX_LEDGER_KEY_BYTES, 0)
    txn.commit()


@pytest.mark.promise(13)
def test_what_is_no_name_is_no_missing_queue(store: Store, topic: str) -> None:
    """Nobody is told to create a queue by a name that none can have; long ones are not repeated."""
    names: list[Any] = ["topic/a", b"topic", 5, None, "", "x" * 100_000]
    for name in names:
        with pytest.raises(InvalidArgument, match="use 1 to 200 of") as told:
            store.put(name, b"x")
        assert len(str(told.value)) < 300
        with store.transaction() as txn, pytest.raises(InvalidArgument, match="use 1 to 200 of"):
            txn.put(name, b"x")
        with pytest.raises(InvalidArgument, match="use 1 to 200 of"):
            store.queue(name)
    with pytest.raises(InvalidArgument) as told:
        store.put(topic, b"x", priorty=1)  # type: ignore[call-arg]
    assert str(told.value).startswith("a put cannot set 'priorty': it may set priority, ")


@pytest.mark.promise(13)
def test_sources_that_do_not_exist(store: Store, topic: str, work: str) -> None:
    """A topic is read through a subscription, a work queue without one; errors say how."""
    txn = store.transaction()
    for source, error, words in (
        ("topic", SubscriptionNotFound, "through a subscription"),
        ("topic/c", SubscriptionNotFound, "subscribe"),
        ("work/a", SubscriptionNotFound, "work queue"),
        ("none", QueueNotFound, "create_queue"),
        ("none/a", QueueNotFound, "create_queue"),
        ("topic/", InvalidArgument, "name"),
        ("/a", InvalidArgument, "name"),
        ("topic/a/b", InvalidArgument, "name"),
    ):
        getters: tuple[Call, ...] = (txn.get, txn.get_many, txn.get_arrow)
        for call in getters:
            with pytest.raises(error, match=words):
                call(source)
        with pytest.raises(error, match=words):
            txn.read_to(source, 0)
    assert isinstance(SubscriptionNotFound("x"), (QuireError, KeyError))
    txn.rollback()


@pytest.mark.promise(13)
def test_what_is_no_block(store: Store, work: str) -> None:
    """put_block takes the bytes of exactly one block; anything else is the caller's mistake."""
    good = bytes(encode_one(b"x"))
    bad: list[Any] = [
        b"", b"garbage", b"x" * 100, good[:-1], good + b"\0" * 8, good[:-1] + b"?", None, "text", 5,
    ]  # fmt: skip
    with store.transaction() as txn:
        before = numbers(store)
        for data in bad:
            with pytest.raises(InvalidArgument, match="block"):
                txn.integration.put_block(work, data)
        assert numbers(store) == before
        txn.integration.put_block(work, bytearray(good))
    assert take(store, work) == [b"x"]
