"""Blocks of rows: what goes in comes out, and other bytes are refused, whatever they say."""

from __future__ import annotations

import datetime as dt
import pickle
import struct
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quire.batches.arrow_batch import slices_to_arrow
from quire.batches.delivered_slice import Delivered
from quire.batches.packing import BlockSlice, pack, split
from quire.block import Block, EncodedBlock
from quire.block.format import CHECKSUM, CHECKSUM_BYTES, HEAD_CHECKSUM_AT, HEADER_BYTES
from quire.checksum import checksum
from quire.definitions.row_schema import check_schema
from quire.errors import InvalidArgument, StoreCorrupt, StoreVersion
from quire.messages.message import Message
from quire.messages.message_fields import Fields
from quire.messages.typed_message import TypedMessage, row_of_payload
from quire.rows.open_block import check_block, verified_block
from quire.rows.row_block import RowBlock, head_bytes, reaches_of
from quire.rows.row_builder import RowBuilder
from quire.rows.row_input import Rows, one_row, rows_of

WORDS = (
    "id bigint not null, amount double, name string, price decimal(9, 2), raw binary, day date, "
    "at timestamp, tags array<string>, sizes map<string, int>, place struct<x: int, y: string>, "
    "is_new boolean"
)
FULL: dict[str, Any] = {
    "id": 7,
    "amount": 2.5,
    "name": "Grüße",
    "price": Decimal("12.50"),
    "raw": b"\0\xff",
    "day": dt.date(2024, 2, 29),
    "at": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
    "tags": ["a", None, "b"],
    "sizes": [("s", 1), ("l", None)],
    "place": {"x": 3, "y": None},
    "is_new": True,
}


def built(*rows: Rows, max_block_bytes: int = 1 << 20) -> list[EncodedBlock]:
    """Their blocks."""
    builder = RowBuilder()
    for each in rows:
        builder.add(each)
    blocks = builder.build(max_block_bytes)
    assert sum(block.charge_bytes for block in blocks) == builder.charge_bytes
    return blocks


def parsed(block: EncodedBlock) -> RowBlock:
    """A block read."""
    found = verified_block(block.data, "here")
    assert isinstance(found, RowBlock)
    return found


def message(block: Block, row: int) -> Message:
    """Of a block."""
    return block.message(row, queue="q", first_id=10, time_us=5, delivery_count=1)


def test_rows_come_back_as_they_were() -> None:
    """Every type, absent values, and the header beside them."""
    fields = Fields(priority=3, sender="me", attributes={"k": "v"})
    [encoded] = built(one_row(WORDS, FULL, fields), one_row(WORDS, {"id": 8}, None))
    block = parsed(encoded)
    assert (block.count, block.words, block.charge_bytes) == (2, WORDS, encoded.charge_bytes)
    full, empty = message(block, 0), message(block, 1)
    assert isinstance(full, TypedMessage)
    assert full.value == FULL == full.decode()
    assert (full.id, full.time, full.priority, full.sender) == (10, 5, 3, "me")
    assert full.attributes == {"k": "v"}
    assert empty.value == {**dict.fromkeys(FULL), "id": 8}
    assert pickle.loads(pickle.dumps(full)) == full
    assert row_of_payload(full.payload).to_pylist() == [FULL]
    with pytest.raises(AttributeError, match="immutable"):
        full.id = 5
    batch = block.to_arrow(queue="q", first_id=10, time_us=5, delivery_count=1)
    assert batch.drop_columns("_meta").to_pylist() == [FULL, empty.value]
    assert [each["sender"] for each in batch.column("_meta").to_pylist()] == ["me", None]


def test_blocks_are_packed_with_their_ids_and_widened() -> None:
    """Slices of blocks of two schemas become one, in the later schema."""
    [old] = built(rows_of("id bigint", [{"id": each} for each in range(4)])[0])
    [new] = built(one_row("id bigint, more int", {"id": 9, "more": 1}, Fields(priority=2)))
    parts = [BlockSlice(parsed(old), 1, 3, 100, 7), BlockSlice(parsed(new), 0, 1, 200, 8)]
    block = parsed(pack(parts))
    assert [message(block, row).value for row in range(3)] == [
        {"id": 1, "more": None},
        {"id": 2, "more": None},
        {"id": 9, "more": 1},
    ]
    assert block.ids(0).tolist() == [101, 102, 200]
    assert block.times(0).tolist() == [7, 7, 8]
    assert [message(block, row).priority for row in range(3)] == [0, 0, 2]
    whole = slices_to_arrow([Delivered(block, 1, 3, 0, 0, 1)], queue="q")
    assert whole.column("id").to_pylist() == [2, 9]
    assert whole.schema.metadata == {b"queue": b"q"}


