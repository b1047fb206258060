"""Rows of a keyed state in memory: their hashes, times, deletions, timers and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from quire.errors import InvalidArgument
from quire.libraries import np, pa, pc

from .limits import MAX_FOUND_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray


class KeyedRows(NamedTuple):
    """Some rows. Of a deleted one all columns but those of the key are null."""

    hashes: NDArray[np.uint64]
    expires: NDArray[np.int64]  # microseconds since the epoch
    deleted: NDArray[np.bool_]
    timers: NDArray[np.int64]  # NEVER: none
    batch: pa.RecordBatch

    def take(self, indices: NDArray[np.int64]) -> KeyedRows:
        """Return the rows of these indices, in their order."""
        return KeyedRows(
            self.hashes[indices],
            self.expires[indices],
            self.deleted[indices],
            self.timers[indices],
            self.batch.take(pa.array(indices)),
        )

    def slice(self, start: int, stop: int) -> KeyedRows:
        """Return the rows from `start` to before `stop`."""
        return KeyedRows(
            self.hashes[start:stop],
            self.expires[start:stop],
            self.deleted[start:stop],
            self.timers[start:stop],
            self.batch.slice(start, stop - start),
        )

    def living_at(self, now_us: int) -> NDArray[np.bool_]:
        """Return which rows are neither deleted nor expired."""
        return ~self.deleted & (self.expires > now_us)


def concat_rows(parts: Sequence[KeyedRows]) -> KeyedRows:
    """Join rows, of which there is one part at least."""
    if len(parts) == 1:
        return parts[0]
    size = sum(int(part.batch.nbytes) for part in parts)
    if size > MAX_FOUND_BYTES:
        raise too_many_found(size)
    return KeyedRows(
        np.concatenate([part.hashes for part in parts]),
        np.concatenate([part.expires for part in parts]),
        np.concatenate([part.deleted for part in parts]),
        np.concatenate([part.timers for part in parts]),
        pa.concat_batches([part.batch for part in parts]),
    )


def too_many_found(size: int) -> InvalidArgument:
    """Return the error of rows that Arrow cannot have together."""
    return InvalidArgument(
        f"the rows take {size} bytes: at most {MAX_FOUND_BYTES} together; ask for fewer keys at "
        "once"
    )


def newest_of(parts: Sequence[KeyedRows], key_columns: int) -> KeyedRows:
    """Return the first row of each key, ascending by hash. `parts`: the newest ones first."""
    rows = concat_rows(parts)
    order = np.argsort(rows.hashes, kind="stable")
    rows = rows.take(order)
    same = rows.hashes[1:] == rows.hashes[:-1]
    if not same.any():
        return rows
    later = np.flatnonzero(same) + 1
    keep = np.ones(len(rows.hashes), np.bool_)
    keep[later] = False
    keys = rows.batch.columns[:key_columns]
    equal = equal_keys(keys, later - 1, keys, later)
    if not equal.all():  # two keys of one hash: their groups row by row
        _keep_by_key(rows.hashes, keys, later[~equal], keep)
    return rows.take(np.flatnonzero(keep))


def equal_keys(
    some: Sequence[pa.Array],
    indices: NDArray[np.int64],
    others: Sequence[pa.Array],
    places: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return which keys of `some` at the indices are those of `others` at the places."""
    equal = np.ones(len(indices), np.bool_)
    at, there = pa.array(indices), pa.array(places)
    for own, other in zip(some, others, strict=True):
        equal &= np.asarray(pc.equal(own.take(at), other.take(there)))
    return equal


def _keep_by_key(
    hashes: NDArray[np.uint64],
    keys: Sequence[pa.Array],
    unlike: NDArray[np.int64],
    keep: NDArray[np.bool_],
) -> None:
    """Keep the first row of each key among those that have the hash of one of these rows."""
    for value in np.unique(hashes[unlike]):
        seen: set[tuple[object, ...]] = set()
        first, last = np.searchsorted(hashes, value), np.searchsorted(hashes, value, "right")
        for index in range(int(first), int(last)):
            key = tuple(column[index].as_py() for column in keys)
            keep[index] = key not in seen
            seen.add(key)
