"""The places of blocks: pages of data files, files of large transactions, and pins on them.

- P1: a place is free only when the change that frees it is durable. Where that is not synced yet,
  the blocks are `held` until it is (`hold`, `settle`). Where the store has an archive, it is free
  only when that change was shipped, too (`unshipped_places`).
- Data pages may be used again at once: recovery reads none of them (but see `record_page`).
- P3: a pinned place (see `lease`) keeps its bytes until it is unpinned, even if it is free already.
- P4: while a checkpoint is being made, pages that are released wait: the checkpoint's state still
  has them in use, and so they must not be taken for what it moves.
- P5: removing a large file takes long, so it is put off to `sweep`, which runs beside commits, and
  removes it slice by slice (see `discarded_files`).
- P6: files are written at the same time only where the store may have threads (`parallel`);
  otherwise one after another in the order of their numbers, so that a run can be repeated.
- P7: after a failed sync of the large files' directory no other one is tried: it could return
  although the names of another thread's files were lost with the failed one.

Each data file belongs to an I/O manager. Pages are numbered over all of them (see `data_files`).

The blocks of volatile queues are in memory (`MemoryBlocks`):

- An address is given once: one that is kept too long finds nothing, never another block.
- A block is there until its queue has released it, or the transaction that put it is not committed
  after all. What they may take together is bounded by their queues' capacities.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, NamedTuple

from quire.block import EncodedBlock
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef, BlockRow
from quire.engine.records.commit_record import Part, new_part
from quire.env import Env
from quire.env.interpreter import Lock, RLock, numbers_from
from quire.errors import PositionLost, StoreFailed
from quire.limits import MAX_DATA_FILE_BYTES
from quire.ltds import is_foreign, path_of

from .block_cache import BlockCache
from .data_file import PageData
from .data_files import DataFiles, split_page
from .discarded_files import DiscardedFiles
from .free_space import FreeSpace
from .io_manager import IoManager
from .io_worker import Action, JobGroup
from .unshipped_places import ReleasedPlaces, ShippedPosition, UnshippedPlaces


class Extent(NamedTuple):
    """Consecutive pages of one file."""

    first: int
    pages: int


class Places:
    """The places of all blocks, and who holds them. Thread-safe."""

    def __init__(
        self,
        env: Env,
        ltds_directory: str,
        data: DataFiles,
        spaces: Sequence[FreeSpace],
        ltds: dict[int, str],
        *,
        parallel: bool,
    ) -> None:
        """`ltds`: the held files and the queue of each, the state's own."""
        self._env = env
        self.ltds_directory = ltds_directory
        self.data = data
        self.managers = [IoManager(*pair) for pair in zip(data, spaces, strict=True)]
        self.parallel = parallel
        self.page_size = data.page_size
        self._file_pages = MAX_DATA_FILE_BYTES // data.page_size  # numbers of a file's pages
        self._lock = Lock()
        self._naming = RLock()
        self._naming_failed = False
        self.ltds = ltds
        self._removable: list[int] = []
        self._ltds_pins = Counter[int]()
        self.discarded = DiscardedFiles(env, ltds_directory, self.sync_names)
        self._holding = False  # changes are applied that are not durable yet (P1)
        self.deferred: list[BlockRef] = []  # blocks that such changes have released
        self.unshipped = UnshippedPlaces()
        self.memory = MemoryBlocks()
        self.cache = cache = BlockCache()
        self._forget = cache.forget

    # Pages that are being written

    def write(self, file: int, pieces: Sequence[PageData]) -> Extent:
        """Write pieces one after another to pages of a data file, each from a page's beginning.

        The pages are pending until `commit`, `keep` or `abandon`, and durable after `sync`. Raises
        `DiskFull` with nothing changed.
        """
        first, pages = self.managers[file].write(pieces)
        return Extent(self.base_of(file) + first, pages)

    def write_each(self, pieces: Mapping[int, Sequence[PageData]]) -> dict[int, Extent]:
        """Write pieces to several data files at the same time, durably; all of them or none."""
        written: dict[int, Extent] = {}

        def write(file: int) -> None:
            written[file] = self.write(file, pieces[file])
            self.managers[file].data.sync()

        try:
            if len(pieces) == 1:
                write(*pieces)
            else:
                self._run_parallel({file: partial(write, file) for file in sorted(pieces)})
        except BaseException:
            self.abandon(written.values())
            raise
        return written

    def take_low(self, file: int, pages: int, room: FreeSpace) -> Extent | None:
        """Pages that are free in the file and in `room` (see `IoManager`), pending."""
        first = self.managers[file].take_low(pages, room)
        return None if first is None else Extent(self.base_of(file) + first, pages)

    def write_to(self, extent: Extent, piece: PageData) -> None:
        """Write a piece to pending pages. Raises `DiskFull`; they stay pending."""
        manager, first, _ = self.located(*extent)
        manager.data.write_extent(first, [piece])

    def sync(self, files: Iterable[int]) -> None:
        """Make durable what was written to these files before."""
        self._run_parallel({file: self.managers[file].data.sync for file in sorted(set(files))})

    def begin(self, work: JobGroup, file: int, action: Action) -> None:
        """Let the file's I/O manager do it while the caller goes on, if there may be threads."""
        if self._several(2):
            work.begin(action, self.managers[file].worker)
        else:
            action()

    def keep(self, extents: Iterable[Extent]) -> None:
        """Pending pages are in use from now on."""
        self._of_each(extents, FreeSpace.commit)

    def abandon(self, extents: Iterable[Extent]) -> None:
        """Pending pages are free again."""
        self._of_each(extents, FreeSpace.abandon)

    def _of_each(
        self, extents: Iterable[Extent], change: Callable[[FreeSpace, int, int], None]
    ) -> None:
        """Change the state of pages in the free space of their files."""
        for extent in extents:
            manager, first, pages = self.located(*extent)
            change(manager.space, first, pages)

    # Pages in use

    def extent_of(self, ref: BlockRef | Part) -> Extent:
        """The pages of a block in a data file."""
        return Extent(ref.address // self.page_size, self.pages_for(ref.length))

    def part_at(self, page: int, block: EncodedBlock, queue_id: int) -> Part:
        """A block that was written to the page, as part of a commit."""
        return Part(
            address=page * self.page_size,
            charge=block.charge_bytes,
            checksum=int.from_bytes(block.data[:8], "little"),
            queue_id=queue_id,
            length=len(block.data),
            count=block.count,
            kind=format.DATA,
        )

    def new_id(self) -> int:
        """A random name, not 0, for blocks that a transaction places."""
        return self._env.random_u64() or 1

    def pages_for(self, length: int) -> int:
        """Return how many pages so many bytes take."""
        return -(-length // self.page_size)

    def commit(self, part: Part, live: bool) -> None:
        """A committed transaction holds the part's pages from now on."""
        taken = FreeSpace.commit if live else FreeSpace.claim_or_grow
        self._of_each((self.extent_of(part),), taken)

    def hold(self) -> None:
        """Keep what is released from now on until `settle` (P1)."""
        self._holding = True

    def settle(self) -> None:
        """Free what was kept: all that was applied is durable now."""
        with self._lock:
            self._holding = False
            deferred, self.deferred = self.deferred, []
        self._free(deferred)

    def free(self, refs: Sequence[BlockRow]) -> None:
        """Blocks that were released (P1)."""
        self._forget(refs)
        if self._holding and not (refs and refs[0][8] == format.MEMORY):  # of one queue all are
            with self._lock:
                if self._holding:
                    self.deferred += map(BlockRef._make, refs)
                    return
        if len(refs) != 1 or refs[0][8]:  # of one alone that is inline there is nothing
            self._free(refs)

    def _free(self, refs: Sequence[BlockRow]) -> None:
        unshipped = self.unshipped if self.unshipped.is_on else None
        for row in refs:
            if row[8] == format.INLINE:  # whose space is the journal's
                continue
            if row[8] == format.MEMORY:
                self.memory.discard(row[3])
                continue
            ref = BlockRef._make(row)
            if ref.kind == format.DATA:
                extent = self.extent_of(ref)
                if unshipped is None or not unshipped.keep_pages(*extent):
                    manager, first, pages = self.located(*extent)
                    manager.free(first, pages)
            elif ref.kind == format.LTDS:
                is_kept = unshipped is not None and unshipped.keep_file(ref.address, ref.charge)
                with self._lock:
                    self.ltds.pop(ref.address, None)
                    if not is_kept:
                        self._removable.append(ref.address)

    # What waits for the archive

    def let_go(self, lsn: int | None = None) -> None:
        """Let go of what was released up to an LSN, as it was shipped; or of all of it (US1)."""
        with self.unshipped.going(lsn) as going:
            for released in going:
                for lo, hi in released.pages:  # each run is of one file, as all have a header
                    manager, first, pages = self.located(lo, hi - lo)
                    manager.free(first, pages)
                with self._lock:
                    self._removable += released.files

    def remember_unshipped(
        self, document: Mapping[str, Any], pages: Sequence[Sequence[tuple[int, int]]]
    ) -> None:
        """Take what a checkpoint holds of it (US2); `pages`: in each file, as (first, end)."""
        own = []
        for file, runs in enumerate(pages):
            for first, end in runs:
                self.managers[file].space.free(first, end - first)
                own.append((self.base_of(file) + first, self.base_of(file) + end))
        self._removable += self.unshipped.restore(document, own)

    def resume(self, end: ShippedPosition) -> None:
        """Recovery is done, the journal ends there: what nobody has taken waits again (US3)."""
        found = self.unshipped.resume(end, self._env.now_us)
        again = ReleasedPlaces(found.first_lsn, found.lsn)
        for start, end_page in found.pages:
            manager, first, pages = self.located(start, end_page - start)
            # What is beyond the file's end was shipped, and cut off since.
            for lo, hi in manager.space.claim_free(first, min(pages, manager.data.pages - first)):
                again.pages.add(start - first + lo, start - first + hi)
        for ltds_id in found.files:
            path = path_of(self.ltds_directory, ltds_id)
            if ltds_id in self._removable and self._env.exists(path):
                self._removable = [i for i in self._removable if i != ltds_id]
                with closing(self._env.open_file(path, read_only=True)) as file:
                    again.files[ltds_id] = file.size()
        if again.pages or again.files:
            self.unshipped.wait_again(again)

    def free_page(self, page: int) -> None:
        """A record page that no checkpoint needs any more; at once."""
        self._of_each((Extent(page, 1),), FreeSpace.free)

    def pin(self, ref: BlockRef) -> None:
        """Keep a block's pages, or a large transaction's file (P3)."""
        if ref.kind == format.LTDS:
            with self._lock:
                self._ltds_pins[ref.address] += 1
        else:
            self._of_each((self.extent_of(ref),), FreeSpace.pin)

    def unpin(self, ref: BlockRef) -> None:
        """Undo one `pin` of the same."""
        if ref.kind == format.LTDS:
            self.unpin_files([ref.address])
        else:
            self._of_each((self.extent_of(ref),), FreeSpace.unpin)

    def pin_all(self, pinned: ExitStack) -> None:
        """Keep all that is in use now, whatever comes of it (P3); `pinned` undoes that."""
        for manager in self.managers:
            pinned.callback(manager.space.unpin, *manager.space.pin_all())
        pinned.callback(self.unpin_files, self.pin_files())

    def pin_files(self) -> list[int]:
        """Keep all files of large transactions that commits hold now."""
        with self._lock:
            pinned = list(self.ltds)
            self._ltds_pins.update(pinned)
            return pinned

    def unpin_files(self, ltds_ids: Iterable[int]) -> None:
        """Undo one pin of each."""
        with self._lock:
            self._ltds_pins.subtract(ltds_ids)
            self._ltds_pins = +self._ltds_pins

    def withhold(self) -> None:
        """A checkpoint begins: pages that are released from now on wait for its end (P4)."""
        for manager in self.managers:
            manager.withhold()

    def hand_back(self) -> None:
        """The checkpoint is durable, or was given up."""
        for manager in self.managers:
            manager.hand_back()

    def trim(self) -> None:
        """Give free space at the data files' ends back, but for some to go on with."""
        for manager in self.managers:
            manager.trim()

    def base_of(self, file: int) -> int:
        """The number of a file's first page."""
        return file * self._file_pages

    def stop(self) -> None:
        """End the threads; nothing may be under way or begin any more."""
        self.parallel = False
        for manager in self.managers:
            manager.worker.stop()

    def located(self, page: int, pages: int) -> tuple[IoManager, int, int]:
        """The I/O manager of an extent, and its pages as the file numbers them."""
        if page < self._file_pages:
            return self.managers[0], page, pages
        file, first = split_page(page, self.page_size)
        self.data.file(file)  # raises StoreCorrupt if it is not there
        return self.managers[file], first, pages

    def _several(self, files: int) -> bool:
        """Return True if so many files are written at the same time (P6)."""
        return self.parallel and files > 1 and len(self.managers) > 1

    def _run_parallel(self, actions: Mapping[int, Action]) -> None:
        """Do something with each of the files."""
        if not self._several(len(actions)):
            for action in actions.values():
                action()
            return
        work = JobGroup(len(actions))
        *others, own = actions
        try:
            for file in others:
                work.begin(actions[file], self.managers[file].worker)
            work.begin(actions[own])
        except BaseException:
            work.cancel()
            raise
        work.finish()

    # Large transactions' files

    def sweep(self, *, sliced: bool = False) -> int:
        """Remove the files that nobody needs any more (P3, P5); how many were released.

        `sliced`: only a slice of them, as commits go on.
        """
        with self._lock:
            going = [i for i in self._removable if i not in self._ltds_pins]
            self._removable = [i for i in self._removable if i in self._ltds_pins]
            for ltds_id in going:
                self.discarded.add(ltds_id)
        for ltds_id in going:
            self.cache.forget_file(ltds_id)
        if sliced:
            self.discarded.remove_slice()
        else:
            self.discarded.remove_all()
        return len(going)

    def released(self) -> list[int]:
        """Files of others that a commit held and that may still be there (DI5)."""
        with self._lock:
            return [i for i in (*self._removable, *self.discarded.waiting) if is_foreign(i)]

    def remember_released(self, ltds_ids: Iterable[int]) -> None:
        """Files that an earlier opening has released: they are to be removed."""
        self._removable += ltds_ids

    def sync_names(self) -> None:
        """Make the names of completed large files durable (P7). Raises StoreFailed."""
        with self._naming:
            if self._naming_failed:
                raise StoreFailed(
                    f"a sync of {self.ltds_directory} has failed: close the store and open it "
                    "again to recover"
                )
            try:
                self._env.sync_directory(self.ltds_directory)
            except OSError:
                self._naming_failed = True
                raise

    def knows(self, ltds_id: int) -> bool:
        """Return True if a commit holds the file, or held it and it waits for its end."""
        with self._lock:
            if ltds_id in self.ltds or ltds_id in self._removable or ltds_id in self.discarded:
                return True
        return self.unshipped.has_file(ltds_id)

    def holds(self, ltds_id: int) -> bool:
        """Return True if a commit holds the file, and messages of it are not released."""
        return ltds_id in self.ltds

    @property
    def removable(self) -> int:
        return len(self._removable) + len(self.discarded) + self.unshipped.files


class MemoryBlocks:
    """The blocks of volatile queues. Thread-safe, without a lock: each step is one of a dict."""

    def __init__(self) -> None:
        self._blocks: dict[int, bytes | bytearray] = {}
        self._new_address = numbers_from(1)

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def size_bytes(self) -> int:
        """The bytes of the blocks, without what the dict needs for its keys."""
        return sum(map(sys.getsizeof, list(self._blocks.values())))

    def keep(self, block: EncodedBlock, queue_id: int, parts: list[Part]) -> None:
        """A block is here from now on, as the last of these parts of a commit."""
        data, address = block.data, self._new_address()
        checksum, length = int.from_bytes(data[:8], "little"), len(data)
        parts.append(
            new_part(
                (address, block.charge_bytes, checksum, queue_id, length, block.count,
                 format.MEMORY, 0, 0, 0)
            )
        )  # fmt: skip
        self._blocks[address] = data  # at last: an interrupt leaves none behind that is no part

    def read(self, address: int) -> bytes | bytearray:
        """Raises PositionLost where it is not here any more."""
        data = self._blocks.get(address)
        if data is None:
            raise PositionLost(f"memory {address:#x}: the block was released")
        return data

    def discard(self, address: int) -> None:
        """Let go of a block, if it is here."""
        self._blocks.pop(address, None)
