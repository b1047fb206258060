"""Messages whose queue is not known: whole blocks and files that no record names any more.

- They are looked for only where records are missing, in the places that these may have named.
- UP1: they go to queues of their own, never to one that has others. Some of them may have been
  read, or were never committed: their records would have told.
- Their ids are new ones, unless the block has them itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Final

from quire.arguments import Bytes
from quire.block import Block, StreamedBlock
from quire.engine.checkpoints.space_maps import free_runs
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.state.durable_state import DurableQueue
from quire.file_dump.source import UNREADABLE
from quire.intervals import IntervalSet
from quire.journal import GROUP_HEADER_BYTES, SegmentReader
from quire.journal.format import GROUP_MAGIC, RECORD_ALIGNMENT, unpack_group_header
from quire.limits import MAX_DATA_FILE_BYTES
from quire.ltds import list_ids
from quire.ltds.damaged import whole_blocks
from quire.ltds.format import PAGE_BYTES
from quire.rows.row_block import RowBlock

from .block_search import FoundBlock, search_blocks
from .damaged_store import DamagedStore, JournalRegion
from .new_store import NewStore

UNPLACED: Final = "salvaged"
NO_PLACE: Final = (format.MEMORY, 0)  # which no record names


class UnplacedMessages:
    """Finds them, and puts them into the new store."""

    def __init__(self, damaged: DamagedStore, new: NewStore) -> None:
        self._damaged, self._new = damaged, new
        self._source = damaged.source
        self._queues: dict[str | None, DurableQueue] = {}  # by schema
        self.messages = 0

    def search(self, *, records_are_missing: bool) -> None:
        """Search where records are missing. `records_are_missing`: record pages that had some."""
        is_whole = self._damaged.is_journal_whole
        if not (is_whole and not records_are_missing):
            for number in self._source.data_files():
                with suppress(*UNREADABLE):
                    self._search_data(number, in_free_pages=not is_whole)
        for ltds_id, placed in self._new.placed_blocks.items():
            with suppress(*UNREADABLE):
                self._search_file(ltds_id, placed)
        for region in self._damaged.regions:
            self._search_region(region)
        if not is_whole or records_are_missing:
            self._search_files()

    @property
    def queues(self) -> list[DurableQueue]:
        """The queues that were made for them."""
        return list(self._queues.values())

    def _search_data(self, number: int, *, in_free_pages: bool) -> None:
        """Search the pages of a data file that are in use as far as the checkpoint tells."""
        file, size = self._source.data_file(number), self._source.geometry.page_size
        pages = -(-file.size() // size)  # the last one may be cut
        spaces, free = self._damaged.history.spaces, IntervalSet()
        if number < len(spaces) and not in_free_pages:
            free = free_runs(spaces[number].extents())
        for first, end in free.gaps(1, pages) if pages > 1 else ():
            stop = min(end * size, file.size())
            for found in search_blocks(file.read_block, first * size, stop, size):
                address = number * MAX_DATA_FILE_BYTES + found.offset
                self._take(found.block, found.data, (format.DATA, address))

    def _search_file(self, ltds_id: int, placed: set[int]) -> None:
        """Search a file without a directory for what is behind its first damaged block."""
        with self._source.large_bytes(ltds_id) as file:
            size, seen = file.size(), placed.copy()
            for whole in whole_blocks(file, size, ltds_id, self._source.geometry.store_id, -1):
                if whole.offset not in seen:
                    seen.add(whole.offset)
                    self._take(whole.block, whole.data, NO_PLACE)
            for found in search_blocks(file.read, PAGE_BYTES, size, PAGE_BYTES):
                if found.offset not in seen and not found.block.is_packed:
                    self._take(found.block, found.data, NO_PLACE)

    def _search_region(self, region: JournalRegion) -> None:
        size = self._source.geometry.segment_bytes
        for number in range(region.start // size, -(-region.end // size)):
            first, end = max(region.start - number * size, 0), min(region.end - number * size, size)
            with suppress(*UNREADABLE), closing(SegmentReader(self._source.journal, number)) as own:
                for found in self._inline_blocks(own, number * size, first, end):
                    self._take(
                        found.block, found.data, (format.INLINE, number * size + found.offset)
                    )

    def _inline_blocks(
        self, segment: SegmentReader, base: int, first: int, end: int
    ) -> Iterator[FoundBlock]:
        """Yield the blocks of a part of a segment, but for those of its earlier use."""
        page_size = self._source.geometry.page_size
        start = offset = max(first, page_size)
        while offset < end:
            data = segment.read(offset, GROUP_HEADER_BYTES)
            if len(data) < GROUP_HEADER_BYTES:
                break
            header = unpack_group_header(data)
            offset += page_size
            if header.magic == GROUP_MAGIC and header.lsn != base + offset - page_size:
                yield from search_blocks(segment.read, start, offset - page_size, RECORD_ALIGNMENT)
                length = GROUP_HEADER_BYTES + header.body_length
                start = offset = offset - page_size + max(page_size, length + -length % page_size)
        yield from search_blocks(segment.read, start, min(offset, end), RECORD_ALIGNMENT)

    def _search_files(self) -> None:
        """Take files of large transactions that no record names."""
        source, new = self._source, self._new
        ids: list[int] = []
        with suppress(OSError):
            ids = list_ids(source.env, source.layout.ltds)
        for ltds_id in sorted(set(ids)):
            if (format.LTDS, ltds_id) in new.known or new.has_file(ltds_id):
                continue
            try:
                with new.copy_file(ltds_id, None, 0) as copy:
                    schema = copy.words_at(copy.block_count - 1)
                    charge = sum(block.charge_bytes for block, _ in copy)
                    queue = self._queue(schema)
                    own = self._ref(queue, copy.count, ltds_id, charge, copy.checksum)
                new.add_file(queue, own)
            except UNREADABLE:
                with suppress(*UNREADABLE):
                    self._search_file(ltds_id, set())

    def _take(self, block: Block, data: Bytes, place: tuple[int, int]) -> None:
        """Take a block, unless a record names it."""
        if self._new.known.get(place) == block.checksum or isinstance(block, StreamedBlock):
            return
        queue = self._queue(block.words if isinstance(block, RowBlock) else None)
        ref = self._ref(queue, block.count, 0, block.charge_bytes, block.checksum)
        ref = ref._replace(length=block.length, kind=format.DATA)
        if block.is_packed:
            self._new.note_ids(int(block.ids(0).max()) + 1)
        self._new.add_block(queue, ref, data)

    def _ref(
        self, queue: DurableQueue, count: int, address: int, charge: int, checksum: int
    ) -> BlockRef:
        """Return the next record of a queue for unplaced messages."""
        state, position = self._new.state, queue.end_position
        queue.end_position += count
        self.messages += count
        first_id, time_us = self._new.next_ids(count), state.last_time_us
        return BlockRef(
            position, first_id, time_us, address, charge, checksum, 0, count, format.LTDS
        )

    def _queue(self, schema: str | None) -> DurableQueue:
        if schema not in self._queues:
            self._queues[schema] = self._new.define(None, UNPLACED, schema)
        return self._queues[schema]
