"""What cannot be put is refused with a message that helps, and changes nothing."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from quire.batches.packing import pack
from quire.block import BlockBuilder
from quire.errors import InvalidArgument
from quire.limits import MAX_TIME_US
from quire.messages.message import Message
from quire.messages.message_fields import Fields, check_payload

pytestmark = pytest.mark.promise(13)

WRONG_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"priority": -1}, "from 0 to 65535"),
    ({"priority": 65536}, "from 0 to 65535"),
    ({"priority": "1"}, "must be an int, not str"),
    ({"group": 1.0}, "must be an int, not float"),
    ({"group": True}, "must be an int, not bool"),
    ({"expires_at": -1}, "microseconds"),
    ({"expires_at": MAX_TIME_US + 1}, "microseconds"),
    ({"deliver_at": "now"}, "must be an int, microseconds"),
    ({"sender": b"me"}, "must be a str, not bytes"),
    ({"correlation_id": "x" * 65537}, "put long text in the payload"),
    ({"reply_to": "é" * 40000}, "put long text in the payload"),
    ({"content_type": "\ud800"}, "surrogates"),
    ({"attributes": [("a", "b")]}, "mapping of str to str"),
    ({"attributes": {"a": 1}}, "attribute 'a' must be a str"),
    ({"attributes": {1: "a"}}, "key of an attribute must be a str"),
    ({"attributes": {str(i): "" for i in range(1001)}}, "limit of 1000"),
    ({"attributes": {str(i): "x" * 1000 for i in range(70)}}, "put them in the payload"),
    ({"colour": "red"}, "it may set priority"),
]


@pytest.mark.parametrize(("values", "words"), WRONG_FIELDS)
def test_wrong_fields(values: dict[str, Any], words: str) -> None:
    """Types, ranges and lengths of header fields."""
    with pytest.raises(InvalidArgument, match=words):
        Fields.of(**values)


def test_fields_at_their_limits() -> None:
    """The limits themselves are possible; nothing set is no fields at all."""
    Fields(priority=65535, group=65535, sender="x" * 65536, expires_at=MAX_TIME_US)
    assert Fields.of() is None
    assert Fields.of(priority=None, sender=None, attributes={}) is None
    zero = Fields.of(priority=0)  # which is said, and takes no column
    assert zero is not None
    assert (zero.priority, zero.columns) == (0, 0)


@pytest.mark.parametrize("payload", ["text", None, 5, [b"a"]])
def test_wrong_payload(payload: object) -> None:
    """A payload is bytes."""
    with pytest.raises(InvalidArgument, match="encode it first"):
        check_payload(payload)


def test_too_large_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit the message says what else to do."""
    monkeypatch.setattr("quire.messages.message_fields.MAX_PAYLOAD_BYTES", 10)
    monkeypatch.setattr("quire.block.block_builder.MAX_PAYLOAD_BYTES", 10)
    monkeypatch.setattr("quire.block.arrow_input.MAX_PAYLOAD_BYTES", 10)
    builder = BlockBuilder()
    puts: list[Callable[[], object]] = [
        lambda: builder.add(bytes(11)),
        lambda: builder.add_many([b"", bytes(11)]),
        lambda: builder.add_arrow(pa.array([b"", bytes(11)])),
    ]
    for put in puts:
        with pytest.raises(InvalidArgument, match="11 bytes"):
            put()
    assert builder.count == 0
    assert check_payload(bytearray(b"abc")) == b"abc"


def batch(**columns: Any) -> pa.RecordBatch:
    """A batch of two payloads and the given columns."""
    return pa.RecordBatch.from_pydict({"payload": pa.array([b"a", b"b"]), **columns})


def broken_offsets() -> pa.Array:
    """An array whose second row ends before it begins, outside the data."""
    buffers = [None, pa.py_buffer(b"\0\0\0\0\x09\0\0\0\x01\0\0\0"), pa.py_buffer(b"x")]
    return pa.Array.from_buffers(pa.binary(), 2, buffers)


def not_utf8() -> pa.Array:
    """Strings, by their type only."""
    return pa.array([b"\xff", b""]).view(pa.string())


