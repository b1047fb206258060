"""What `IntervalSet` promises (V1 to V5 in its module), shown against a plain set of integers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quire import intervals as module
from quire.errors import InvalidArgument
from quire.intervals import IntervalSet
from quire.limits import INTERVALS_CHUNK

LOW, HIGH = -5, 60
points = st.integers(LOW, HIGH)
intervals = st.tuples(points, st.integers(1, 25)).map(lambda p: (p[0], p[0] + p[1]))


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The merged intervals of a set of integers, found the slow way."""
    result: list[tuple[int, int]] = []
    for x in sorted(numbers):
        if result and result[-1][1] == x:
            result[-1] = (result[-1][0], x + 1)
        else:
            result.append((x, x + 1))
    return result


class IntervalModel(RuleBasedStateMachine):
    """An `IntervalSet` and a set of integers, changed and asked side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.real = IntervalSet()
        self.model: set[int] = set()
        self.chunk = INTERVALS_CHUNK

    @initialize(many=st.booleans(), chunk=st.sampled_from([1, 2, 3, 4, 5, 8, 16, INTERVALS_CHUNK]))
    def start(self, many: bool, chunk: int) -> None:
        self.chunk = vars(module)["INTERVALS_CHUNK"] = (
            chunk  # so few that chunks are split and joined all the time
        )
        if many:
            numbers = range(LOW - 400, LOW, 2)
            self.real = IntervalSet.from_list((x, x + 1) for x in numbers)
            self.model = set(numbers)

    def teardown(self) -> None:
        vars(module)["INTERVALS_CHUNK"] = INTERVALS_CHUNK

    @rule(interval=intervals)
    def add(self, interval: tuple[int, int]) -> None:
        new = set(range(*interval)) - self.model
        assert self.real.add(*interval) == len(new)
        self.model |= new

    @rule(length=st.integers(1, 3))
    def extend_last(self, length: int) -> None:
        last = max(self.model, default=0) + 1
        if last < HIGH:
            self.real.add(last, last + length)
            self.model |= set(range(last, last + length))

    @rule(distance=st.integers(1, 3))
    def add_before_first(self, distance: int) -> None:
        x = min(self.model, default=0) - distance
        self.real.add(x, x + 1)
        self.model.add(x)

    @rule(interval=intervals)
    def remove(self, interval: tuple[int, int]) -> None:
        gone = set(range(*interval)) & self.model
        assert self.real.remove(*interval) == len(gone)
        self.model -= gone

    @rule(limit=st.integers(1, 6), times=st.integers(1, 90))
    def pop_first(self, limit: int, times: int) -> None:
        for _ in range(times):
            got = self.real.pop_first(limit)
            if not self.model:
                assert got is None
                return
            lo, hi = runs(self.model)[0]
            assert got == (lo, min(hi, lo + limit))
            self.model -= set(range(*got))

    @precondition(lambda self: len(self.model) > 80)
    @rule()
    def clear(self) -> None:
        self.real.clear()
        self.model.clear()

    @rule()
    def go_on_with_a_copy(self) -> None:
        before, self.real = self.real, self.real.copy()
        assert before == self.real
        before.add(1000, 1001)
        assert before != self.real

    @rule(interval=intervals, x=points)
    def ask(self, interval: tuple[int, int], x: int) -> None:
        lo, hi = interval
        wanted, real = set(range(lo, hi)), self.real
        assert real.contains(x) == (x in real) == (x in self.model)
        assert real.run_at(x) == next((run for run in real if run[0] <= x < run[1]), None)
        assert real.covers(lo, hi) == (wanted <= self.model)
        assert real.overlaps(lo, hi) == bool(wanted & self.model)
        assert list(real.intersection(lo, hi)) == runs(wanted & self.model)
        assert list(real.gaps(lo, hi)) == runs(wanted - self.model)
        assert real.count(lo, hi) == len(wanted & self.model)
        gap = x
        while gap in self.model:
            gap += 1
        assert real.first_gap(x) == gap
        assert real.reaches(x) == any(number >= x for number in self.model)

    @invariant()
    def holds_the_same_integers(self) -> None:
        expected = runs(self.model)
        assert self.real.to_list() == list(self.real) == expected
        assert self.real.total == len(self.model)
        assert len(self.real) == len(expected)
        assert bool(self.real) == bool(expected)
        assert self.real.first() == (expected[0] if expected else None)
        assert self.real.last() == (expected[-1] if expected else None)
        assert self.real == IntervalSet.from_list(expected)

    @invariant()
    def stands_in_chunks(self) -> None:
        """V5, and what is noted of the chunks."""
        real = self.real
        sizes = [len(ends) for _, ends in real._before]
        assert all(0 < size <= self.chunk for size in sizes)
        assert len(real._ends) <= self.chunk
        assert bool(real._ends) or not sizes
        assert real._lasts == [ends[-1] for _, ends in real._before]
        assert real._count_before == sum(sizes)


TestIntervalModel = pytest.mark.fuzz(IntervalModel.TestCase)
TestIntervalModel.settings = settings(stateful_step_count=40, deadline=None)


@given(st.lists(intervals, max_size=12))
def test_from_list_takes_any_order_and_overlaps(pairs: list[tuple[int, int]]) -> None:
    """V1: whatever goes in, what comes out is merged and sorted."""
    expected = runs({x for lo, hi in pairs for x in range(lo, hi)})
    assert IntervalSet.from_list(pairs).to_list() == expected


ASKED_WITH_AN_INTERVAL: list[Callable[[IntervalSet, int, int], object]] = [
    IntervalSet.add,
    IntervalSet.remove,
    IntervalSet.covers,
    IntervalSet.overlaps,
    IntervalSet.gaps,
    IntervalSet.intersection,
]


@pytest.mark.parametrize("method", ASKED_WITH_AN_INTERVAL)
@pytest.mark.parametrize("interval", [(3, 3), (4, 3)])
def test_empty_intervals_are_refused_at_the_call(
    method: Callable[[IntervalSet, int, int], object], interval: tuple[int, int]
) -> None:
    """V3: an empty interval is an error, a ValueError too, and changes nothing."""
    numbers = IntervalSet.from_list([(0, 10)])
    with pytest.raises(InvalidArgument, match="is empty"):
        method(numbers, *interval)
    assert numbers.to_list() == [(0, 10)]


def test_pop_first_refuses_a_limit_below_one() -> None:
    """V3: nothing is taken when the limit makes no sense."""
    numbers = IntervalSet.from_list([(0, 10)])
    with pytest.raises(InvalidArgument):
        numbers.pop_first(0)
    assert numbers.total == 10


def test_iterators_show_the_set_as_it_was() -> None:
    """V4: what a loop does to the set does not disturb the loop."""
    numbers = IntervalSet.from_list([(0, 2), (4, 6), (8, 10)])
    for lo, hi in numbers:
        numbers.remove(lo, hi)
    assert not numbers
    for lo, hi in numbers.gaps(0, 5):
        numbers.add(lo, hi)
    for lo, hi in numbers.intersection(1, 4):
        numbers.remove(lo, hi)
    assert numbers.to_list() == [(0, 1), (4, 5)]


def test_chunks_are_split_and_joined_again() -> None:
    """V5: as many chunks as the intervals need, however they came and went."""
    numbers = IntervalSet()
    for x in range(0, 20_000, 2):
        numbers.add(x, x + 1)
    assert len(numbers._before) == 9
    for x in range(19_997, 0, -4):
        numbers.add(x, x + 1)
    chunks = len(numbers._before)
    assert 4 <= chunks <= 20
    for x in range(0, 20_000, 2):
        if x % 400:
            numbers.remove(x, x + 2)
    assert len(numbers) == 50
    assert len(numbers._before) < 4
    before = numbers.copy()
    while numbers:
        assert numbers.pop_first(1) is not None
    assert not numbers._before
    assert len(before) == 50


def test_shown_in_short() -> None:
    """The repr names the first intervals only."""
    numbers = IntervalSet.from_list((x, x + 1) for x in range(0, 40, 2))
    assert repr(IntervalSet.from_list([(1, 3)])) == "IntervalSet([1, 3))"
    assert repr(numbers).endswith("[14, 15), ...)")
