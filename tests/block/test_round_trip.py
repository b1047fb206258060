"""What goes into a builder comes out of its blocks: as messages, payloads, Arrow, and packed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.batches.delivered_messages import Messages
from quire.batches.delivered_slice import Delivered
from quire.batches.packing import BlockSlice, pack, split
from quire.block import Block, BlockBuilder, EncodedBlock, encode_one, runs_of_shares
from quire.limits import MAX_BLOCK_BYTES, MAX_TIME_US, MESSAGE_OVERHEAD_BYTES
from quire.messages.message import Message
from quire.messages.message_fields import Fields
from quire.messages.message_schema import MESSAGE_SCHEMA
from quire.rows.open_block import verified_block

FIRST_ID, TIME_US = 1000, 1_700_000_000_000_000
US = pa.timestamp("us", "UTC")


@dataclass
class Row:
    """One message as a test puts it."""

    payload: bytes
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def charge_bytes(self) -> int:
        """What the message should count, from the definition."""
        texts = [value for value in self.values.values() if isinstance(value, str)]
        for key, value in self.values.get("attributes", {}).items():
            texts += [key, value]
        return (
            len(self.payload) + MESSAGE_OVERHEAD_BYTES + sum(len(text.encode()) for text in texts)
        )

    def message(self, message_id: int, time_us: int = TIME_US, delivery_count: int = 1) -> Message:
        """The message as it should be delivered."""
        return Message(
            message_id,
            "q",
            self.payload,
            time=time_us,
            delivery_count=delivery_count,
            **self.values,
        )


text = st.text(st.characters(codec="utf-8"), max_size=8)
small = st.integers(0, 0xFFFF)
times = st.integers(0, MAX_TIME_US)
values = st.fixed_dictionaries(
    {},
    optional={
        "priority": small,
        "group": small,
        "sender": text,
        "correlation_id": text,
        "reply_to": text,
        "content_type": text,
        "expires_at": times,
        "deliver_at": times,
        "attributes": st.dictionaries(text, text, max_size=3),
    },
)
rows = st.builds(Row, st.binary(max_size=40), st.one_of(st.just({}), values))
ways = st.sampled_from(["add", "add_many", "batch", "sliced batch", "large sliced batch", "array"])
runs = st.lists(st.tuples(ways, st.lists(rows, max_size=8)), min_size=1, max_size=4)


def batch_of(rows: list[Row], *, large: bool = False) -> pa.RecordBatch:
    """The rows as a batch with all header columns."""
    names = ["priority", "group", "sender", "correlation_id", "reply_to", "content_type"]
    names += ["expires_at", "deliver_at", "attributes"]
    columns = {}
    for name in names:
        type_ = MESSAGE_SCHEMA.field(name).type
        if large and type_ == pa.string():
            type_ = pa.large_string()
        cells = [row.values.get(name) for row in rows]
        if name == "attributes":
            cells = [None if cell is None else list(cell.items()) for cell in cells]
        columns[name] = pa.array(cells, type_)
    payload_type = pa.large_binary() if large else pa.binary()
    columns["payload"] = pa.array([row.payload for row in rows], payload_type)
    return pa.RecordBatch.from_pydict(columns)


def put(builder: BlockBuilder, way: str, rows: list[Row]) -> list[Row]:
    """Add the rows in the given way; what they should come out as."""
    if way == "add":
        for row in rows:
            builder.add(row.payload, Fields.of(**row.values))
        return rows
    if way in ("add_many", "array"):
        payloads = [row.payload for row in rows]
        if way == "array":
            chunks = [pa.array([b"before", *payloads], pa.binary())[1:], pa.array([], pa.binary())]
            assert builder.add_arrow(pa.chunked_array(chunks)) == len(rows)
        else:
            assert builder.add_many(payloads) == len(rows)
        return [Row(payload) for payload in payloads]
    if way == "batch":
        builder.add_arrow(batch_of(rows))
        return rows
    other = Row(b"outside", {"sender": "nobody", "priority": 9, "attributes": {"not": "mine"}})
    batch = batch_of([other, *rows, other], large=way.startswith("large"))
    builder.add_arrow(batch.slice(1, len(rows)))
    return rows


def parse_all(blocks: list[EncodedBlock]) -> list[tuple[Block, int]]:
    """The blocks, each with the id of its first message."""
    parsed = []
    first_id = FIRST_ID
    for number, encoded in enumerate(blocks):
        block = verified_block(encoded.data, f"block {number}")
        assert (block.count, block.charge_bytes) == (encoded.count, encoded.charge_bytes)
        assert block.payload_bytes == encoded.payload_bytes
        assert block.length == len(encoded.data)
        parsed.append((block, first_id))
        first_id += block.count
    return parsed


def messages_of(block: Block, first_id: int) -> list[Message]:
    """All messages of a block."""
    return [
        block.message(i, queue="q", first_id=first_id, time_us=TIME_US, delivery_count=1)
        for i in range(block.count)
    ]


def table_of(messages: list[Message]) -> list[dict[str, Any]]:
    """The messages as `to_pylist` of their batch should show them, times as microseconds."""
    names = MESSAGE_SCHEMA.names
    table = []
    for message in messages:
        cells = {name: getattr(message, name) for name in names}
        cells["attributes"] = list(message.attributes.items())
        table.append(cells)
    return table


def shown(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """A batch as Python, valid and of the promised schema, times as microseconds."""
    batch.validate(full=True)
    assert batch.schema.equals(MESSAGE_SCHEMA)
    assert batch.schema.metadata == {b"queue": b"q"}
    columns = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        columns[name] = (array.view(pa.int64()) if array.type == US else array).to_pylist()
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


@pytest.mark.cases(4)
@given(runs, st.sampled_from([1, 200, 400, 1 << 20]))
def test_what_is_put_in_any_way_is_delivered(
    runs: list[tuple[str, list[Row]]], max_block_bytes: int
) -> None:
    """All fields survive, in order; charges and counts are those of the definition."""
    builder = BlockBuilder()
    expected: list[Row] = []
    for way, rows in runs:
        expected += put(builder, way, rows)
    assert builder.count == len(expected)
    assert builder.payload_bytes == sum(len(row.payload) for row in expected)
    assert builder.charge_bytes == sum(row.charge_bytes for row in expected)
    blocks = builder.build(max_block_bytes)
    assert [block.data for block in builder.build(max_block_bytes)] == [b.data for b in blocks]
    assert sum(block.charge_bytes for block in blocks) == builder.charge_bytes
    assert all(len(b.data) <= max_block_bytes or b.count == 1 for b in blocks)
    delivered = [m for block, first_id in parse_all(blocks) for m in messages_of(block, first_id)]
    assert delivered == [row.message(FIRST_ID + i) for i, row in enumerate(expected)]


@given(st.lists(rows, min_size=1, max_size=12), st.data())
def test_slices_agree_in_every_form(rows: list[Row], data: st.DataObject) -> None:
    """Messages, payloads, ids, charge and Arrow, copied or not, are those of the slice's rows."""
    builder = BlockBuilder()
    put(builder, "add", rows)
    block = verified_block(builder.build(MAX_BLOCK_BYTES)[0].data, "block")
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    delivery_count = data.draw(st.integers(1, 3))
    expected = [
        row.message(FIRST_ID + start + i, delivery_count=delivery_count)
        for i, row in enumerate(rows[start:stop])
    ]
    assert block.payloads(start, stop) == [message.payload for message in expected]
    assert block.ids(FIRST_ID, start, stop).tolist() == [message.id for message in expected]
    assert block.charged_bytes(start, stop) == sum(row.charge_bytes for row in rows[start:stop])
    for copy in (True, False):
        batch = block.to_arrow(
            start,
            stop,
            queue="q",
            first_id=FIRST_ID,
            time_us=TIME_US,
            delivery_count=delivery_count,
            copy=copy,
        )
        assert shown(batch) == table_of(expected)