MAP = pa.map_(pa.string(), pa.string())
WRONG_ARROW: list[tuple[Callable[[], object], str]] = [
    (lambda: [b"a"], "must be a pyarrow"),
    (lambda: pa.array([1, 2]), "must be of type binary or string"),
    (lambda: pa.array([b"a", None]), "1 nulls"),
    (broken_offsets, "offsets"),
    (lambda: pa.RecordBatch.from_pydict({"sender": ["a"]}), "one column 'payload'"),
    (lambda: batch(id=[1, 2]), "set by the store"),
    (lambda: batch(queue=["a", "b"]), "set by the store"),
    (lambda: batch(color=["a", "b"]), "unknown"),
    (lambda: batch(priority=[1, 65536]), "from 0 to 65535"),
    (lambda: batch(priority=[1, -1]), "from 0 to 65535"),
    (lambda: batch(priority=["a", "b"]), "integer type"),
    (lambda: batch(group=pa.array([1, 2**64 - 1], pa.uint64())), "cannot be used"),
    (lambda: batch(sender=[1, 2]), "must be of type string"),
    (lambda: batch(sender=["a", "x" * 65537]), "65537 bytes"),
    (lambda: batch(sender=not_utf8()), "cannot be used"),
    (lambda: batch(expires_at=[1, 2]), "must be of type timestamp"),
    (lambda: batch(expires_at=pa.array([-1, 2], pa.timestamp("us"))), "1970 to 9999"),
    (lambda: batch(deliver_at=pa.array([1, 2], pa.timestamp("ns"))), "cannot be used"),
    (lambda: batch(attributes=["a", "b"]), "map<string, string>"),
    (lambda: batch(attributes=pa.array([[("a", None)], []], MAP)), "null values"),
    (
        lambda: batch(attributes=pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32()))),
        "must be of type string",
    ),
    (
        lambda: batch(attributes=pa.array([[], [("a", "x" * 60000), ("b", "x" * 60000)]], MAP)),
        "65536 bytes together",
    ),
    (
        lambda: batch(attributes=pa.array([[], [("a", "")] * 1001], MAP)),
        "1000 attributes",
    ),
    (lambda: pa.Table.from_batches([batch(), batch()]).append_column("id", [[1] * 4]), "store"),
]


@pytest.mark.parametrize(("make", "words"), WRONG_ARROW)
def test_wrong_arrow_changes_nothing(make: Callable[[], object], words: str) -> None:
    """Types, nulls, offsets, names and limits are checked before anything is added."""
    builder = BlockBuilder()
    builder.add(b"before")
    before = builder.build(1 << 20)[0].data
    with pytest.raises(InvalidArgument, match=words):
        builder.add_arrow(make())
    assert (builder.count, builder.payload_bytes, builder.charge_bytes) == (1, 6, 22)
    assert builder.build(1 << 20)[0].data == before


@pytest.mark.parametrize(
    "payloads",
    ["text", b"bytes", ["a"], [b"a", None], [1], [memoryview(b"abcd").cast("i")]],
    ids=repr,
)
def test_wrong_payload_lists_change_nothing(payloads: Any) -> None:
    """A list of anything but bytes adds nothing."""
    builder = BlockBuilder()
    with pytest.raises(InvalidArgument, match="payload"):
        builder.add_many(payloads)
    assert (builder.count, builder.charge_bytes, builder.build(1 << 20)) == (0, 0, [])


def test_odd_but_right_arguments() -> None:
    """Generators, bytearrays, strings and tables of Arrow, and nothing at all, can be put."""
    builder = BlockBuilder()
    assert builder.add_many(bytearray(b"a") for _ in range(2)) == 2
    assert builder.add_many([]) == 0
    assert builder.add_arrow(pa.array(["é", ""], pa.large_string())) == 2
    assert builder.add_arrow(pa.array([], pa.binary())) == 0
    assert builder.add_arrow(pa.array([b"xy"], pa.binary(2))) == 1
    assert builder.add_arrow(pa.array([b"xy"], pa.binary_view())) == 1
    assert builder.add_arrow(pa.Table.from_batches([batch(), batch()])) == 4
    assert builder.count == 10
    assert builder.build(1 << 20)[0].payload_bytes == 1 + 1 + 2 + 2 + 2 + 4


def test_nulls_over_bytes_are_absent() -> None:
    """A null whose place in the buffers has bytes stores and charges none."""
    text = pa.array(["ab", "c"])
    masked = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\x02"), *text.buffers()[1:]])
    maps = pa.array([[("key", "value")], [("k", "v")]], MAP)
    offsets = maps.buffers()[1]
    hidden = pa.Array.from_buffers(
        MAP,
        2,
        [pa.py_buffer(b"\x02"), offsets],
        children=[
            pa.StructArray.from_arrays(
                [maps.keys, maps.items], fields=[MAP.key_field, MAP.item_field]
            )
        ],
    )
    builder = BlockBuilder()
    builder.add_arrow(batch(sender=masked, attributes=hidden))
    assert builder.charge_bytes == 2 + 2 * 16 + 1 + 2
    assert builder.build(1 << 20)[0].charge_bytes == builder.charge_bytes


def test_nothing_cannot_be_packed() -> None:
    """A block has a message at least."""
    with pytest.raises(InvalidArgument, match="no messages"):
        pack([])


def test_a_message_is_a_value() -> None:
    """Messages cannot be changed, and compare, hash, copy and pickle as what they hold."""
    message = Message(1, "q", b"x", sender="me", attributes={"a": "b"})
    with pytest.raises(AttributeError, match="immutable"):
        message.id = 2
    with pytest.raises(AttributeError, match="immutable"):
        del message.id
    with pytest.raises(TypeError):
        message.attributes["a"] = "c"  # type: ignore[index]
    same = pickle.loads(pickle.dumps(message))
    assert same == message == copy.copy(message)
    assert hash(same) == hash(message)
    assert message != Message(2, "q", b"x", sender="me", attributes={"a": "b"})
    assert "id=1" in repr(message)
