"""What stands ready to be taken, in a queue's order: by rank, and then by position.

Two forms, for few ranks (priorities) and for many (keys). Both show the code of what is next: its
rank, and in the lowest bits its position.

- SR1: what `first` shows is the lowest code of all that were added and not popped; one that was
  added twice is shown twice.
- SR2: of few ranks a position takes 8 bytes, and some 40 where it was added before its turn; of
  many it takes what its code takes as an int, 48 bytes and more.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection
from heapq import heapify, heappop, heappush
from sys import getsizeof
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedDict

from quire.intervals import IntervalSet
from quire.limits import (
    HEAPIFIED,
    LANE_BYTES,
    LANE_SLACK,
    POSITION_BITS,
    POSITIONS,
    RETURNED_BYTES,
    TAKEN_BYTES,
)

Ranks = NDArray[Any]  # of int64, or of ints of any size, as objects


def code_of(position: int, rank: int) -> int:
    """Where a message stands in the queue's order: by rank, and then by position."""
    return rank << POSITION_BITS | position


def push(heap: list[Any], items: list[Any]) -> None:
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
    """See the module. The queue's lock covers it."""

    def learn(self, positions: NDArray[np.int64], ranks: Ranks) -> None:
        """Ascending positions, which are not here yet."""

    def add(self, position: int, rank: int) -> None:
        """One that came back."""

    def show(self, position: int, rank: int) -> None:
        """One that mostly comes behind all others of its rank."""

    def first(self) -> int:
        """The lowest code; -1: there is none."""

    def pop(self) -> None:
        """Take that away."""

    def positions(self) -> list[int]:
        """All that stand here, in no order."""

    def drop(self, done: IntervalSet) -> None:
        """Take away what is read."""

    def __len__(self) -> int: ...

    @property
    def memory_bytes(self) -> int:
        """What it takes (SR2)."""

    @property
    def taken_bytes(self) -> int:
        """What is kept of each that is in flight."""


class _Lane:
    """The positions of one rank, which ascend but for those that came back."""

    __slots__ = ("again", "head", "new")

    def __init__(self) -> None:
        self.new = array("q")
        self.head = 0  # what is before it in `new` was taken
        self.again: list[int] = []  # a heap

    def __len__(self) -> int:
        return len(self.new) - self.head + len(self.again)

    def add(self, positions: NDArray[np.int64]) -> None:
        """Ascending positions, which are not here yet."""
        if self.new and positions[0] <= self.new[-1]:
            self.again += positions.tolist()
            heapify(self.again)
        else:
            self.new.frombytes(positions.tobytes())

    def first(self) -> int:
        """The lowest position, of which there is one."""
        new, head, again = self.new, self.head, self.again
        if head < len(new) and not (again and again[0] < new[head]):
            return new[head]
        return again[0]

    def pop(self) -> bool:
        """Take the lowest position away; whether it was the last one."""
        new, head, again = self.new, self.head, self.again
        if head == len(new) or (again and again[0] < new[head]):
            heappop(again)
            return not again and head == len(new)
        self.head = head = head + 1
        if head > LANE_SLACK and head > len(new) >> 1:
            del new[:head]
            self.head = head = 0
        return head == len(new) and not again

    def positions(self) -> list[int]:
        return [*self.new[self.head :], *self.again]

    def drop(self, done: IntervalSet) -> None:
        """Take away what is read."""
        self.new = array("q", [p for p in self.new[self.head :] if not done.contains(p)])
        self.head = 0
        self.again = [p for p in self.again if not done.contains(p)]
        heapify(self.again)


class Lanes:
    """Of few ranks."""

    __slots__ = ("_base", "_lanes", "_rank", "_top")

    def __init__(self) -> None:
        self._lanes: SortedDict[int, _Lane] = SortedDict()  # those that have something, by rank
        self._top: _Lane | None = None  # the first of them
        self._rank = self._base = 0  # its rank, and the code of position 0 there

    def learn(self, positions: NDArray[np.int64], ranks: Ranks) -> None:
        for rank in np.unique(ranks).tolist():
            self._lane(rank).add(positions[ranks == rank])
        self._find_top()

    def add(self, position: int, rank: int) -> None:
        heappush(self._lane(rank).again, position)
        if self._top is None or rank < self._rank:
            self._find_top()

    def show(self, position: int, rank: int) -> None:
        lane = self._lane(rank)
        if not lane.new or position > lane.new[-1]:
            lane.new.append(position)
        else:
            heappush(lane.again, position)
        if self._top is None or rank < self._rank:
            self._find_top()

    def first(self) -> int:
        top = self._top
        return -1 if top is None else self._base | top.first()

    def pop(self) -> None:
        top = self._top
        assert top is not None
        if top.pop():
            del self._lanes[self._rank]
            self._find_top()

    def positions(self) -> list[int]:
        return [position for lane in self._lanes.values() for position in lane.positions()]

    def drop(self, done: IntervalSet) -> None:
        for rank, lane in list(self._lanes.items()):
            lane.drop(done)
            if not lane:
                del self._lanes[rank]
        self._find_top()

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    @property
    def memory_bytes(self) -> int:
        again = sum(len(lane.again) for lane in self._lanes.values())
        new = sum(len(lane.new) for lane in self._lanes.values())
        return LANE_BYTES * new + RETURNED_BYTES * again

    @property
    def taken_bytes(self) -> int:
        return TAKEN_BYTES

    def _lane(self, rank: int) -> _Lane:
        lane: _Lane | None = self._lanes.get(rank)
        if lane is None:
            lane = self._lanes[rank] = _Lane()
        return lane

    def _find_top(self) -> None:
        if self._lanes:
            self._rank, self._top = self._lanes.peekitem(0)
            self._base = code_of(0, self._rank)
        else:
            self._top = None


class Keyed:
    """Of as many ranks as there are messages, and ranks of any size."""

    __slots__ = ("_codes",)

    def __init__(self) -> None:
        self._codes: list[int] = []  # a heap

    def learn(self, positions: NDArray[np.int64], ranks: Ranks) -> None:
        push(self._codes, list(map(code_of, positions.tolist(), ranks.tolist())))

    def add(self, position: int, rank: int) -> None:
        heappush(self._codes, code_of(position, rank))

    show = add

    def first(self) -> int:
        return self._codes[0] if self._codes else -1

    def pop(self) -> None:
        heappop(self._codes)

    def positions(self) -> list[int]:
        return [code & POSITIONS for code in self._codes]

    def drop(self, done: IntervalSet) -> None:
        self._codes = [code for code in self._codes if not done.contains(code & POSITIONS)]
        heapify(self._codes)

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def memory_bytes(self) -> int:
        return getsizeof(self._codes) + len(self._codes) * int_bytes(self._codes)

    @property
    def taken_bytes(self) -> int:
        return TAKEN_BYTES + int_bytes(self._codes)


def int_bytes(codes: list[int]) -> int:
    """What one of the ints takes, as far as some of them tell."""
    some = codes[:: max(1, len(codes) >> 6)]
    return max(map(getsizeof, some), default=0) + 15 & ~15
