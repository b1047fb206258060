"""Rows found by their keys in pieces of runs, which are in memory.

The pieces of several runs are looked through together: few keys of a run cost as much as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from quire.checksum import checksum
from quire.errors import StoreCorrupt
from quire.libraries import np, pa

from .format import EMPTY_CHECKSUM, index_type
from .keyed_rows import KeyedRows, concat_rows, equal_keys
from .row_layout import RowLayout

if TYPE_CHECKING:
    from numpy.typing import NDArray


class FoundRows(NamedTuple):
    """The rows of some keys."""

    wanted: NDArray[np.int64]  # the index of each one's key among those that were looked for
    rows: KeyedRows


class PiecedRun(Protocol):
    """A run, as far as pieces of it are looked through."""

    first: int  # of the hashes that it is for
    shift: int  # a piece has so many hashes, as a power of 2
    index: NDArray[np.void]  # an entry for each piece
    layout: RowLayout
    where: str  # names it in errors

    def expect_pieces(self, places: Sequence[tuple[int, int]]) -> None:
        """Some pieces are about to be read."""

    def read_pieces(self, places: Sequence[tuple[int, int]]) -> Sequence[bytes | memoryview]:
        """Return the bytes of some pieces, not verified. `places`: an offset and a length each."""


class PiecesInMemory(NamedTuple):
    """Pieces of runs of one layout."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]  # where each begins in the data
    rows: NDArray[np.int64]  # how many each has
    layout: RowLayout
    where: str  # names one of the runs in errors

    @classmethod
    def of(cls, data: bytes | memoryview, entries: NDArray[np.void], run: PiecedRun) -> Self:
        """Return pieces whose bytes were read, one after another."""
        lengths = entries["length"].astype(np.int64)
        starts = np.cumsum(lengths) - lengths
        starts[lengths == 0] = 0
        # A row's bytes at least: where an empty piece begins something may be looked at.
        found = np.frombuffer(data or bytes(8), np.uint8)
        return cls(found, starts, entries["rows"].astype(np.int64), run.layout, run.where)

    def all_rows(self) -> KeyedRows:
        """Return all rows, in their order. Raises StoreCorrupt."""
        numbers = np.repeat(np.arange(len(self.rows)), self.rows)
        before = np.cumsum(self.rows) - self.rows
        return self.decode(numbers, np.arange(len(numbers)) - before[numbers])

    def search(
        self, numbers: NDArray[np.int64], hashes: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which hashes are there, each looked for in the piece of its number, and for each
        the index of its first row there.
        """
        wide = self.data.view(np.uint64)
        base, step = self.starts[numbers] >> 3, self.layout.row_bytes >> 3
        left, right = np.zeros(len(hashes), np.int64), self.rows[numbers]
        last = right - 1
        for _ in range(int(right.max()).bit_length()):
            middle = (left + right) >> 1
            at = np.minimum(middle, last)  # of an empty piece none is looked at
            above = (wide[base + np.maximum(at, 0) * step] < hashes) & (left < right)
            left = np.where(above, middle + 1, left)
            right = np.where(above, right, middle)
        hit = left <= last
        hit &= wide[base + np.where(hit, left, 0) * step] == hashes
        return np.flatnonzero(hit), left

    def hashes_at(
        self, numbers: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.uint64]:
        """Return the hashes of rows of pieces, by their indices there."""
        wide = self.data.view(np.uint64)
        places = (self.starts[numbers] + indices * self.layout.row_bytes) >> 3
        found: NDArray[np.uint64] = wide[places]
        return found

    def decode(self, numbers: NDArray[np.int64], indices: NDArray[np.int64]) -> KeyedRows:
        """Return rows of pieces, by their indices there. Raises StoreCorrupt."""
        starts, size = self.starts[numbers], self.layout.row_bytes
        heaps = starts + self.rows[numbers] * size
        return self.layout.decode(self.data, starts + indices * size, heaps, self.where)


def match(
    runs: Sequence[PiecedRun],
    where: NDArray[np.int64],
    wanted: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    keys: Sequence[pa.Array],
) -> FoundRows | None:
    """Return the rows of some keys in some runs of one layout; None: none of them is there.

    `wanted`: the indices of the keys, `where`: the run that each is looked for in; it has the key's
    hash in its range. Ascending by run, then by hash. `keys`: none of their columns: all rows that
    have the hashes. Raises StoreCorrupt.
    """
    numbers, pieces = _pieces_of(runs, where, hashes[wanted])
    own = hashes[wanted]
    found, indices = pieces.search(numbers, own)
    parts: list[FoundRows] = []
    while len(found):
        at = wanted[found]
        rows = pieces.decode(numbers[found], indices[found])
        if keys:
            there = rows.batch.columns[: pieces.layout.key_columns]
            equal = equal_keys(keys, at, there, np.arange(len(at)))
            right = np.flatnonzero(equal)
            if len(right):
                whole = len(right) == len(at)
                parts.append(FoundRows(at[right], rows if whole else rows.take(right)))
            found = found[~equal]  # another key of the same hash may follow
        else:
            parts.append(FoundRows(at, rows))
        indices[found] += 1
        found = found[indices[found] < pieces.rows[numbers[found]]]
        found = found[pieces.hashes_at(numbers[found], indices[found]) == own[found]]
    return joined(parts)


def _pieces_of(
    runs: Sequence[PiecedRun], where: NDArray[np.int64], own: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], PiecesInMemory]:
    """Return the pieces of hashes, each once, and for each hash which of them has it."""
    firsts = np.array([run.first for run in runs], np.uint64)
    shifts = np.array([run.shift for run in runs], np.uint64)
    places = ((own - firsts[where]) >> shifts[where]).astype(np.int64)
    is_new = np.ones(len(own), np.bool_)
    is_new[1:] = (places[1:] != places[:-1]) | (where[1:] != where[:-1])
    needed, of_run = places[is_new], where[is_new]
    borders = np.searchsorted(of_run, np.arange(len(runs) + 1)).tolist()
    parts = zip(runs, borders[:-1], borders[1:], strict=True)
    looks = [(run, start, stop) for run, start, stop in parts if start < stop]
    entries = np.empty(len(needed), index_type())
    for run, start, stop in looks:
        entries[start:stop] = run.index[needed[start:stop]]
    at = list(zip(entries["offset"].tolist(), entries["length"].tolist(), strict=True))
    read: list[bytes | memoryview] = []
    for run, start, stop in looks:
        run.expect_pieces(at[start:stop])
    for run, start, stop in looks:
        read += run.read_pieces(at[start:stop])
    damaged = first_damaged(read, entries)
    if damaged is not None:
        raise not_as_written(runs[of_run[damaged]], entries[damaged])
    return np.cumsum(is_new) - 1, PiecesInMemory.of(b"".join(read), entries, looks[0][0])


def first_damaged(pieces: Sequence[bytes | memoryview], entries: NDArray[np.void]) -> int | None:
    """Return which piece does not match its checksum; None: all do."""
    expected = np.where(entries["length"], entries["checksum"], EMPTY_CHECKSUM).tolist()
    found = list(map(checksum, pieces))
    if found == expected:
        return None
    return next(number for number, each in enumerate(found) if each != expected[number])


def not_as_written(run: PiecedRun, entry: np.void) -> StoreCorrupt:
    """Return the error of a piece that is damaged."""
    return StoreCorrupt(
        f"{run.where}: damaged, {entry['length']} bytes at {entry['offset']} do not match their "
        "checksum"
    )


def joined(parts: Sequence[FoundRows]) -> FoundRows | None:
    """Return what was found in parts; None: nothing."""
    if len(parts) < 2:
        return parts[0] if parts else None
    wanted = np.concatenate([part.wanted for part in parts])
    return FoundRows(wanted, concat_rows([part.rows for part in parts]))
