"""Typed queues: messages are rows. The same however the store is opened."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

from quire.errors import InvalidArgument, QueueExists
from quire.messages.message import SETTABLE
from quire.messages.typed_message import TypedMessage
from tests.behaviour.forms import AnyStore
from tests.kit.waiting import eventually

WORDS = "id bigint not null, amount double, name string"


def ids(store: AnyStore, queue: str = "q") -> list[int]:
    """Of all that is there, read for good."""
    with store.transaction() as txn:
        batch = txn.get_arrow(queue, 1000)
    found: list[int] = batch.column("id").to_pylist()
    return found


def test_rows_are_put_and_got(store: AnyStore) -> None:
    """One by one and as columns, with the header beside them."""
    info = store.create_queue(
        "q", "work", schema="id LONG not null, amount double, name STRING", order="priority"
    )
    assert info.schema == WORDS == store.queue("q").schema
    store.put("q", {"id": 1, "amount": 2}, priority=7, attributes={"a": "b"})
    table = pa.table({"name": ["x", "y"], "id": [2, 3], "_meta": [{"sender": "me"}, None]})
    with pytest.raises(InvalidArgument, match="a mapping has no '_meta'"):
        store.put_many("q", table.to_pylist())
    assert len(store.put_many("q", table)) == 2
    assert len(store.put_many("q", [{"id": 4}, {"id": 5, "amount": 0.5}])) == 2
    [first, *_] = store.browse("q")
    with store.transaction() as txn:
        message = txn.get("q")
        assert isinstance(message, TypedMessage)
        assert (message.id, message.delivery_count, first.delivery_count) == (first.id, 1, 0)
        assert message.value == first.value == {"id": 1, "amount": 2.0, "name": None}
        assert (message.priority, message.attributes) == (7, {"a": "b"})
        batch = txn.get_arrow("q")
        assert batch.schema.names == ["id", "amount", "name", "_meta"]
        assert batch.column("id").to_pylist() == [2, 3, 4, 5]
        assert [each["sender"] for each in batch.column("_meta").to_pylist()][:2] == ["me", None]
        assert txn.get("q") is None
        nothing = txn.get_arrow("q")
        assert (nothing.num_rows, nothing.schema) == (0, batch.schema)
        txn.rollback()
    assert [message.value for message in store.get_many("q")][2:4] == [
        {"id": 3, "amount": None, "name": "y"},
        {"id": 4, "amount": None, "name": None},
    ]


def test_what_does_not_fit_is_refused_whole(store: AnyStore) -> None:
    """The error names the column, and nothing of the batch is put (promise 13)."""
    store.create_queue("q", "work", schema=WORDS)
    store.create_queue("bytes", "work")
    with pytest.raises(InvalidArgument, match="'amount'"):
        store.put_many("q", pa.table({"id": [1, 2], "amount": ["a", "b"]}))
    with store.transaction() as txn:
        txn.put("q", {"id": 1})
        with pytest.raises(InvalidArgument, match="'other'"):
            txn.put("q", {"id": 2, "other": 3})
        with pytest.raises(InvalidArgument, match="'id'"):
            txn.put_many("q", [{"id": 3}, {"name": "x"}])
        with pytest.raises(InvalidArgument, match="list of one"):
            txn.put_many("q", {"id": 4})
    with pytest.raises(InvalidArgument, match="typed"):
        store.put("q", b"bytes")
    with pytest.raises(InvalidArgument, match=r"typed|mapping"):
        store.put_many("q", [b"bytes"])
    with pytest.raises(InvalidArgument, match="holds bytes"):
        store.put("bytes", {"id": 1})
    with pytest.raises(InvalidArgument, match=r"holds bytes|payload"):
        store.put_many("bytes", pa.table({"id": [1]}))
    assert ids(store) == [1]
    assert store.browse("bytes").payloads() == []


def test_a_column_may_be_added(store: AnyStore) -> None:
    """Messages that are there read it as null; who knows the old columns can go on putting."""
    store.create_queue("q", "work", schema=WORDS)
    store.put("q", {"id": 1})
    with pytest.raises(InvalidArgument, match="'more'"):
        store.put("q", {"id": 2, "more": 5})
    later = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("amount", pa.float64()),
            ("name", pa.large_string()),
            ("more", pa.int32()),
        ]
    )
    assert store.alter_queue("q", schema=later).schema == f"{WORDS}, more int"
    store.put("q", {"id": 2, "more": 5})
    store.put_many("q", pa.table({"id": [3]}))
    for refused in (WORDS, "id bigint, more int", f"{WORDS}, more int, x int not null", None):
        with pytest.raises(InvalidArgument, match="queue 'q'"):
            store.alter_queue("q", schema=refused)
    store.admin.checkpoint()
    with store.transaction() as txn:
        batch = txn.get_arrow("q")
        txn.rollback()
    assert batch.column("more").to_pylist() == [None, 5, None]
    assert [message.value and message.value["more"] for message in store.browse("q")] == [
        None,
        5,
        None,
    ]
    assert store.create_queue("q", "work", schema=f"{WORDS}, more int", exist_ok=True).schema
    with pytest.raises(QueueExists, match="schema: it has column 'more int' besides"):
        store.create_queue("q", "work", schema=WORDS, exist_ok=True)


def test_another_store_object_adds_the_column(owner: AnyStore, store: AnyStore) -> None:
    """What a client knows of the columns is asked for anew where it refuses a row."""
    store.create_queue("q", "work", schema=WORDS)
    store.put("q", {"id": 1})
    owner.alter_queue("q", schema=f"{WORDS}, more int")
    store.put("q", {"id": 2, "more": 1})
    owner.drop_queue("q")
    owner.create_queue("q", "work", schema="id bigint")
    with pytest.raises(InvalidArgument, match=r"amount|not those"):
        store.put("q", {"id": 3, "amount": 1.0})
    store.put("q", {"id": 4})
    assert ids(store) == [4]


def test_order_and_rules_hold_for_rows(store: AnyStore) -> None:
    """Priority, expiry, delays, groups: they are about the header."""
    store.create_queue("q", "work", schema="id bigint", order="priority", timed=True)
    store.put("q", {"id": 1})
    store.put_many("q", pa.table({"id": [2, 3], "_meta": [{"priority": 9}, {"priority": 5}]}))
    store.put("q", {"id": 4}, priority=9, expires_at=1.0)
    store.put("q", {"id": 5}, delay=3600.0)
    assert [message.value for message in store.delayed.list("q")] == [{"id": 5}]
    [later] = store.delayed.list("q")
    assert store.delayed.reschedule("q", later.id, delay=0.0) is not None
    assert ids(store) == [2, 3, 1, 5]
    store.create_queue("g", "work", schema="id bigint", grouped=True)
    for each in range(4):
        store.put("g", {"id": each}, group_key="ab"[each % 2])
    with store.transaction() as one, store.transaction() as two:
        assert [m.value for m in one.get_many("g", 1)] == [{"id": 0}]
        assert [m.value for m in two.get_many("g", 10)] == [{"id": 1}, {"id": 3}]


def test_dead_letters_keep_their_columns(store: AnyStore) -> None:
    """In a queue of the same columns; in one of bytes they are Arrow streams. Both come back."""
    store.create_queue("dead", "work", schema=f"{WORDS}, reason string")
    store.create_queue("bytes", "work")
    store.create_queue("q", "work", schema=WORDS, max_deliveries=1, dead_letter="dead")
    with pytest.raises(InvalidArgument, match="other columns"):
        store.create_queue("p", "work", schema="x int", max_deliveries=1, dead_letter="dead")
    store.create_queue("strict", "work", schema="x int, why string not null")
    with pytest.raises(InvalidArgument, match="has other columns"):
        store.create_queue("p", "work", schema="x int", max_deliveries=1, dead_letter="strict")
    with pytest.raises(InvalidArgument, match="other columns"):
        store.create_queue("p", "work", max_deliveries=1, dead_letter="dead")
    with pytest.raises(InvalidArgument, match="other columns"):
        store.alter_queue("q", schema=f"{WORDS}, other int")
    for target in ("dead", "bytes"):
        store.alter_queue("q", dead_letter=target)
        store.put("q", {"id": 1, "name": "x"}, correlation_id="c")
        with store.transaction() as txn:
            message = txn.get("q")
            assert message is not None
            txn.reject(message, "no")
        eventually(lambda target=target: store.queue(target).messages)  # type: ignore[misc]
        [letter] = store.browse(target)
        assert (letter.attributes["quire.reason"], letter.correlation_id) == ("no", "c")
        if target == "dead":
            assert letter.value == {"id": 1, "amount": None, "name": "x", "reason": None}
        else:
            assert letter.decode().to_pylist() == [{"id": 1, "amount": None, "name": "x"}]
        assert store.admin.redrive(target, where=lambda letter: True) == 1
        [again] = store.get_many("q")
        assert again.value == {"id": 1, "amount": None, "name": "x"}
        assert again.content_type is None
        with store.transaction() as txn:
            txn.get_many(target)


def test_an_alias_that_takes_dead_letters(store: AnyStore) -> None:
    """It is not given to a queue that could not take them."""
    store.create_queue("bytes", "work")
    store.create_queue("rows", "work", schema=WORDS)
    store.create_queue("others", "work", schema="id bigint")
    store.admin.create_alias("dead", "bytes")
    store.create_queue("q", "work", max_deliveries=1, dead_letter="dead")
    with pytest.raises(InvalidArgument, match="other columns"):
        store.admin.create_alias("dead", "rows", replace=True)
    store.create_queue("typed", "work", schema=WORDS, max_deliveries=1, dead_letter="dead")
    store.alter_queue("q", max_deliveries=None, dead_letter=None)
    with pytest.raises(InvalidArgument, match="other columns"):
        store.admin.create_alias("dead", "others", replace=True)
    store.admin.create_alias("dead", "rows", replace=True)
    assert store.admin.aliases() == {"dead": "rows"}


def test_rows_are_moved(store: AnyStore) -> None:
    """To a queue that has their columns, with their headers; not to one of bytes."""
    store.create_queue("q", "work", schema=WORDS, order="priority")
    store.create_queue("r", "work", schema=f"{WORDS}, more int")
    store.create_queue("bytes", "work")
    store.put("q", {"id": 1}, priority=3, attributes={"a": "b"})
    store.put("q", {"id": 2})
    with store.transaction() as txn:
        assert txn.move("q", "r") == 2
    first, second = store.browse("r")
    assert first.value == {"id": 1, "amount": None, "name": None, "more": None}
    assert (first.priority, first.attributes["a"]) == (3, "b")
    assert second.attributes["quire.queue"] == "q"
    store.put("bytes", b"x")
    refused = {("r", "bytes"): "rows cannot", ("bytes", "r"): "messages of bytes cannot"}
    for (source, queue), words in refused.items():
        with (
            pytest.raises(InvalidArgument, match=f"{words} be moved to queue '{queue}': "),
            store.transaction() as txn,
        ):
            txn.move(source, queue)
    assert (store.queue("r").messages, store.queue("bytes").messages) == (2, 1)


def test_a_row_with_a_request_id_is_put_once(store: AnyStore) -> None:
    """A row with a request id is put once as bytes are."""
    store.create_queue("q", "work", schema=WORDS, dedup_count=10)
    first = store.put("q", {"id": 1}, request_id="a")
    assert store.put("q", {"id": 1}, request_id="a") == first
    with store.transaction() as txn:
        txn.put("q", {"id": 2}, request_id="b", sender="me")
        txn.put("q", {"id": 2}, request_id="b", sender="me")
    assert ids(store) == [1, 2]


def test_volatile_prepared_and_large(store: AnyStore) -> None:
    """Typed queues in memory, in two phases, and in files."""
    store.create_queue("v", "work", schema="id bigint", type="volatile")
    store.create_queue("q", "work", schema="id bigint", max_message_bytes=100)
    table = pa.table({"id": np.arange(30_000)})
    assert len(store.put_many("v", table)) == 30_000
    with store.transaction() as txn:
        assert txn.get_arrow("v", 10).column("id").to_pylist() == list(range(10))
        txn.rollback()
    txn = store.transaction()
    txn.put("q", {"id": -1})
    txn.prepare("x")
    store.prepared.commit("x")
    with store.transaction(large=True) as txn:
        txn.put_many("q", table)
        txn.put("q", {"id": -2})
    with store.transaction() as txn:
        batches = [txn.get_arrow("q", 20_000) for _ in range(2)]
    found = [each for batch in batches for each in batch.column("id").to_pylist()]
    assert found == [-1, *range(30_000), -2]
    store.create_queue("s", "work", schema="name string", max_message_bytes=10)
    with pytest.raises(InvalidArgument, match="max_message_bytes"):
        store.put("s", {"name": "x" * 11})
    with pytest.raises(InvalidArgument, match="max_message_bytes"):
        store.put_many("s", [{"name": "x"}, {"name": "x" * 11}])


def test_consumers_get_rows(store: AnyStore) -> None:
    """`consume` and topics, as with bytes."""
    store.create_queue("q", kind="topic", schema=WORDS)
    store.subscribe("q", "s")
    store.put_many("q", [{"id": each} for each in range(3)])
    seen = []
    with store.consume("q/s", timeout=0.0) as messages:
        for message in messages:
            assert message.value is not None
            seen.append(message.value["id"])
    assert seen == [0, 1, 2]


def test_settable_headers_come_with_rows(store: AnyStore) -> None:
    """All that a put may set, in the column `_meta`, out and in again."""
    store.create_queue("q", "work", schema="id bigint", order="priority")
    store.put("q", {"id": 1}, priority=1, group=2, sender="s", reply_to="r", attributes={"a": "b"})
    with store.transaction() as txn:
        batch = txn.get_arrow("q")
        meta = batch.column("_meta")
        kept = [each for each in meta.type if each.name in SETTABLE]
        again = pa.StructArray.from_arrays([meta.field(each.name) for each in kept], fields=kept)
        txn.put_many("q", pa.record_batch({"id": batch.column("id"), "_meta": again}))
    [message] = store.browse("q")
    assert (message.priority, message.group, message.sender, message.reply_to) == (1, 2, "s", "r")
    assert message.attributes == {"a": "b"}


def test_the_longest_life_is_that_of_rows_too(store: AnyStore) -> None:
    """One by one, many, and as a block that somebody else has encoded."""
    store.create_queue("q", "work", schema="id bigint", timed=True, max_ttl=3600.0)
    latest = time.time_ns() // 1000 + 3600 * 1_000_000
    store.put("q", {"id": 1})
    store.put_many("q", pa.table({"id": [2], "_meta": [{"group": 1}]}))
    store.put("q", {"id": 3}, ttl=10_000.0)
    store.put("q", {"id": 4}, ttl=60.0)
    found = [message.expires_at or 0 for message in store.browse("q")]
    assert len(found) == 4
    assert all(latest <= each <= latest + 60_000_000 for each in found[:3])
    assert found[3] < latest
