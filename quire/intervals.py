"""Sets of integers kept as merged half-open intervals.

Read positions, delivered ranges and gaps are long runs of consecutive numbers, and the usual change
extends the last run or shortens the first one by one. `IntervalSet` makes these cases cheap, and
the others no dearer where there are many intervals.

Invariants:

- V1: the intervals are non-empty, sorted, and neither overlap nor touch.
- V2: `total` is the number of integers in the set at any time, without counting.
- V3: a call that raises leaves the set as it was.
- V4: iterators show the set as it was when they were made; changing the set meanwhile is allowed.
- V5: the intervals stand in chunks of at most `INTERVALS_CHUNK`, none of which is empty but the
  only one of an empty set.

A chunk is two lists, starts and ends. The last one is at hand, and all there is in most sets; of
those before it the last ends are noted, and a bisection of these finds a chunk: the same two levels
as in `sortedcontainers.SortedList`, which has no intervals. So a change moves a part of one chunk,
however many there are: some 5 us at random places of 180,000, where one list of all took 40 to 100.

Objects are not thread-safe: the owner's lock covers them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from quire.errors import InvalidArgument
from quire.limits import INTERVALS_CHUNK

_Chunk = tuple[list[int], list[int]]  # starts and ends

_NO_CHUNKS: Final[list[_Chunk]] = []  # of all sets that have only one; nobody changes it
_NO_LASTS: Final[list[int]] = []  # likewise


class IntervalSet:
    """A set of integers as half-open intervals [lo, hi). See the module for what it guarantees."""

    __slots__ = ("_before", "_count_before", "_ends", "_lasts", "_starts", "total")

    total: int  # how many integers the set holds; to be read only

    def __init__(self) -> None:
        self._starts: list[int] = []  # of the last chunk
        self._ends: list[int] = []
        self._before = _NO_CHUNKS  # the others
        self._lasts = _NO_LASTS  # where each of those ends
        self._count_before = 0  # intervals in them
        self.total = 0

    @classmethod
    def from_list(cls, intervals: Iterable[tuple[int, int]]) -> IntervalSet:
        """The union of the intervals, which may come in any order and overlap."""
        result = cls()
        for lo, hi in intervals:
            result.add(lo, hi)
        return result

    def to_list(self) -> list[tuple[int, int]]:
        """The intervals in ascending order."""
        return list(zip(*self.bounds(), strict=True))

    def bounds(self) -> tuple[list[int], list[int]]:
        """Return the starts of the intervals, and their ends."""
        if not self._before:
            return self._starts.copy(), self._ends.copy()
        chunks = [*self._before, (self._starts, self._ends)]
        return [x for starts, _ in chunks for x in starts], [x for _, ends in chunks for x in ends]

    def copy(self) -> IntervalSet:
        result = IntervalSet()
        result._starts, result._ends = self._starts.copy(), self._ends.copy()
        if self._before:
            result._before = [(starts.copy(), ends.copy()) for starts, ends in self._before]
            result._lasts = self._lasts.copy()
            result._count_before = self._count_before
        result.total = self.total
        return result

    # Changes

    def add(self, lo: int, hi: int) -> int:
        """Add the integers of [lo, hi); return how many of them are new."""
        if lo >= hi:
            raise _empty(lo, hi)
        ends = self._ends
        if not ends or lo > ends[-1]:
            if len(ends) >= INTERVALS_CHUNK:
                self._hold([*self._before, (self._starts, ends), ([lo], [hi])], hi - lo)
                return hi - lo
            self._starts += (lo,)  # no call: an interrupt does not come in between
            ends += (hi,)
            self.total += hi - lo
            return hi - lo
        if lo == ends[-1]:
            ends[-1] = hi
            self.total += hi - lo
            return hi - lo
        return self._merge(lo, hi)

    def _merge(self, lo: int, hi: int) -> int:
        # Intervals from `first` of chunk `low` up to `after` of `high` touch or overlap [lo, hi).
        lasts, starts, ends = self._lasts, self._starts, self._ends
        low = high = 0
        if lasts:
            low = bisect_left(lasts, lo)
            high = bisect_left(lasts, hi, low)
            starts, ends = self._chunk(low)
        first = bisect_left(ends, lo)
        after = bisect_right(self._chunk(high)[0] if low < high else starts, hi)
        if low == high and first == after and len(ends) < INTERVALS_CHUNK:
            starts[first:first] = (lo,)  # no call from here on, as in `add`
            ends[first:first] = (hi,)
            self.total += hi - lo
            if starts is not self._starts:
                self._count_before += 1
            return hi - lo
        if low == high and first + 1 == after:
            start, end = starts[first], ends[first]
            added = 0
            if lo < start:
                starts[first] = lo
                added = start - lo
            if hi > end:
                ends[first] = hi
                added += hi - end
                if starts is not self._starts:
                    lasts[low] = ends[-1]
            self.total += added
            return added
        starts, ends = self._slices(low, first, high, after)
        if starts:
            lo, hi = min(lo, starts[0]), max(hi, ends[-1])
        added = hi - lo - (sum(ends) - sum(starts))
        self._replace(low, first, high, after, [lo], [hi], added)
        return added

    def remove(self, lo: int, hi: int) -> int:
        """Take the integers of [lo, hi) out, as far as they are in; return how many were."""
        if lo >= hi:
            raise _empty(lo, hi)
        starts, ends = self._before[0] if self._lasts else (self._starts, self._ends)
        if not ends:
            return 0
        start = starts[0]
        if lo <= start and hi < ends[0]:
            if hi <= start:
                return 0
            starts[0] = hi
            self.total -= hi - start
            return hi - start
        return self._cut(lo, hi)

    def _cut(self, lo: int, hi: int) -> int:
        low, first, high, after = self._overlapping(lo, hi)
        starts, ends = self._slices(low, first, high, after)
        if not starts:
            return 0
        removed = sum(ends) - sum(starts)
        left_starts: list[int] = []
        left_ends: list[int] = []
        if starts[0] < lo:
            left_starts, left_ends = [starts[0]], [lo]
            removed -= lo - starts[0]
        if hi < ends[-1]:
            left_starts += (hi,)
            left_ends += (ends[-1],)
            removed -= ends[-1] - hi
        self._replace(low, first, high, after, left_starts, left_ends, -removed)
        return removed

    def pop_first(self, limit: int, below: int | None = None) -> tuple[int, int] | None:
        """Take out and return the first interval, or its first `limit` integers if it is longer.

        `below`: nothing from there on. None when there is nothing. Raises `InvalidArgument` for a
        limit below 1.
        """
        if limit < 1:
            raise InvalidArgument(f"limit is {limit}: it has to be 1 or more")
        starts, ends = self._before[0] if self._lasts else (self._starts, self._ends)
        if not ends:
            return None
        lo, hi = starts[0], ends[0]
        if below is not None:
            limit = min(limit, below - lo)
        if limit < 1:
            return None
        if hi - lo > limit:
            hi = lo + limit
            starts[0] = hi
            self.total -= limit
        else:
            self._replace(0, 0, 0, 1, (), (), lo - hi)
        return lo, hi

    def clear(self) -> None:
        self._hold([([], [])], -self.total)

    # Chunks

    def _chunk(self, index: int) -> _Chunk:
        before = self._before
        return before[index] if index < len(before) else (self._starts, self._ends)

    def _overlapping(self, lo: int, hi: int) -> tuple[int, int, int, int]:
        """Return the overlap with [lo, hi): from a chunk and an index there to another, or it."""
        lasts = self._lasts
        if not lasts:
            return 0, bisect_right(self._ends, lo), 0, bisect_left(self._starts, hi)
        low = bisect_right(lasts, lo)
        high = bisect_left(lasts, hi, low)
        first, after = bisect_right(self._chunk(low)[1], lo), bisect_left(self._chunk(high)[0], hi)
        return low, first, high, after

    def _slices(self, low: int, first: int, high: int, after: int) -> _Chunk:
        """The intervals from `first` of chunk `low` up to `after` of chunk `high`, copied."""
        if low == high:
            starts, ends = self._chunk(low)
            return starts[first:after], ends[first:after]
        chunks = [self._chunk(index) for index in range(low, high + 1)]
        starts, ends = chunks[0][0][first:], chunks[0][1][first:]
        for more_starts, more_ends in chunks[1:-1]:
            starts += more_starts
            ends += more_ends
        return starts + chunks[-1][0][:after], ends + chunks[-1][1][:after]

    def _replace(
        self,
        low: int,
        first: int,
        high: int,
        after: int,
        new_starts: Sequence[int],
        new_ends: Sequence[int],
        change: int,
    ) -> None:
        """Put others in the stead of these intervals; `change`: of the integers' number."""
        lasts = self._lasts
        starts, ends = self._chunk(low)
        more = len(new_ends) - (after - first)
        size = len(ends) + more
        if low == high and size <= INTERVALS_CHUNK and (size > INTERVALS_CHUNK >> 2 or not lasts):
            starts[first:after] = new_starts  # no call from here on, as in `add`
            ends[first:after] = new_ends
            self.total += change
            if starts is not self._starts:
                lasts[low] = ends[-1]
                self._count_before += more
            return
        chunks = [*self._before, (self._starts, self._ends)]
        starts = [*starts[:first], *new_starts, *chunks[high][0][after:]]
        ends = [*ends[:first], *new_ends, *chunks[high][1][after:]]
        if len(ends) <= INTERVALS_CHUNK >> 2:  # few are left: a neighbour takes them
            if high + 1 < len(chunks):
                high += 1
                starts, ends = starts + chunks[high][0], ends + chunks[high][1]
            elif low > 0:
                low -= 1
                starts, ends = chunks[low][0] + starts, chunks[low][1] + ends
        parts = -(-len(ends) // INTERVALS_CHUNK)
        step = -(-len(ends) // parts) if parts else 1
        cuts = range(0, len(ends) or 1, step)
        chunks[low : high + 1] = [(starts[at : at + step], ends[at : at + step]) for at in cuts]
        self._hold(chunks, change)

    def _hold(self, chunks: list[_Chunk], change: int) -> None:
        """These are the chunks from now on."""
        *before, (starts, ends) = chunks
        lasts = [chunk[1][-1] for chunk in before] if before else _NO_LASTS
        count = sum([len(chunk[1]) for chunk in before])
        self._before = before or _NO_CHUNKS  # no call from here on, as in `add`
        self._lasts = lasts
        self._count_before = count
        self._starts, self._ends = starts, ends
        self.total += change

    # Questions

    def contains(self, x: int) -> bool:
        starts, ends = self._around(x) if self._lasts else (self._starts, self._ends)
        index = bisect_right(ends, x)
        return index < len(ends) and starts[index] <= x

    def run_at(self, x: int) -> tuple[int, int] | None:
        """The interval that holds the integer, or None."""
        starts, ends = self._around(x) if self._lasts else (self._starts, self._ends)
        index = bisect_right(ends, x)
        held = index < len(ends) and starts[index] <= x
        return (starts[index], ends[index]) if held else None

    def covers(self, lo: int, hi: int) -> bool:
        """Return True if every integer of [lo, hi) is in the set."""
        if lo >= hi:
            raise _empty(lo, hi)
        return self.first_gap(lo) >= hi

    def overlaps(self, lo: int, hi: int) -> bool:
        """Return True if any integer of [lo, hi) is in the set."""
        if lo >= hi:
            raise _empty(lo, hi)
        starts, ends = self._around(lo) if self._lasts else (self._starts, self._ends)
        index = bisect_right(ends, lo)
        return index < len(ends) and starts[index] < hi

    def _around(self, x: int) -> _Chunk:
        """The chunk of the first interval that ends behind `x`, if there is one."""
        return self._chunk(bisect_right(self._lasts, x))

    def first(self) -> tuple[int, int] | None:
        """The lowest interval, or None when the set is empty."""
        starts, ends = self._before[0] if self._lasts else (self._starts, self._ends)
        return (starts[0], ends[0]) if ends else None

    def last(self) -> tuple[int, int] | None:
        """The highest interval, or None when the set is empty."""
        if not self._ends:
            return None
        return self._starts[-1], self._ends[-1]

    def reaches(self, x: int) -> bool:
        """Return True if the set holds an integer >= `x`."""
        ends = self._ends
        return ends[-1] > x if ends else False

    def first_gap(self, start: int) -> int:
        """The smallest integer >= `start` that is not in the set."""
        starts, ends = self._around(start) if self._lasts else (self._starts, self._ends)
        index = bisect_right(ends, start)
        if index < len(ends) and starts[index] <= start:
            return ends[index]
        return start

    def intersection(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """The parts of [lo, hi) that are in the set, in ascending order."""
        if lo >= hi:
            raise _empty(lo, hi)
        starts, ends = self._slices(*self._overlapping(lo, hi))
        if starts:
            starts[0] = max(starts[0], lo)
            ends[-1] = min(ends[-1], hi)
        return zip(starts, ends, strict=True)

    def count(self, lo: int, hi: int) -> int:
        """How many integers of [lo, hi) are in the set; of an empty range there are none."""
        return sum(b - a for a, b in self.intersection(lo, hi)) if lo < hi else 0

    def gaps(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """The parts of [lo, hi) that are not in the set, in ascending order."""
        if lo >= hi:
            raise _empty(lo, hi)
        starts, ends = self._slices(*self._overlapping(lo, hi))
        # Each gap runs from an end to the next start, the first from lo and the last to hi.
        opens, closes = [lo, *ends], [*starts, hi]
        return ((a, b) for a, b in zip(opens, closes, strict=True) if a < b)

    def __len__(self) -> int:
        """How many intervals there are; `total` counts the integers."""
        return self._count_before + len(self._ends)

    def __bool__(self) -> bool:
        return bool(self._ends)

    def __contains__(self, x: int) -> bool:
        return self.contains(x)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.to_list())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IntervalSet):
            return NotImplemented
        return self.total == other.total and self.to_list() == other.to_list()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"[{lo}, {hi})" for lo, hi in islice(self, 8))
        more = ", ..." if len(self) > 8 else ""
        return f"IntervalSet({shown}{more})"


def _empty(lo: int, hi: int) -> InvalidArgument:
    return InvalidArgument(f"the interval [{lo}, {hi}) is empty: lo has to be below hi")
