"""Asking conditions in every way that there is, which have to agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quire.block import Block, BlockBuilder, encode_one
from quire.messages.message import Message
from quire.messages.message_fields import Fields
from quire.rows.open_block import verified_block
from quire.rows.row_builder import RowBuilder
from quire.rows.row_input import one_row
from quire.selectors.condition import condition
from quire.selectors.template import SelectorOrTemplate

FIRST_ID, TIME_US = 1000, 1_700_000_000_123_456
Given = tuple[bytes, Mapping[str, Any]]
"""A payload, and what its put sets besides."""


def block_of(given: Sequence[Given]) -> Block:
    """One block of these messages."""
    builder = BlockBuilder()
    for payload, fields in given:
        builder.add(payload, Fields.of(**fields))
    [block] = builder.build(1 << 24)
    return verified_block(block.data, "here")


def row_block_of(words: str, rows: Sequence[Mapping[str, Any]]) -> Block:
    """One block of rows."""
    builder = RowBuilder()
    for row in rows:
        builder.add(one_row(words, row, None))
    [block] = builder.build(1 << 24)
    return verified_block(block.data, "here")


def message_of(block: Block, row: int) -> Message:
    """Of a block."""
    return block.message(row, queue="q", first_id=FIRST_ID, time_us=TIME_US, delivery_count=1)


def chosen(block: Block, where: SelectorOrTemplate, schema: str | None = None) -> list[bool]:
    """Of each message whether it is chosen: alone, in a slice, and in the whole block."""
    asked = condition(where, schema)
    alone = [asked.chooses(message_of(block, row)) for row in range(block.count)]
    place: dict[str, int] = {"first_id": FIRST_ID, "time_us": TIME_US}
    whole = asked.rows(block, **place)
    assert whole.tolist() == alone, where
    part = asked.rows(block, **place, start=1, stop=block.count)
    assert part.tolist() == alone[1:], where
    return alone


def truth(text: str, payload: bytes = b"", **fields: Any) -> bool | None:
    """Whether a selector is true, false or unknown of a message, put by itself and in a batch."""
    block = block_of([(payload, fields)] * 12)
    single = verified_block(encode_one(payload, Fields.of(**fields)), "here")
    found: list[bool] = []
    for asked in (text, f"NOT ({text})"):
        all_of_them = chosen(block, asked)
        by_itself = condition(asked).rows(single, first_id=FIRST_ID, time_us=TIME_US)
        # The ids differ.
        assert "JMSMessageID" in text or {*all_of_them, *by_itself.tolist()} in ({True}, {False})
        found.append(all_of_them[0])
    assert found != [True, True]
    return None if found == [False, False] else found[0]
