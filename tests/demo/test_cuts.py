"""How the demo's flights are cut into transactions."""

from __future__ import annotations

from itertools import pairwise

import pytest

from demo.processes.cuts import plan


@pytest.mark.parametrize("flights", [1, 2, 11, 12, 5_000, 336_776])
def test_cuts_cover_every_flight_once_in_order(flights: int) -> None:
    """The cuts follow on each other from the first flight to the last."""
    cuts = plan(flights, seed=1)
    assert cuts[0].start == 0
    assert cuts[-1].stop == flights
    assert all(before.stop == after.start for before, after in pairwise(cuts))
    assert all(cut.start < cut.stop for cut in cuts)


@pytest.mark.parametrize("flights", [1, 5_000, 336_776])
def test_exactly_one_cut_is_large(flights: int) -> None:
    """One transaction holds a month's worth of flights, a twelfth of all."""
    large = [cut for cut in plan(flights, seed=1) if cut.large]
    assert [cut.stop - cut.start for cut in large] == [max(1, flights // 12)]


def test_the_same_seed_gives_the_same_cuts() -> None:
    """A publisher that starts again must find its place among the cuts."""
    assert plan(5_000, seed=7) == plan(5_000, seed=7)
    assert plan(5_000, seed=7) != plan(5_000, seed=8)
