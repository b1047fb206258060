"""What blocks take in memory."""

from __future__ import annotations

from quire.engine.reading.block_reader import BlockReader


def cached_bytes(reader: BlockReader) -> int:
    """What the blocks in memory take."""
    return reader._fresh.size_bytes + reader._blocks.size_bytes
