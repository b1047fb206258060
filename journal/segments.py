"""The set of segment files: which are in use, ready ahead, spare or pinned.

Invariants:

G1  The segments from the oldest one that is needed up to the newest ready one are contiguous; the
    ready ones follow the current one. Below the oldest needed one only those remain that are
    pinned, or that the last release was told to keep.
G2  A pinned segment is neither recycled nor removed.
G3  Making a segment holds up nobody but the one who needs that very segment: `_lock` is held only
    to look and to hand over, `_making` while a file is made.
G4  At most `max_spares` released files wait for their next use besides those of G6; the rest is
    removed.
G5  A segment's space is allocated before its use: `FIRST_SEGMENT_BYTES` for the first one, and for
    each twice as much as for the one before, up to the whole file; less where the disk is nearly
    full. What is not allocated is skipped: the next group goes to the next segment.
G6  The `kept_back` smallest spares are for relieving groups only, those that make room: others get
    DiskFull before these are touched. Two are enough for any number of relieving groups: while one
    is written to, a checkpoint sets the other one free.

A file goes: <n>.tmp -> <n>.spare -> <n>.log (ready, current, full) -> <n>.spare -> <m>.log, m > n.
Each arrow is one rename of a synced file, so that a crash at any point leaves files that this
module knows what to do with.
"""

from __future__ import annotations

import threading
from bisect import insort
from collections.abc import Collection, Iterable

from quire.env import Env, File
from quire.errors import DiskFull, InvalidArgument, PositionLost
from quire.limits import FIRST_SEGMENT_BYTES, FIRST_SEGMENT_PAGES

from .format import Geometry
from .segment import (
    SPARE_NUMBERS,
    SPARE_SUFFIX,
    UNFINISHED_SUFFIX,
    Spare,
    capacity_of,
    make_segment,
    make_spare,
    segment_number,
    segment_path,
)


def first_capacity(geometry: Geometry) -> int:
    """The space of a new journal's first segment."""
    return min(
        max(FIRST_SEGMENT_BYTES, FIRST_SEGMENT_PAGES * geometry.page_size), geometry.segment_bytes
    )


