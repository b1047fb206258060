"""What all tests of keyed states share: small runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.folded_state import stores_are_folded
from tests.kit.limits import Limits

__all__ = ["stores_are_folded"]

SMALL_RUNS: dict[str, Any] = {
    "MAX_RUNS": 3,
    "MERGED_RUNS": 2,
    "RUN_MESSAGE_BYTES": 1500,
    "PIECE_BYTES": 256,
    "WINDOW_BYTES": 2000,
    "SPAN_BYTES": 400,
    "KEYS_AT_ONCE": 13,
    "MAX_FILTER_BYTES": 64,
    "CACHED_RUN_BYTES": 4000,
}
"""Few runs, of which most are files, with many pieces and several windows."""


@pytest.fixture
def small_runs(limits: Limits) -> None:
    """See SMALL_RUNS."""
    limits(**SMALL_RUNS)
