"""The blocks of volatile queues, in memory.

- An address is given once: one that is kept too long finds nothing, never another block.
- A block is here until its queue has released it, or the transaction that put it is not committed
  after all. What they may take together is bounded by their queues' capacities.
"""

from __future__ import annotations

import sys

from quire.block import EncodedBlock
from quire.engine.records import format
from quire.engine.records.commit_record import Part, new_part
from quire.env.interpreter import numbers_from
from quire.errors import PositionLost


class MemoryBlocks:
    """The blocks of volatile queues. Thread-safe, without a lock: each step is one of a dict."""

    def __init__(self) -> None:
        self._blocks: dict[int, bytes | bytearray] = {}
        self._new_address = numbers_from(1)

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def size_bytes(self) -> int:
        """The bytes of the blocks, without what the dict needs for its keys."""
        return sum(map(sys.getsizeof, list(self._blocks.values())))

    def keep(self, block: EncodedBlock, queue_id: int, parts: list[Part]) -> None:
        """A block is here from now on, as the last of these parts of a commit."""
        data, address = block.data, self._new_address()
        checksum, length = int.from_bytes(data[:8], "little"), len(data)
        parts.append(
            new_part(
                (address, block.charge_bytes, checksum, queue_id, length, block.count,
                 format.MEMORY, 0, 0, 0)
            )
        )  # fmt: skip
        self._blocks[address] = data  # at last: an interrupt leaves none behind that is no part

    def read(self, address: int) -> bytes | bytearray:
        """Raises PositionLost where it is not here any more."""
        data = self._blocks.get(address)
        if data is None:
            raise PositionLost(f"memory {address:#x}: the block was released")
        return data

    def discard(self, address: int) -> None:
        """Let go of a block, if it is here."""
        self._blocks.pop(address, None)
