"""Sets of integers kept as merged half-open intervals.

Read positions, delivered ranges and gaps are long runs of consecutive numbers, and the usual change
extends the last run or shortens the first one by one. `IntervalSet` makes these cases cheap and
keeps the rest at a bisection and a move of list elements.

Invariants:

- V1: the intervals are non-empty, sorted, and neither overlap nor touch.
- V2: `total` is the number of integers in the set at any time, without counting.
- V3: a call that raises leaves the set as it was.
- V4: iterators show the set as it was when they were made; changing the set meanwhile is allowed.

The intervals stand in two plain lists, starts and ends, of which the first `_head` elements are
dead: taking intervals from the front moves `_head` and not the lists. Measured against a
`SortedDict` from start to end: the usual changes take 0.15 to 0.2 us at any size against 1 to 3 us;
a random insertion or removal takes 0.5 to 1.5 us against 1 to 4 us with 1,000 intervals, and 14 to
21 us against 5 us with 100,000.

Objects are not thread-safe: the owner's lock covers them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice

from quire.errors import InvalidArgument
from quire.limits import INTERVALS_HEAD_SLACK


class IntervalSet:
    """A set of integers as half-open intervals [lo, hi). See the module for what it guarantees."""

    __slots__ = ("_ends", "_head", "_starts", "total")

    total: int  # how many integers the set holds; to be read only

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._head = 0  # both lists are empty, and this is 0, when the set is empty
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
        head = self._head
        if head:
            return list(zip(self._starts[head:], self._ends[head:], strict=True))
        return list(zip(self._starts, self._ends, strict=True))

    def copy(self) -> IntervalSet:
        result = IntervalSet()
        result._starts = self._starts[self._head :]
        result._ends = self._ends[self._head :]
        result.total = self.total
        return result

    # Changes

    def add(self, lo: int, hi: int) -> int:
        """Add the integers of [lo, hi); return how many of them are new."""
        if lo >= hi:
            raise _empty(lo, hi)
        ends = self._ends
        if not ends or lo > ends[-1]:
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
        starts, ends, head = self._starts, self._ends, self._head
        # Intervals [first, after) touch or overlap [lo, hi).
        first = bisect_left(ends, lo, head)
        after = bisect_right(starts, hi, first)
        if first == after:
            self._insert(first, lo, hi)
            added = hi - lo
        elif first + 1 == after:
            start, end = starts[first], ends[first]
            added = 0
            if lo < start:
                starts[first] = lo
                added = start - lo
            if hi > end:
                ends[first] = hi
                added += hi - end
        else:
            held = sum(ends[first:after]) - sum(starts[first:after])
            start, end = min(lo, starts[first]), max(hi, ends[after - 1])
            starts[first:after] = (start,)
            ends[first:after] = (end,)
            added = end - start - held
        self.total += added
        return added

    def _insert(self, index: int, lo: int, hi: int) -> None:
        if index == self._head and index > 0:
            self._head = index = index - 1
            self._starts[index] = lo
            self._ends[index] = hi
        else:
            self._starts.insert(index, lo)
            self._ends.insert(index, hi)

    def remove(self, lo: int, hi: int) -> int:
        """Take the integers of [lo, hi) out, as far as they are in; return how many were."""
        if lo >= hi:
            raise _empty(lo, hi)
        starts, ends, head = self._starts, self._ends, self._head
        if not ends:
            return 0
        start = starts[head]
        if lo <= start and hi < ends[head]:
            if hi <= start:
                return 0
            starts[head] = hi
            self.total -= hi - start
            return hi - start
        return self._cut(lo, hi)

    def _cut(self, lo: int, hi: int) -> int:
        starts, ends = self._starts, self._ends
        # Intervals [first, after) overlap [lo, hi).
        first = bisect_right(ends, lo, self._head)
        after = bisect_left(starts, hi, first)
        if first == after:
            return 0
        start, end = starts[first], ends[after - 1]
        if first + 1 == after:
            held = end - start
        else:
            held = sum(ends[first:after]) - sum(starts[first:after])
        left, right = max(lo - start, 0), max(end - hi, 0)
        if left and right:
            starts[first:after] = (start, hi)
            ends[first:after] = (lo, end)
        elif left:
            ends[first] = lo
            del starts[first + 1 : after], ends[first + 1 : after]
        elif right:
            starts[after - 1] = hi
            self._drop(first, after - 1)
        else:
            self._drop(first, after)
        removed = held - left - right
        self.total -= removed
        return removed

    def _drop(self, first: int, after: int) -> None:
        """Forget the intervals of these indices; at the front without moving the others."""
        starts, ends = self._starts, self._ends
        if first > self._head or after == len(ends):
            del starts[first:after], ends[first:after]
            if len(ends) == self._head:
                starts.clear()
                ends.clear()
                self._head = 0
            return
        self._head = after
        if after >= INTERVALS_HEAD_SLACK and after * 2 >= len(ends):
            del starts[:after], ends[:after]
            self._head = 0

    def pop_first(self, limit: int) -> tuple[int, int] | None:
        """Take out and return the first interval, or its first `limit` integers if it is longer.

        None when the set is empty. Raises `InvalidArgument` for a limit below 1.
        """
        if limit < 1:
            raise InvalidArgument(f"limit is {limit}: it has to be 1 or more")
        if not self._ends:
            return None
        head = self._head
        lo, hi = self._starts[head], self._ends[head]
        if hi - lo > limit:
            hi = lo + limit
            self._starts[head] = hi
        else:
            self._drop(head, head + 1)
        self.total -= hi - lo
        return lo, hi

    def clear(self) -> None:
        self._starts.clear()
        self._ends.clear()
        self._head = 0
        self.total = 0

    # Questions

    def contains(self, x: int) -> bool:
        ends = self._ends
        index = bisect_right(ends, x, self._head)
        return index < len(ends) and self._starts[index] <= x

    def covers(self, lo: int, hi: int) -> bool:
        """Whether every integer of [lo, hi) is in the set."""
        if lo >= hi:
            raise _empty(lo, hi)
        ends = self._ends
        index = bisect_right(ends, lo, self._head)
        return index < len(ends) and self._starts[index] <= lo and hi <= ends[index]

    def overlaps(self, lo: int, hi: int) -> bool:
        """Whether any integer of [lo, hi) is in the set."""
        if lo >= hi:
            raise _empty(lo, hi)
        ends = self._ends
        index = bisect_right(ends, lo, self._head)
        return index < len(ends) and self._starts[index] < hi

    def first(self) -> tuple[int, int] | None:
        """The lowest interval, or None when the set is empty."""
        if not self._ends:
            return None
        return self._starts[self._head], self._ends[self._head]

    def last(self) -> tuple[int, int] | None:
        """The highest interval, or None when the set is empty."""
        if not self._ends:
            return None
        return self._starts[-1], self._ends[-1]

    def reaches(self, x: int) -> bool:
        """Whether it holds any integer >= `x`."""
        ends = self._ends
        return ends[-1] > x if ends else False

    def first_gap(self, start: int) -> int:
        """The smallest integer >= `start` that is not in the set."""
        ends = self._ends
        index = bisect_right(ends, start, self._head)
        if index < len(ends) and self._starts[index] <= start:
            return ends[index]
        return start

    def intersection(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """The parts of [lo, hi) that are in the set, in ascending order."""
        if lo >= hi:
            raise _empty(lo, hi)
        first = bisect_right(self._ends, lo, self._head)
        after = bisect_left(self._starts, hi, first)
        starts, ends = self._starts[first:after], self._ends[first:after]
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
        first = bisect_right(self._ends, lo, self._head)
        after = bisect_left(self._starts, hi, first)
        # Each gap runs from an end to the next start, the first from lo and the last to hi.
        opens, closes = [lo, *self._ends[first:after]], [*self._starts[first:after], hi]
        return ((a, b) for a, b in zip(opens, closes, strict=True) if a < b)

    def __len__(self) -> int:
        """How many intervals there are; `total` counts the integers."""
        return len(self._ends) - self._head

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
