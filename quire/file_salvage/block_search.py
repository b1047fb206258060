"""A search for blocks in a file by their own bytes: for those that no record names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from quire.arguments import Bytes
from quire.block import HEADER_BYTES, Block
from quire.block.format import HEADER, MAGIC, MAGIC_AT
from quire.errors import QuireError
from quire.rows.open_block import verified_block

from .limits import SEARCHED_BYTES

ReadBlockFile = Callable[[int, int], Bytes]
"""Reads a file from an offset on, so many bytes, fewer at its end."""


class FoundBlock(NamedTuple):
    """A block that is whole."""

    offset: int
    block: Block
    data: Bytes


def search_blocks(read: ReadBlockFile, start: int, end: int, step: int) -> Iterator[FoundBlock]:
    """Yield the whole blocks of [start, end) that begin at multiples of `step`; none in another."""
    offset = start + -start % step
    while offset + HEADER_BYTES <= end:
        window = bytes(read(offset, min(SEARCHED_BYTES, end - offset)))
        if len(window) < HEADER_BYTES:
            return
        after = offset + (len(window) - HEADER_BYTES) // step * step + step
        at = 0
        while 0 <= at < len(window):
            at = window.find(MAGIC, at + MAGIC_AT) - MAGIC_AT
            if at < 0 or at + HEADER_BYTES > len(window):
                break
            found = None if (offset + at) % step else _block_at(read, window, offset, at, end)
            if found is None:
                at += 1
                continue
            yield found
            at += found.block.length
            after = max(after, offset + at)
        offset = after + -after % step


def _block_at(
    read: ReadBlockFile, window: bytes, base: int, at: int, end: int
) -> FoundBlock | None:
    """Return the block at this place of the window, which is at `base` in the file."""
    place, length = base + at, int(HEADER.unpack_from(window, at)[6])
    if not HEADER_BYTES <= length <= end - place:
        return None
    data = window[at : at + length] if at + length <= len(window) else read(place, length)
    try:
        return FoundBlock(place, verified_block(data, f"offset {place}"), data)
    except (QuireError, ValueError, OverflowError):
        return None
