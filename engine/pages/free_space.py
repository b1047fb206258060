"""The free-space map of one data file, in pages.

    free ── allocate ──> pending ── commit ──> used ── free ──> free
      ^                     │                    └─ free, pinned ─> deferred ─ last unpin ─> free
      └────── abandon ──────┘

A page that is pinned when it is abandoned is deferred too. `claim` goes from free straight to used.

Invariants:

- F1: each page is in one state: reserved (the header), free, pending, used or deferred; the
  counts add up to `total_pages` at any time.
- F2: `allocate` never hands out a page that is pending, used, deferred or pinned; but for a page
  that was free when all pages were pinned (`pin_all`), of which nobody needs what it held.
- F3: free extents are coalesced: no two of them touch.
- F4: `snapshot` shows as free what a restart may hand out again: free, pending and deferred pages.
- F5: an extent given back twice, or one that was never taken, is `StoreCorrupt`; a call that raises
  changes nothing.
- F6: low pages go first, so that the file can shrink: of the few smallest extents that fit, the
  lowest one is used; the extent at the end of the file only when no other fits.

One lock covers all methods; none of them waits for anything else or does any I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from operator import sub
from typing import Final, TypeAlias

from sortedcontainers import SortedDict, SortedList

from quire.env.interpreter import Lock
from quire.errors import InvalidArgument, StoreCorrupt
from quire.intervals import IntervalSet
from quire.limits import FREE_SPACE_CANDIDATES, RUNS_BITS_BYTES

HEADER_PAGES: Final = 1  # the first ones, which are never free
Extents: TypeAlias = list[tuple[int, int]]
"""(first page, pages) of each, ascending."""


class FreeSpace:
    """The free pages of a data file, and the states of the others."""

    def __init__(self, total_pages: int = HEADER_PAGES) -> None:
        """Begin with all pages free but those of the header."""
        if total_pages < HEADER_PAGES:
            raise InvalidArgument(f"a file has a header: {total_pages} pages are too few")
        self._lock = Lock()
        self.total_pages = total_pages
        self._free = IntervalSet()
        self._by_length = SortedList()  # the same as (pages, first page)
        self.pending = IntervalSet()
        self.deferred = IntervalSet()
        self._pins = SortedDict()  # (first page, pages) -> how often it is pinned
        self._longest_pin = 0  # no pin has more pages; bounds the search for overlapping ones
        if total_pages > HEADER_PAGES:
            self._put(HEADER_PAGES, total_pages)

    @classmethod
    def from_extents(cls, total_pages: int, extents: Extents) -> FreeSpace:
        """The map of a checkpoint: what is free, ascending; all other pages are used.

        Raises `StoreCorrupt` when extents overlap, are out of order or leave the file.
        """
        end = HEADER_PAGES  # of the one before
        for first, pages in extents:
            if first < end or pages < 1 or first + pages > total_pages:
                raise StoreCorrupt(
                    f"the free extents of a file of {total_pages} pages overlap, are out of order "
                    "or leave the file"
                )
            end = first + pages
        result = cls()
        result.total_pages = total_pages
        result._free = IntervalSet.from_list((first, first + pages) for first, pages in extents)
        result._by_length.update((end - first, first) for first, end in result._free)
        return result

    # Taking pages

    def allocate(self, pages: int) -> int | None:
        """Take `pages` consecutive pages, pending until `commit` or `abandon`; the first page.

        None when no free extent is long enough: grow the file, then `grow`, and ask again.
        """
        if pages < 1:
            raise InvalidArgument(f"cannot allocate {pages} pages: ask for 1 or more")
        with self._lock:
            fitting = islice(self._by_length.irange(minimum=(pages,)), FREE_SPACE_CANDIDATES)
            first: int | None = min((candidate for _, candidate in fitting), default=None)
            if first is not None:
                self._take(first, first + pages)
                self.pending.add(first, first + pages)
            return first

    def allocate_at(self, first: int, pages: int) -> bool:
        """Take exactly these pages, pending, if they are free."""
        with self._lock:
            if first + pages > self.total_pages or not self._free.covers(first, first + pages):
                return False
            self._take(first, first + pages)
            self.pending.add(first, first + pages)
            return True

    def commit(self, first: int, pages: int) -> None:
        """Pending pages (a whole allocation or a part) are in use from now on."""
        with self._lock:
            self._take_pending("commit", first, pages)

    def abandon(self, first: int, pages: int) -> None:
        """Pending pages (a whole allocation or a part) are free again."""
        with self._lock:
            self._take_pending("abandon", first, pages)
            self._release(first, first + pages)

    def claim(self, first: int, pages: int) -> None:
        """Take exactly these pages for good, as recovery does; they have to be free."""
        with self._lock:
            self._check_range("claim", first, pages)
            if not self._free.covers(first, first + pages):
                raise StoreCorrupt(f"pages {_shown(first, pages)} are claimed but are not free")
            self._take(first, first + pages)

    def claim_free(self, first: int, pages: int) -> list[tuple[int, int]]:
        """Take those of these pages for good that are free; as (first, end)."""
        with self._lock:
            end = min(first + pages, self.total_pages)
            found = list(self._free.intersection(first, end)) if first < end else []
            for lo, hi in found:
                self._take(lo, hi)
            return found

    def claim_or_grow(self, first: int, pages: int) -> None:
        """Take exactly these pages for good; the file grows where they lie beyond its end."""
        if first + pages > self.total_pages:
            self.grow(first + pages - self.total_pages)
        self.claim(first, pages)

    # Giving pages back

    def free(self, first: int, pages: int) -> None:
        """Pages in use are free; those under a pin only when the last pin over them goes."""
        with self._lock:
            self._check_range("free", first, pages)
            end = first + pages
            if self._free.overlaps(first, end) or self.deferred.overlaps(first, end):
                raise StoreCorrupt(f"pages {_shown(first, pages)} are freed but are free already")
            if self.pending.overlaps(first, end):
                raise StoreCorrupt(f"pages {_shown(first, pages)} are freed but not committed yet")
            self._release(first, end)

    def pin(self, first: int, pages: int) -> None:
        """Keep these pages from being handed out again until as many `unpin` calls.

        They may be in use, pending or deferred. Raises `StoreCorrupt` when any of them is free,
        since what they held may be gone.
        """
        with self._lock:
            self._check_range("pin", first, pages)
            if self._free.overlaps(first, first + pages):
                raise StoreCorrupt(f"pages {_shown(first, pages)} are pinned but are free")
            self._add_pin(first, pages)

    def pin_all(self) -> tuple[int, int]:
        """Pin all pages that the file has now; the extent to `unpin`.

        A page that is free now is deferred, too, if it is taken and freed meanwhile.
        """
        with self._lock:
            extent = HEADER_PAGES, max(self.total_pages - HEADER_PAGES, 1)
            self._add_pin(*extent)
            return extent

    def unpin(self, first: int, pages: int) -> None:
        """Undo one `pin` of the same extent."""
        with self._lock:
            key = (first, pages)
            count = self._pins.get(key, 0)
            if count == 0:
                raise StoreCorrupt(f"pages {_shown(first, pages)} are unpinned but not pinned")
            if count > 1:
                self._pins[key] = count - 1
                return
            del self._pins[key]
            if not self._pins:
                self._longest_pin = 0
            for lo, hi in self.deferred.intersection(first, first + pages):
                self.deferred.remove(lo, hi)
                self._release(lo, hi)

    # The size of the file

    def grow(self, pages: int) -> int:
        """The file has `pages` more pages at its end; the new page count."""
        if pages < 1:
            raise InvalidArgument(f"cannot grow by {pages} pages: grow by 1 or more")
        with self._lock:
            self._put(self.total_pages, self.total_pages + pages)
            self.total_pages += pages
            return self.total_pages

    def shrink_tail(self) -> int:
        """Drop the free extent at the end of the file, if there is one; the new page count."""
        with self._lock:
            end = self._end_in_use()
            if end < self.total_pages:
                self._take(end, self.total_pages)
                self.total_pages = end
            return end

    # Questions

    @property
    def free_pages(self) -> int:
        return self._free.total

    @property
    def fragments(self) -> int:
        """The most extents in which a checkpoint shows the free pages."""
        return len(self._by_length) + len(self.pending) + len(self.deferred)

    @property
    def end_in_use(self) -> int:
        """The first page of the free extent at the end; the page count if there is none."""
        with self._lock:
            return self._end_in_use()

    @property
    def most_map_bytes(self) -> int:
        """The most that a checkpoint takes for some of the pages, whatever pages are freed."""
        return RUNS_BITS_BYTES + self.end_in_use // 8

    def below(self, end: int) -> FreeSpace:
        """A map of its own of the pages below `end`: free is what is free now."""
        kept = [(lo, min(pages, end - lo)) for lo, pages in self.extents() if lo < end]
        return FreeSpace.from_extents(end, kept)

    def extents(self) -> Extents:
        """Return the pages that can be handed out now, coalesced."""
        with self._lock:
            return _extents(self._free)

    def snapshot(self) -> tuple[int, Extents]:
        """Page count and free extents for a checkpoint, as if nothing were pending or pinned (F4).

        The extents are coalesced, as for `from_extents`.
        """
        with self._lock:
            total_pages, free = self.total_pages, self._free.copy()
            for withheld in (self.pending, self.deferred):
                for first, end in withheld:
                    free.add(first, end)
        return total_pages, _extents(free)

    # Inside the lock

    def _add_pin(self, first: int, pages: int) -> None:
        key = (first, pages)
        self._pins[key] = self._pins.get(key, 0) + 1
        self._longest_pin = max(self._longest_pin, pages)

    def _check_range(self, doing: str, first: int, pages: int) -> None:
        if pages < 1:
            raise InvalidArgument(f"cannot {doing} {pages} pages: name 1 or more")
        if first < HEADER_PAGES or first + pages > self.total_pages:
            raise StoreCorrupt(
                f"cannot {doing} pages {_shown(first, pages)}: the file has pages"
                f" {HEADER_PAGES} to {self.total_pages - 1}"
            )

    def _end_in_use(self) -> int:
        last = self._free.last()
        return self.total_pages if last is None or last[1] < self.total_pages else last[0]

    def _take(self, first: int, end: int) -> None:
        """Cut [first, end) out of the free extent that holds it."""
        extent = self._free.run_at(first)
        assert extent is not None, "the caller has looked"
        assert end <= extent[1], "the caller has looked"
        self._free.remove(first, end)
        self._by_length.remove((extent[1] - extent[0], extent[0]))
        if extent[0] < first:
            self._by_length.add((first - extent[0], extent[0]))
        if end < extent[1]:
            self._by_length.add((extent[1] - end, end))

    def _put(self, first: int, end: int) -> None:
        """Make [first, end) free, joined with the free extents that it touches."""
        touching = self._free.run_at(first - 1), self._free.run_at(end)
        self._free.add(first, end)
        for extent in touching:
            if extent is not None:
                self._by_length.remove((extent[1] - extent[0], extent[0]))
                first, end = min(first, extent[0]), max(end, extent[1])
        self._by_length.add((end - first, first))

    def _take_pending(self, doing: str, first: int, pages: int) -> None:
        self._check_range(doing, first, pages)
        if not self.pending.covers(first, first + pages):
            raise StoreCorrupt(f"cannot {doing} pages {_shown(first, pages)}: they are not pending")
        self.pending.remove(first, first + pages)

    def _release(self, first: int, end: int) -> None:
        """Free what no pin covers of [first, end), defer the rest."""
        if not self._pins:
            self._put(first, end)
            return
        pinned = IntervalSet.from_list(self._pinned_parts(first, end))
        for lo, hi in pinned:
            self.deferred.add(lo, hi)
        for lo, hi in pinned.gaps(first, end):
            self._put(lo, hi)

    def _pinned_parts(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        lowest = (first - self._longest_pin + 1,)
        for pin_first, pin_pages in self._pins.irange(lowest, (end,), inclusive=(True, False)):
            lo, hi = max(pin_first, first), min(pin_first + pin_pages, end)
            if lo < hi:
                yield lo, hi


def _shown(first: int, pages: int) -> str:
    return f"{first} to {first + pages - 1}" if pages > 1 else f"{first}"


def _extents(pages: IntervalSet) -> Extents:
    firsts, ends = pages.bounds()
    return list(zip(firsts, map(sub, ends, firsts), strict=True))
