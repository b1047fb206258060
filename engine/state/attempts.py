"""The outcomes of a subscription's deliveries, for messages that are not read.

- Positions of which anything is to be told are held as runs of which the same is: memory and time
  depend on how many such runs there are, not on how often a message came back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from quire.intervals import IntervalSet

# Positions [start, end); how often each was given back (or noted, where deliveries are); how often
# it failed, where that is not the same; and when it comes again, by the wall clock, 0: at once.
AttemptRow = tuple[int, int, int, int, int]
Tried = tuple[int, int, int]

_NEVER: Tried = 0, 0, 0


class Attempts:
    """Runs of positions with equal outcomes of delivery. Covered by the queue's lock."""

    __slots__ = ("_ends", "_tried", "starts")

    def __init__(self, rows: Iterable[AttemptRow] = ()) -> None:
        """`rows`: ascending and disjoint."""
        self.starts: list[int] = []
        self._ends: list[int] = []
        self._tried: list[Tried] = []
        runs = list(rows)
        if runs:
            self._replace(0, 0, runs)

    def __len__(self) -> int:
        return len(self.starts)

    def __bool__(self) -> bool:
        return bool(self.starts)

    def rows(self, first: int = 0, after: int | None = None) -> list[AttemptRow]:
        """The runs, or those of some indices."""
        part = slice(first, after)
        runs = zip(self.starts[part], self._ends[part], self._tried[part], strict=True)
        return [(start, end, *tried) for start, end, tried in runs]

    @classmethod
    def beside(cls, rows: Iterable[AttemptRow], done: IntervalSet) -> Attempts:
        """Those of the rows without what is read."""
        return cls((lo, hi, *row[2:]) for row in rows for lo, hi in done.gaps(row[0], row[1]))

    def rows_beside(self, done: IntervalSet) -> list[AttemptRow]:
        """The runs, joined where between two that tell the same everything is read.

        So reading never makes more of them: it takes positions out of a row of them.
        """
        joined: list[AttemptRow] = []
        for row in self.rows():
            end = joined[-1][1] if joined and joined[-1][2:] == row[2:] else None
            if end is not None and (end == row[0] or done.covers(end, row[0])):
                joined[-1] = joined[-1][0], *row[1:]
            else:
                joined.append(row)
        return joined

    def hidden(self, now_us: int) -> list[tuple[int, int, int]]:
        """The runs of what has failed and comes later than now, and when."""
        rows = [(start, end, due_us) for start, end, _, _, due_us in self.rows()]
        return [row for row in rows if row[2] > now_us]

    def of(self, position: int) -> int:
        """How often the position was given back."""
        return self._at(position)[0]

    def failures(self, position: int) -> int:
        """How often it failed, where deliveries are noted."""
        return self._at(position)[1]

    def due_us(self, position: int) -> int:
        """Return the time of the retry, as the latest failure says; 0: at once."""
        return self._at(position)[2]

    def _at(self, position: int) -> Tried:
        index = bisect_right(self._ends, position)
        held = index < len(self.starts) and self.starts[index] <= position
        return self._tried[index] if held else _NEVER

    def equal(self, start: int, end: int) -> int:
        """Return the end of the run from `start` with equal outcomes."""
        index = bisect_right(self._ends, start)
        if index == len(self.starts):
            return end
        edge = self.starts[index]
        return min(edge if edge > start else self._ends[index], end)

    def runs(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """[start, end) in runs of which the same is to be told."""
        while start < end:
            stop = self.equal(start, end)
            yield start, stop
            start = stop

    def add(self, start: int, end: int) -> None:
        """[start, end) was given back once more."""
        self._count(start, end, 1, 0, None)

    def take_back(self, start: int, end: int) -> None:
        """It was once less, after all."""
        rows: list[AttemptRow] = []
        first, after = self._cut(start, end)
        for lo, hi, count, failed, due in self.rows(first, after):
            if count > 1 or failed or due:
                rows.append((lo, hi, max(count - 1, 0), failed, due))
        self._replace(first, after, rows)

    def fail(self, start: int, end: int, due_us: int, *, noted: bool) -> None:
        """A delivery has failed, and comes again at `due_us`. `noted`: it is counted already."""
        self._count(start, end, int(not noted), int(noted), due_us)

    def forget_failures(self) -> None:
        """None has failed, and none comes later."""
        rows = [(start, end, count, 0, 0) for start, end, count, _, _ in self.rows() if count]
        self._replace(0, len(self.starts), rows)

    def forget(self, start: int, end: int) -> None:
        """[start, end) is read."""
        self._replace(*self._cut(start, end), [])

    def _count(self, start: int, end: int, more: int, failures: int, due_us: int | None) -> None:
        first, after = self._cut(start, end)
        rows: list[AttemptRow] = []
        for lo, hi, count, failed, due in self.rows(first, after):
            if start < lo:
                rows.append((start, lo, more, failures, due_us or 0))
            comes = due if due_us is None else due_us
            rows.append((lo, hi, count + more, failed + failures, comes))
            start = hi
        if start < end:
            rows.append((start, end, more, failures, due_us or 0))
        self._replace(first, after, rows)

    def _cut(self, start: int, end: int) -> tuple[int, int]:
        """Let runs end at both positions; the indices of those between."""
        for position in (start, end):
            index = bisect_right(self._ends, position)
            if index < len(self.starts) and self.starts[index] < position:
                self.starts.insert(index + 1, position)
                self._ends.insert(index, position)
                self._tried.insert(index, self._tried[index])
        return bisect_right(self._ends, start), bisect_left(self.starts, end)

    def _replace(self, first: int, after: int, rows: list[AttemptRow]) -> None:
        """Put rows in the stead of some, joined where they touch and tell the same."""
        before, behind = max(first - 1, 0), after + 1
        joined: list[AttemptRow] = []
        for row in self.rows(before, first) + rows + self.rows(after, behind):
            if joined and joined[-1][1:] == (row[0], *row[2:]):
                joined[-1] = joined[-1][0], *row[1:]
            else:
                joined.append(row)
        part = slice(before, behind)
        starts = [row[0] for row in joined]
        ends = [row[1] for row in joined]
        tried = [row[2:] for row in joined]
        self.starts[part] = starts  # no call from here on: an interrupt does not come in between
        self._ends[part] = ends
        self._tried[part] = tried
