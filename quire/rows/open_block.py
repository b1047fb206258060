"""Opening a block, whose messages are bytes or rows, as its header says."""

from __future__ import annotations

from quire.block.block import Block
from quire.block.header_columns import Buffer

from .row_block import RowBlock

_of_rows = RowBlock.of_rows


def open_block(buffer: Buffer, where: str) -> Block:
    """The block at the beginning of the buffer; bytes beyond its length are ignored.

    Its checksum is verified, the rest of a block of bytes when somebody looks at it. Raises
    StoreCorrupt or StoreVersion, whose message names `where`.
    """
    return Block.opened(buffer, where, _of_rows)


def verified_block(buffer: Buffer, where: str) -> Block:
    """The block at the beginning of the buffer, with all of it verified."""
    block = Block.opened(buffer, where, _of_rows)
    block.look()
    return block
