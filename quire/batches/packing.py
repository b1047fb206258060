"""Packing: slices of many blocks into one block, whose messages keep their ids and times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from quire.block.block import Block
from quire.block.encoding import EncodedBlock, MessageRun, encode_runs
from quire.block.format import FIXED_COLUMNS, STRING_COLUMNS, Column
from quire.block.header_columns import Attributes, Buffer, Headers, Strings, join_attributes
from quire.errors import InvalidArgument
from quire.libraries import np
from quire.limits import MAX_BLOCK_BYTES
from quire.rows.open_block import verified_block
from quire.rows.row_block import RowBlock, encode_rows, rows_and_headers
from quire.rows.row_builder import split_rows
from quire.rows.row_input import Rows

_PACKED = Column.ID | Column.TIME


class BlockSlice(NamedTuple):
    """A slice of a block. Message `i` of the block has the id `first_id + i`."""

    block: Block
    start: int
    stop: int
    first_id: int
    time_us: int


def pack(parts: Sequence[BlockSlice]) -> EncodedBlock:
    """One block of all the parts' messages in order, with columns of ids and times.

    Raises `InvalidArgument` when there is no message, or more than a block can hold.
    """
    if any(isinstance(part[0], RowBlock) for part in parts):
        return _pack_rows(parts)
    runs = runs_of(parts)
    if not runs:
        raise InvalidArgument("there are no messages to pack")
    blocks = list(encode_runs(runs, MAX_BLOCK_BYTES))
    if len(blocks) > 1:
        raise InvalidArgument(
            f"the messages take more than the {MAX_BLOCK_BYTES} bytes of the largest block: "
            "take fewer at a time"
        )
    return blocks[0]


def split(block: EncodedBlock, max_block_bytes: int) -> list[EncodedBlock]:
    """The block's messages in blocks of so many bytes; a message that takes more has its own.

    What the block is charged beyond its messages, the last one is.
    """
    whole = verified_block(block.data, "a block to be split")
    if isinstance(whole, RowBlock):
        rows = Rows(whole.words, whole.rows, whole.headers, np.diff(whole.offsets))
        return _charged(split_rows(rows, max_block_bytes), block.charge_bytes)
    first, last = int(whole.offsets[0]), int(whole.offsets[-1])
    lengths = np.diff(whole.offsets).astype(np.int64)
    run = MessageRun(lengths, [whole.payload[first:last]], whole.headers, region=True)
    return _charged(list(encode_runs([run], max_block_bytes)), block.charge_bytes)


def _charged(blocks: list[EncodedBlock], charge_bytes: int) -> list[EncodedBlock]:
    """Blocks that are charged so much together."""
    end = blocks.pop()
    charged_bytes = charge_bytes - sum(each.charge_bytes for each in blocks)
    return [*blocks, EncodedBlock(end.data, end.count, charged_bytes, end.payload_bytes)]


def _pack_rows(parts: Sequence[BlockSlice]) -> EncodedBlock:
    """One block of all rows in order, in the latest schema among them."""
    words, batch, headers = rows_and_headers([part for part in parts if part.start < part.stop])
    charged_bytes = sum(part.block.charged_bytes(part.start, part.stop) for part in parts)
    return encode_rows(words, batch, headers, charged_bytes)


def runs_of(parts: Sequence[BlockSlice]) -> list[MessageRun]:
    """The parts' messages with their ids and times; neighbours of one message each as one run."""
    runs: list[MessageRun] = []
    singles: list[BlockSlice] = []
    for part in parts:
        block = part[0]
        if block.count == 1 and not block.columns & _PACKED:
            if part.start < part.stop:
                singles.append(part)
            continue
        if singles:
            runs.append(_run_of_singles(singles))
            singles = []
        if part.start < part.stop:
            runs.append(_run_of_part(part))
    if singles:
        runs.append(_run_of_singles(singles))
    return runs


def _run_of_singles(parts: Sequence[BlockSlice]) -> MessageRun:
    """A run of blocks of one message each, which have no ids and times of their own."""
    pieces = [part[0].payload for part in parts]
    count = len(parts)
    columns = 0
    for part in parts:
        columns |= part[0].columns
    headers = _headers_of_singles([part[0] for part in parts], columns) if columns else Headers()
    headers.fixed[Column.ID] = np.fromiter([part[3] for part in parts], np.int64, count)
    headers.fixed[Column.TIME] = np.fromiter([part[4] for part in parts], np.int64, count)
    lengths = np.fromiter(map(len, pieces), np.int64, count)
    return MessageRun(lengths, pieces, headers, region=False)


def _headers_of_singles(blocks: Sequence[Block], columns: int) -> Headers:
    headers = Headers()
    for column, (dtype, absent) in FIXED_COLUMNS.items():
        if columns & column:
            headers.fixed[column] = np.fromiter(
                [
                    block.headers.fixed[column][0] if block.columns & column else absent
                    for block in blocks
                ],
                dtype,
                len(blocks),
            )
    for column in STRING_COLUMNS:
        if columns & column:
            headers.strings[column] = Strings.of(
                [
                    _only(block.headers.strings[column]) if block.columns & column else None
                    for block in blocks
                ]
            )
    if columns & Column.ATTRIBUTES:
        nothing = Attributes.absent(1)
        headers.attributes = join_attributes(
            [block.headers.attributes or nothing for block in blocks]
        )
    return headers


def _only(text: Strings) -> Buffer | None:
    """The string of a column of one."""
    return text.data if text.valid is None or text.valid[0] else None


def _run_of_part(part: BlockSlice) -> MessageRun:
    block, start, stop, first_id, time_us = part
    headers = block.headers.slice(start, stop)
    headers.fixed[Column.ID] = block.ids(first_id, start, stop)
    headers.fixed[Column.TIME] = block.times(time_us, start, stop)
    offsets = block.offsets[start : stop + 1]
    piece: Buffer = block.payload[int(offsets[0]) : int(offsets[-1])]
    return MessageRun(np.diff(offsets).astype(np.int64), [piece], headers, region=True)
