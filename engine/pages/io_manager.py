"""An I/O manager: a data file, its free space, and the thread that writes it beside others [0031].

Page numbers are those of the file; `Places` puts the file's number above them. For P4 see there.
"""

from __future__ import annotations

from collections.abc import Sequence

from quire.env.interpreter import Lock
from quire.errors import DiskFull
from quire.limits import FILE_SLACK_BYTES, MAX_DATA_FILE_BYTES

from .data_file import DataFile, PageData
from .free_space import FreeSpace
from .io_worker import IoWorker


class IoManager:
    """A data file with its free space and its worker thread. Thread-safe."""

    def __init__(self, data: DataFile, space: FreeSpace) -> None:
        self.data = data
        self.space = space
        self.worker = IoWorker(f"quire-io {data.path}")
        self._lock = Lock()
        self._freeing = Lock()
        self._withheld: list[tuple[int, int]] | None = None  # released pages (P4)

    def write(self, pieces: Sequence[PageData]) -> tuple[int, int]:
        """Write the pieces one after another to pages that are pending then: (first page, pages).

        Durable after a sync of the file. Raises `DiskFull` with nothing changed.
        """
        pages = sum(self.data.pages_for(len(piece)) for piece in pieces)
        first = self._allocate(pages)
        try:
            self.data.write_extent(first, pieces)
        except BaseException:
            self.space.abandon(first, pages)
            raise
        return first, pages

    def take_low(self, pages: int, room: FreeSpace) -> int | None:
        """Pages that are free here and in `room`, pending from now on; they are taken from both."""
        while (first := room.allocate(pages)) is not None:
            with self._lock:
                if self.space.allocate_at(first, pages):
                    return first
        return None

    def free(self, first: int, pages: int) -> None:
        """Pages were released."""
        with self._freeing:
            if self._withheld is None:
                self.space.free(first, pages)
            else:
                self._withheld.append((first, pages))

    def withhold(self) -> None:
        with self._freeing:
            self._withheld = []

    def hand_back(self) -> None:
        with self._freeing:
            for first, pages in self._withheld or ():
                self.space.free(first, pages)
            self._withheld = None

    def trim(self) -> None:
        """Give free space at the data file's end back, but for some to go on with."""
        with self._lock:
            old = self.space.total_pages
            used = self.space.shrink_tail()
            target = self._size_for(used)
            if old - target < self.data.grow_pages:
                target = old
            if target > used:
                self.space.grow(target - used)
            if target < self.data.pages:
                self.data.shrink(target)

    def cut(self, looser: int = 0) -> int | None:
        """Return how many pages would be enough, if what is in use beyond them moved below.

        None unless that would halve the file at least, and `trim` would give something back.
        `looser`: allow for more holes that are too small, twice as much with each step.
        """
        end = self.space.end_in_use
        live = self.space.total_pages - self.space.free_pages
        cut = live + (((self._size_for(live) - live) // 2) << looser)
        saved_pages = self._size_for(end) - self._size_for(cut)
        return cut if 2 * cut <= end and saved_pages >= self.data.grow_pages else None

    def match_file(self) -> None:
        """After recovery: the map is as long as the file, which has its space (see `DataFile`).

        A file that was cut after its last checkpoint does not grow again: there may be no room.
        """
        used = self.space.shrink_tail()
        if self.data.pages < used:
            self.data.ensure(used)
        if self.data.pages > used:
            self.space.grow(self.data.pages - used)

    def _size_for(self, used: int) -> int:
        """Return how many pages the file keeps where so many first ones are in use."""
        return used + FILE_SLACK_BYTES // self.data.page_size + used // 16

    def _allocate(self, pages: int) -> int:
        """Consecutive pages, pending; the file grows when it has to."""
        with self._lock:
            first = self.space.allocate(pages)
            while first is None:
                total = self.space.total_pages + pages
                if total * self.data.page_size > MAX_DATA_FILE_BYTES:
                    raise DiskFull(
                        f"{self.data.path} cannot have more than {MAX_DATA_FILE_BYTES} bytes: "
                        "read messages, or give queues another data file"
                    )
                total = self.data.ensure(total)
                self.space.grow(total - self.space.total_pages)
                first = self.space.allocate(pages)
            return first