class SegmentSet:
    """The segments of one journal that is open for writing. Thread-safe."""

    def __init__(
        self,
        env: Env,
        directory: str,
        geometry: Geometry,
        *,
        current: int,
        existing: Iterable[int],
        max_spares: int,
        kept_back: int,
        direct: bool,
    ) -> None:
        self._env = env
        self._directory = directory
        self._geometry = geometry
        self._max_spares = max_spares
        self._kept_back = kept_back
        self._direct = direct
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._current = current
        self._live = {number for number in existing if number <= current}
        self._ready = {number for number in existing if number > current}
        self._capacity = {
            number: capacity_of(env, segment_path(directory, number), geometry)
            for number in (*self._live, *self._ready)
        }
        self._pins: dict[int, int] = {}
        self._spares: list[Spare] = []  # the smallest first
        self._released = 0  # segments below this number are needed by their pins only

    @property
    def numbers(self) -> list[int]:
        """The segments that hold groups, and the current one, ascending."""
        with self._lock:
            return sorted(self._live)

    @property
    def ready(self) -> int:
        """How many segments follow the current one already."""
        with self._lock:
            return len(self._ready)

    @property
    def spares(self) -> int:
        with self._lock:
            return len(self._spares)

    @property
    def pinned(self) -> list[int]:
        with self._lock:
            return sorted(self._pins)

    @property
    def space_bytes(self) -> int:
        """All space that the files have."""
        with self._lock:
            return sum(self._capacity.values()) + sum(spare.capacity for spare in self._spares)

    @property
    def kept_bytes(self) -> int:
        """The part of it that is for relieving groups only (G6)."""
        with self._lock:
            return sum(spare.capacity for spare in self._spares[: self._kept_back])

    @property
    def missing(self) -> int:
        """How many spares G6 lacks."""
        return max(0, self._kept_back - len(self._spares))

    @property
    def capacity(self) -> int:
        """The space of the current segment."""
        return self._capacity[self._current]

    def space_of(self, number: int) -> int:
        """The space of a segment; all of it where that is not known (any more)."""
        return self._capacity.get(number, self._geometry.segment_bytes)

    def holds(self, number: int) -> bool:
        """Whether the segment's groups can be read (without the lock: one look-up in a set)."""
        return number in self._live

    def adopt_leftovers(self) -> None:
        """Take in the spares of an earlier run; remove what it left unfinished."""
        for name in self._env.list_directory(self._directory):
            path = f"{self._directory}/{name}"
            if segment_number(name, SPARE_SUFFIX) is not None:
                if self._is_whole(path) and len(self._spares) < self._most_spares:
                    insort(self._spares, self._spare(path))
                else:
                    self._env.remove(path)
            elif segment_number(name, UNFINISHED_SUFFIX) is not None:
                self._env.remove(path)

    def open_current(self) -> File:
        return self._env.open_file(
            segment_path(self._directory, self._current), direct=self._direct
        )

    def keep_back(self) -> None:
        """Have the spares of G6. Raises DiskFull."""
        if not self.missing:
            return
        with self._making:
            while self.missing:
                spare = self._new_spare(first_capacity(self._geometry))
                self._env.sync_directory(self._directory)
                with self._lock:
                    insort(self._spares, spare)

    def prepare_next(self, need: int = 0, *, relieving: bool = False) -> bool:
        """Make the segment after the current one, unless it is there; whether one was made.

        It has at least the space that is the `need`. Raises DiskFull, with nothing changed.
        """
        with self._making:
            number = self._current + 1
            wanted = min(max(2 * self.capacity, need), self._geometry.segment_bytes)
            if number in self._ready:
                if self._capacity[number] >= need:
                    return False
                own = Spare(self._capacity[number], segment_path(self._directory, number))
                capacity = self._make(number, own, need, need)
            else:
                capacity = self._make_next(number, wanted, need, relieving=relieving)
            with self._lock:
                self._ready.add(number)
                self._capacity[number] = capacity
            return True

    def advance(self, need: int, *, relieving: bool) -> File:
        """Make the next segment the current one, and open it (made now if it is not ready)."""
        number = self._current + 1
        if number not in self._ready or self._capacity[number] < need:
            self.prepare_next(need, relieving=relieving)
        file = self._env.open_file(segment_path(self._directory, number), direct=self._direct)
        with self._lock:
            self._ready.discard(number)
            self._live.add(number)
            self._current = number
        return file

    def release(self, before_number: int, keep: Collection[int] = ()) -> list[int]:
        """Recycle or remove the unpinned segments below `before_number` that are not to be kept.

        Returns the numbers gone. What is pinned goes at the first call after its last `unpin`.
        """
        with self._lock:
            self._released = max(self._released, min(before_number, self._current))
            gone = [
                n
                for n in sorted(self._live)
                if n < self._released and n not in self._pins and n not in keep
            ]
            self._live.difference_update(gone)
            room = self._most_spares - len(self._spares)
        if not gone:
            return gone
        kept: list[Spare] = []
        for number in gone:
            path = segment_path(self._directory, number)
            if len(kept) < room:
                spare = segment_path(self._directory, number, SPARE_SUFFIX)
                self._env.rename(path, spare)
                kept.append(Spare(self._capacity[number], spare))
            else:
                self._env.remove(path)
        self._env.sync_directory(self._directory)
        with self._lock:
            for number in gone:
                del self._capacity[number]
            for spare_file in kept:
                insort(self._spares, spare_file)
        return gone

    def drop_spares(self) -> bool:
        """Remove the spares that are for everybody; whether there were any."""
        with self._lock:
            going = self._spares[self._kept_back :]
            del self._spares[self._kept_back :]
        for spare in going:
            self._env.remove(spare.path)
        return bool(going)

    def pin(self, number: int) -> None:
        with self._lock:
            if number not in self._live:
                raise PositionLost(
                    f"journal segment {number:#x} in {self._directory} is not there (any more);"
                    " pin a segment before its release"
                )
            self._pins[number] = self._pins.get(number, 0) + 1

    def unpin(self, number: int) -> None:
        with self._lock:
            count = self._pins.get(number, 0)
            if count == 0:
                raise InvalidArgument(f"journal segment {number:#x} is not pinned")
            if count == 1:
                del self._pins[number]
            else:
                self._pins[number] = count - 1

    @property
    def _most_spares(self) -> int:
        return self._kept_back + self._max_spares

    def _make_next(self, number: int, wanted: int, need: int, *, relieving: bool) -> int:
        """Of a spare that is for everybody, of a new file, or of one that is kept back (G6)."""
        spare = self._take_spare(-1) if self.spares > self._kept_back else None
        try:
            if spare is None:
                spare = self._largest_new(wanted, max(need, first_capacity(self._geometry)))
            return self._make(number, spare, wanted, need)
        except DiskFull:
            if not relieving or not self.spares:
                raise
        return self._make(number, self._take_spare(0), need, need)

    def _make(self, number: int, spare: Spare, wanted: int, need: int) -> int:
        """Make a segment of it; its capacity. DiskFull leaves the spare where it was."""
        try:
            return make_segment(
                self._env,
                self._directory,
                self._geometry,
                number,
                spare,
                wanted=wanted,
                need=need,
                direct=self._direct,
            )
        except DiskFull:
            if spare.path != segment_path(self._directory, number):
                with self._lock:
                    insort(self._spares, spare)
            raise

    def _take_spare(self, index: int) -> Spare:
        with self._lock:
            return self._spares.pop(index)

    def _largest_new(self, wanted: int, least: int) -> Spare:
        """A new file with the wanted space, or with half of it, a quarter..., if there is room."""
        while True:
            try:
                return self._new_spare(wanted)
            except DiskFull:
                if wanted // 2 < least:
                    raise
                wanted = wanted // 2 & -self._geometry.page_size

    def _new_spare(self, capacity: int) -> Spare:
        taken = {spare.path for spare in self._spares}
        number = next(number for number in SPARE_NUMBERS if self._spare_path(number) not in taken)
        path = self._spare_path(number)
        unfinished = segment_path(self._directory, number, UNFINISHED_SUFFIX)
        try:
            make_spare(self._env, unfinished, self._geometry, capacity, direct=self._direct)
        except OSError:
            if self._env.exists(unfinished):
                self._env.remove(unfinished)
            raise
        self._env.rename(unfinished, path)
        return Spare(capacity, path)

    def _spare_path(self, number: int) -> str:
        return segment_path(self._directory, number, SPARE_SUFFIX)

    def _spare(self, path: str) -> Spare:
        return Spare(capacity_of(self._env, path, self._geometry), path)

    def _is_whole(self, path: str) -> bool:
        file = self._env.open_file(path, read_only=True)
        try:
            return file.size() == self._geometry.segment_bytes
        finally:
            file.close()