@given(rows)
def test_one_message_has_one_encoding(row: Row) -> None:
    """`encode_one`, without numpy, writes the bytes that the columns' way writes."""
    one = encode_one(row.payload, Fields.of(**row.values))
    builder = BlockBuilder()
    builder.add_arrow(batch_of([row]))
    assert builder.build(MAX_BLOCK_BYTES)[0].data == one
    builder.clear()
    builder.add(row.payload, Fields.of(**row.values))
    assert builder.build(MAX_BLOCK_BYTES)[0].data == one


@given(st.lists(st.lists(rows, min_size=1, max_size=4), max_size=6))
def test_shares_of_a_batch_are_encoded_as_if_each_came_alone(groups: list[list[Row]]) -> None:
    """Their blocks have the same bytes: a column that only other shares use is not there."""
    runs = runs_of_shares(
        batch_of([row for group in groups for row in group]), [len(group) for group in groups]
    )
    for group, run in zip(groups, runs, strict=True):
        together, alone = BlockBuilder(), BlockBuilder()
        together.add_run(run)
        alone.add_arrow(batch_of(group))
        assert together.charge_bytes == alone.charge_bytes
        (block,), (expected,) = (b.build(MAX_BLOCK_BYTES) for b in (together, alone))
        assert (block.data, block.count) == (expected.data, expected.count)


