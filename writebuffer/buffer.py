"""Messages of open transactions, grouped by transaction and queue.

Source: "Managing message queues" (JP 2008-547130), paragraphs 0042 and 0047-0053: messages wait
here until their transaction commits, so that the messages of different transactions do not
interleave in the queue; when the buffer is full, the oldest transaction has to leave it.

- WB1: within a transaction and a queue, messages keep their put order.
- WB2: memory is bounded: from `limit_bytes` or `limit_messages` on a buffer is `full`, and room is
  made before more is added. What a transaction holds is told in steps (`step_bytes`,
  `step_messages`), so that small puts take no shared lock: it may hold one step more.
- WB3: there is one buffer for all queues, or one for each (paragraph 0053).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sortedcontainers import SortedDict

from quire.block import BlockBuilder, EncodedBlock
from quire.env.interpreter import Lock
from quire.limits import BUFFER_STEP_BYTES, BUFFER_STEP_MESSAGES
from quire.rows import row_builder

if TYPE_CHECKING:
    from quire.rows.row_builder import RowBuilder
    from quire.rows.row_input import Rows


class WriteBuffer:
    """The memory that the messages of open transactions take, of all queues or of one.

    Thread-safe.
    """

    def __init__(self, limit_bytes: int, limit_messages: int) -> None:
        self.limit_bytes = limit_bytes
        self.limit_messages = limit_messages
        self.step_bytes = max(1, min(BUFFER_STEP_BYTES, limit_bytes >> 4))
        self.step_messages = max(1, min(BUFFER_STEP_MESSAGES, limit_messages >> 4))
        self.total_bytes = 0
        self.total_messages = 0
        self.full = False  # somebody has to leave before more is added (WB2)
        self._lock = Lock()
        self._sizes = SortedDict()  # by transaction, the oldest first: (bytes, messages)

    def report(self, transaction_id: int, size: int, messages: int) -> None:
        """A transaction holds so much more than it told before, or less."""
        with self._lock:
            self.total_bytes += size
            self.total_messages += messages
            self.full = (
                self.total_bytes >= self.limit_bytes or self.total_messages >= self.limit_messages
            )
            old_size, old_messages = self._sizes.get(transaction_id, (0, 0))
            left = old_size + size, old_messages + messages
            if any(left):
                self._sizes[transaction_id] = left
            else:
                self._sizes.pop(transaction_id, None)

    def holder(self, index: int) -> int | None:
        """The transaction at the index, the oldest first; None when there are no more."""
        with self._lock:
            return self._sizes.keys()[index] if index < len(self._sizes) else None


class Account:
    """The memory that one transaction takes in one write buffer.

    The transaction's lock covers it.
    """

    __slots__ = (
        "_report_at_bytes", "_report_at_messages", "_reported_bytes", "_reported_messages", "bytes",
        "messages", "shared", "transaction_id",
    )  # fmt: skip

    def __init__(self, shared: WriteBuffer, transaction_id: int) -> None:
        self.shared = shared
        self.transaction_id = transaction_id
        self.bytes = 0
        self.messages = 0
        self._note_reported()

    def grow(self, size: int, messages: int) -> None:
        """Add bytes and messages."""
        self.bytes = all_bytes = self.bytes + size
        self.messages = all_messages = self.messages + messages
        if all_bytes >= self._report_at_bytes or all_messages >= self._report_at_messages:
            self._report()

    def shrink(self, size: int, messages: int) -> None:
        """Subtract bytes and messages that have gone elsewhere."""
        self.bytes -= size
        self.messages -= messages
        self._report()

    def _report(self) -> None:
        size, messages = self.bytes - self._reported_bytes, self.messages - self._reported_messages
        if size or messages:
            self.shared.report(self.transaction_id, size, messages)
            self._note_reported()

    def _note_reported(self) -> None:
        """Note the counts that were reported; more is reported in steps (WB2)."""
        self._reported_bytes, self._reported_messages = self.bytes, self.messages
        self._report_at_bytes = self.bytes + self.shared.step_bytes
        self._report_at_messages = self.messages + self.shared.step_messages

    def close(self) -> None:
        """The transaction has ended."""
        self.bytes = self.messages = 0
        if self._reported_bytes or self._reported_messages:
            self._report()


class QueueBuffer:
    """The messages of one transaction for one queue: finished blocks, then those being collected.

    `builder` has those that are bytes; rows, of a typed queue, have a builder of their own.
    """

    __slots__ = ("_rows", "account", "blocks", "builder")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.blocks: list[EncodedBlock] = []
        self.builder = BlockBuilder()
        self._rows: RowBuilder | None = None

    @property
    def empty(self) -> bool:
        return not self.blocks and not self.builder.count and not self._rows

    def add_rows(self, rows: Rows) -> None:
        """Rows, which wait to be encoded."""
        if self._rows is None:
            self._rows = row_builder.RowBuilder()
        self._rows.add(rows)

    def add_block(self, block: EncodedBlock, max_block_bytes: int) -> None:
        """A block that was encoded elsewhere, behind what is collected so far (WB1)."""
        self.encode(max_block_bytes)
        self.blocks.append(block)

    def encode(self, max_block_bytes: int) -> list[EncodedBlock]:
        """Return all messages as blocks; they stay in the buffer."""
        if self.builder.count:
            self.blocks += self.builder.build(max_block_bytes)
            self.builder.clear()
        if self._rows:
            self.blocks += self._rows.build(max_block_bytes)
            self._rows = None
        return self.blocks

    def drain(self, max_block_bytes: int) -> list[EncodedBlock]:
        """Return all messages as blocks, and empty the buffer."""
        blocks = self.encode(max_block_bytes)
        self.blocks = []
        return blocks


class TransactionBuffer:
    """The part of the write buffers that is one transaction's. The transaction's lock covers it."""

    __slots__ = ("_accounts", "_buffers", "_shared", "queues", "transaction_id")

    def __init__(self, buffers: WriteBuffers, transaction_id: int) -> None:
        self._buffers = buffers
        self._shared: Account | None = None  # the one of the buffer of all queues
        self._accounts: list[Account] = []
        self.transaction_id = transaction_id
        self.queues: dict[int, QueueBuffer] = {}

    def queue(self, queue_id: int) -> QueueBuffer:
        buffer = self.queues.get(queue_id)
        if buffer is None:
            buffer = self.queues[queue_id] = QueueBuffer(self._shared or self._account(queue_id))
        return buffer

    def _account(self, queue_id: int) -> Account:
        account = Account(self._buffers.of(queue_id), self.transaction_id)
        self._accounts.append(account)
        if not self._buffers.per_queue:
            self._shared = account
        return account

    @property
    def bytes(self) -> int:
        """The bytes that wait in memory, as charged."""
        return sum(account.bytes for account in self._accounts)

    def close(self) -> None:
        """The transaction has ended."""
        for account in self._accounts:
            account.close()
        self.queues.clear()


class WriteBuffers:
    """The store's write buffer, or those of its queues (WB3). Thread-safe."""

    def __init__(self, limit_bytes: int, limit_messages: int, *, per_queue: bool) -> None:
        self.per_queue = per_queue
        self._new = partial(WriteBuffer, limit_bytes, limit_messages)
        self.common = common = self._new()  # of all queues; empty where each has its own
        # Less than that a transaction need not tell any buffer (WB2).
        self.light_bytes = 0 if per_queue else common.step_bytes
        self.light_messages = 0 if per_queue else common.step_messages
        self._by_queue: dict[int, WriteBuffer] = {}
        self._lock = Lock()

    def of(self, queue_id: int) -> WriteBuffer:
        """The buffer of a queue's messages."""
        if not self.per_queue:
            return self.common
        with self._lock:
            return self._by_queue.setdefault(queue_id, self._new())

    def forget(self, queue_id: int) -> None:
        """The queue was dropped."""
        self._by_queue.pop(queue_id, None)

    def open(self, transaction_id: int) -> TransactionBuffer:
        return TransactionBuffer(self, transaction_id)

    @property
    def total_bytes(self) -> int:
        """The bytes that all open transactions have reported."""
        return sum(buffer.total_bytes for buffer in [self.common, *self._by_queue.values()])
