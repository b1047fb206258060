"""A queue's ordered record list: sealed record pages on disk and a tail in memory.

- Records stand in commit order; positions ascend, with gaps only where messages were released.
- L2: a record page is written once, at a checkpoint, and never overwritten. The last page of a
  queue, if it is not full, is written anew elsewhere at the next checkpoint, and so is a page that
  `reorganise` moves or whose blocks it moves.
- L3: memory holds the tail (what was committed since the last checkpoint), packed, one entry of the
  directory per page of records, and some pages in a cache that all queues share.
- L4: a record page that goes out of use is not used again before the next checkpoint is durable,
  because recovery reads the pages of the checkpoint that it starts from.
- L5: on a full disk records stay in the tail, which the checkpoint then holds.
- L6: the record that was found last by a number of it stays at hand, for who asks for its messages
  then. Each checkpoint has it forgotten, as it may move the block. Who is given it looks whether
  all of it was released meanwhile, or asks for what was not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

from quire.engine.pages.record_page import RecordPages
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.packed_records import PackedRecords
from quire.engine.state.durable_state import DurableQueue, PageEntry
from quire.intervals import IntervalSet


class Sealed(Protocol):
    """The pages that a checkpoint has made of the first `tail` records of a queue's tail."""

    tail: int
    replaced: PageEntry | None  # the last page of before, written anew
    entries: list[PageEntry]  # the new pages
    rewritten: dict[PageEntry, PageEntry]  # other pages and those in their stead, in any order
    moved: list[tuple[list[BlockRef], BlockRef]]  # old records and the one in their stead
    kept: list[BlockRef]  # the last of the records: for lack of room they stay in the tail (L5)


class RecordList:
    """The pages and the tail of a queue's records. Covered by the queue's lock."""

    __slots__ = ("_found", "_pages", "_starts", "directory", "queue_id", "tail")

    def __init__(self, durable: DurableQueue, pages: RecordPages) -> None:
        self._found: BlockRef | None = None  # L6
        self.queue_id = durable.config.queue_id
        self._pages = pages
        self.directory = durable.directory
        self.tail = durable.tail
        self._starts = [entry.position for entry in self.directory]

    def overlapping(self, start: int, end: int) -> Iterator[BlockRef]:
        """The records that hold messages of [start, end), in order.

        The list must not change meanwhile.
        """
        if start >= end:
            return iter(())
        directory = self.directory
        if not directory or start >= directory[-1].end:
            return self.tail.overlapping(start, end)
        index = bisect_right(self._starts, start) - 1
        if index >= 0 and end <= directory[index].end:
            return self._load(directory[index]).overlapping(start, end)
        return self._over_pages(start, end)

    def near(self, start: int, end: int) -> Iterator[BlockRef]:
        """The same, where probably the record that was found last holds all of them (L6)."""
        found = self._found
        if found is not None and found.position <= start < end <= found.end:
            return iter((found,))
        return self.overlapping(start, end)

    def _over_pages(self, start: int, end: int) -> Iterator[BlockRef]:
        for entry in self._entries(start, end):
            yield from self._load(entry).overlapping(start, end)
        yield from self.tail.overlapping(start, end)

    def last_up_to(self, field: int, most: int) -> BlockRef | None:
        """The last record whose field, which ascends with the positions, is not above `most`."""
        records = self.tail
        if not records or records.number(0, field) > most:
            directory, number = self.directory, PackedRecords.number
            page = bisect_right(directory, most, key=lambda e: number(self._load(e), 0, field)) - 1
            if page < 0:
                return None
            records = self._load(directory[page])
        self._found = records[records.last_up_to(field, most)]  # L6
        return self._found

    def at_hand(self, start: int, end: int) -> bool:
        """Return True if the usual read, of the tail or of one page, finds its page in memory.

        May be asked without the lock: when the list changes meanwhile, `missing` tells better.
        """
        directory = self.directory
        try:
            if start >= directory[-1].end:
                return True
            index = bisect_right(self._starts, start) - 1
            entry = directory[index]
        except IndexError:
            return not directory
        return entry.position <= start and end <= entry.end and self._pages.at_hand(entry.page)

    def missing(self, start: int, end: int) -> bool:
        """Return True if a record page with messages of [start, end) would have to be read."""
        return not all(self._pages.at_hand(e.page) for e in self._entries(start, end))

    def check(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Read their record pages. Raises StoreCorrupt.

        Those at hand as well: they may have to go for others before they are needed.
        """
        for entry in dict.fromkeys(e for start, end in ranges for e in self._entries(start, end)):
            if self._pages.at_hand(entry.page):
                self.read_page(entry)
            else:
                self._load(entry)

    def _entries(self, start: int, end: int) -> Iterator[PageEntry]:
        index = max(bisect_right(self._starts, start) - 1, 0)
        for entry in islice(self.directory, index, None):
            if entry.position >= end:
                return
            if start < entry.end:
                yield entry

    def __iter__(self) -> Iterator[BlockRef]:
        """All records. The list must not change meanwhile."""
        for entry in self.directory:
            yield from self._load(entry)
        yield from self.tail

    def stored(self) -> Iterator[BlockRef]:
        """All records as they are on the disk now, past the cache."""
        for entry in self.directory:
            yield from self.read_page(entry)
        yield from self.tail

    def drop_pages(self, start: int, end: int, released: IntervalSet) -> None:
        """Forget the record pages that overlap [start, end) and are released as a whole (L4)."""
        if not self.directory or start >= self.directory[-1].end:
            return
        index = max(bisect_right(self._starts, start) - 1, 0)
        while index < len(self.directory) and self.directory[index].position < end:
            entry = self.directory[index]
            if released.covers(entry.position, entry.end):
                self._pages.retire([entry.page])
                del self.directory[index], self._starts[index]
            else:
                index += 1

    def seal(self, sealed: Sealed, released: IntervalSet) -> None:
        """New record pages take the place of a page and of the tail's first records (L2, L4)."""
        self._found = None
        for old, new in sealed.rewritten.items():
            self._rewrite(old, new)
        replaced = sealed.replaced
        if replaced is not None and self.directory and self.directory[-1] == replaced:
            del self.directory[-1], self._starts[-1]
            self._pages.retire([replaced.page])
        for entry in sealed.entries:
            if released.covers(entry.position, entry.end):
                self._pages.retire([entry.page])
            else:
                self.directory.append(entry)
                self._starts.append(entry.position)
        self.tail.replace(sealed.tail, sealed.kept)

    def _rewrite(self, old: PageEntry, new: PageEntry) -> None:
        index = bisect_left(self._starts, old.position)
        if index < len(self.directory) and self.directory[index] == old:
            self.directory[index], self._starts[index] = new, new.position
            self._pages.retire([old.page])
        else:  # all of it was released meanwhile
            self._pages.retire([new.page])

    def retire(self) -> None:
        """The queue is dropped: its record pages go out of use (L4)."""
        self._pages.retire(entry.page for entry in self.directory)

    def read_page(self, entry: PageEntry) -> list[BlockRef]:
        """A page's records, past the cache; for the checkpoint and for verify."""
        return self._pages.read(entry.page, self.queue_id)

    def _load(self, entry: PageEntry) -> PackedRecords:
        return self._pages.load(entry.page, self.queue_id)
