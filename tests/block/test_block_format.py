"""The bytes of blocks are those of version 1, for ever."""

from __future__ import annotations

from quire.batches.packing import BlockSlice, pack
from quire.block import BlockBuilder, encode_one
from quire.block.format import COLUMN_NAMES, Column
from quire.messages.message_fields import Fields
from quire.rows.open_block import verified_block

PLAIN = (
    "8ea31c2f20c0ab3051424c4b0100000000000000010000005000000000000000"
    "0700000000000000000000000000000000000000000000000000000000000000"
    "00000000070000007061796c6f616400"
)
FULL = (
    "c89dc88f0146dd4c51424c4b01000000cf07000002000000f001000000000000"
    "0600000000000000000000000000000000000000000000000000000000000000"
    "0400000000000000040000000000000010000000000000001000000000000000"
    "02000000000000000c0000000000000001000000000000000200000000000000"
    "0c00000000000000020000000000000002000000000000000c00000000000000"
    "000000000000000002000000000000000c000000000000000a00000000000000"
    "0c000000000000000c0000000000000002000000000000000c00000000000000"
    "0100000000000000000000000500000006000000000000000100000000000000"
    "0200000000000000030000000000000000000000000000800400000000000000"
    "0000000000000080010000000000000000000000010000000100000000000000"
    "7300000000000000010000000000000000000000020000000200000000000000"
    "c3a9000000000000010000000000000000000000000000000000000000000000"
    "0100000000000000000000000a0000000a00000000000000746578742f706c61"
    "696e000000000000000000000200000002000000000000000000000001000000"
    "0200000000000000616200000000000000000000010000000100000000000000"
    "31000000000000006669727374320000"
)
PACKED = (
    "0e8db157a042650a51424c4b0100000030000000030000009800000000000000"
    "0300000000000000000000000000000000000000000000000000000000000000"
    "1800000000000000180000000000000000000000010000000100000003000000"
    "0500000000000000050000000000000005000000000000000600000000000000"
    "060000000000000006000000000000006162630000000000"
)
FIELDS = Fields(
    priority=1,
    group=2,
    sender="s",
    correlation_id="é",
    reply_to="",
    content_type="text/plain",
    expires_at=3,
    deliver_at=4,
    attributes={"a": "1", "b": ""},
)


def test_plain_block_of_one() -> None:
    """Header, two offsets, payload: nothing else."""
    data = encode_one(b"payload")
    assert data.hex() == PLAIN
    assert len(data) == 64 + 8 + 8


def test_block_with_all_columns() -> None:
    """One row with every field, one with none."""
    builder = BlockBuilder()
    builder.add(b"first", FIELDS)
    builder.add(b"2")
    assert bytes(builder.build(1 << 20)[0].data).hex() == FULL


def test_packed_block() -> None:
    """Ids and times as columns."""
    parts = [BlockSlice(verified_block(encode_one(p), ""), 0, 1, 5, 6) for p in (b"a", b"", b"bc")]
    assert bytes(pack(parts).data).hex() == PACKED


def test_fields_know_the_bits_of_the_columns() -> None:
    """`Fields.columns` has the bits of `Column`; only the store sets ids and times."""
    assert Fields().columns == 0
    assert FIELDS.columns == sum(COLUMN_NAMES) - Column.ID - Column.TIME - Column.STREAM
    alone = {
        Column.PRIORITY: Fields(priority=1),
        Column.GROUP: Fields(group=1),
        Column.EXPIRES_AT: Fields(expires_at=0),
        Column.DELIVER_AT: Fields(deliver_at=0),
        Column.SENDER: Fields(sender=""),
        Column.CORRELATION_ID: Fields(correlation_id=""),
        Column.REPLY_TO: Fields(reply_to=""),
        Column.CONTENT_TYPE: Fields(content_type=""),
        Column.ATTRIBUTES: Fields(attributes={"": ""}),
    }
    assert all(fields.columns == column for column, fields in alone.items())


def test_absent_columns_cost_nothing() -> None:
    """Plain messages take their payload and four bytes each, besides the header."""
    builder = BlockBuilder()
    builder.add_many([b"12345678"] * 999)
    assert len(builder.build(1 << 20)[0].data) == 64 + 4 * 1000 + 8 * 999
