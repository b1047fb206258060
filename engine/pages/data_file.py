"""One data file: pages that blocks are written to and read from. Version 1.

Header: the first 64 bytes of page 0, little-endian; the rest of page 0 is zero.

    offset  size  field
         0     8  checksum    XXH3-64 of bytes [8, 64)
         8     4  magic       "QDAT"
        12     2  version     1
        14     2  flags       0
        16     4  page_size   bytes: a power of two from 4096 to 65536
        20     4  number      which of the store's data files this is, from 0
        24     8  store_id    the store this file belongs to
        32     8  created_us  when the header was written, microseconds since 1970
        40    24  reserved    0

Valid: checksum and magic right. A valid header of another version is refused; in every version the
checksum covers bytes [8, 64), and magic and version stay where they are. All other pages are the
engine's: this module knows neither what they hold nor which of them are in use.

Invariants:

- D1: creation is crash-safe: after a crash there is no file of the name, or one with its header.
- D2: the header page is never written again.
- D3: a write goes only to pages whose space is held, so that it cannot run out of room: `ensure`
  and `write_extent` get the space first, and `DiskFull` from them has changed nothing.
- D4: after a write, sync or change of size that failed, all of these raise `StoreFailed`; reads go
  on. Only opening the file anew ends this. Syncs come one after another: an error is told to one of
  them only, and what it concerns may be what another thread has written.
- D5: nothing is read beyond the pages of the file. It is read by position and not mapped, here and
  in other processes: for them it just ends earlier where it is cut. Bytes that are not there, or
  that the disk does not give, are `StoreCorrupt`, and never the process's end.
- D6: memory for writing is bounded: `MAX_LENT_BUFFERS` of `MAX_WRITE_BYTES`, whatever is written.

Which pages hold space is not recorded. A page that was there at opening may be a hole, as in a copy
of the file, so the first write to it costs an allocation (measured: 0.1 ms), later ones do not.

Methods may be called by several threads; two writes to the same pages at once are the caller's bug.
"""

from __future__ import annotations

import copy
import os.path
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from struct import Struct
from typing import Final

from quire.checksum import checksum
from quire.env import Env, File
from quire.env.interpreter import Lock, RLock, numbers_from
from quire.errors import (
    InvalidArgument,
    ResourceExhausted,
    StoreClosed,
    StoreCorrupt,
    StoreFailed,
    StoreVersion,
)
from quire.intervals import IntervalSet
from quire.limits import (
    DEFAULT_GROW_BYTES,
    FIRST_GROW_BYTES,
    MAX_IDLE_BUFFERS,
    MAX_LENT_BUFFERS,
    MAX_PAGE_SIZE_BYTES,
    MAX_WRITE_BYTES,
    MIN_BUFFER_BYTES,
    MIN_PAGE_SIZE_BYTES,
)

VERSION: Final = 1
MAGIC: Final = int.from_bytes(b"QDAT", "little")
CHECKSUM: Final = Struct("<Q")
HEADER_FIELDS: Final = Struct("<IHHIIQQ24x")  # from offset 8
HEADER_BYTES: Final = 64
UNFINISHED_SUFFIX: Final = ".tmp"  # a file in the making; the next creation removes what is left

assert CHECKSUM.size + HEADER_FIELDS.size == HEADER_BYTES

_ZEROS: Final = memoryview(bytes(MAX_PAGE_SIZE_BYTES))

PageData = bytes | bytearray | memoryview


