"""Values of a codec as payloads, for every form of a store."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import quire
from quire import codecs
from quire.errors import CodecNotFound, InvalidArgument, PayloadInvalid
from tests.behaviour.forms import AnyStore, Clock
from tests.kit.waiting import SECONDS

VALUES: list[tuple[str, list[Any]]] = [
    ("json", [{"a": 1}, [1, 2.5, None], "text", None, True, 7]),
    ("text", ["apples", ""]),
    ("msgpack", [{"a": b"\x00"}, [1], "text"]),
]


@pytest.mark.parametrize(("codec", "values"), VALUES, ids=lambda given: str(given)[:8])
def test_a_value_comes_back(store: AnyStore, codec: str, values: list[Any]) -> None:
    """By whichever put; the message tells what it is, for readers without Quire too."""
    store.create_queue("q", codec=codec)
    for value in values:
        store.put("q", value)
    with store.transaction() as txn:
        for value in values:
            txn.put("q", value, correlation_id="7")
        txn.put_many("q", values)
    store.put_many("q", values)
    found = list(store.get_many("q", 99))
    assert [m.value for m in found] == 4 * values
    assert [m.decode() for m in found] == 4 * values
    assert {m.content_type for m in found} == {codecs.codec(codec).content_type}
    assert store.queue("q").codec == codec


def test_a_table_is_a_value(store: AnyStore) -> None:
    """One message; of a put of many it is still what the columns are of."""
    table = pa.record_batch({"n": [1, 2, 3]})
    store.create_queue("q", codec="arrow")
    store.put("q", table)
    message = store.get("q")
    assert message is not None
    assert message.value == pa.table(table)


def test_bytes_are_put_as_they_are(store: AnyStore) -> None:
    """With the content type that they say, or none: then there is no value, which is an error."""
    store.create_queue("q", codec="json")
    store.put("q", b"\xff")
    store.put("q", bytearray(b"[1]"), content_type="application/json; charset=utf-8")
    store.put("q", {"a": 1}, content_type="application/json; charset=utf-8")
    store.put_many("q", [b"x"])
    store.put("q", b"")
    *found, empty = store.get_many("q")
    assert [m.value for m in found[1:3]] == [[1], {"a": 1}]
    for message in (found[0], found[3]):
        with pytest.raises(PayloadInvalid, match="no content type"):
            _ = message.value
    assert empty.value is None


def test_a_schedule_puts_values(store: AnyStore, clock: Clock) -> None:
    """Its payload is one of the queue's codec, or it is refused; one that says what it is may be.

    So with what is altered.
    """
    store.create_queue("q", codec="json")
    with pytest.raises(InvalidArgument, match="codec 'json'"):
        store.cron.create("s", "q", "* * * * * *", b"apples")
    store.cron.create("s", "q", "* * * * * *", b'{"n": 1}', exist_ok=True)
    store.cron.create("s", "q", "* * * * * *", b'{"n": 1}', exist_ok=True)
    clock.forward(2.0)
    message = store.get("q", timeout=SECONDS)
    assert message is not None
    assert (message.value, message.content_type) == ({"n": 1}, "application/json")
    with pytest.raises(InvalidArgument, match="codec 'json'"):
        store.cron.alter("s", payload=b"pears")
    store.cron.alter("s", payload=b"pears", content_type="text/plain")
    store.cron.drop("s")


def test_what_its_codec_does_not_take_is_refused(store: AnyStore) -> None:
    """At the put, with what to do, and nothing is put."""
    store.create_queue("q", codec="json")
    store.create_queue("plain")
    with store.transaction() as txn:
        txn.put("q", {"a": 1})
        with pytest.raises(InvalidArgument, match="give a value that its codec takes"):
            txn.put("q", {1, 2})
        with pytest.raises(InvalidArgument, match="leave content_type out"):
            txn.put("q", {"a": 1}, content_type="text/plain")
        with pytest.raises(InvalidArgument, match="give a value that its codec takes"):
            txn.put_many("q", [{"b": 1}, object()])
        with pytest.raises(InvalidArgument, match="codec"):
            txn.put("plain", {"a": 1})
        with pytest.raises(InvalidArgument, match="encode it first"):
            txn.put("plain", "text")
    assert [m.value for m in store.get_many("q")] == [{"a": 1}]
    assert store.get("plain") is None


def test_a_queue_gets_a_codec_and_loses_it(store: AnyStore) -> None:
    """While it is used; what was put stays what it is."""
    store.create_queue("q")
    with pytest.raises(InvalidArgument, match="codec"):
        store.put("q", {"a": 1})
    store.alter_queue("q", codec="json")
    store.put("q", {"a": 1})
    store.alter_queue("q", codec="text")
    store.alter_queue("q", codec=None)
    assert [m.value for m in store.get_many("q")] == [{"a": 1}]


def test_what_is_moved_keeps_what_it_is(store: AnyStore) -> None:
    """Into a queue of another codec, by a dead letter and back."""
    store.create_queue("dead", codec="text")
    store.create_queue("q", codec="json", max_deliveries=1, dead_letter="dead")
    store.put("q", {"a": 1})
    with store.transaction() as txn:
        message = txn.get("q")
        assert message is not None
        txn.reject(message, "bad")
    assert [m.value for m in store.browse("dead")] == [{"a": 1}]
    assert store.admin.redrive("dead") == 1
    assert [m.value for m in store.browse("q")] == [{"a": 1}]


def test_a_request_id_counts_for_values(store: AnyStore) -> None:
    """Put twice, it is there once."""
    store.create_queue("q", codec="json", dedup_count=10)
    first = store.put("q", {"a": 1}, request_id="r")
    assert store.put("q", {"a": 1}, request_id="r") == first
    with store.transaction() as txn:
        txn.put_many("q", [{"b": 1}, {"c": 1}], request_ids=["r", "s"])
    assert [m.value for m in store.get_many("q")] == [{"a": 1}, {"c": 1}]


def test_a_codec_that_is_none_is_refused(store: AnyStore) -> None:
    """One that is not there, and one that would run code of whoever has put."""
    for codec, kind in (("none", CodecNotFound), ("pickle", InvalidArgument)):
        with pytest.raises(kind):
            store.create_queue("q", codec=codec)
    for wrong in (5, "", "a b"):
        with pytest.raises(InvalidArgument, match="give the name of a codec"):
            store.create_queue("q", codec=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="a typed queue holds rows"):
        store.create_queue("q", codec="json", schema="a bigint")
    assert not store.queues()


def test_a_codec_of_ones_own(store: AnyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered in the processes that use it."""
    monkeypatch.setattr(codecs, "_registered", dict(codecs._registered))
    own = codecs.Codec("hex", "text/x-hex", lambda n: b"%x" % n, lambda p: int(p, 16))
    quire.codecs.register(own)
    store.create_queue("q", codec="hex")
    store.put("q", 255)
    message = store.get("q")
    assert message is not None
    assert (message.payload, message.value) == (b"ff", 255)
