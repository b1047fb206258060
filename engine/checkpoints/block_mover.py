"""Moving blocks from the journal to the data file, many small ones packed into few large ones.

- M1: a block that every subscription has read is not moved.
- M2: the new places are pending until the checkpoint that names them is durable.
- M3: memory is bounded by twice `MOVED_WRITE_BYTES` and one block, whatever is moved.
- M4: what is moved goes to its queue's data file. With several files and threads, each file is
  written by its I/O manager while the next blocks are read.
- M5: what there is no room for stays where it is: its `MovedBlock` has no page. After one refusal
  no file takes a later page that is as large, so that of a queue's record pages the first ones are
  written.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from quire.batches.packing import BlockSlice, pack
from quire.block import Block
from quire.engine.pages.block_places import Extent, Places
from quire.engine.pages.data_file import PageData
from quire.engine.pages.data_files import split_page
from quire.engine.pages.io_worker import JobGroup
from quire.engine.reading.block_reader import BlockMoved, BlockReader
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.errors import ResourceExhausted, StoreCorrupt
from quire.limits import MOVED_WRITE_BYTES, PACKED_BLOCK_BYTES, PACKED_BLOCK_MESSAGES

from .background_pace import Pace


class Mover:
    """Writes the blocks of one checkpoint. `extents` are all pages it took."""

    def __init__(self, places: Places, reader: BlockReader, pace: Pace) -> None:
        self.pace = pace
        self._places = places
        self._reader = reader
        files = len(places.managers)
        self.file = 0  # where the blocks go that are moved now
        self._batch_bytes = MOVED_WRITE_BYTES // files
        self._waiting: list[list[tuple[PageData, MovedBlock]]] = [[] for _ in range(files)]
        self._waiting_bytes = [0] * files
        self._work = JobGroup(files)
        self.extents: list[Extent] = []
        self._refused: list[int | None] = [None] * files  # the smallest size without room (M5)
        self._moved: list[int] = []

    @property
    def moved_bytes(self) -> int:
        """The bytes written, without padding."""
        return sum(self._moved)

    def move(self, run: list[BlockRef], block_bytes: int) -> list[MovedBlock]:
        """Blocks of consecutive messages, packed where that makes sense; in order.

        `block_bytes`: what a block of their queue takes, at most.
        """
        packed_bytes = min(PACKED_BLOCK_BYTES, block_bytes)
        placed: list[MovedBlock] = []
        batch: list[BlockRef] = []
        size = messages = 0
        for ref in self.pace.over(run):
            large = ref.length >= packed_bytes // 4
            full = size + ref.length > packed_bytes or messages + ref.count > PACKED_BLOCK_MESSAGES
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

    def write_page(self, page: bytes) -> MovedBlock:
        """A record page."""
        return self._place([], page, 0)

    def flush(self) -> None:
        """Write what waits, in one extent of each file; the places are known then."""
        for file in range(len(self._waiting)):
            self._write(file)
        self._work.finish()

    def finish(self) -> None:
        self.flush()
        files = {split_page(extent.first, self._places.page_size)[0] for extent in self.extents}
        self._places.sync(files)

    def cancel(self) -> None:
        """The checkpoint failed: nothing is being written any more when this returns."""
        self._work.cancel()

    def abandon(self) -> None:
        """The pages that it took are free again."""
        self._places.abandon(self.extents)

    def _write(self, file: int) -> None:
        batch = self._waiting[file]
        if batch:
            self._waiting[file] = []
            self._waiting_bytes[file] = 0
            self._places.begin(self._work, file, lambda: self._write_batch(file, batch))

    def _write_batch(self, file: int, batch: list[tuple[PageData, MovedBlock]]) -> None:
        refused = self._refused[file]
        pages = sum(self._places.pages_for(len(piece)) for piece, _ in batch)
        if len(batch) == 1 and refused is not None and pages >= refused:
            return
        try:
            extent = self._places.write(file, [piece for piece, _ in batch])
        except ResourceExhausted:
            if len(batch) == 1:
                self._refused[file] = pages
            else:
                for entry in batch:
                    self._write_batch(file, [entry])
            return
        self._moved.append(sum(len(piece) for piece, _ in batch))
        self.extents.append(extent)
        page = extent.first
        for piece, placed in batch:
            placed.page = page
            page += self._places.pages_for(len(piece))

    def _merge(self, refs: list[BlockRef]) -> MovedBlock:
        if len(refs) == 1:
            return self._place(refs, self._reader.raw(refs[0]), refs[0].checksum)
        blocks = ((self._read(ref), ref) for ref in self.pace.over(refs))
        parts = [
            BlockSlice(block, 0, ref.count, ref.first_id, ref.time_us) for block, ref in blocks
        ]
        block = pack(parts)
        return self._place(refs, block.data, int.from_bytes(block.data[:8], "little"))

    def _read(self, ref: BlockRef) -> Block:
        try:
            return self._reader.read(ref)
        except BlockMoved as error:  # nobody but the checkpoint moves blocks
            raise StoreCorrupt(f"{error}; run verify, and restore the store from a copy") from error

    def _place(self, refs: list[BlockRef], data: PageData, checksum: int) -> MovedBlock:
        placed = MovedBlock(refs, len(data), checksum)
        file = self.file
        self._waiting[file].append((data, placed))
        self._waiting_bytes[file] += len(data)
        if self._waiting_bytes[file] >= self._batch_bytes:
            self._write(file)
        return placed


class MovedBlock(Struct):
    """A block that was or will be written to `page` in the stead of `refs`; 0: there is no room."""

    refs: list[BlockRef]
    length: int
    checksum: int
    page: int = 0

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
