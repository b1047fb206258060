"""The set of segment files: which are in use, ready ahead, spare or pinned.

Invariants:

G1  The segments from the oldest one that is needed up to the newest ready one are contiguous; the
    ready ones follow the current one. Below the oldest needed one only pinned segments remain.
G2  A pinned segment is neither recycled nor removed.
G3  Making a segment holds up nobody but the one who needs that very segment: `_lock` is held only
    to look and to hand over, `_making` while a file is made.
G4  At most `max_spares` released files wait for their next use; the rest is removed.

A file goes: <n>.tmp -> <n>.log (ready, current, full) -> <n>.spare -> <m>.log, m > n. Each arrow is
one rename of a synced file, so that a crash at any point leaves files that this module knows what
to do with.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from quire.env import Env, File
from quire.errors import InvalidArgument, PositionLost

from .format import Geometry
from .segment import (
    SPARE_SUFFIX,
    UNFINISHED_SUFFIX,
    make_segment,
    segment_number,
    segment_path,
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
        direct: bool,
    ) -> None:
        self._env = env
        self._directory = directory
        self._geometry = geometry
        self._max_spares = max_spares
        self._direct = direct
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._current = current
        self._live = {number for number in existing if number <= current}
        self._ready = {number for number in existing if number > current}
        self._pins: dict[int, int] = {}
        self._spares: list[str] = []
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

    def holds(self, number: int) -> bool:
        """Whether the segment's groups can be read (without the lock: one look-up in a set)."""
        return number in self._live

    def adopt_leftovers(self) -> None:
        """Take in the spares of an earlier run; remove what it left unfinished."""
        for name in self._env.list_directory(self._directory):
            path = f"{self._directory}/{name}"
            if segment_number(name, SPARE_SUFFIX) is not None:
                if self._is_whole(path) and len(self._spares) < self._max_spares:
                    self._spares.append(path)
                else:
                    self._env.remove(path)
            elif segment_number(name, UNFINISHED_SUFFIX) is not None:
                self._env.remove(path)

    def open_current(self) -> File:
        return self._env.open_file(
            segment_path(self._directory, self._current), direct=self._direct
        )

    def prepare_next(self) -> bool:
        """Make the segment after the current one, unless it is there; whether one was made."""
        with self._making:
            with self._lock:
                number = self._current + 1
                if number in self._ready:
                    return False
                spare = self._spares.pop() if self._spares else None
            try:
                make_segment(
                    self._env,
                    self._directory,
                    self._geometry,
                    number,
                    spare=spare,
                    direct=self._direct,
                )
            except OSError:
                self._discard_unfinished(number)
                raise
            with self._lock:
                self._ready.add(number)
            return True

    def advance(self) -> File:
        """Make the next segment the current one, and open it (made now if it is not ready)."""
        number = self._current + 1
        if number not in self._ready:
            self.prepare_next()
        file = self._env.open_file(segment_path(self._directory, number), direct=self._direct)
        with self._lock:
            self._ready.discard(number)
            self._live.add(number)
            self._current = number
        return file

    def release(self, before_number: int) -> list[int]:
        """Recycle or remove the unpinned segments below `before_number`; the numbers gone.

        What is pinned goes at the first call after its last `unpin`.
        """
        with self._lock:
            self._released = max(self._released, min(before_number, self._current))
            gone = [n for n in sorted(self._live) if n < self._released and n not in self._pins]
            self._live.difference_update(gone)
            room = self._max_spares - len(self._spares)
        if not gone:
            return gone
        kept: list[str] = []
        for number in gone:
            path = segment_path(self._directory, number)
            if len(kept) < room:
                spare = segment_path(self._directory, number, SPARE_SUFFIX)
                self._env.rename(path, spare)
                kept.append(spare)
            else:
                self._env.remove(path)
        self._env.sync_directory(self._directory)
        with self._lock:
            self._spares.extend(kept)
        return gone

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

    def _is_whole(self, path: str) -> bool:
        file = self._env.open_file(path, read_only=True)
        try:
            return file.size() == self._geometry.segment_bytes
        finally:
            file.close()

    def _discard_unfinished(self, number: int) -> None:
        """Remove a file that only holds space. A spare stays, and is adopted at the next open."""
        path = segment_path(self._directory, number, UNFINISHED_SUFFIX)
        if self._env.exists(path):
            self._env.remove(path)
