"""Ranges of the hashes of keys: tasks share the keys of a state by them.

Of `count` ranges each key is in one, whoever asks, and however many rows there are: the same keys
meet in the same task as long as the count stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.errors import InvalidArgument
from quire.libraries import np

from .format import LAST_HASH
from .limits import MAX_RANGES

if TYPE_CHECKING:
    from numpy.typing import NDArray


def range_of(number: int, count: int) -> tuple[int, int]:
    """Return the first and the last hash of a range of `count`. Raises InvalidArgument."""
    check_count(count)
    if not 0 <= number < count:
        raise InvalidArgument(f"range {number} of {count}: give a number from 0 to {count - 1}")
    return _first_of(number, count), _first_of(number + 1, count) - 1


def range_numbers(hashes: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
    """Return in which of `count` ranges each hash is. Raises InvalidArgument."""
    check_count(count)
    half = np.uint64(32)  # of a hash, the low one does not count
    return ((hashes >> half) * np.uint64(count) >> half).astype(np.int64)


def check_count(count: int) -> None:
    """Raise InvalidArgument for a number of ranges that there cannot be."""
    if not 0 < count <= MAX_RANGES:
        raise InvalidArgument(f"{count} ranges of keys: give a number from 1 to {MAX_RANGES}")


def _first_of(number: int, count: int) -> int:
    return min(-(-(number << 32) // count) << 32, LAST_HASH + 1)
