"""Rows found by their keys in several runs: of each key the newest one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from quire.libraries import np, pa

from .keyed_rows import KeyedRows, concat_rows
from .manifest import RunEntry
from .row_layout import RowLayout, with_columns
from .run import KeyedRun

if TYPE_CHECKING:
    from numpy.typing import NDArray


def find_rows(
    opened: Callable[[RunEntry], KeyedRun],
    runs: Sequence[RunEntry],
    layout: RowLayout,
    keys: Sequence[pa.Array],
    hashes: NDArray[np.uint64],
    now_us: int,
    own: Sequence[KeyedRun] = (),
) -> pa.RecordBatch:
    """Return the rows of the keys that live then, in the order of the keys.

    `runs`: the newest first; `own`: newer ones. Raises what `opened` does, and StoreCorrupt.
    """
    is_missing = np.ones(len(hashes), np.bool_)
    places: list[NDArray[np.int64]] = []
    parts: list[KeyedRows] = []

    def look(run: KeyedRun, wanted: NDArray[np.int64]) -> None:
        found = run.find(hashes, keys, wanted)
        if found is not None:
            places.append(found.wanted)
            parts.append(with_columns(found.rows, layout.schema))
            is_missing[found.wanted] = False

    for run in own:
        look(run, np.flatnonzero(is_missing))
    for entry in runs:
        wanted = np.flatnonzero(is_missing & _inside(entry, hashes))
        if len(wanted):
            look(opened(entry), wanted)
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=layout.shown)
    rows = concat_rows(parts)
    order = np.argsort(np.concatenate(places), kind="stable")
    alive = rows.living_at(now_us)[order]
    return layout.shown_rows(rows.batch.take(pa.array(order[alive])))


def _inside(entry: RunEntry, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    return (hashes >= np.uint64(entry.first)) & (hashes <= np.uint64(entry.last))
