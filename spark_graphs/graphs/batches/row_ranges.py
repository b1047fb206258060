"""Runs of the rows of an input, which are numbered from 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quire.libraries import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

RowRange = tuple[int, int]
"""Rows from one number to before another."""


def numbers_in(runs: Sequence[RowRange]) -> NDArray[np.int64]:
    """Return the numbers of all rows of some runs."""
    numbers = [np.arange(begin, end) for begin, end in runs]
    return np.concatenate(numbers) if numbers else np.arange(0)
