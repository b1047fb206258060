"""Which messages a step fails with: found by trying parts of a batch, against a plain model."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from quire.spark_graphs.graphs.poison import NoPoison, Selection, find_poison, without
from quire.spark_graphs.limits import MOST_DEAD_LETTERS


def failing_with(bad: set[tuple[int, int]], tried: list[Selection]) -> Callable[..., object]:
    """A step that fails with these rows, each by its input and its number."""

    def fails(selection: Selection) -> Exception | None:
        tried.append(selection)
        rows = {
            (index, number)
            for index, runs in enumerate(selection)
            for begin, end in runs
            for number in range(begin, end)
        }
        hit = sorted(rows & bad)
        return ValueError(f"row {hit[0]}") if hit else None

    return fails


def test_what_is_at_fault_is_found_and_nothing_else(rng: random.Random) -> None:
    """For any sizes of one to three inputs; with about two trials for each halving."""
    for _ in range(200):
        counts = [rng.randrange(60) for _ in range(rng.randint(1, 3))]
        rows = [(i, n) for i, count in enumerate(counts) for n in range(count)]
        if not rows:
            continue
        bad = set(rng.sample(rows, rng.randint(1, min(4, len(rows)))))
        tried: list[Selection] = []
        found = find_poison(counts, failing_with(bad, tried))  # type: ignore[arg-type]
        assert [(each.index, each.number) for each in found] == sorted(bad)
        assert all(str(each.error) == f"row {(each.index, each.number)}" for each in found)
        assert len(tried) <= 2 + len(bad) * 2 * (sum(counts).bit_length() + 1)
        rest = without(counts, found)
        left = {(i, n) for i, runs in enumerate(rest) for a, b in runs for n in range(a, b)}
        assert left == set(rows) - bad


def test_where_no_message_is_at_fault() -> None:
    """The step fails without any, only with two of them together, or with too many."""
    with pytest.raises(NoPoison, match="without any message"):
        find_poison([5], lambda selection: ValueError())

    def together(selection: Selection) -> Exception | None:
        count = sum(end - begin for runs in selection for begin, end in runs)
        return ValueError() if count > 1 else None

    with pytest.raises(NoPoison, match="no message of it fails alone"):
        find_poison([5, 4], together)
    many = MOST_DEAD_LETTERS + 1
    with pytest.raises(NoPoison, match="more than"):
        find_poison([many], failing_with({(0, n) for n in range(many)}, []))  # type: ignore[arg-type]
