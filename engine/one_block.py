"""The commit of one block to one queue: the usual transaction, and the shortest way to a record.

The same record and effect as `Commit`, without lists: see there for what the parts mean.
"""

from __future__ import annotations

import struct

from quire.journal import RECORD_HEADER_BYTES, WholeRecord

from . import format
from .block_reader import BlockReader
from .commit_record import ID_AND_TIME_OFFSET
from .queue import Queue
from .state import State

# The record header, the commit header and one part, as `format` has them.
_HEAD = struct.Struct("<IHHQ" + "QqIIII" + "QQQIIIBBHQ")
_put_id_and_time = format.ID_AND_TIME.pack_into
_block_checksum = struct.Struct("<Q").unpack_from

HEAD_BYTES = _HEAD.size

# Up to this a block is copied behind its head: the journal has one piece to handle, not two.
_JOINED_BYTES = 4096

assert RECORD_HEADER_BYTES + format.COMMIT_HEADER.size + format.PART.size == HEAD_BYTES
assert HEAD_BYTES % 8 == 0


class OneBlock:
    """A change for the sequencer. `charge` includes the control records."""

    __slots__ = (
        "_block", "_charge", "_checksum", "_count", "_head", "_queue", "_reader", "_state",
        "_transaction_id", "applied", "first_id", "record", "time_us",
    )  # fmt: skip

    def __init__(
        self,
        state: State,
        reader: BlockReader,
        transaction_id: int,
        queue: Queue,
        block: bytes | bytearray,
        charge: int,
        count: int,
    ) -> None:
        self._state = state
        self._reader = reader
        self._queue = queue
        self._block = block
        self._charge = charge
        self._count = count
        self._transaction_id = transaction_id
        self._checksum = checksum = _block_checksum(block)[0]
        self.applied = False
        self.first_id = 0
        self.time_us = 0
        length = len(block)
        head = bytearray(
            _HEAD.pack(
                HEAD_BYTES + length, format.COMMIT, 0, transaction_id,
                0, 0, 1, 0, 0, count,
                HEAD_BYTES, charge, checksum, queue.queue_id, length, count, format.INLINE, 0, 0, 0,
            )
        )  # fmt: skip
        self.record: WholeRecord = head
        self._head = head
        if length <= _JOINED_BYTES:
            head += block
        else:
            self.record = head, block

    def place(self) -> None:
        self.first_id, self.time_us = self._state.take_ids(self._count)
        _put_id_and_time(self._head, ID_AND_TIME_OFFSET, self.first_id, self.time_us)

    def withdraw(self) -> None:
        """Ids that were taken are not given again: nothing is to be done."""

    def apply(self, address: int) -> None:
        address += HEAD_BYTES
        self._reader.remember(address, self._block)
        queue = self._queue
        count = self._count
        with queue.lock:
            position = queue.end_position
            queue.append(
                (
                    position, self.first_id, self.time_us, address, self._charge,
                    self._checksum, len(self._block), count, format.INLINE,
                )
            )  # fmt: skip
            queue.space.commit(self._charge, count)
            if self._transaction_id:  # a put of its own leaves nothing in the log
                queue.log.commit(self._transaction_id, position, position + count)
            queue.wake()