class DataFile:
    """An open data file. See the module for what it guarantees."""

    def __init__(
        self,
        env: Env,
        path: str,
        *,
        page_size: int = MIN_PAGE_SIZE_BYTES,
        store_id: int,
        number: int = 0,
        create: bool = False,
        grow_bytes: int = DEFAULT_GROW_BYTES,
    ) -> None:
        """Open the file; with `create`, make it if there is none (D1).

        `pages` is then what the file's size says. After recovery, before the first `read` if
        possible, call `shrink` with the page count that is in use: only then a file gets shorter
        for certain; and `ensure`, as a file without direct writes may have lost its growth.

        Raises StoreCorrupt when the file is missing, damaged, or of another store, number or page
        size, StoreVersion for another format version, DiskFull when there is no room to create it.
        What sizes there may be, the journal and `Options` have checked.
        """
        self.path = path
        self.page_size = page_size
        self.grow_pages = -(-grow_bytes // page_size)  # a large file grows by so many at least
        self._size_lock = Lock()  # held over changes of size and space; taken before _lock
        self._syncing = RLock()  # held over a sync (D4)
        self._lock = Lock()  # covers the fields below; never held over I/O
        self._allocated = IntervalSet()  # pages whose space is known to be held (D3)
        self._closed = False
        self._failure: OSError | None = None
        self._buffers = _Buffers(env)
        if create:
            _make(env, path, page_size, store_id, number)
        self._file = _open(env, path)
        try:
            check_header(path, self._file.read(0, HEADER_BYTES), page_size, store_id, number)
            self.pages = self._file.size() // page_size  # the header page included
            if self.pages < 1:
                raise StoreCorrupt(f"{path} ends within its header page; restore it from a copy")
        except BaseException:
            self._file.close()
            raise

    @property
    def failed(self) -> bool:
        """True if a write, sync or change of size has failed (D4)."""
        return self._failure is not None

    def pages_for(self, length: int) -> int:
        """Return how many pages `length` bytes take."""
        return -(-length // self.page_size)

    # Content

    def read(self, offset: int, length: int) -> bytes | memoryview:
        """`length` bytes at byte `offset`: nobody changes them any more.

        Raises StoreCorrupt for bytes beyond the end, as whatever points there is wrong or the file
        was cut, and for bytes that the disk does not give.
        """
        assert offset >= 0 <= length
        with self._lock:
            if self._closed:
                raise _closed(self.path)
            end = self.pages * self.page_size
        if offset + length > end:
            raise StoreCorrupt(
                f"{self.path} has {end} bytes: {length} bytes at {offset} are not in it"
            )
        data = self._file.read_block(offset, length)
        if len(data) < length:
            raise StoreCorrupt(
                f"{self.path} ends within the {length} bytes at {offset}: somebody has cut it;"
                " restore it from a copy"
            )
        return data

    def write_extent(self, first_page: int, pieces: Sequence[PageData]) -> int:
        """Write the pieces from `first_page` on, each from the beginning of a page; the page count.

        A piece takes `pages_for(its length)` pages, padded with zeros. It is one write, or several
        for more than `MAX_WRITE_BYTES`. Durable after `sync`.

        Raises DiskFull when holes cannot be filled (D3), StoreFailed when the write
        fails, InvalidArgument for an empty piece or pages that the file does not have.
        """
        views = [memoryview(piece) for piece in pieces]
        if not all(view.nbytes for view in views):
            raise InvalidArgument("an empty piece cannot be written: leave it out")
        count = sum(self.pages_for(view.nbytes) for view in views)
        if not count:
            return 0
        self._hold_space(first_page, count)
        size = count * self.page_size
        with self._buffers.lend(size) as buffer, self._failing("write", unless=ResourceExhausted):
            offset = first_page * self.page_size
            for filled in _gather(views, buffer, self.page_size):
                self._file.write(offset, filled)
                offset += len(filled)
        return count

    def sync(self) -> None:
        """Make durable what `write_extent` wrote in calls that returned before this one."""
        self._check_usable()
        if self._file.direct:
            return
        with self._syncing, self._failing("sync"):
            self._file.sync()

    # Space

    def ensure(self, pages: int) -> int:
        """Let the file have at least `pages` pages, with space for all that are new; the count.

        It grows to the next multiple of `grow_bytes`, while it is small of a smaller power of two,
        or just as far as asked when there is no room for that. Raises DiskFull, and nothing has
        changed.
        """
        self._check_usable()
        if pages <= self.pages:
            return self.pages
        with self._size_lock:
            old = self.pages
            if pages > old:
                least = max(FIRST_GROW_BYTES // self.page_size, 1 << (pages.bit_length() - 1))
                step = min(self.grow_pages, least)
                generous = -(-pages // step) * step
                try:
                    self._allocate(old, generous)
                except ResourceExhausted:
                    if generous == pages:
                        raise
                    generous = pages
                    self._allocate(old, generous)
                with self._lock:
                    self.pages = generous
                    self._allocated.add(old, generous)
            return self.pages

    def shrink(self, pages: int) -> None:
        """Cut the file down to `pages` pages; nobody may need what lies beyond."""
        self._check_usable()
        with self._size_lock:
            old = self.pages
            if not 1 <= pages <= old:
                raise InvalidArgument(f"cannot shrink {self.path} from {old} to {pages} pages")
            if pages == old:
                return
            with self._lock:
                self.pages = pages
            with self._failing("truncate"):
                self._file.truncate(pages * self.page_size)
            with self._lock:
                self._allocated.remove(pages, old)

    def close(self) -> None:
        """Let go of the file, without a write, a cut or a sync; twice is once."""
        with self._size_lock:
            with self._lock:
                if self._closed:
                    return
                self._closed = True
            self._file.close()

    # Within

    def _hold_space(self, first: int, pages: int) -> None:
        """Get the space of those of the pages that may have none (D3)."""
        self._check_pages(first, pages)
        end = first + pages
        with self._lock:
            if self._allocated.covers(first, end):
                return
        # One allocation at a time: one that fails sets the size back to what it was before it.
        with self._size_lock:
            with self._lock:
                missing = list(self._allocated.gaps(first, end))
            for lo, hi in missing:
                self._allocate(lo, hi)
                with self._lock:
                    self._allocated.add(lo, hi)

    def _allocate(self, first: int, end: int) -> None:
        try:
            with self._failing("allocate", unless=ResourceExhausted):
                self._file.allocate(
                    first * self.page_size, (end - first) * self.page_size, zeros=False
                )
        except ResourceExhausted as error:
            error.add_note(f"for {end - first} more pages of {self.page_size} bytes")
            raise

    def _check_pages(self, first: int, pages: int) -> None:
        self._check_usable()
        if pages < 1 or first < 1 or first + pages > self.pages:
            raise InvalidArgument(
                f"{self.path} has no {pages} pages from page {first} on: it has pages 1 to"
                f" {self.pages - 1}; call ensure first"
            )

    def _check_usable(self) -> None:
        if self._closed:
            raise _closed(self.path)
        self._check_failure()

    @contextmanager
    def _failing(self, doing: str, unless: type[OSError] | None = None) -> Iterator[None]:
        """An OSError inside, but for `unless`, makes the file unusable for writing (D4)."""
        self._check_failure()
        try:
            yield
        except OSError as error:
            if unless is not None and isinstance(error, unless):
                raise
            error.add_note(f"in a {doing} of {self.path}")
            if self._failure is None:
                self._failure = copy.copy(error)  # which holds nothing that it has passed
            raise _failed(self.path, error) from error
        # What another thread's failure left undone must not count as done here.
        self._check_failure()

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise _failed(self.path, self._failure)


class _LendingPlace:
    """One of the places for buffers that are lent; an interrupt frees it, too (GI3)."""

    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = Lock()


class _Buffers:
    """Aligned buffers to gather extents in: a bounded number lent, a few kept for the next (D6)."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._lock = Lock()
        self._places = tuple(_LendingPlace() for _ in range(MAX_LENT_BUFFERS))
        self._next = numbers_from(0)
        self._idle: list[memoryview] = []

    @contextmanager
    def lend(self, size: int) -> Iterator[memoryview]:
        """A buffer of at least `size` bytes, or of `MAX_WRITE_BYTES` if that is less."""
        size = min(max(size, MIN_BUFFER_BYTES), MAX_WRITE_BYTES)
        with self._place().lock:
            buffer = self._take(size)
            try:
                yield buffer
            finally:
                self._give_back(buffer)

    def _place(self) -> _LendingPlace:
        """Return a place that is free, or where there is none the one whose turn it is."""
        free = (place for place in self._places if not place.lock.locked())
        return next(free, self._places[self._next() % MAX_LENT_BUFFERS])

    def _take(self, size: int) -> memoryview:
        with self._lock:
            for index, buffer in enumerate(self._idle):
                if len(buffer) >= size:
                    return self._idle.pop(index)
        return self._env.aligned_buffer(1 << (size - 1).bit_length())

    def _give_back(self, buffer: memoryview) -> None:
        with self._lock:
            self._idle.append(buffer)
            if len(self._idle) > MAX_IDLE_BUFFERS:
                self._idle.sort(key=len)
                del self._idle[0]


def _gather(
    views: Sequence[memoryview], buffer: memoryview, page_size: int
) -> Iterator[memoryview]:
    """Fill the buffer with the pieces, each from a page boundary on; yield it when it is full."""
    filled = 0
    for view in views:
        data = view.cast("B")
        done = 0
        while done < len(data):
            part = min(len(data) - done, len(buffer) - filled)
            buffer[filled : filled + part] = data[done : done + part]
            done += part
            filled += part
            padding = -filled % page_size if done == len(data) else 0
            buffer[filled : filled + padding] = _ZEROS[:padding]
            filled += padding
            if filled == len(buffer):
                yield buffer
                filled = 0
    if filled:
        yield buffer[:filled]


def _make(env: Env, path: str, page_size: int, store_id: int, number: int) -> None:
    """Create the file if there is none, and make its name durable either way (D1)."""
    # A file that is there may come from a creation that was killed right after the rename.
    directory = os.path.split(path)[0] or "."
    try:
        if env.exists(path):
            env.sync_directory(directory)
            return
        unfinished = path + UNFINISHED_SUFFIX
        if env.exists(unfinished):
            env.remove(unfinished)
        with closing(env.open_file(unfinished, create=True, direct=True)) as file:
            file.write(0, _header_page(env, page_size, store_id, number))
            file.sync()
        env.rename(unfinished, path)
        try:
            env.sync_directory(directory)
        except OSError:
            # The new name may never become durable, whatever is synced later: begin anew next time.
            env.rename(path, unfinished)
            raise
    except ResourceExhausted:
        raise
    except OSError as error:
        raise StoreFailed(f"{path} could not be created ({error}); try again") from error


def _open(env: Env, path: str) -> File:
    try:
        return env.open_file(path, direct=True)
    except FileNotFoundError as error:
        raise StoreCorrupt(f"the data file {path} is missing; restore it from a copy") from error


def _header_page(env: Env, page_size: int, store_id: int, number: int) -> memoryview:
    page = env.aligned_buffer(page_size)
    HEADER_FIELDS.pack_into(page, 8, MAGIC, VERSION, 0, page_size, number, store_id, env.now_us())
    CHECKSUM.pack_into(page, 0, checksum(page[8:HEADER_BYTES]))
    return page


def sizes_in(path: str, header: bytes) -> tuple[int, int]:
    """The store's id and the size of pages that a header states. Raises StoreCorrupt."""
    magic, _, _, page_size, _, store_id, _ = _verified(path, header)
    if magic != MAGIC:
        raise StoreCorrupt(f"{path} is not a data file of Quire")
    return store_id, page_size


def _verified(path: str, header: bytes) -> tuple[int, ...]:
    if len(header) < HEADER_BYTES or CHECKSUM.unpack_from(header)[0] != checksum(header[8:]):
        raise StoreCorrupt(f"the header of {path} (page 0) is damaged; restore it from a copy")
    return HEADER_FIELDS.unpack_from(header, 8)


def check_header(path: str, header: bytes, page_size: int, store_id: int, number: int) -> None:
    """Raise StoreCorrupt or StoreVersion unless the header is that of this store's data file."""
    magic, version, _, its_page_size, its_number, its_store_id, _ = _verified(path, header)
    if magic != MAGIC:
        raise StoreCorrupt(f"{path} is not a data file of Quire")
    if version != VERSION:
        raise StoreVersion(
            f"{path} has format version {version}; this release reads version {VERSION}:"
            " open it with the release that wrote it"
        )
    if its_store_id != store_id:
        raise StoreCorrupt(
            f"{path} belongs to store {its_store_id:016x}, not to this one ({store_id:016x});"
            " put the store's own file back"
        )
    if its_number != number:
        raise StoreCorrupt(
            f"{path} is the store's data file {its_number}, not {number}: give it its own name back"
        )
    if its_page_size != page_size:
        raise StoreCorrupt(f"{path} has pages of {its_page_size} bytes, the store of {page_size}")


def _closed(path: str) -> StoreClosed:
    return StoreClosed(f"{path} is closed; open the store again")


def _failed(path: str, error: OSError) -> StoreFailed:
    return StoreFailed(
        f"writing to {path} has failed ({error}); close the store and open it again to recover"
    )
