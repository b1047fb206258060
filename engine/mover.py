"""Moving blocks from the journal to the data file, many small ones packed into few large ones.

- M1: a block that every subscription has read is not moved.
- M2: the new places are pending until the checkpoint that names them is durable.
- M3: memory is bounded by `WRITE_BYTES` and one block, whatever is moved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from quire.block import Block, EncodedBlock, Part, pack
from quire.errors import StoreCorrupt
from quire.limits import PACKED_BLOCK_BYTES, PACKED_BLOCK_MESSAGES

from . import format
from .block_reader import BlockMoved, BlockReader
from .block_ref import BlockRef
from .pace import Pace
from .places import Places

WRITE_BYTES: Final = 4 << 20


class Mover:
    """Writes the blocks of one checkpoint. `extents` are all pages it took."""

    def __init__(self, places: Places, reader: BlockReader, pace: Pace) -> None:
        self.pace = pace
        self._places = places
        self._reader = reader
        self._waiting: list[tuple[bytes | bytearray, Placed]] = []
        self._waiting_bytes = 0
        self.extents: list[tuple[int, int]] = []
        self.moved_bytes = 0

    def move(self, run: list[BlockRef]) -> list[Placed]:
        """Blocks of consecutive messages, packed where that makes sense; in order."""
        placed: list[Placed] = []
        batch: list[BlockRef] = []
        size = messages = 0
        for ref in self.pace.over(run):
            large = ref.length >= PACKED_BLOCK_BYTES // 4
            full = (
                size + ref.length > PACKED_BLOCK_BYTES
                or messages + ref.count > PACKED_BLOCK_MESSAGES
            )
            if batch and (large or full):
                placed.append(self._merge(batch))
                batch, size, messages = [], 0, 0
            if large:
                placed.append(self._place([ref], self._reader.raw(ref), ref.checksum))
                continue
            batch.append(ref)
            size += ref.length
            messages += ref.count
        if batch:
            placed.append(self._merge(batch))
        return placed

    def write_page(self, page: bytes) -> Placed:
        """A record page."""
        return self._place([], page, 0)

    def flush(self) -> None:
        """Write what waits, in one extent; the places are known then."""
        if not self._waiting:
            return
        data = self._places.data
        total = sum(data.pages_for(len(piece)) for piece, _ in self._waiting)
        first = self._places.allocate(total)
        self.extents.append((first, total))
        data.write_extent(first, [piece for piece, _ in self._waiting])
        self.moved_bytes += self._waiting_bytes
        for piece, placed in self._waiting:
            placed.page = first
            first += data.pages_for(len(piece))
        self._waiting = []
        self._waiting_bytes = 0

    def finish(self) -> None:
        self.flush()
        self._places.data.sync()

    def abandon(self) -> None:
        """The checkpoint failed: its pages are free again."""
        for first, pages in self.extents:
            self._places.space.abandon(first, pages)

    def _merge(self, refs: list[BlockRef]) -> Placed:
        if len(refs) == 1:
            return self._place(refs, self._reader.raw(refs[0]), refs[0].checksum)
        block: EncodedBlock = pack(
            [
                Part(self._read(ref), 0, ref.count, ref.first_id, ref.time_us)
                for ref in self.pace.over(refs)
            ]
        )
        return self._place(refs, block.data, int.from_bytes(block.data[:8], "little"))

    def _read(self, ref: BlockRef) -> Block:
        try:
            return self._reader.read(ref)
        except BlockMoved as error:  # nobody but the checkpoint moves blocks
            raise StoreCorrupt(f"{error}; run verify, and restore the store from a copy") from error

    def _place(self, refs: list[BlockRef], data: bytes | bytearray, checksum: int) -> Placed:
        placed = Placed(refs, len(data), checksum)
        self._waiting.append((data, placed))
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= WRITE_BYTES:
            self.flush()
        return placed


class Placed:
    """A block that was or will be written to `page`, in the stead of `refs`."""

    __slots__ = ("checksum", "length", "page", "refs")

    def __init__(self, refs: list[BlockRef], length: int, checksum: int) -> None:
        self.refs = refs
        self.length = length
        self.checksum = checksum
        self.page = 0

    def ref(self, page_size: int) -> BlockRef:
        first = self.refs[0]
        return first._replace(
            address=self.page * page_size,
            charge=sum(ref.charge for ref in self.refs),
            checksum=self.checksum,
            length=self.length,
            count=sum(ref.count for ref in self.refs),
            kind=format.DATA,
        )


def consecutive(refs: Iterable[BlockRef]) -> Iterable[list[BlockRef]]:
    """Runs of blocks whose messages follow each other."""
    run: list[BlockRef] = []
    for ref in refs:
        if run and run[-1].end != ref.position:
            yield run
            run = []
        run.append(ref)
    if run:
        yield run
