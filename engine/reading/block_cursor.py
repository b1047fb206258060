"""Messages of one block, one after another, as gets of single messages take them."""

from __future__ import annotations

from quire.block import Block
from quire.engine.queues.queue import Queue
from quire.engine.records.block_ref import BlockRef
from quire.limits import BYTES_LOOKED_UP, ROWS_LOOKED_UP
from quire.messages.message import Message, plain_message


class BlockCursor:
    """The block that messages are got from one by one, as long as it stays where it is."""

    __slots__ = ("_offsets", "_payloads", "_row", "block", "end", "epoch", "first", "first_id",
                 "queue", "time_us")  # fmt: skip

    def __init__(self, queue: Queue, epoch: int, record: BlockRef, block: Block) -> None:
        self.queue = queue
        self.epoch = epoch
        self.block = block
        self.first = record.position
        self.end = record.end
        self.first_id = record.first_id
        self.time_us = record.time_us
        self._row = 0  # of the first one whose offset is at hand
        self._offsets: list[int] = []  # in `_payloads`
        self._payloads: bytes | memoryview = b""

    def message(self, position: int) -> Message:
        """The message at a position of the block, which is delivered for the first time."""
        row = position - self.first
        if self.block.columns:
            return self.block.message(
                row,
                queue=self.queue.name,
                first_id=self.first_id,
                time_us=self.time_us,
                delivery_count=1,
            )
        index, offsets = row - self._row, self._offsets
        if not 0 <= index < len(offsets) - 1:
            self._row, index = row, 0
            found = self.block.offsets[row : row + ROWS_LOOKED_UP]
            self._offsets = offsets = (found - found[0]).tolist()
            payloads = self.block.payload[found[0] : found[-1]]
            is_small = offsets[-1] <= BYTES_LOOKED_UP  # parts of bytes take half the time of views'
            self._payloads = bytes(payloads) if is_small else payloads
        payload = bytes(self._payloads[offsets[index] : offsets[index + 1]])
        return plain_message(self.first_id + row, self.queue.name, payload, self.time_us, 1)