def test_large_rows_are_split() -> None:
    """By bytes, but a row stays whole; what was one block can be split again."""
    table = pa.table({"id": np.arange(5000), "name": ["x" * 50] * 5000})
    rows = rows_of("id bigint, name string", table)
    blocks = built(*rows, max_block_bytes=64 << 10)
    assert len(blocks) > 4
    assert max(len(block.data) for block in blocks) <= 64 << 10
    ids = [each for block in blocks for each in parsed(block).rows.column("id").to_pylist()]
    assert ids == list(range(5000))
    [whole] = built(*rows, max_block_bytes=1 << 20)
    again = split(whole, 64 << 10)
    assert [len(block.data) for block in again] == [len(block.data) for block in blocks]
    [large] = built(one_row("name string", {"name": "x" * 100_000}, None), max_block_bytes=1000)
    assert large.count == 1


def test_statistics_tell_how_far_columns_reach() -> None:
    """Least, greatest, nulls; nothing of what cannot be compared, and nothing of few rows."""
    table = pa.table(
        {
            "id": np.arange(1000),
            "amount": [float("nan"), *[1.0] * 999],
            "name": [None, *[f"{each:03}" + "x" * 100 for each in range(999)]],
            "at": pa.array(np.arange(1000), pa.timestamp("us", "UTC")),
        }
    )
    words = "id bigint, amount double, name string, at timestamp, raw binary"
    [block] = built(*rows_of(words, table))
    reaches = reaches_of(memoryview(block.data), "here")
    assert reaches["id"] == (0, 0, 999)
    assert reaches["amount"] == (0, None, None)
    assert reaches["name"] == (1, "000" + "x" * 61, None)
    assert reaches["at"] == (0, 0, 999)
    assert reaches["raw"] == (1000, None, None)
    [few] = built(*rows_of(words, table.slice(0, 10)))
    assert reaches_of(memoryview(few.data), "here") == {}


BAD_ROWS: dict[str, tuple[object, str]] = {
    "text for a number": ({"id": "a"}, "'id'"),
    "null": ({"id": None}, "'id' has 1 nulls"),
    "missing": ({"amount": 1.0}, "'id'"),
    "unknown": ({"id": 1, "other": 2}, "'other'"),
    "unknown field": ({"id": 1, "place": {"z": 1}}, "'place' has no field 'z'"),
    "fraction": ({"id": 1.5}, "'id'"),
    "too large": ({"id": 1 << 70}, "'id'"),
    "digits": ({"id": 1, "price": Decimal("0.125")}, "'price'"),
    "number for text": ({"id": 1, "name": 5}, "'name'"),
    "bool": ({"id": True}, "'id'"),
    "a time for a date": ({"id": 1, "day": FULL["at"]}, "'day'"),
    "name of a column": ({5: 1}, "column 5"),
}


@pytest.mark.promise(13)
@pytest.mark.parametrize("bad", BAD_ROWS)
def test_a_row_that_does_not_fit_is_refused(bad: str) -> None:
    """The error names the column."""
    row, why = BAD_ROWS[bad]
    with pytest.raises(InvalidArgument, match=why):
        one_row(WORDS, row, None)
    with pytest.raises(InvalidArgument, match=why):
        rows_of(WORDS, [{"id": 1}, row])


def offsets_that_fall() -> pa.Array:
    """Text whose offsets lead elsewhere."""
    return pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(struct.pack("<3i", 0, 1 << 20, 2)), pa.py_buffer(b"ab")]
    )


def not_utf8() -> pa.Array:
    """Text that is none."""
    return pa.array([b"\xff\xfe"]).view(pa.string())


BAD_TABLES: dict[str, tuple[Any, str]] = {
    "text for a number": ({"id": ["a"]}, "'id' is of type string"),
    "float for an integer": ({"id": [1.0]}, "'id' is of type double"),
    "nulls": ({"id": [1, None]}, "'id' has 1 nulls"),
    "missing": ({"name": ["a"]}, "'id' is missing"),
    "unknown": ({"id": [1], "other": [2]}, "'other'"),
    "lost digits": ({"id": [1], "price": [Decimal("0.125")]}, "'price'"),
    "lost time": ({"id": [1], "at": pa.array([1], pa.timestamp("ns"))}, "'at'"),
    "field": ({"id": [1], "place": [{"x": 1, "z": 2}]}, "'place' has no field 'z'"),
    "header of the store": ({"id": [1], "_meta": [{"id": 4}]}, "which the store sets"),
    "unknown header": ({"id": [1], "_meta": [{"colour": 4}]}, "no header 'colour'"),
    "priority": ({"id": [1], "_meta": [{"priority": 70_000}]}, "'priority'"),
    "header that is none": ({"id": [1], "_meta": [5]}, "of type struct"),
    "offsets": ({"id": [1, 2], "name": offsets_that_fall()}, "rows cannot be used"),
    "UTF-8": ({"id": [1], "name": not_utf8()}, "rows cannot be used"),
}


@pytest.mark.promise(13)
@pytest.mark.parametrize("bad", BAD_TABLES)
def test_a_table_that_does_not_fit_is_refused(bad: str) -> None:
    """As a whole, and the error names the column."""
    columns, why = BAD_TABLES[bad]
    with pytest.raises(InvalidArgument, match=why):
        rows_of(WORDS, pa.table(columns))


