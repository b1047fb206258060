"""Finding the messages of leased pieces that have an attribute: their payloads are not looked at.

- AR1: what is found was read from verified blocks, as R1 of `direct_read` says. Of streamed
  messages and of compressed files no payload is brought into memory but that of one block.
- AR2: parts come in the order of the positions, and each tells where it ends, so that a reader
  knows where to go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quire.block import Block
from quire.info import Piece

from .direct_read import PieceReader


class AttributePart(NamedTuple):
    """The messages of a block that have the attribute."""

    end_position: int  # behind the block's last message that was looked at
    size_bytes: int  # that were read
    found: list[tuple[int, str]]  # positions, and what the attribute says there


def find_attribute(
    reader: PieceReader, pieces: Iterable[Piece], name: str
) -> Iterator[AttributePart]:
    """A part for each block of the pieces. Raises PositionLost, StoreCorrupt."""
    key = name.encode()
    for piece in pieces:
        position = piece.first_position - piece.start  # of the first message of the block or file
        if piece.kind != "ltds":
            block = reader.block(piece)
            yield _part(block, piece.start, piece.stop, position, key)
            continue
        with reader.large(piece) as file:
            index = piece.start
            while index < piece.stop:
                block, first = file.block_at(file.locate(index))
                stop = min(piece.stop, first + block.count)
                yield _part(block, index - first, stop - first, position + first, key)
                index = stop


def _part(block: Block, start: int, stop: int, position: int, key: bytes) -> AttributePart:
    attributes = block.headers.attributes
    found = [] if attributes is None else attributes.find(key, start, stop)
    values = [(position + row, str(value, "utf-8")) for row, value in found]
    return AttributePart(position + stop, block.length, values)
