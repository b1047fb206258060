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

from bisect import insort
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from quire.env import File
from quire.env.interpreter import Lock
from quire.errors import InvalidArgument, PositionLost, ResourceExhausted
from quire.limits import FIRST_SEGMENT_BYTES, FIRST_SEGMENT_PAGES

from .format import Geometry
from .segment import (
    SPARE_SUFFIX,
    UNFINISHED_SUFFIX,
    Directory,
    Spare,
    capacity_of,
    make_segment,
    make_spare,
    segment_number,
)


class JournalStatus(NamedTuple):
    """Numbers of the segments for the store's status, and counts."""

    segments: list[int]  # those that hold groups, and the current one, ascending
    pinned: list[int]
    ready: int  # so many follow the current one already
    spares: int
    bytes: int  # of space, in all files
    kept_back_bytes: int  # the part of it that is for relieving groups only (G6)


def first_capacity(geometry: Geometry) -> int:
    """The space of a new journal's first segment."""
    return min(
        max(FIRST_SEGMENT_BYTES, FIRST_SEGMENT_PAGES * geometry.page_size), geometry.segment_bytes
    )


class SegmentSet:
    """The segments of one journal that is open for writing. Thread-safe."""

    def __init__(
        self, directory: Directory, existing: Sequence[int], max_spares: int, kept_back: int
    ) -> None:
        """`existing`: the last one is the current one. Spares of an earlier run are taken in."""
        self._directory = directory
        self._env = directory.env
        self._geometry = directory.geometry
        self._max_spares = max_spares
        self._kept_back = kept_back
        self._lock = Lock()
        self._making = Lock()
        self._current = existing[-1]
        self._live = set(existing)
        self.ready: set[int] = set()
        self._capacity = {
            number: capacity_of(directory, directory.path_of(number)) for number in existing
        }
        self._pins = Counter[int]()
        self._spares: list[Spare] = []  # the smallest first
        self._released = 0  # segments below this number are needed by their pins only
        self._adopt_leftovers()

    def _adopt_leftovers(self) -> None:
        """Take in the spares of an earlier run; remove what it left unfinished."""
        for name in self._env.list_directory(self._directory.path):
            path = f"{self._directory.path}/{name}"
            if segment_number(name, SPARE_SUFFIX) is not None:
                with closing(self._env.open_file(path, read_only=True)) as file:
                    is_whole = file.size() == self._geometry.segment_bytes
                if is_whole and len(self._spares) < self._most_spares:
                    insort(self._spares, Spare(capacity_of(self._directory, path), path))
                else:
                    self._env.remove(path)
            elif segment_number(name, UNFINISHED_SUFFIX) is not None:
                self._env.remove(path)

    def status(self) -> JournalStatus:
        with self._lock:
            spares = [spare.capacity for spare in self._spares]
            return JournalStatus(
                segments=sorted(self._live),
                pinned=sorted(self._pins),
                ready=len(self.ready),
                spares=len(spares),
                bytes=sum(self._capacity.values()) + sum(spares),
                kept_back_bytes=sum(spares[: self._kept_back]),
            )

    @property
    def missing(self) -> int:
        """The number of spares that G6 lacks."""
        return max(0, self._kept_back - len(self._spares))

    @property
    def has_spares(self) -> bool:
        """Return True if any segment is ready or spare."""
        return bool(self.ready or self._spares)

    @property
    def least_space(self) -> int:
        """The space that a new journal's first segment has."""
        return first_capacity(self._geometry)

    @property
    def ready_space(self) -> int:
        """The most space of a segment that is ready; 0: none is."""
        with self._lock:
            return max((self._capacity[number] for number in self.ready), default=0)

    @property
    def capacity(self) -> int:
        """The space of the current segment."""
        return self._capacity[self._current]

    def space_of(self, number: int) -> int:
        """The space of a segment; all of it where that is not known (any more)."""
        return self._capacity.get(number, self._geometry.segment_bytes)

    def space_between(self, first: int, end: int) -> int:
        """The space of the segments from one to before another."""
        return sum(self.space_of(number) for number in range(first, end))

    def holds(self, number: int) -> bool:
        """Return True if the segment's groups can be read (without the lock: one look-up in a
        set).
        """
        return number in self._live

    def open_current(self) -> File:
        return self._open(self._current)

    def _open(self, number: int) -> File:
        path = self._directory.path_of(number)
        return self._env.open_file(path, direct=self._directory.direct)

    def keep_back(self) -> None:
        """Have the spares of G6. Raises DiskFull."""
        if not self.missing:
            return
        with self._making:
            while self.missing:
                spare = self._new_spare(first_capacity(self._geometry))
                self._directory.sync()
                with self._lock:
                    insort(self._spares, spare)

    def prepare_next(self, need: int = 0, *, relieving: bool = False) -> bool:
        """Make the segment after the current one, unless it is there; whether one was made.

        It has at least the space that is the `need`. Raises DiskFull, with nothing changed.
        """
        with self._making:
            number = self._current + 1
            preferred = min(max(2 * self.capacity, need), self._geometry.segment_bytes)
            if number in self.ready:
                if self._capacity[number] >= need:
                    return False
                own = Spare(self._capacity[number], self._directory.path_of(number))
                capacity = self._make(number, own, need, need)
            else:
                capacity = self._make_next(number, preferred, need, relieving=relieving)
            with self._lock:
                self.ready.add(number)
                self._capacity[number] = capacity
            return True

    def open_next(self, need: int, before: Callable[[str], None], relieving: bool) -> File:
        """Open the next segment (made now if it is not ready), and call `before` with its path.

        A refusal, of either, has changed nothing.
        """
        number = self._current + 1
        if number not in self.ready or self._capacity[number] < need:
            self.prepare_next(need, relieving=relieving)
        file = self._open(number)
        try:
            before(file.path)
        except BaseException:
            file.close()
            raise
        return file

    def advance(self) -> None:
        """Make the next segment the current one."""
        number = self._current + 1
        with self._lock:
            self.ready.discard(number)
            self._live.add(number)
            self._current = number

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
        done: list[int] = []
        with suppress(ResourceExhausted):  # the rest goes with the next release
            for number in gone:
                path = self._directory.path_of(number)
                if len(kept) < room:
                    spare = self._directory.path_of(number, SPARE_SUFFIX)
                    self._env.rename(path, spare)
                    kept.append(Spare(self._capacity[number], spare))
                else:
                    self._env.remove(path)
                done.append(number)
        with self._lock:
            self._live.update(gone[len(done) :])
        gone = done
        self._directory.sync()
        with self._lock:
            for number in gone:
                del self._capacity[number]
            for made in kept:
                insort(self._spares, made)
        return gone

    def renew_next(self) -> None:
        """Have the next segment ready with the least space, whatever was ready.

        No group is written meanwhile. DiskFull: none is ready.
        """
        least, number = first_capacity(self._geometry), self._current + 1
        with self._making:
            self._drop_ready()
            capacity = self._make(number, self._new_spare(least), least, least)
            with self._lock:
                self.ready.add(number)
                self._capacity[number] = capacity

    def _drop_ready(self) -> None:
        """Remove the ready segments, from the newest down, so that no crash leaves a gap (G1)."""
        with self._lock:
            gone = sorted(self.ready, reverse=True)
            self.ready.clear()
            for number in gone:
                del self._capacity[number]
        for number in gone:
            with suppress(ResourceExhausted):  # the next one takes its name
                self._env.remove(self._directory.path_of(number))
                self._directory.sync()

    def shrink_spares(self) -> None:
        """Keep only the spares of G6, each with the least space. DiskFull: some have more."""
        least = first_capacity(self._geometry)
        with self._making:
            while sum(spare.capacity <= least for spare in self._spares) < self._kept_back:
                spare = self._new_spare(least)
                with self._lock:
                    insort(self._spares, spare)
            self._directory.sync()
        self.drop_spares()

    def drop_spares(self) -> bool:
        """Remove the spares that are for everybody; whether there were any."""
        with self._lock:
            going = self._spares[self._kept_back :]
            del self._spares[self._kept_back :]
        for spare in going:
            with suppress(ResourceExhausted):  # it is a file too many then, until the next opening
                self._env.remove(spare.path)
        return bool(going)

    def pin(self, number: int) -> None:
        with self._lock:
            if number not in self._live:
                raise PositionLost(
                    f"journal segment {number:#x} in {self._directory.path} is not there (any"
                    " more); pin a segment before its release"
                )
            self._pins[number] += 1

    def unpin(self, number: int) -> None:
        with self._lock:
            if not self._pins[number]:
                raise InvalidArgument(f"journal segment {number:#x} is not pinned")
            self._pins[number] -= 1
            self._pins = +self._pins

    @property
    def _most_spares(self) -> int:
        return self._kept_back + self._max_spares

    def _make_next(self, number: int, preferred: int, need: int, *, relieving: bool) -> int:
        """Make the next segment of a free spare, of a new file, or of a spare that is kept back
        (G6).
        """
        spare = self._take_spare(-1) if len(self._spares) > self._kept_back else None
        try:
            if spare is None:
                spare = self._largest_new(preferred, max(need, first_capacity(self._geometry)))
            return self._make(number, spare, preferred, need)
        except ResourceExhausted:
            if not relieving or not self._spares:
                raise
        return self._make(number, self._take_spare(0), need, need)

    def _make(self, number: int, spare: Spare, preferred: int, need: int) -> int:
        """Make a segment of it; its capacity. DiskFull leaves the spare where it was."""
        try:
            return make_segment(self._directory, number, spare, preferred, need)
        except ResourceExhausted:
            if spare.path != self._directory.path_of(number):
                with self._lock:
                    insort(self._spares, spare)
            raise

    def _take_spare(self, index: int) -> Spare:
        with self._lock:
            return self._spares.pop(index)

    def _largest_new(self, preferred: int, least: int) -> Spare:
        """A new file with the wanted space, or with half of it, a quarter..., if there is room."""
        while True:
            try:
                return self._new_spare(preferred)
            except ResourceExhausted:
                if preferred // 2 < least:
                    raise
                preferred = preferred // 2 & -self._geometry.page_size

    def _new_spare(self, capacity: int) -> Spare:
        path = next(self._directory.free_spares())
        unfinished = path.removesuffix(SPARE_SUFFIX) + UNFINISHED_SUFFIX
        try:
            made = make_spare(self._directory, unfinished, capacity)
            self._env.rename(unfinished, path)
        except OSError:
            if self._env.exists(unfinished):
                self._env.remove(unfinished)
            raise
        return made._replace(path=path)