def test_other_forms_of_the_same_values_fit() -> None:
    """Large strings, dictionaries, smaller integers, integers for decimals, another time zone."""
    table = pa.table(
        {
            "name": pa.array(["a", "b", "a"]).dictionary_encode(),
            "id": pa.array([1, 2, 3], pa.int8()),
            "price": pa.array([1, 2, 3]),
            "raw": pa.array([b"1", b"2", None], pa.large_binary()),
            "at": pa.array([1, 2, 3], pa.timestamp("s", "Europe/Berlin")),
            "tags": pa.array([["x"], None, []], pa.large_list(pa.large_string())),
            "_meta": [{"priority": 1}, None, {"priority": 2}],
        }
    )
    [rows] = rows_of(WORDS, table.slice(1))
    assert rows.batch.column("name").to_pylist() == ["b", "a"]
    assert rows.batch.column("price").to_pylist() == [Decimal("2.00"), Decimal("3.00")]
    assert rows.batch.column("tags").to_pylist() == [None, []]
    assert rows.headers.fixed[1].tolist() == [0, 2]
    [block] = built(rows)
    assert message(parsed(block), 1).priority == 2
    pandas = pytest.importorskip("pandas")
    [rows] = rows_of("id bigint, name string", pandas.DataFrame({"id": [1], "name": [None]}))
    assert rows.batch.to_pylist() == [{"id": 1, "name": None}]


# Bytes that are no block of rows


def rich_block() -> bytes:
    """All columns, some rows, some headers."""
    fields = Fields(priority=3, sender="me", attributes={"k": "v"})
    rows = [one_row(WORDS, FULL, fields), *rows_of(WORDS, [{"id": each} for each in range(300)])]
    return bytes(built(*rows)[0].data)


def forged(data: bytes, offset: int, change: bytes) -> bytes:
    """The block with other bytes at a place, and both checksums made right again."""
    changed = bytearray(data)
    changed[offset : offset + len(change)] = change
    end = head_bytes(memoryview(data))
    head = bytes(changed[CHECKSUM_BYTES:HEAD_CHECKSUM_AT] + changed[HEADER_BYTES:end])
    CHECKSUM.pack_into(changed, HEAD_CHECKSUM_AT, checksum(head))
    CHECKSUM.pack_into(changed, 0, checksum(bytes(changed[CHECKSUM_BYTES:])))
    return bytes(changed)


@pytest.mark.promise(10)
def test_every_flipped_bit_of_rows_is_found() -> None:
    """No single flipped bit goes unseen, nor does a cut."""
    [small] = built(one_row("id bigint, name string", {"id": 1, "name": "x"}, None))
    data = bytes(small.data)
    for place in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises((StoreCorrupt, StoreVersion), match="over there"):
            verified_block(damaged, "over there")
    for length in range(0, len(data), 8):
        with pytest.raises(StoreCorrupt, match="over there"):
            verified_block(data[:length], "over there")


@pytest.mark.promise(10)
def test_forged_rows_are_refused_or_whole(request: pytest.FixtureRequest) -> None:
    """Checksums that match garbage: an error, or rows that Arrow finds whole; never a crash."""
    seed = request.config.getoption("--seed")
    rng = Random(f"rows {seed}")
    data = rich_block()
    refused = 0
    for _ in range(600):
        place = rng.choice([rng.randrange(8, len(data)), rng.randrange(8, 1200)])
        change = rng.choice([rng.randbytes(1), rng.randbytes(8), b"\xff" * 4, bytes(4)])
        try:
            block = check_block(forged(data, place, change[: len(data) - place]))
        except (InvalidArgument, StoreVersion):
            refused += 1
            continue
        block.to_arrow(queue="q", first_id=0, time_us=0, delivery_count=1).validate(full=True)
    assert refused > 50


@pytest.mark.promise(10)
def test_rows_of_another_form_are_refused() -> None:
    """A schema message, compressed rows, and nulls where there are to be none."""
    words = "id bigint not null"
    [block] = built(*rows_of(words, pa.table({"id": np.zeros(1000, np.int64)})))
    place = len(block.data) - block.payload_bytes
    batch = parsed(block).rows
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
        stream.write_batch(batch)
    whole = sink.getvalue().to_pybytes()
    schema = batch.schema.serialize().to_pybytes()
    nulls = pa.RecordBatch.from_arrays([pa.nulls(1000, pa.int64())], ["id"])
    for rows in (schema, whole[len(schema) :], nulls.serialize().to_pybytes()):
        padded = (rows + bytes(block.payload_bytes))[: block.payload_bytes]
        with pytest.raises(StoreCorrupt, match="cannot be read"):
            verified_block(forged(bytes(block.data), place, padded), "here")


def test_the_schema_is_checked_once_for_all() -> None:
    """The words of a block are those of its queue."""
    assert check_schema("schema", WORDS) == WORDS
