"""Which messages a step fails with: found by trying parts of a batch, against a plain model."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from quire.spark_graphs.graphs.failures.failed_batch import RecentRows
from quire.spark_graphs.graphs.failures.poison import (
    Fails,
    FailsOf,
    KnownPoison,
    NoPoison,
    Poison,
    PoisonScan,
    SelectedRows,
    find_poison,
    without,
)
from quire.spark_graphs.limits import POISON_WINDOW

pytestmark = pytest.mark.at_server


Row = tuple[int, int]  # an input, and a number


def rows_of(selection: SelectedRows) -> list[Row]:
    """One by one."""
    return [
        (index, number)
        for index, runs in enumerate(selection)
        for begin, end in runs
        for number in range(begin, end)
    ]


def failing_with(bad: set[Row], tried: list[SelectedRows]) -> Fails:
    """A step that fails with these rows, each by its input and its number."""

    def fails(selection: SelectedRows) -> Exception | None:
        tried.append(selection)
        hit = sorted(bad.intersection(rows_of(selection)))
        return ValueError(f"row {hit[0]}") if hit else None

    return fails


def never(telling: PoisonScan) -> bool:
    """There is time."""
    return False


def over(tried: list[SelectedRows], most: int) -> Callable[[PoisonScan], bool]:
    """It is enough after so many trials."""
    return lambda telling: len(tried) >= most


def places(poison: tuple[Poison, ...]) -> list[Row]:
    """Where they are."""
    return [(each.index, each.number) for each in poison]


def drawn(rng: random.Random, most: int = 4) -> Iterator[tuple[list[int], list[Row], set[Row]]]:
    """Counts of one to three inputs, all their rows, and those that are bad."""
    for _ in range(200):
        counts = [rng.randrange(60) for _ in range(rng.randint(1, 3))]
        rows = [(i, n) for i, count in enumerate(counts) for n in range(count)]
        if rows:
            yield counts, rows, set(rng.sample(rows, rng.randint(1, min(most, len(rows)))))


def test_what_is_at_fault_is_found_and_nothing_else(rng: random.Random) -> None:
    """For any sizes of one to three inputs; with about two trials for each halving."""
    for counts, rows, bad in drawn(rng):
        tried: list[SelectedRows] = []
        told = find_poison(counts, failing_with(bad, tried), never)
        assert (told.rows, places(told.poison)) == (len(rows), sorted(bad))
        assert all(each.reason == f"row {(each.index, each.number)}" for each in told.poison)
        assert len(tried) <= 2 + (1 + len(bad)) * 2 * (len(rows).bit_length() + 1)
        left = rows_of(without(counts, told.poison))
        assert left == [row for row in rows if row not in bad]


def test_it_ends_at_any_time_and_goes_on(rng: random.Random) -> None:
    """What is known then is true of the first rows, and needs no second look."""
    for counts, rows, bad in drawn(rng, most=60):
        told = KnownPoison()
        while told.rows < len(rows):
            tried: list[SelectedRows] = []
            most = rng.randint(1, 8)
            try:
                told = find_poison(counts, failing_with(bad, tried), over(tried, most), told)
            except NoPoison:
                assert set(places(told.poison)) == bad  # none among the others
                break
            assert len(tried) <= most + 2
            assert places(told.poison) == [row for row in rows[: told.rows] if row in bad]
        assert places(told.poison) == sorted(bad)


class Lies(Exception):
    """What a plan says of good messages."""


@pytest.mark.cases(2)
@pytest.mark.parametrize("lies", ["none", "misses", "of another kind", "of all"])
def test_what_a_plan_says_is_tried(rng: random.Random, lies: str) -> None:
    """It may be wrong in either way: what is at fault is what the step itself fails with."""
    said = 0
    for counts, rows, bad in drawn(rng, most=20):
        tried: list[SelectedRows] = []
        fails = failing_with(bad, tried)
        wrong = set(rng.sample(rows, rng.randint(1, min(4, len(rows))))) - bad

        def plan(
            index: int, run: tuple[int, int], bad: set[Row] = bad, wrong: set[Row] = wrong
        ) -> FailsOf:
            first = run[0]

            def trial(begin: int, end: int) -> Exception | None:
                nonlocal said
                said += 1
                own = [(index, first + number) for number in range(begin, end)]
                assert own[-1][1] < run[1]
                if lies == "of all" or (lies == "of another kind" and wrong.intersection(own)):
                    return Lies("all is bad")
                hit = sorted(bad.intersection(own))
                if lies == "misses":
                    hit = [row for row in hit if row[1] % 2]
                return ValueError(f"row {hit[0]}") if hit else None

            return trial

        told = find_poison(counts, fails, never, KnownPoison(), plan)
        assert (told.rows, places(told.poison)) == (len(rows), sorted(bad))
        assert all(each.reason == f"row {(each.index, each.number)}" for each in told.poison)
    assert said


@pytest.mark.cases(2)
@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.9, 1.0])
def test_how_few_trials_of_the_step_a_plan_takes(rng: random.Random, share: float) -> None:
    """None for each message that fails."""
    bad = {(0, n) for n in range(10_000) if rng.random() < share}
    tried: list[SelectedRows] = []
    planned: list[SelectedRows] = []
    of_plan = failing_with(bad, planned)

    def plan(index: int, run: tuple[int, int]) -> FailsOf:
        return lambda begin, end: of_plan([[(run[0] + begin, run[0] + end)]])

    told = find_poison([10_000], failing_with(bad, tried), never, KnownPoison(), plan)
    assert places(told.poison) == sorted(bad)
    assert len(tried) <= 4


@pytest.mark.cases(2)
@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.9, 1.0])
def test_how_many_trials_a_share_takes(rng: random.Random, share: float) -> None:
    """Of 10,000 rows: a logarithm for each where they are rare, about one a row where many are."""
    bad = {(0, n) for n in range(10_000) if rng.random() < share}
    tried: list[SelectedRows] = []
    find_poison([10_000], failing_with(bad, tried), never)
    most = {0.001: 400, 0.01: 1_500, 0.1: 8_000, 0.9: 13_000, 1.0: 10_100}
    assert len(tried) < most[share], (share, len(bad), len(tried))


def test_where_no_message_is_at_fault() -> None:
    """The step fails without any, or only with two of them together."""
    with pytest.raises(NoPoison, match="without any message"):
        find_poison([5], lambda selection: ValueError(), never)

    def together(selection: SelectedRows) -> Exception | None:
        return ValueError() if len(rows_of(selection)) > 1 else None

    with pytest.raises(NoPoison, match="no message of it fails alone"):
        find_poison([5, 4], together, never)


def test_the_share_is_of_the_last_rows() -> None:
    """The rows that were counted are told as they are, and what is older does not count."""
    recent = RecentRows()
    assert recent.count(7, [0, 1, 2, 3, 4]) == (5, 7)
    recent.add(5, [0, 1, 2, 3, 4])
    assert recent.count(POISON_WINDOW - 5, []) == (5, POISON_WINDOW)
    assert recent.count(POISON_WINDOW - 3, [0]) == (4, POISON_WINDOW)
    recent.add(POISON_WINDOW - 3, [0])
    assert recent.count(0, []) == (4, POISON_WINDOW)
    assert recent.count(2 * POISON_WINDOW, [0, 2 * POISON_WINDOW - 1]) == (1, POISON_WINDOW)
