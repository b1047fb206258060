"""Where messages are: pages of the data file and files of large transactions, who holds them.

- P1: a place is free only when the change that frees it is durable.
- P2: data pages may be used again at once: recovery reads none of them (but see `record_page`).
- P3: a pinned place (see `lease`) keeps its bytes until it is unpinned, even if it is free already.
- P4: while a checkpoint is being made, pages that are released wait: the checkpoint's state still
  has them in use, and so they must not be taken for what it moves.
- P5: removing a large file takes long, so it is put off to `sweep`, which runs beside commits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from quire.env import Env
from quire.ltds import remove as remove_ltds

from . import format
from .block_ref import BlockRef
from .commit_record import Part
from .data_file import DataFile
from .free_space import FreeSpace

# What `trim` leaves free at the data file's end, so that the next commits need not grow it again.
_SLACK_BYTES: Final = 1 << 20


class Places:
    """See the module. Thread-safe."""

    def __init__(self, env: Env, ltds_directory: str, data: DataFile, space: FreeSpace) -> None:
        self._env = env
        self._ltds_directory = ltds_directory
        self.data = data
        self.space = space
        self._lock = threading.Lock()
        self.ltds: dict[int, str] = {}  # committed files and the queue each belongs to
        self._removable: list[int] = []
        self.before_removal: Callable[[int], None] = lambda ltds_id: None
        self._ltds_pins: dict[int, int] = {}
        self._freeing = threading.Lock()
        self._withheld: list[tuple[int, int]] | None = None  # released pages (P4)

    # Pages

    def allocate(self, pages: int) -> int:
        """Consecutive pages of the data file, pending; the file grows when it has to.

        Raises `DiskFull` with nothing changed.
        """
        with self._lock:
            first = self.space.allocate(pages)
            while first is None:
                total = self.data.ensure(self.space.total_pages + pages)
                self.space.grow(total - self.space.total_pages)
                first = self.space.allocate(pages)
            return first

    def trim(self) -> None:
        """Give free space at the data file's end back, but for some to go on with."""
        with self._lock:
            old = self.space.total_pages
            used = self.space.shrink_tail()
            slack = (_SLACK_BYTES // self.data.page_size) + used // 16
            target = used + slack
            if old - target < self.data.grow_pages:
                target = old
            if target > used:
                self.space.grow(target - used)
            if target < self.data.pages:
                self.data.shrink(target)

    def pages_of(self, ref: BlockRef | Part) -> tuple[int, int]:
        """(first page, pages) of a block in the data file."""
        return ref.address // self.data.page_size, self.data.pages_for(ref.length)

    def commit(self, part: Part, queue: str, live: bool) -> None:
        """A committed transaction holds the part's place from now on."""
        if part.kind == format.LTDS:
            self.ltds[part.address] = queue
        elif live:
            self.space.commit(*self.pages_of(part))
        else:
            first, pages = self.pages_of(part)
            if first + pages > self.space.total_pages:
                self.space.grow(first + pages - self.space.total_pages)
            self.space.claim(first, pages)

    def free(self, refs: Sequence[BlockRef]) -> None:
        """Blocks that were released (P1)."""
        for ref in refs:
            if ref.kind == format.DATA:
                with self._freeing:
                    if self._withheld is None:
                        self.space.free(*self.pages_of(ref))
                    else:
                        self._withheld.append(self.pages_of(ref))
            elif ref.kind == format.LTDS:
                with self._lock:
                    self.ltds.pop(ref.address, None)
                    self._removable.append(ref.address)

    def withhold(self) -> None:
        """A checkpoint begins: pages that are released from now on wait for its end (P4)."""
        with self._freeing:
            self._withheld = []

    def hand_back(self) -> None:
        """The checkpoint is durable, or was given up."""
        with self._freeing:
            for first, pages in self._withheld or ():
                self.space.free(first, pages)
            self._withheld = None

    # Large transactions' files

    def pin_ltds(self, ltds_id: int) -> None:
        with self._lock:
            self._ltds_pins[ltds_id] = self._ltds_pins.get(ltds_id, 0) + 1

    def unpin_ltds(self, ltds_id: int) -> None:
        with self._lock:
            self._ltds_pins[ltds_id] -= 1
            if not self._ltds_pins[ltds_id]:
                del self._ltds_pins[ltds_id]

    def sweep(self) -> int:
        """Remove the files that nobody needs any more (P3, P5); how many."""
        with self._lock:
            going = [i for i in self._removable if i not in self._ltds_pins]
            self._removable = [i for i in self._removable if i in self._ltds_pins]
        for ltds_id in going:
            self.before_removal(ltds_id)
            remove_ltds(self._env, self._ltds_directory, ltds_id)
        return len(going)

    def knows(self, ltds_id: int) -> bool:
        """Whether a commit holds the file, or held it and it waits for its removal."""
        with self._lock:
            return ltds_id in self.ltds or ltds_id in self._removable

    @property
    def removable(self) -> int:
        return len(self._removable)
