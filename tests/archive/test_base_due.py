"""The rule by which a base is due."""

from __future__ import annotations

import pytest

from quire.archive.base_due import ArchiveWeight, reason_for_base
from quire.archive.limits import BASE_SECONDS, MIN_BASE_ENTRY_BYTES

NOW_US = 1_800_000_000_000_000
DAY_US = round(BASE_SECONDS * 1e6)
LARGE = 10 * MIN_BASE_ENTRY_BYTES


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (ArchiveWeight(), "there is none"),
        (ArchiveWeight(end_number=7, gap_number=7), "there is none"),
        (ArchiveWeight(5, NOW_US, LARGE, 0, 9, gap_number=8), "records before 8"),
        (ArchiveWeight(8, NOW_US, LARGE, 0, 9, gap_number=8), ""),
        (ArchiveWeight(5, NOW_US - DAY_US, LARGE, 0, 6), "a day old"),
        (ArchiveWeight(5, NOW_US - DAY_US + 1, LARGE, 0, 6), ""),
        (ArchiveWeight(5, NOW_US - 9 * DAY_US, LARGE, 0, 5), ""),
        (ArchiveWeight(5, NOW_US, LARGE, LARGE, 6), "weigh as much"),
        (ArchiveWeight(5, NOW_US, LARGE, LARGE - 1, 6), ""),
        (ArchiveWeight(5, NOW_US, 1, MIN_BASE_ENTRY_BYTES - 1, 6), ""),
        (ArchiveWeight(5, NOW_US, 1, MIN_BASE_ENTRY_BYTES, 6), "weigh as much"),
        (ArchiveWeight(5, NOW_US + DAY_US, LARGE, 1, 6), ""),  # its clock was ahead
    ],
)
def test_a_base_is_due(weight: ArchiveWeight, words: str) -> None:
    """None is there; after a gap; for the weight of entries; daily, unless nothing came since."""
    found = reason_for_base(weight, NOW_US)
    assert words in found
    assert bool(found) == bool(words)
