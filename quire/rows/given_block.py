"""Blocks that callers give: checked before anything is done with them."""

from __future__ import annotations

from quire.block.block import Block, StreamedBlock
from quire.errors import InvalidArgument, StoreCorrupt

from .open_block import verified_block


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
