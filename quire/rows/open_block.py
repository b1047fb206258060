"""Opening a block, whose messages are bytes or rows as its header says, and checking one that a
caller gives."""

from __future__ import annotations

from quire.block.block import Block, StreamedBlock
from quire.block.header_columns import Buffer
from quire.errors import InvalidArgument, StoreCorrupt

from .row_block import RowBlock

_of_rows = RowBlock.of_rows


def open_block(buffer: Buffer, location: str) -> Block:
    """The block at the beginning of the buffer; bytes beyond its length are ignored.

    Its checksum is verified, the rest of a block of bytes when somebody looks at it. Raises
    StoreCorrupt or StoreVersion, whose message names the location.
    """
    return Block.opened(buffer, location, _of_rows)


def verified_block(buffer: Buffer, location: str) -> Block:
    """The block at the beginning of the buffer, with all of it verified."""
    block = Block.opened(buffer, location, _of_rows)
    block.look()
    return block


def check_block(data: object) -> Block:
    """The one block that the bytes are, verified.

    Raises InvalidArgument for anything else: other bytes before or behind it, a block with ids and
    times of its own, which only the store gives. StoreVersion for a block of a newer release.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidArgument(
            f"a block must be bytes, bytearray or memoryview, not {type(data).__name__}"
        )
    try:
        memoryview(data)
    except ValueError:
        raise InvalidArgument("a block: its memoryview was released: give bytes") from None
    try:
        block = verified_block(data, "put_block")
    except StoreCorrupt as error:
        raise InvalidArgument(f"{error}: give the bytes of one block, all of them") from None
    if isinstance(block, StreamedBlock):
        raise InvalidArgument("put_block takes no streamed message: give its payload to put_stream")
    if block.length != memoryview(data).nbytes or block.is_packed:
        raise InvalidArgument("put_block takes exactly one block, without ids and times")
    return block
