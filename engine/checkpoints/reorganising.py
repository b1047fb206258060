"""Reorganising data files: what lies at the end of a mostly free file moves down, and it is cut.

`IoManager.trim` gives back what is free at a file's end. After a burst a few unread blocks, or
record pages, may be left there, and hold all the free space below them. A checkpoint moves them.

- Z1: online and bounded. A checkpoint looks at `REORGANISE_RECORD_PAGES` and moves
  `REORGANISE_BYTES` in `REORGANISE_BLOCKS`, from the file's end on, one block in memory at a time;
  the next one goes on. No queue is locked and no commit waits meanwhile (see `background_pace`),
  but for the moment in which a queue takes the new places.
- Z2: nothing is overwritten. Copies go to free pages, and so does a record page that names them
  (L2). Until the checkpoint is durable the copies are pending (M2) and the old places in use: a
  crash or a checkpoint that is given up leaves all as it was.
- Z3: of the old place and the copy each is freed once. What is unread at the switch is at its new
  place from then on, and the old one is freed, or deferred while a lease pins it (P3). What was
  released meanwhile gave its old place back itself; the switch frees the copy.
- Z4: a move goes from beyond the cut to below it, or is not made. So the work comes to an end.
- Z5: only what the records of this checkpoint name is moved, as it is: same bytes, same messages,
  same charge (Q3). Pages of open and of prepared transactions stay.
- Z6: a checkpoint does not fail by it. A damaged block or record page stays where it is, for
  `verify` to find; without room on the file system or below the cut the rest stays too.

What can go wrong, and what happens then:

- A write or sync fails: the store has failed, as with all of a checkpoint's writes (K4).
- The queue is dropped, or a message read, while its block is copied: Z3.
- A reader holds the old place, and it is used again or cut off: the block has another checksum, or
  is not there, so it is looked up anew (B2), as often as it has moved.
- A block is too large for the holes below the cut: the next try settles for a cut twice as far
  from what is live, until that would bring too little.
- What lies at the end cannot be moved at all (prepared, pinned): checkpoints go on to look for what
  can, and the maintenance makes none for it until something has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING

from quire.engine.pages.block_places import Extent, Places
from quire.engine.pages.data_files import split_page
from quire.engine.pages.free_space import FreeSpace
from quire.engine.pages.record_page import RecordPages
from quire.engine.reading.block_reader import BlockMoved, BlockReader
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.state.durable_state import PageEntry
from quire.errors import ResourceExhausted, StoreCorrupt
from quire.limits import REORGANISE_BLOCKS, REORGANISE_BYTES, REORGANISE_RECORD_PAGES

from .snapshot import QueueSnapshot, Snapshot

if TYPE_CHECKING:
    from .block_mover import Mover

BlockMoves = list[tuple[BlockRef, BlockRef]]  # a record as it was and as it is


class Reorganiser:
    """Decides which files are reorganised, from one checkpoint to the next."""

    def __init__(self, places: Places, pages: RecordPages, reader: BlockReader) -> None:
        self.places = places
        self.pages = pages
        self.reader = reader
        files = len(places.managers)
        self._looser = [0] * files  # how often what is at the end found no place below the cut
        self._settled: list[tuple[int, int] | None] = [None] * files
        self._look_from = 0
        self.moved_bytes = 0

    def is_due(self, lsn: int) -> bool:
        """Return True if a checkpoint would probably make a file shorter."""
        return any(
            self._settled[file] != (lsn, manager.space.free_pages)
            and manager.cut(self._looser[file]) is not None
            for file, manager in enumerate(self.places.managers)
        )

    def begin(self, snapshot: Snapshot, mover: Mover, *, sparing: bool = False) -> Reorganisation:
        """Choose what a checkpoint is to move; mostly nothing, and nothing if it is `sparing`."""
        rooms: dict[int, FreeSpace] = {}
        for file, manager in enumerate(self.places.managers):
            cut = manager.cut(self._looser[file])
            if cut is not None and not sparing:
                rooms[file] = manager.space.below(cut)
        found = Reorganisation(self, mover, rooms)
        if rooms:
            found.choose(snapshot, self._entries(snapshot, rooms))
        return found

    def end(self, found: Reorganisation, lsn: int) -> None:
        """The checkpoint is durable, and what it set free is free."""
        self.moved_bytes += found.moved_bytes
        for file in found.rooms:
            manager = self.places.managers[file]
            moved, stayed = file in found.moved_in, file in found.chosen_in
            self._looser[file] = 0 if moved else self._looser[file] + stayed
            more = moved or found.left_out or self._look_from > 0
            if more or (stayed and manager.cut(self._looser[file]) is not None):
                self._settled[file] = None
            else:  # nothing more can be done until something changes
                self._settled[file] = lsn, manager.space.free_pages
                self._looser[file] = 0

    def _entries(
        self, snapshot: Snapshot, files: Iterable[int]
    ) -> list[tuple[QueueSnapshot, PageEntry]]:
        """The record pages to look at, from where the last checkpoint left off."""
        queues = [queue for queue in snapshot.queues if queue.queue.data_file in files]
        total = sum(len(queue.directory) for queue in queues)
        start = self._look_from if self._look_from < total else 0
        end = start + REORGANISE_RECORD_PAGES
        self._look_from = end if end < total else 0
        entries = ((queue, entry) for queue in queues for entry in queue.directory)
        return list(islice(entries, start, end))


class Reorganisation:
    """The moves of one checkpoint. `rooms` are the free pages below the cut, by file."""

    def __init__(self, reorganiser: Reorganiser, mover: Mover, rooms: dict[int, FreeSpace]) -> None:
        self._places = reorganiser.places
        self._pages = reorganiser.pages
        self._reader = reorganiser.reader
        self._mover = mover
        self._page_size = self._places.page_size
        self._chosen: set[int] = set()  # first pages of blocks, and record pages
        self._rewritten: dict[PageEntry, QueueSnapshot] = {}
        self._no_room = False  # on the file system (Z6)
        self.rooms = rooms
        self.chosen_in: set[int] = set()
        self.moved_in: set[int] = set()
        self.left_out = False  # there was more than a checkpoint may move
        self.moved_bytes = 0

    # Choosing

    def choose(self, snapshot: Snapshot, entries: list[tuple[QueueSnapshot, PageEntry]]) -> None:
        """The last of what lies beyond the cuts, as much as the limits allow (Z1)."""
        left = REORGANISE_BYTES // self._page_size
        beyond = nlargest(REORGANISE_BLOCKS + 1, self._beyond(snapshot, entries))
        for page, pages, index in beyond[:REORGANISE_BLOCKS]:
            left -= pages
            if left < 0 and self._chosen:
                break
            self._chosen.add(page)
            self.chosen_in.add(split_page(page, self._page_size)[0])
            if index >= 0:  # that of its record page
                queue, entry = entries[index]
                self._rewritten[entry] = queue
        self.left_out = len(self._chosen) < len(beyond)

    def _beyond(
        self, snapshot: Snapshot, entries: list[tuple[QueueSnapshot, PageEntry]]
    ) -> Iterator[tuple[int, int, int]]:
        """Extents beyond the cuts: of blocks, and of record pages, which `entries` lists."""
        pace = self._mover.pace
        for index, (queue, entry) in enumerate(entries):
            # The page that the checkpoint writes anew anyway needs no move.
            if self._is_beyond(entry.page, 1) and entry != queue.to_replace(self._pages.capacity):
                yield entry.page, 1, index
            with suppress(StoreCorrupt):
                refs = queue.queue.records.read_page(entry)
                for extent in self._blocks_beyond(queue, refs):
                    yield *extent, index
            pace.rest()
        for queue in snapshot.queues:
            if queue.queue.data_file in self.rooms:
                tail = queue.queue.records.tail.between(0, queue.tail)
                for extent in self._blocks_beyond(queue, tail):
                    yield *extent, -1

    def _blocks_beyond(self, queue: QueueSnapshot, refs: Iterable[BlockRef]) -> Iterator[Extent]:
        for ref in self._mover.pace.over(refs):
            if ref.kind == format.DATA and not queue.released.covers(ref.position, ref.end):
                extent = self._places.extent_of(ref)
                if self._is_beyond(*extent):
                    yield extent

    def _is_beyond(self, page: int, pages: int) -> bool:
        file, first = split_page(page, self._page_size)
        room = self.rooms.get(file)
        return room is not None and first + pages > room.total_pages

    # Moving

    def move(self, queue: QueueSnapshot, ref: BlockRef) -> BlockRef:
        """A block whose record is about to be sealed: at its new place, or as it is."""
        if ref.kind != format.DATA or ref.address // self._page_size not in self._chosen:
            return ref

        def copy(taken: list[Extent]) -> BlockMoves:
            return [(ref, new) for new in [self._copy(queue, ref, taken)] if new is not ref]

        moves = self._attempt(queue, copy)
        return moves[0][1] if moves else ref

    def rewrite(self) -> None:
        """Move what sealed record pages name, and these pages themselves."""
        for entry, queue in self._rewritten.items():
            if entry != queue.replaced:
                self._attempt(queue, partial(self._rewrite, queue, entry))

    def _attempt(
        self, queue: QueueSnapshot, action: Callable[[list[Extent]], BlockMoves]
    ) -> BlockMoves:
        """Let the action take pages, and keep them if it could use them."""
        taken: list[Extent] = []
        if self._no_room:
            return []
        try:
            moves = action(taken)
        except BaseException as error:
            self._places.abandon(taken)
            if not isinstance(error, ResourceExhausted):
                raise
            self._no_room = True
            return []
        self._mover.extents += taken
        queue.moved += [([old], new) for old, new in moves]
        for extent in taken:
            self.moved_bytes += extent.pages * self._page_size
            self.moved_in.add(split_page(extent.first, self._page_size)[0])
        self._mover.pace.rest()
        return moves

    def _rewrite(self, queue: QueueSnapshot, entry: PageEntry, taken: list[Extent]) -> BlockMoves:
        """A record page, and what of its blocks is to move; `taken` stays empty if nothing is."""
        try:
            old = queue.queue.records.read_page(entry)
        except StoreCorrupt:
            return []
        place = self._take(entry.page, 1, taken)
        if place is None:
            return []
        kept = [ref for ref in old if not queue.released.covers(ref.position, ref.end)]
        new = [self._copy(queue, ref, taken) for ref in kept]
        moves = [(ref, copy) for ref, copy in zip(kept, new, strict=True) if copy is not ref]
        if moves or entry.page in self._chosen:
            self._places.write_to(place, self._pages.pack(queue.queue.queue_id, new))
            queue.rewritten[entry] = PageEntry(new[0].position, new[-1].end, place.first, len(new))
        else:
            self._places.abandon(taken)
            taken.clear()
        return moves

    def _copy(self, queue: QueueSnapshot, ref: BlockRef, taken: list[Extent]) -> BlockRef:
        """A block's record once it is copied; the same if the block stays where it is."""
        if ref.kind != format.DATA or ref.address // self._page_size not in self._chosen:
            return ref
        with queue.queue.lock:
            if not queue.queue.unreleased(ref):
                return ref
        try:
            data = self._reader.verified(ref)
        except (BlockMoved, StoreCorrupt):
            return ref
        place = self._take(
            ref.address // self._page_size, self._places.pages_for(ref.length), taken
        )
        if place is None:
            return ref
        self._places.write_to(place, data)
        return ref._replace(address=place.first * self._page_size)

    def _take(self, page: int, pages: int, taken: list[Extent]) -> Extent | None:
        """Pages below the cut of the file that the page is in."""
        file, _ = split_page(page, self._page_size)
        extent = self._places.take_low(file, pages, self.rooms[file])
        if extent is not None:
            taken.append(extent)
        return extent
