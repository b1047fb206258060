"""Messages of open transactions, grouped by transaction and queue.

Source: "Managing message queues" (JP 2008-547130), paragraphs 0042 and 0047-0053: messages wait
here until their transaction commits, so that the messages of different transactions do not
interleave in the queue; when the buffer is full, some transaction has to leave it.

- W1: within a transaction and a queue, messages keep their put order.
- W2: memory is bounded: past `limit_bytes` in all, `over_limit` names the transaction that holds
  most, and its owner turns it into a large one, whose messages go to files. Each transaction may
  hold `_STEP_BYTES` besides.
"""

from __future__ import annotations

import threading
from typing import Final

from quire.block import BlockBuilder, EncodedBlock

# A transaction tells the buffer of its growth in steps, so that small puts take no shared lock.
_STEP_BYTES: Final = 64 << 10


class QueueBuffer:
    """One transaction's messages for one queue: finished blocks, then those being collected."""

    __slots__ = ("blocks", "builder")

    def __init__(self) -> None:
        self.blocks: list[EncodedBlock] = []
        self.builder = BlockBuilder()

    def add_block(self, block: EncodedBlock, max_block_bytes: int) -> None:
        """A block that was encoded elsewhere, behind what is collected so far (W1)."""
        if self.builder.count:
            self.blocks += self.builder.build(max_block_bytes)
            self.builder.clear()
        self.blocks.append(block)

    def drain(self, max_block_bytes: int) -> list[EncodedBlock]:
        """All messages as blocks; the buffer is empty then."""
        blocks, self.blocks = self.blocks, []
        if self.builder.count:
            blocks += self.builder.build(max_block_bytes)
            self.builder.clear()
        return blocks


class TransactionBuffer:
    """One transaction's part of the write buffer. The transaction's lock covers it."""

    __slots__ = ("_shared", "_told", "bytes", "messages", "queues", "transaction_id")

    def __init__(self, shared: WriteBuffer, transaction_id: int) -> None:
        self._shared = shared
        self._told = 0
        self.transaction_id = transaction_id
        self.bytes = 0
        self.messages = 0
        self.queues: dict[int, QueueBuffer] = {}

    def queue(self, queue_id: int) -> QueueBuffer:
        buffer = self.queues.get(queue_id)
        if buffer is None:
            buffer = self.queues[queue_id] = QueueBuffer()
        return buffer

    def grew(self, size: int, messages: int) -> bool:
        """Messages were added to one of the queues' buffers; whether that counts (W2)."""
        self.bytes += size
        self.messages += messages
        if self.bytes - self._told < _STEP_BYTES:
            return False
        self._shared.tell(self.transaction_id, self.bytes)
        self._told = self.bytes
        return True

    def emptied(self) -> None:
        """The messages have gone elsewhere, or the transaction has ended."""
        self.bytes = 0
        self.messages = 0
        if self._told:
            self._shared.tell(self.transaction_id, 0)
            self._told = 0


class WriteBuffer:
    """What all open transactions hold in memory. Thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._bytes: dict[int, int] = {}
        self.total_bytes = 0

    def open(self, transaction_id: int) -> TransactionBuffer:
        return TransactionBuffer(self, transaction_id)

    def tell(self, transaction_id: int, size: int) -> None:
        """How much a transaction holds now; 0 forgets it."""
        with self._lock:
            self.total_bytes += size - self._bytes.pop(transaction_id, 0)
            if size:
                self._bytes[transaction_id] = size

    def over_limit(self) -> int | None:
        """The transaction that holds most, when all together hold too much (W2)."""
        if self.total_bytes <= self.limit_bytes:
            return None
        with self._lock:
            return max(self._bytes, key=self._bytes.__getitem__, default=None)
