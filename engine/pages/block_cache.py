"""Caches of what was read or written lately: blocks, and open files of them.

What is released or moved leaves it at once, whoever has read it (B3 of `block_reader`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from quire.block import Block
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRow
from quire.engine.records.commit_record import PAYLOAD_AT
from quire.env.interpreter import Lock
from quire.limits import BLOCK_CACHE_BYTES, INLINE_CACHE_BYTES
from quire.ltds import LtdsReader

from .bounded_cache import BoundedCache, bounded_cache

# What an entry takes besides its bytes, measured (see `tests/engine/test_caches.py`).
_FRESH_ENTRY_BYTES: Final = 192
_BLOCK_ENTRY_BYTES: Final = 262

BlockKey = tuple[int, int, int]  # kind, address and checksum; or -1 - number, id of the file and 0


class BlockCache:
    """Blocks and open files that were read or written lately. Thread-safe."""

    def __init__(self) -> None:
        # Just committed inside the journal, by address there: a block, or, at `PAYLOAD_AT` more,
        # the payload of its only message.
        self.fresh: BoundedCache[int, bytes | bytearray] = bounded_cache(
            INLINE_CACHE_BYTES, len, _FRESH_ENTRY_BYTES
        )
        # Verified, with the number of the block's first message in its file.
        self.blocks: BoundedCache[BlockKey, tuple[Block, int]] = bounded_cache(
            BLOCK_CACHE_BYTES, _block_bytes, _BLOCK_ENTRY_BYTES
        )
        self.files: OrderedDict[int, LtdsReader] = OrderedDict()
        self.files_lock = Lock()

    def forget(self, refs: Sequence[BlockRow]) -> None:
        """Blocks that were released or moved. Those of files go with the file."""
        forget = self.fresh.forget
        for _, _, _, address, _, checksum, _, count, kind in refs:
            if not kind and (count > 1 or not forget(address + PAYLOAD_AT)):  # inline
                forget(address)
            if count > 1 and kind != format.LTDS:
                self.blocks.forget((kind, address, checksum))

    def forget_file(self, ltds_id: int) -> None:
        """A large transaction's file goes: an open one would keep its space."""
        with self.files_lock:
            reader = self.files.pop(ltds_id, None)
            if reader is not None:
                reader.close()
        for key in self.blocks.list_keys():
            if key[0] < 0 and key[1] == ltds_id:
                self.blocks.forget(key)

    def close(self) -> None:
        with self.files_lock:
            for reader in self.files.values():
                reader.close()
            self.files.clear()
        self.blocks.clear()
        self.fresh.clear()


def _block_bytes(entry: tuple[Block, int]) -> int:
    return entry[0].memory_bytes
