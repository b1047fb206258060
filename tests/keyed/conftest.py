"""What all tests of keyed states share: a store on a simulated machine, and small runs."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import quire
from quire.testing import SimEnv
from tests.kit.folded_state import stores_are_folded
from tests.kit.limits import Limits

__all__ = ["stores_are_folded"]

PATH = "/store"
SMALL: dict[str, Any] = {"segment_bytes": 64 << 10, "grow_bytes": 64 << 10}
SMALL_RUNS: dict[str, Any] = {
    "MAX_RUNS": 3,
    "MOST_RUNS": 6,
    "MERGED_RUNS": 2,
    "AHEAD_RUNS": 2,
    "RUN_MESSAGE_BYTES": 1500,
    "PIECE_BYTES": 256,
    "WINDOW_BYTES": 2000,
    "SPAN_BYTES": 400,
    "KEYS_AT_ONCE": 13,
    "MAX_FILTER_BYTES": 64,
    "CACHED_RUN_BYTES": 4000,
}
"""Few runs, of which most are files, with many pieces and several windows."""


SMALL_RANGE_BYTES = 2500


@pytest.fixture
def small_runs(limits: Limits) -> None:
    """See SMALL_RUNS."""
    limits(**SMALL_RUNS)


@pytest.fixture
def small_ranges(small_runs: None, limits: Limits) -> None:
    """See SMALL_RUNS; and merges of a few pieces, range by range."""
    limits(RANGE_BYTES=SMALL_RANGE_BYTES)


@pytest.fixture
def env(rng: Random) -> SimEnv:
    """A machine."""
    return SimEnv(rng.randrange(1 << 32))


@pytest.fixture
def store(env: SimEnv) -> Iterator[quire.Store]:
    """A store of it."""
    with quire.open(PATH, env=env, background=False, **SMALL) as store:
        yield store
