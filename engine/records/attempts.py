"""How often the messages of a subscription were delivered and given back.

- A1: positions that were given back and are not read are held as runs of equal counts: memory and
  time depend on how many such runs there are, not on how often a message came back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

Row = tuple[int, int, int]  # positions [start, end) and how often each was given back


class Attempts:
    """See the module. The queue's lock covers it."""

    __slots__ = ("_counts", "_ends", "starts")

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        """`rows`: ascending and disjoint."""
        self.starts: list[int] = []
        self._ends: list[int] = []
        self._counts: list[int] = []
        given = list(rows)
        if given:
            self._replace(0, 0, given)

    def __len__(self) -> int:
        return len(self.starts)

    def __bool__(self) -> bool:
        return bool(self.starts)

    def rows(self, first: int = 0, after: int | None = None) -> list[Row]:
        """The runs, or those of some indices."""
        part = slice(first, after)
        return list(zip(self.starts[part], self._ends[part], self._counts[part], strict=True))

    def of(self, position: int) -> int:
        """How often the position was given back."""
        index = bisect_right(self._ends, position)
        held = index < len(self.starts) and self.starts[index] <= position
        return self._counts[index] if held else 0

    def equal(self, start: int, end: int) -> int:
        """Where the first positions of [start, end) that share one count end."""
        index = bisect_right(self._ends, start)
        if index == len(self.starts):
            return end
        edge = self.starts[index]
        return min(edge if edge > start else self._ends[index], end)

    def add(self, start: int, end: int) -> None:
        """[start, end) was given back once more."""
        first, after = self._cut(start, end)
        rows: list[Row] = []
        for lo, hi, count in self.rows(first, after):
            if start < lo:
                rows.append((start, lo, 1))
            rows.append((lo, hi, count + 1))
            start = hi
        if start < end:
            rows.append((start, end, 1))
        self._replace(first, after, rows)

    def forget(self, start: int, end: int) -> None:
        """[start, end) is read."""
        self._replace(*self._cut(start, end), [])

    def _cut(self, start: int, end: int) -> tuple[int, int]:
        """Let runs end at both positions; the indices of those between."""
        for position in (start, end):
            index = bisect_right(self._ends, position)
            if index < len(self.starts) and self.starts[index] < position:
                self.starts.insert(index + 1, position)
                self._ends.insert(index, position)
                self._counts.insert(index, self._counts[index])
        return bisect_right(self._ends, start), bisect_left(self.starts, end)

    def _replace(self, first: int, after: int, rows: list[Row]) -> None:
        """Put rows in the stead of some, joined where they touch with equal counts."""
        before, behind = max(first - 1, 0), after + 1
        joined: list[Row] = []
        for row in self.rows(before, first) + rows + self.rows(after, behind):
            if joined and joined[-1][1:] == (row[0], row[2]):
                joined[-1] = joined[-1][0], row[1], row[2]
            else:
                joined.append(row)
        part = slice(before, behind)
        starts = [row[0] for row in joined]
        ends = [row[1] for row in joined]
        counts = [row[2] for row in joined]
        self.starts[part] = starts  # no call from here on: an interrupt does not come in between
        self._ends[part] = ends
        self._counts[part] = counts
