"""Positions that are ready to be taken, in a queue's order: by rank, and then by position.

Each is known by its code: its rank, and in the lowest bits its position. Of many ranks (keys) all
stand in one line; of few (priorities) each rank has a line of its own. What a line learns together
is sorted once, a run: of a million that wait a get looks at the heads of some hundred runs, and not
at twenty places in a heap of a million, none of which is in the processor's cache.

- What `first` shows is the lowest code of all that were added and not popped; one that was added
  twice is shown twice.
- SR2: a code that is added in its turn takes 8 bytes, where it has 63 bits at most; any other what
  it takes as an int in a list, 40 bytes and more.
- However many stand in a line, no change but `drop` takes longer than the sorting of what is
  learned together, or of `LINE_RUN` codes.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from sortedcontainers import SortedDict

from quire.intervals import IntervalSet
from quire.libraries import np
from quire.limits import (
    HEAPIFIED,
    LANE_BYTES,
    LANE_SLACK,
    LINE_RUN,
    LONGEST_CODE,
    POSITION_BITS,
    POSITIONS,
    RUN_BYTES,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ranks: TypeAlias = "NDArray[Any]"  # of int64, or of ints of any size, as objects


def code_of(position: int, rank: int) -> int:
    """The place of a message in the queue's order: by rank, and then by position."""
    return rank << POSITION_BITS | position


def push(heap: list[Any], items: Sequence[Any]) -> None:
    """Add many to a heap."""
    if len(items) > HEAPIFIED and len(items) > len(heap) >> 3:
        heap += items
        heapify(heap)
    else:
        for item in items:
            heappush(heap, item)


def held_between(held: Collection[int], start: int, end: int) -> list[int]:
    """Those of the positions, of a set or dict, that are in [start, end)."""
    if end - start > len(held):
        return [position for position in held if start <= position < end]
    return [position for position in range(start, end) if position in held]


class Standing(Protocol):
    """A line of ready positions. Covered by the queue's lock."""

    def learn(self, positions: NDArray[np.int64], ranks: Ranks) -> None:
        """Ascending positions, which are not here yet."""

    def add(self, code: int) -> None:
        """One more."""

    def first(self) -> int:
        """The lowest code; -1: there is none."""

    def pop(self) -> None:
        """Take that away."""

    def drop(self, done: IntervalSet) -> None:
        """Take away what is read."""

    def __len__(self) -> int: ...

    @property
    def memory_bytes(self) -> int:
        """Return the bytes that the line takes (SR2)."""


_CodeRun = tuple[int, list[int]]  # its lowest code, and the others, the lowest last
_NONE: Final[array[int]] = array("q")  # of all lines that have none; nobody changes it
_NONE_AGAIN: Final[list[int]] = []  # likewise
_NO_RUNS: Final[list[_CodeRun]] = []  # likewise


