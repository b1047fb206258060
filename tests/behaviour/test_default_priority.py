"""What a queue's `default_priority` is for: puts that say none, in every form. 0 is a priority."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from quire.block import encode_one
from quire.messages.message_fields import Fields
from tests.behaviour.forms import AnyStore

Txn = Any
WORDS = "name string"


def batch(said: Sequence[int | None], *, rows: bool = False) -> pa.RecordBatch:
    """Messages named by what they say."""
    names, priorities = [str(each) for each in said], pa.array(said, pa.int32())
    if rows:
        meta = pa.StructArray.from_arrays([priorities], names=["priority"])
        return pa.RecordBatch.from_arrays([pa.array(names), meta], names=["name", "_meta"])
    payloads = pa.array([name.encode() for name in names])
    return pa.RecordBatch.from_arrays([payloads, priorities], names=["payload", "priority"])


# Each puts some messages, named by the priority that they say.
WAYS: dict[str, Callable[[Txn], object]] = {
    "puts": lambda t: [t.put("q", str(p).encode(), priority=p) for p in (None, 0, 9, None, 0)],
    "zeros first": lambda t: [t.put("q", str(p).encode(), priority=p) for p in (0, 0, 0, None)],
    "after many": lambda t: (t.put_many("q", [b"None"] * 3), t.put("q", b"0", priority=0)),
    "put_many": lambda t: t.put_many("q", [b"None", b"None"]),
    "an array": lambda t: t.put_many("q", pa.array([b"None", b"None"])),
    "a batch": lambda t: t.put_many("q", batch([None, 0, 9, None, 0])),
    "a batch of zeros": lambda t: t.put_many("q", batch([0, 0])),
    "a batch of nulls": lambda t: t.put_many("q", batch([None, None])),
    "many batches": lambda t: [t.put_many("q", batch(each)) for each in ([0], [None], [3, None])],
    "a large batch": lambda t: t.put_many("q", batch([None, 0, 9] * 2_000)),
    "streams": lambda t: [t.put_stream("q", str(p).encode(), priority=p) for p in (None, 0, 9)],
    "a block": lambda t: t.integration.put_block("q", bytes(encode_one(b"None"))),
    "a block with one": lambda t: t.integration.put_block(
        "q", bytes(encode_one(b"3", Fields(priority=3)))
    ),
    "with request ids": lambda t: [
        t.put("q", str(p).encode(), priority=p, request_id=f"r{p}") for p in (None, 0, 9)
    ],
    "many with request ids": lambda t: t.put_many(
        "q", batch([None, 0, 9]), request_ids=["a", "b", "c"]
    ),
    "zeros with request ids": lambda t: t.put_many("q", batch([0, 0]), request_ids=["a", "b"]),
    "plain with request ids": lambda t: t.put_many("q", [b"None"] * 2, request_ids=["a", "b"]),
}
ROWS: dict[str, Callable[[Txn], object]] = {
    "rows": lambda t: [t.put("q", {"name": str(p)}, priority=p) for p in (None, 0, 9, None)],
    "mappings": lambda t: t.put_many("q", [{"name": "None"}, {"name": "None"}]),
    "a batch": lambda t: t.put_many("q", batch([None, 0, 9], rows=True)),
    "a batch of zeros": lambda t: t.put_many("q", batch([0, 0], rows=True)),
    "many batches": lambda t: [
        t.put_many("q", batch(each, rows=True)) for each in ([0], [None], [3, None])
    ],
    "with request ids": lambda t: [
        t.put("q", {"name": str(p)}, priority=p, request_id=f"r{p}") for p in (None, 0, 9)
    ],
}


def expected(name: str) -> int:
    """Its priority, in a queue whose default is 5."""
    return 5 if name == "None" else int(name)


@pytest.mark.parametrize("options", [{}, {"timed": True, "max_ttl": 100.0}], ids=["", "max_ttl"])
def test_what_says_none_gets_it(store: AnyStore, options: dict[str, Any]) -> None:
    """Explicit 0 is 0; also where the queue grants an expiry, too."""
    for way, put in WAYS.items():
        store.create_queue(
            "q", order="priority", default_priority=5, dedup_count=10, capacity=1 << 28, **options
        )
        with store.transaction() as txn:
            put(txn)
        found = store.get_many("q", 200_000)
        names = [bytes(payload).decode() for payload in found.payloads()]
        assert names
        priorities = found.to_arrow().column("priority").to_pylist()
        assert priorities == [expected(name) for name in names], way
        assert priorities == sorted(priorities, reverse=True), way
        store.drop_queue("q")
    assert store.admin.verify().ok


def test_rows_get_it(store: AnyStore) -> None:
    """The same of a typed queue."""
    for way, put in ROWS.items():
        store.create_queue("q", order="priority", default_priority=5, dedup_count=9, schema=WORDS)
        with store.transaction() as txn:
            put(txn)
        found = store.get_many("q").to_arrow()
        priorities = [meta["priority"] for meta in found.column("_meta").to_pylist()]
        assert priorities == [expected(name) for name in found.column("name").to_pylist()], way
        assert priorities == sorted(priorities, reverse=True), way
        store.drop_queue("q")


def test_a_put_alone_gets_it(store: AnyStore) -> None:
    """As it is then: what waits keeps what it got."""
    store.create_queue("q", order="priority", default_priority=5)
    store.put("q", b"5")
    store.put("q", b"0", priority=0)
    store.put("q", b"3", priority=3)
    store.alter_queue("q", default_priority=4)
    store.put("q", b"4")
    store.put_many("q", [b"4", b"4"])
    found = store.get_many("q")
    assert found.payloads() == [b"5", b"4", b"4", b"4", b"3", b"0"]
    assert [message.priority for message in found] == [5, 4, 4, 4, 3, 0]


def test_it_is_not_granted_to_what_is_moved(store: AnyStore) -> None:
    """What moves keeps its header, by any way, and be its priority 0."""
    store.create_queue("from")
    store.create_queue("rows", schema=WORDS)
    store.create_queue("q", order="priority", default_priority=5)
    store.create_queue("typed", order="priority", default_priority=5, schema=WORDS)
    store.put_many("from", [b"1", b"2"])
    store.put_stream("from", bytes(1 << 20))
    store.put_many("rows", [{"name": "a"}, {"name": "b"}])
    with store.transaction() as txn:
        assert txn.move("from", "q") == 3
        assert txn.move("rows", "typed") == 2
    store.create_queue("spent", max_deliveries=1, dead_letter="q")
    store.put("spent", b"x")
    with store.transaction() as txn:
        assert txn.get("spent") is not None
        txn.rollback()
    assert store.get("spent") is None  # which finds it spent
    assert [m.priority for m in store.get_many("typed")] == [0, 0]
    found: list[int] = []
    while len(found) < 4:
        message = store.get("q", timeout=30)
        assert message is not None
        found.append(message.priority)
    assert found == [0] * 4


def test_it_is_granted_where_a_queue_obeys(store: AnyStore) -> None:
    """One that is not read by priority any more has no use of it; nor is its put refused."""
    store.create_queue("q", order="priority", default_priority=5)
    store.alter_queue("q", order="commit")
    store.put("q", b"1")
    store.put("q", b"2", priority=0)
    store.put_many("q", batch([None, 0]))
    assert [message.priority for message in store.get_many("q")] == [0] * 4
    store.create_queue("p", order="priority", default_priority=4)
    assert store.integration.put_priorities() == {"p": 4}
