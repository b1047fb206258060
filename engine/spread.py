"""The commit of one block to each of several queues, inside its record: no lists of lists.

The same record and effect as `Commit`, for the usual transaction over many queues: see there for
what the parts mean. What it costs is counted per queue, so everything that can be is done once.
"""

from __future__ import annotations

from quire.journal import RECORD_HEADER, RECORD_HEADER_BYTES

from . import format
from .block_reader import BlockReader
from .commit_record import ID_AND_TIME_OFFSET, Read
from .queue import Queue
from .state import State

_PARTS_OFFSET = RECORD_HEADER_BYTES + format.COMMIT_HEADER.size
_PART_BYTES = format.PART.size
_put_id_and_time = format.ID_AND_TIME.pack_into
_pack_part = format.PART.pack

# Queue, block, charge with the control records, messages.
Share = tuple[Queue, bytes | bytearray, int, int]


class Spread:
    """A change for the sequencer. Each block's length is a multiple of 8."""

    __slots__ = (
        "_placed", "_reader", "_reads", "_shares", "_state", "_transaction_id", "applied",
        "first_id", "messages", "record", "time_us",
    )  # fmt: skip

    def __init__(
        self,
        state: State,
        reader: BlockReader,
        transaction_id: int,
        shares: list[Share],
        reads: list[Read],
    ) -> None:
        self._state = state
        self._reader = reader
        self._transaction_id = transaction_id
        self._shares = shares
        self._reads = reads
        self.applied = False
        self.first_id = 0
        self.time_us = 0
        offset = _PARTS_OFFSET + _PART_BYTES * len(shares) + format.READ.size * len(reads)
        heads: list[bytes | bytearray] = [b""]
        blocks: list[bytes | bytearray] = []
        self._placed: list[tuple[int, int, int]] = []
        placed = self._placed
        messages = 0
        for queue, block, charge, count in shares:
            checksum = int.from_bytes(block[:8], "little")
            length = len(block)
            heads.append(
                _pack_part(
                    offset, charge, checksum, queue.queue_id, length, count, format.INLINE, 0, 0, 0
                )
            )
            placed.append((offset, checksum, length))
            blocks.append(block)
            messages += count
            offset += length
        heads.extend(format.READ.pack(*read) for read in reads)
        heads[0] = RECORD_HEADER.pack(
            offset, format.COMMIT, 0, transaction_id
        ) + format.COMMIT_HEADER.pack(0, 0, len(shares), len(reads), 0, messages)
        self.messages = messages
        self.record = bytearray().join(heads + blocks)

    def place(self) -> None:
        self.first_id, self.time_us = self._state.take_ids(self.messages)
        _put_id_and_time(self.record, ID_AND_TIME_OFFSET, self.first_id, self.time_us)

    def withdraw(self) -> None:
        """Ids that were taken are not given again: nothing is to be done."""

    def apply(self, address: int) -> None:
        first_id, time_us = self.first_id, self.time_us
        self._reader.remember_all(
            [
                (address + place[0], share[1])
                for place, share in zip(self._placed, self._shares, strict=True)
            ]
        )
        transaction_id = self._transaction_id
        for (queue, _, charge, count), (offset, checksum, length) in zip(
            self._shares, self._placed, strict=True
        ):
            with queue.lock:
                position = queue.end_position
                queue.append(
                    (
                        position, first_id, time_us, address + offset, charge, checksum, length,
                        count, format.INLINE,
                    )
                )  # fmt: skip
                queue.space.commit(charge, count)
                queue.log.commit(transaction_id, position, position + count)
                queue.wake()
            first_id += count
        if self._reads:
            self._state.apply_reads(self._reads)