class Line:
    """Codes that ascend; and those that came back, came in another order, or are too long."""

    __slots__ = ("_again", "_head", "_new", "_runs")

    def __init__(self) -> None:
        self._new = _NONE
        self._head = 0  # what is before it in `_new` was taken
        self._again = _NONE_AGAIN  # a heap
        self._runs = _NO_RUNS  # a heap

    def learn(self, positions: NDArray[np.int64], ranks: Ranks) -> None:
        self._push(list(map(code_of, positions.tolist(), ranks.tolist())))

    def extend(self, codes: NDArray[np.int64]) -> None:
        """Ascending ones, which are not here yet."""
        if self._new and codes[0] <= self._new[-1]:
            self._push(codes.tolist())
        else:
            self._new = self._new or array("q")
            self._new.frombytes(codes.tobytes())

    def _push(self, codes: list[int]) -> None:
        if len(codes) > HEAPIFIED:
            self._add_run(codes)
        else:
            for code in codes:
                self._push_one(code)

    def _push_one(self, code: int) -> None:
        if not self._again:
            self._again = []
        elif len(self._again) >= LINE_RUN:
            self._add_run(self._again)
            self._again = []
        heappush(self._again, code)

    def _add_run(self, codes: list[int]) -> None:
        codes.sort(reverse=True)
        self._runs = self._runs or []
        heappush(self._runs, (codes.pop(), codes))

    def add(self, code: int) -> None:
        new = self._new
        if code > LONGEST_CODE or (new and code < new[-1]):
            self._push_one(code)
        elif new:
            new.append(code)
        else:
            self._new = array("q", (code,))

    def first(self) -> int:
        new, head, again, runs = self._new, self._head, self._again, self._runs
        code = new[head] if head < len(new) else -1
        if again and not 0 <= code < again[0]:
            code = again[0]
        if runs and not 0 <= code < runs[0][0]:
            code = runs[0][0]
        return code

    def pop(self) -> None:
        again, runs = self._again, self._runs
        code = self.first() if again or runs else -1
        if runs and code == runs[0][0]:
            left = runs[0][1]
            if left:
                heapreplace(runs, (left.pop(), left))
            else:
                heappop(runs)
        elif again and code == again[0]:
            heappop(again)
        else:
            new = self._new
            self._head = head = self._head + 1
            if head == len(new):
                self._new, self._head = _NONE, 0
            elif head > LANE_SLACK and head > len(new) >> 1:
                del new[:head]
                self._head = 0

    def codes(self) -> list[int]:
        """All of them, in no order."""
        in_runs = [code for lowest, left in self._runs for code in (lowest, *left)]
        return [*self._new[self._head :], *self._again, *in_runs]

    def drop(self, done: IntervalSet) -> None:
        left = [code for code in self.codes() if not done.contains(code & POSITIONS)]
        self._new, self._head, self._again, self._runs = _NONE, 0, _NONE_AGAIN, _NO_RUNS
        short = sorted([code for code in left if code <= LONGEST_CODE])
        self._new = array("q", short) if short else _NONE
        long = [code for code in left if code > LONGEST_CODE]
        if long:
            self._add_run(long)

    def __bool__(self) -> bool:
        return bool(self._new or self._again or self._runs)

    def __len__(self) -> int:
        in_runs = sum([len(left) for _, left in self._runs]) + len(self._runs)
        return len(self._new) - self._head + len(self._again) + in_runs

    @property
    def memory_bytes(self) -> int:
        size = getsizeof(self) + (getsizeof(_NONE) + LANE_BYTES * len(self._new)) * bool(self._new)
        for codes in (self._again, *[left for _, left in self._runs]):
            size += (8 + int_bytes(codes)) * len(codes)
        return size + RUN_BYTES * len(self._runs)


class Lanes:
    """A line for each of few ranks."""

    __slots__ = ("_lines", "_top")

    def __init__(self) -> None:
        self._lines: SortedDict[int, Line] = SortedDict()  # those that have something, by rank
        self._top: Line | None = None  # the first of them

    def learn(self, positions: NDArray[np.int64], ranks: Ranks) -> None:
        for rank in set(ranks.tolist()):
            self._line(rank).extend(positions[ranks == rank] | code_of(0, rank))

    def add(self, code: int) -> None:
        self._line(code >> POSITION_BITS).add(code)

    def first(self) -> int:
        return -1 if self._top is None else self._top.first()

    def pop(self) -> None:
        assert self._top is not None
        self._top.pop()
        if not self._top:
            del self._lines[self._lines.keys()[0]]
            self._find_top()

    def drop(self, done: IntervalSet) -> None:
        for rank, line in list(self._lines.items()):
            line.drop(done)
            if not line:
                del self._lines[rank]
        self._find_top()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    @property
    def memory_bytes(self) -> int:
        return sum(line.memory_bytes for line in self._lines.values())

    def _line(self, rank: int) -> Line:
        """Return the line of a rank, to add positions to it."""
        line: Line | None = self._lines.get(rank)
        if line is None:
            line = self._lines[rank] = Line()
            self._find_top()
        return line

    def _find_top(self) -> None:
        self._top = self._lines.peekitem(0)[1] if self._lines else None


def int_bytes(codes: Collection[int]) -> int:
    """Return the bytes of one of the ints, estimated from a sample."""
    some = list(codes)[:: max(1, len(codes) >> 6)]
    return max(map(getsizeof, some), default=0) + 15 & ~15