@given(st.lists(st.lists(rows, min_size=1, max_size=4), min_size=1, max_size=8), st.data())
def test_packing_keeps_messages_ids_and_times(groups: list[list[Row]], data: st.DataObject) -> None:
    """One block of slices of many holds the same messages; also when it is packed once more."""
    parts, expected = [], []
    charge_bytes = 0
    for number, group in enumerate(groups):
        builder = BlockBuilder()
        put(builder, "add", group)
        block = verified_block(builder.build(MAX_BLOCK_BYTES)[0].data, "block")
        start = data.draw(st.integers(0, len(group) - 1))
        stop = data.draw(st.integers(start + (number == 0), len(group)))
        parts.append(BlockSlice(block, start, stop, 100 * number, number))
        expected += [group[i].message(100 * number + i, number) for i in range(start, stop)]
        charge_bytes += sum(row.charge_bytes for row in group[start:stop])
    packed = pack(parts)
    assert (packed.count, packed.charge_bytes) == (len(expected), charge_bytes)
    block = verified_block(packed.data, "packed")
    assert messages_of(block, -1) == expected
    again = pack([BlockSlice(block, 0, 1, -1, -1), BlockSlice(block, 1, block.count, -1, -1)])
    assert again.data == packed.data


@given(st.lists(rows, min_size=1, max_size=12), st.integers(1, 600))
def test_a_block_is_split_without_a_change(group: list[Row], most: int) -> None:
    """The same messages in smaller blocks; what is charged beside them, the last one is."""
    builder = BlockBuilder()
    put(builder, "add", group)
    [whole] = builder.build(MAX_BLOCK_BYTES)
    charged = EncodedBlock(whole.data, whole.count, whole.charge_bytes + 64, whole.payload_bytes)
    pieces = split(charged, most)
    assert all(len(piece.data) <= most or piece.count == 1 for piece in pieces)
    assert sum(piece.charge_bytes for piece in pieces) == charged.charge_bytes
    last = pieces.pop()
    plain = EncodedBlock(last.data, last.count, last.charge_bytes - 64, last.payload_bytes)
    found = [
        message
        for block, first_id in parse_all([*pieces, plain])
        for message in messages_of(block, first_id)
    ]
    assert found == [row.message(FIRST_ID + number) for number, row in enumerate(group)]


@given(st.lists(st.lists(rows, min_size=1, max_size=4), max_size=5), st.data())
def test_messages_are_a_sequence_over_slices(groups: list[list[Row]], data: st.DataObject) -> None:
    """Length, index, slice, iteration, ids, payloads and Arrow agree with a plain list."""
    slices, expected = [], []
    for number, group in enumerate(groups):
        builder = BlockBuilder()
        put(builder, "add", group)
        block = verified_block(builder.build(MAX_BLOCK_BYTES)[0].data, "block")
        start = data.draw(st.integers(0, len(group)))
        slices.append(Delivered(block, start, len(group), 100 * number, number, 1 + number % 2))
        expected += [
            group[i].message(100 * number + i, number, 1 + number % 2)
            for i in range(start, len(group))
        ]
    messages = Messages("q", slices)
    assert len(messages) == len(expected)
    assert list(messages) == expected
    assert messages.ids == [message.id for message in expected]
    assert messages.payloads() == [message.payload for message in expected]
    assert shown(messages.to_arrow()) == table_of(expected)
    index = data.draw(st.slices(len(expected)))
    assert list(messages[index]) == expected[index]
    for i in range(-len(expected), len(expected)):
        assert messages[i] == expected[i]


def test_times_are_shown_as_datetimes() -> None:
    """A batch's times are timestamps in UTC."""
    block = verified_block(encode_one(b"", Fields(expires_at=1)), "block")
    batch = block.to_arrow(queue="q", first_id=1, time_us=0, delivery_count=1)
    moment = batch["expires_at"][0].as_py()
    assert moment == datetime.fromisoformat("1970-01-01T00:00:00.000001+00:00")


def test_a_copied_batch_outlives_its_block() -> None:
    """BL2: with `copy`, overwriting the block's buffer changes nothing of the batch."""
    row = {"priority": 1, "sender": "me", "expires_at": 5, "attributes": {"a": "b"}}
    rows = [Row(b"x", row), Row(b"yz")]
    builder = BlockBuilder()
    put(builder, "add", rows)
    block = verified_block(builder.build(MAX_BLOCK_BYTES)[0].data, "block")
    buffer = bytearray(pack([BlockSlice(block, 0, 2, FIRST_ID, TIME_US)]).data)
    packed = verified_block(buffer, "packed")
    messages = Messages("q", [Delivered(packed, 0, 2, -1, -1, 1)])
    batch, payloads = messages.to_arrow(), messages.payloads()
    expected = list(messages)
    buffer[:] = b"\xff" * len(buffer)
    assert shown(batch) == table_of(expected)
    assert payloads == [b"x", b"yz"]
