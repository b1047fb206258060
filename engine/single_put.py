"""A durable put of one plain message: the shortest way through the commit protocol.

The same rules, record and order as `Manager.commit`, without a transaction object and without
lists: one message needs no write buffer, and its space is taken under one hold of its queue's lock.
"""

from __future__ import annotations

import struct

from quire.block import encode_one
from quire.errors import QueueNotFound
from quire.journal import RECORD_HEADER_BYTES
from quire.limits import COMMIT_BYTES, MESSAGE_OVERHEAD_BYTES, OPEN_BYTES

from . import format
from .block_ref import BlockRef
from .commit_record import ID_AND_TIME_OFFSET
from .manager import Manager
from .queue import Queue

# The record header, the commit header and one part, as `format` has them.
_HEAD = struct.Struct("<IHHQ" + "QqIIII" + "QQQIIIBBHQ")
_put_id_and_time = format.ID_AND_TIME.pack_into
_block_checksum = struct.Struct("<Q").unpack_from
_CONTROL_BYTES = OPEN_BYTES + COMMIT_BYTES

assert _HEAD.size == RECORD_HEADER_BYTES + format.COMMIT_HEADER.size + format.PART.size
assert _HEAD.size % 8 == 0


class SinglePut:
    """Callable: (queue name, payload) -> message id."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self.limit_bytes = manager.inline_limit - 1024

    def __call__(self, name: str, payload: bytes) -> int:
        manager = self._manager
        queue = manager.state.queue(name)
        charge = len(payload) + MESSAGE_OVERHEAD_BYTES
        block = encode_one(payload)
        space = queue.space
        with queue.lock:
            if queue.dropped:
                raise QueueNotFound(f"there is no queue {name!r}: it was just dropped")
            space.whole(charge)
        change = _SingleCommit(manager, queue, block, charge + _CONTROL_BYTES)
        try:
            manager.sequencer.submit(change)
        except BaseException:
            with queue.lock:
                space.unreserve()
                space.abandon(charge, 1)
            raise
        manager.after_commit()
        return change.first_id


class _SingleCommit:
    __slots__ = ("_block", "_charge", "_manager", "_queue", "first_id", "record", "time_us")

    def __init__(
        self, manager: Manager, queue: Queue, block: bytes | bytearray, charge: int
    ) -> None:
        self._manager = manager
        self._queue = queue
        self._block = block
        self._charge = charge
        length = len(block)
        self.first_id = 0
        self.time_us = 0
        self.record = bytearray(
            _HEAD.pack(
                _HEAD.size + length, format.COMMIT, 0, 0,
                0, 0, 1, 0, 0, 1,
                _HEAD.size, charge, _block_checksum(block)[0], queue.queue_id, length, 1,
                format.INLINE, 0, 0, 0,
            )
            + block
        )  # fmt: skip

    def place(self) -> None:
        self.first_id, self.time_us = self._manager.state.take_ids(1)
        _put_id_and_time(self.record, ID_AND_TIME_OFFSET, self.first_id, self.time_us)

    def withdraw(self) -> None:
        """Ids that were taken are not given again: nothing is to be done."""

    def apply(self, address: int) -> None:
        address += _HEAD.size
        block = self._block
        self._manager.reader.remember(address, block)
        queue = self._queue
        with queue.lock:
            queue.append(
                BlockRef(
                    queue.end_position, self.first_id, self.time_us, address, self._charge,
                    _block_checksum(block)[0], len(block), 1, format.INLINE,
                )
            )  # fmt: skip
            queue.space.commit(self._charge, 1)
            queue.wake()
