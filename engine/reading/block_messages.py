"""The messages of a block that was read, one by one: for who looks at all of a store."""

from __future__ import annotations

from collections.abc import Iterator

from quire.batches.delivered_slice import Delivered
from quire.block import Block
from quire.engine.records.block_ref import BlockRef
from quire.messages.message import Message


def messages_of(
    block: Block, first: int, ref: BlockRef, start: int, stop: int, queue: str = ""
) -> Iterator[tuple[int, Message]]:
    """Those at positions [start, stop), each behind its position.

    `first`: which of the record's messages is the block's first. `queue`: as messages name it.
    """
    position, first_id = ref.position + first, ref.first_id + first
    for row in range(max(start - position, 0), min(stop - position, block.count)):
        yield (
            position + row,
            block.message(
                row, queue=queue, first_id=first_id, time_us=ref.time_us, delivery_count=0
            ),
        )


def message_of(queue: str, parts: list[Delivered]) -> Message | None:
    """The one message that was delivered, if it still is there."""
    return parts[0].message(queue, parts[0].start) if parts else None
