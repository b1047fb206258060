"""Places that were released and are not shipped to the store's archive yet: they stay till then.

The records of the journal name pages and files, which a shipper reads after their commit. So while
the store has an archive:

- US1: no page or file that a record which is not shipped names is used again or removed, also after
  a crash. What is released waits here, with the journal's end of that time, and goes once all
  before that end is shipped. Segments of the journal wait as well (`Checkpointer`).
- US2: a checkpoint holds what waits, and the shipped position. What is reported shipped after it is
  waited for again after a crash, until the first report: a report itself is never durable.
- US3: recovery frees at once what the records of its replay release, as later ones may have used it
  again: it was shipped then. What nobody has taken in the end waits again.
- US4: the position moves past what was not shipped, a gap, in two cases only: the archive is set,
  perhaps to another place; or a checkpoint says so (`Checkpointer.run`), so that nothing is used
  again before the gap itself is durable. Where recovery does not know the position, as no
  checkpoint was made since the archive was set, it is the journal's end.
- US5: more records are shipped by a later entry only. A shipper that was slower than another makes
  its entry perhaps at a place whose entry was merged and removed since: nobody reads that.

A store without an archive pays nothing for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from msgspec import Struct, field

from quire.env.interpreter import Lock
from quire.intervals import IntervalSet
from quire.limits import UNSHIPPED_ENDS, UNSHIPPED_STEP_BYTES
from quire.reports.info import ShippingReport


class ShippedPosition(NamedTuple):
    """A place in the journal, and in the archive: everything before is shipped."""

    lsn: int
    number: int = 0  # of the latest record before
    place: int = 0  # a hint: no entry of the archive up to it is missing


class ReleasedPlaces(Struct):
    """Pages and files that were released while the journal grew by a step."""

    first_lsn: int
    lsn: int  # the journal's end when the latest of them were
    pages: IntervalSet = field(default_factory=IntervalSet)  # numbered over all data files
    files: dict[int, int] = field(default_factory=dict)  # and the bytes of each


class UnshippedSnapshot(Struct):
    """The places that wait, for a checkpoint (US2)."""

    position: ShippedPosition
    gap: bool
    gap_since_us: int
    since_us: int
    base_number: int
    pages: IntervalSet
    files: list[int]
    lets_go: bool = False  # of all this: only the position is for the checkpoint (US4)


class UnshippedPlaces:
    """The places that wait for the store's archive; none where there is no archive. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._end: Callable[[], ShippedPosition] | None = None  # of the journal; None: recovery
        self._now_us: Callable[[], int] = int
        self.entry: Mapping[str, Any] | None = None  # of the catalog
        self.is_on = False
        self.position: ShippedPosition | None = None  # None: recovery does not know it
        self.since_us = 0  # when the archive was set
        self.gap = False  # records up to `_gap_number` were never shipped, and no base has them
        self._gap_number = 0
        self.gap_since_us = 0  # when something was let go of unshipped at last; 0: since no base
        self.base_number = 0
        self.error = ""
        self.calls = 0  # of a shipper, since the opening
        self.puts_wait = ""  # why puts wait for the shipper, in words
        self._ends: deque[tuple[int, int]] = deque(
            maxlen=UNSHIPPED_ENDS
        )  # told, each with its time
        self.shipped_us = 0  # all that was committed until then is shipped
        self._waiting: deque[ReleasedPlaces] = deque()
        self._going: list[ReleasedPlaces] = []  # shipped, and about to be free
        self.freeing = Lock()  # held while these become free

    # The archive

    def obey(self, entry: Mapping[str, Any] | None) -> bool:
        """Note what the catalog says of the archive, live and in recovery.

        Return True if nothing is to wait any more for what it was before.
        """
        before = "" if self.entry is None else self.entry["url"]
        url = "" if entry is None else entry["url"]
        with self._lock:
            self.entry, self.puts_wait = entry, ""  # whether they do is looked at anew
            if url == before:
                return False
            self.is_on = bool(url)
            self.position = None
            self.gap, self.gap_since_us, self.base_number, self.error = self.is_on, 0, 0, ""
            if self._end is None:  # they are free already, as far as nobody has taken them (US3)
                self._waiting.clear()
                return False
            if self.is_on:
                self.position, self.since_us = self._end(), self._now_us()
                self._gap_number, self.shipped_us = self.position.number, self.since_us
            return True

    def follow(self, end: Callable[[], ShippedPosition]) -> None:
        """From now on the journal's end is told by this."""
        self._end = end

    def resume(self, end: ShippedPosition, now_us: Callable[[], int]) -> ReleasedPlaces:
        """Recovery is done; return what was released and may have to wait again (US3)."""
        with self._lock:
            self._end, self._now_us = lambda: end, now_us
            self.shipped_us = now_us() if self.is_on else 0
            found = ReleasedPlaces(end.lsn, end.lsn)
            if self.is_on and self.position is not None:
                for released in self._waiting:
                    for lo, hi in released.pages:
                        found.pages.add(lo, hi)
                    found.files |= released.files
            elif self.is_on:
                self.position, self.since_us = end, self.shipped_us
                self._gap_number = end.number
            self._waiting.clear()
            return found

    # What waits

    def keep_pages(self, first: int, pages: int) -> bool:
        """Pages were released. Return True if they are to stay as they are (US1)."""
        with self._lock:
            released = self._latest()
            if released is not None:
                released.pages.add(first, first + pages)
            return released is not None and self._end is not None

    def keep_file(self, ltds_id: int, size: int) -> bool:
        """A file was released. Return True if it is to stay (US1)."""
        with self._lock:
            released = self._latest()
            if released is not None:
                released.files[ltds_id] = size
            return released is not None and self._end is not None

    def _latest(self) -> ReleasedPlaces | None:
        """Return the step that takes what is released now; None: nothing waits."""
        if self.position is None:
            return None
        lsn = 0 if self._end is None else self._end().lsn
        if not self._waiting or lsn - self._waiting[-1].first_lsn > UNSHIPPED_STEP_BYTES:
            self._waiting.append(ReleasedPlaces(lsn, lsn))
        latest = self._waiting[-1]
        latest.lsn = lsn
        return latest

    def wait_again(self, released: ReleasedPlaces) -> None:
        """Let the rest of what `resume` has returned wait again."""
        with self._lock:
            self._waiting.append(released)

    @contextmanager
    def going(self, lsn: int | None) -> Iterator[list[ReleasedPlaces]]:
        """Take what was released up to an LSN, or all of it, which is to be free in the end."""
        with self.freeing:
            with self._lock:
                while self._waiting and (lsn is None or self._waiting[0].lsn <= lsn):
                    self._going.append(self._waiting.popleft())
            try:
                yield self._going
            finally:
                self._going = []

    def runs(self) -> list[tuple[int, int]]:
        """The pages that wait, as (first, end)."""
        with self._lock:
            return [run for each in self._waiting for run in each.pages]

    def has_file(self, ltds_id: int) -> bool:
        """Return True if the file waits."""
        with self._lock:
            return any(ltds_id in each.files for each in (*self._going, *self._waiting))

    @property
    def files(self) -> int:
        """The number of files that wait."""
        with self._lock:
            return sum(len(each.files) for each in (*self._going, *self._waiting))

    def held_bytes(self, page_size: int) -> int:
        """The bytes of all that waits."""
        with self._lock:
            return sum(
                each.pages.total * page_size + sum(each.files.values()) for each in self._waiting
            )

    # Reports and checkpoints

    def report(self, report: ShippingReport) -> int | None:
        """Note that all before a position was shipped; return the LSN up to which places may go.

        A report of what was let go of meanwhile changes no position, nor does one of an entry that
        is not the archive's (US5).
        """
        with self._lock:
            position, entry = self.position, self.entry
            if position is None or entry is None or report.url not in ("", entry["url"]):
                return None
            while self._ends and self._ends[0][0] <= report.lsn:
                self.shipped_us = self._ends.popleft()[1]
            if report.number > position.number and report.place <= position.place:
                return None  # (US5)
            if report.lsn >= position.lsn:
                place = max(position.place, report.place)
                self.position = position = ShippedPosition(report.lsn, report.number, place)
            self.base_number = max(self.base_number, report.base_number)
            if self.gap and self.base_number >= self._gap_number:
                self.gap, self.gap_since_us = False, 0
            self.error = report.error
            return position.lsn

    def tell_end(self, lsn: int) -> None:
        """The shipper is told that it may ship up to there."""
        with self._lock:
            self._ends.append((lsn, self._now_us()))

    def excess(self, journal_bytes: int, page_size: int) -> int:
        """Return by how much the limit is passed, with so much of the journal; below 0: not yet."""
        entry = self.entry
        return 0 if entry is None else journal_bytes + self.held_bytes(page_size) - entry["limit"]

    def snapshot(self, gap_at: ShippedPosition | None) -> UnshippedSnapshot | None:
        """Return what a checkpoint holds; called before what is released waits for its end (P4).

        `gap_at`: it lets go of all that waits, and the position is there (US4).
        """
        with self._lock:
            position = self.position
            if position is None:
                return None
            pages, files = IntervalSet(), list[int]()
            for each in (*self._going, *self._waiting):
                for lo, hi in each.pages:
                    pages.add(lo, hi)
                files += each.files
            found = UnshippedSnapshot(
                position, self.gap, self.gap_since_us, self.since_us, self.base_number, pages, files
            )
            if gap_at is not None:
                found.position = gap_at._replace(place=position.place)
                found.gap, found.gap_since_us = True, self.gap_since_us or self._now_us()
                found.lets_go = True
                self._waiting.append(ReleasedPlaces(gap_at.lsn, gap_at.lsn))  # a step ends here
            return found

    def skip(self, snapshot: UnshippedSnapshot) -> None:
        """A checkpoint that lets go of it is durable (US4)."""
        with self._lock:
            if self.position is not None and self.position.lsn <= snapshot.position.lsn:
                self.position, self._gap_number = snapshot.position, snapshot.position.number
                self.gap, self.gap_since_us = True, snapshot.gap_since_us

    def restore(self, document: Mapping[str, Any], pages: Iterable[tuple[int, int]]) -> list[int]:
        """Take what a checkpoint holds, with its pages; return its files.

        Raises KeyError, TypeError or ValueError for what contradicts itself.
        """
        self.position = ShippedPosition(*(int(n) for n in document["position"]))
        self._gap_number = self.position.number  # or before: then it was shipped meanwhile
        self.gap, self.gap_since_us = bool(document["gap"]), int(document["gap_since_us"])
        self.since_us, self.base_number = int(document["since_us"]), int(document["base_number"])
        files = [int(name, 16) for name in document["files"]]
        released = ReleasedPlaces(0, 0, IntervalSet(), dict.fromkeys(files, 0))
        for lo, hi in pages:
            released.pages.add(lo, hi)
        self._waiting.append(released)
        return files
