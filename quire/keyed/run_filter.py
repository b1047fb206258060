"""The filter of a run: most keys that it has not are known without a look at its pieces.

A Bloom filter of four bits a key (Bloom, "Space/time trade-offs in hash coding with allowable
errors", 1970): of keys that are not there it lets one in forty pass. Layout: `format`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.libraries import np

from .format import FILTER_SHIFTS
from .limits import MAX_FILTER_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray


def filter_bytes(rows: int) -> int:
    """Return the size of the filter of a run: a byte for each row, or more; 0 for many rows."""
    size = 1 << max(3, (rows - 1).bit_length())
    return size if size <= MAX_FILTER_BYTES else 0


def mark(bits: NDArray[np.bool_], hashes: NDArray[np.uint64]) -> None:
    """Set the bits of some keys."""
    for places in _places(len(bits), hashes):
        bits[places] = True


def may_have(filter: NDArray[np.uint8], hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return False for keys that are not there for certain."""
    places = _places(len(filter) * 8, hashes)
    bits = filter[places >> np.uint64(3)] >> (places & np.uint64(7)).astype(np.uint8)
    found: NDArray[np.bool_] = (bits & np.uint8(1)).all(axis=0)
    return found


def _places(bits: int, hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the bits of some keys, a row for each shift."""
    shifts = np.array(FILTER_SHIFTS, np.uint64)[:, None]
    return (hashes >> shifts) & np.uint64(bits - 1)
