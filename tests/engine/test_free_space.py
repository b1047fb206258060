"""What `FreeSpace` promises (F1 to F6 in its module), shown against a model of page states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quire.engine.pages.free_space import Extents, FreeSpace
from quire.errors import InvalidArgument, StoreCorrupt

Extent = tuple[int, int]  # first page, pages
lengths = st.integers(1, 6)


def extents_of(pages: set[int]) -> Extents:
    """A set of pages as rows (first page, pages), found the slow way."""
    result: Extents = []
    for page in sorted(pages):
        if result and sum(result[-1]) == page:
            first, known = result.pop()
            result.append((first, known + 1))
        else:
            result.append((page, 1))
    return result


def pages_of(extent: Extent) -> set[int]:
    """The pages of an extent."""
    return set(range(extent[0], extent[0] + extent[1]))


def in_use(space: FreeSpace) -> int:
    """How many pages are in use for good: allocated and committed, or claimed."""
    total, free = space.snapshot()
    return total - 1 - sum(pages for _, pages in free)


class FreeSpaceModel(RuleBasedStateMachine):
    """A `FreeSpace` beside plain sets of pages, one for each state."""

    def __init__(self) -> None:
        super().__init__()
        self.real = FreeSpace()
        self.total = 1
        self.free: set[int] = set()
        self.pending: set[int] = set()
        self.used: set[int] = set()
        self.deferred: set[int] = set()
        self.pins: Counter[Extent] = Counter()
        self.kept: dict[Extent, set[int]] = {}  # by pin, the pages that somebody needs (F2)

    def pinned(self) -> set[int]:
        return {page for extent in self.pins for page in pages_of(extent)}

    def release(self, pages: set[int]) -> None:
        self.deferred |= pages & self.pinned()
        self.free |= pages - self.pinned()

    def draw_extent(self, data: st.DataObject, pages: set[int]) -> Extent:
        """A part of one of the runs of these pages."""
        first, count = data.draw(st.sampled_from(extents_of(pages)))
        skip = data.draw(st.integers(0, count - 1))
        return first + skip, data.draw(st.integers(1, count - skip))

    def refused(self, call: Callable[[int, int], object], extent: Extent) -> None:
        with pytest.raises(StoreCorrupt):
            call(*extent)

    @rule(pages=lengths)
    def grow(self, pages: int) -> None:
        if self.total + pages > 40:
            return
        self.free |= set(range(self.total, self.total + pages))
        self.total += pages
        assert self.real.grow(pages) == self.total

    @rule()
    def shrink_tail(self) -> None:
        while self.total - 1 in self.free:
            self.total -= 1
            self.free.remove(self.total)
        assert self.real.shrink_tail() == self.total

    @rule(pages=lengths)
    def allocate(self, pages: int) -> None:
        first = self.real.allocate(pages)
        fitting = [row for row in extents_of(self.free) if row[1] >= pages]
        if first is None:
            assert not fitting
            return
        taken = pages_of((first, pages))
        assert taken <= self.free
        assert first in [row[0] for row in fitting]
        if len(fitting) <= 8:
            assert first == fitting[0][0]
        assert not taken & set().union(*self.kept.values())
        self.free -= taken
        self.pending |= taken

    @rule(first=st.integers(1, 60), pages=lengths)
    def allocate_at(self, first: int, pages: int) -> None:
        wanted = pages_of((first, pages))
        assert self.real.allocate_at(first, pages) == (wanted <= self.free)
        if wanted <= self.free:
            self.free -= wanted
            self.pending |= wanted

    @rule(end=st.integers(1, 60))
    def look_below(self, end: int) -> None:
        below = self.real.below(end)
        assert below.total_pages == end
        assert below.extents() == extents_of({p for p in self.free if p < end})

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), kept=st.booleans())
    def end_allocation(self, data: st.DataObject, kept: bool) -> None:
        extent = self.draw_extent(data, self.pending)
        self.pending -= pages_of(extent)
        if kept:
            self.real.commit(*extent)
            self.used |= pages_of(extent)
        else:
            self.real.abandon(*extent)
            self.release(pages_of(extent))

    @precondition(lambda self: self.free)
    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        extent = self.draw_extent(data, self.free)
        self.real.claim(*extent)
        self.free -= pages_of(extent)
        self.used |= pages_of(extent)

    @precondition(lambda self: self.used)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        extent = self.draw_extent(data, self.used)
        self.real.free(*extent)
        self.used -= pages_of(extent)
        self.release(pages_of(extent))

    @precondition(lambda self: self.used | self.pending | self.deferred)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        extent = self.draw_extent(data, self.used | self.pending | self.deferred)
        self.real.pin(*extent)
        self.note_pin(extent)

    @rule()
    def pin_all(self) -> None:
        self.note_pin(self.real.pin_all())

    def note_pin(self, extent: Extent) -> None:
        self.pins[extent] += 1
        needed = pages_of(extent) & (self.used | self.pending | self.deferred)
        self.kept.setdefault(extent, set()).update(needed)

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        extent = data.draw(st.sampled_from(sorted(self.pins)))
        self.real.unpin(*extent)
        self.pins[extent] -= 1
        self.pins += Counter()  # drops what is 0
        if extent not in self.pins:
            del self.kept[extent]
        freed = self.deferred - self.pinned()
        self.deferred -= freed
        self.free |= freed

    @rule(first=st.integers(-1, 45), pages=lengths)
    def wrong_calls_are_refused(self, first: int, pages: int) -> None:
        extent = (first, pages)
        asked = pages_of(extent)
        if not asked <= self.used:
            self.refused(self.real.free, extent)
        if not asked <= self.pending:
            self.refused(self.real.commit, extent)
            self.refused(self.real.abandon, extent)
        if not asked <= self.free:
            self.refused(self.real.claim, extent)
        if asked & self.free or not asked <= self.used | self.pending | self.deferred:
            self.refused(self.real.pin, extent)
        if extent not in self.pins:
            self.refused(self.real.unpin, extent)

    @rule()
    def restart(self) -> None:
        """What a restart takes from a snapshot has nothing pending, deferred or pinned."""
        total, extents = self.real.snapshot()
        again = FreeSpace.from_extents(total, extents)
        assert again.extents() == extents
        assert in_use(again) == len(self.used)
        assert (again.pending.total, again.deferred.total) == (0, 0)

    @invariant()
    def agrees_with_the_model(self) -> None:
        real = self.real
        assert real.total_pages == self.total
        assert real.free_pages == len(self.free)
        assert real.pending.total == len(self.pending)
        assert real.deferred.total == len(self.deferred)
        assert in_use(real) == len(self.used)
        assert 1 + sum(map(len, (self.free, self.pending, self.deferred, self.used))) == self.total
        assert real.extents() == extents_of(self.free)
        total, extents = real.snapshot()
        assert total == self.total
        assert extents == extents_of(self.free | self.pending | self.deferred)
        assert sorted((n, first) for first, n in extents_of(self.free)) == list(real._by_length)


TestFreeSpaceModel = pytest.mark.fuzz(FreeSpaceModel.TestCase)
TestFreeSpaceModel.settings = settings(stateful_step_count=50, deadline=None)


def test_low_pages_go_first_and_the_end_of_the_file_last() -> None:
    """F6: a hole is used before the end of the file, although the end fits better."""
    space = FreeSpace(101)
    space.claim(1, 98)
    space.free(10, 50)  # a large hole, and two pages at the end of the file
    assert space.allocate(2) == 10
    assert space.allocate(49) is None
    assert space.allocate(48) == 12
    assert space.allocate(2) == 99


def test_the_file_shrinks_to_the_last_page_in_use() -> None:
    """What is free at the end goes, what is pending or deferred there stays."""
    space = FreeSpace(21)
    first = space.allocate(4)
    assert first == 1
    assert space.end_in_use == 5
    assert space.shrink_tail() == 5 == space.end_in_use
    space.commit(1, 4)
    space.pin(4, 1)
    space.free(2, 3)
    assert space.shrink_tail() == 5
    space.unpin(4, 1)
    assert space.shrink_tail() == 2
    assert space.shrink_tail() == 2


def test_a_pinned_extent_is_not_handed_out_until_the_last_unpin() -> None:
    """F2 and F4: deferred pages are free for a checkpoint, but not for `allocate`."""
    space = FreeSpace(9)
    space.claim(1, 8)
    space.pin(1, 8)
    space.pin(1, 8)
    space.free(1, 8)
    assert space.allocate(1) is None
    assert space.snapshot()[1] == [(1, 8)]
    space.unpin(1, 8)
    assert space.allocate(1) is None
    space.unpin(1, 8)
    assert space.allocate(8) == 1


@pytest.mark.parametrize(
    "rows",
    [
        [(0, 3)],  # the header page
        [(5, 0)],
        [(5, -2)],
        [(8, 3)],  # beyond the end
        [(2, 3), (4, 1)],  # overlap
        [(6, 1), (2, 1)],  # order
        [(2, 2**63 - 1)],  # the end overflows
    ],
)
def test_extents_that_make_no_sense_are_damage(rows: Extents) -> None:
    """F5: a checkpoint that contradicts itself is not taken over."""
    with pytest.raises(StoreCorrupt):
        FreeSpace.from_extents(10, rows)


def test_extents_that_touch_are_joined() -> None:
    """F3 holds after `from_extents` too, also for an empty map."""
    space = FreeSpace.from_extents(10, [(2, 2), (4, 1), (7, 1)])
    assert space.extents() == [(2, 3), (7, 1)]
    assert FreeSpace.from_extents(1, []).extents() == []


def test_counts_below_one_are_refused() -> None:
    """Wrong arguments are told from damage."""
    space = FreeSpace(10)
    calls: list[Callable[[], object]] = [
        lambda: space.allocate(0),
        lambda: space.grow(0),
        lambda: space.free(1, 0),
        lambda: space.claim(1, -1),
        lambda: FreeSpace(0),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument):
            call()
    assert space.extents() == [(1, 9)]


def test_threads_never_get_the_same_page() -> None:
    """F2 under threads: each marks its pages in a shared array and finds them its own."""
    space = FreeSpace(257)
    owner = np.zeros(257, dtype=np.int64)

    def work(number: int) -> None:
        random = Random(number)
        for _ in range(400):
            pages = random.randint(1, 20)
            first = space.allocate(pages)
            if first is None:
                continue
            assert not owner[first : first + pages].any()
            owner[first : first + pages] = number
            space.pin(first, pages)
            if random.random() < 0.5:
                space.commit(first, pages)
                space.free(first, pages)
            else:
                space.abandon(first, pages)
            assert (owner[first : first + pages] == number).all()
            owner[first : first + pages] = 0
            space.unpin(first, pages)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(1, 5)))
    assert space.extents() == [(1, 256)]
