"""Finding the messages of leased pieces that have an attribute: their payloads are not looked at.

- What is found was read from verified blocks, as R1 of `direct_read` says. Of streamed messages and
  of compressed files no payload is brought into memory but that of one block.
- Parts come in the order of the positions, and each tells where it ends, so that a reader knows
  where to go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quire.reports.info import Piece

from .direct_read import PieceReader


class AttributePart(NamedTuple):
    """The messages of a block that have the attribute."""

    end_position: int  # behind the block's last message that was looked at
    size_bytes: int  # that were read
    found: list[tuple[int, str]]  # positions, and what the attribute says there


def find_attribute(
    reader: PieceReader, queue: str, pieces: Iterable[Piece], name: str
) -> Iterator[AttributePart]:
    """A part for each block of the pieces. Raises PositionLost, StoreCorrupt."""
    key = name.encode()
    pieces = list(pieces)
    reader.expect(queue, pieces)
    for piece in pieces:
        for each in reader.blocks(piece):
            block = each.whole()
            position = piece.first_position - piece.start + each.first  # of its first message
            attributes = block.headers.attributes
            found = () if attributes is None else attributes.find(key, each.start, each.stop)
            values = [(position + row, str(value, "utf-8")) for row, value in found]
            yield AttributePart(position + each.stop, block.length, values)
