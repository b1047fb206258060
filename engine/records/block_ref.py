"""A row of a queue's record list for a run of messages: where they are, and their charge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from . import format

KIND_NAMES: Final = {
    format.INLINE: "journal",
    format.DATA: "data",
    format.LTDS: "ltds",
    format.MEMORY: "memory",
}


class BlockRef(NamedTuple):
    """A block in the journal or a data file, or all messages of one large transaction's file."""

    position: int  # of its first message in the queue's commit order
    first_id: int  # message ids count up from here, unless the block carries an id column
    time_us: int
    # journal: LSN; data: file number << 48 | byte offset; ltds: the file's id; memory: a number
    address: int
    charge: int  # bytes that count against the queue's capacity
    checksum: int  # the block's own; 0 for ltds
    length: int  # bytes of the block; 0 for ltds
    count: int  # type: ignore[assignment]  # messages; tuple.count is not needed
    kind: int

    @property
    def end(self) -> int:
        return self.position + self.count

    def released_charge(self, released: int) -> int:
        """The part of the charge that `released` of its messages account for.

        Each message is charged the block's mean, so that no payload is read to take one off; the
        parts of a block add up to its charge exactly. A block in memory is charged as a whole until
        all of them are released: so long it takes memory as a whole.
        """
        if self.kind == format.MEMORY:
            return self.charge if released == self.count else 0
        return self.charge * released // self.count


BlockRow = tuple[int, int, int, int, int, int, int, int, int]
"""The fields of a `BlockRef`. Who looks at one record only is faster with a plain tuple."""


def packed(refs: Iterable[BlockRef]) -> bytes:
    """The refs as they stand in a record page."""
    return b"".join(format.PACKED_RECORD.pack(*ref) for ref in refs)
