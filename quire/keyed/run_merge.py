"""Several runs read as one: of each key the newest row. And which runs are merged.

MR1. Of all runs together about `WINDOW_BYTES` are in memory at a time.
MR2. There are `MAX_RUNS` at most: who is to add one merges before, where there are so many. The run
     before those that are merged is larger than `MERGE_RATIO` times all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quire.libraries import np

from .format import LAST_HASH
from .keyed_rows import KeyedRows, newest_of
from .limits import MERGE_RATIO, WINDOW_BYTES
from .manifest import RunEntry
from .row_layout import RowLayout, with_columns
from .run import KeyedRun


def merged_rows(runs: Sequence[KeyedRun], layout: RowLayout) -> Iterator[KeyedRows]:
    """Yield the newest row of each key, ascending by hash; deleted and expired ones, too.

    `runs`: the newest first.
    """
    if not runs:
        return
    size = sum(run.bytes for run in runs)
    windows = max(1, -(-size // WINDOW_BYTES))
    step = -(-(LAST_HASH + 1) // windows)
    for first in range(0, LAST_HASH + 1, step):
        last = min(first + step - 1, LAST_HASH)
        parts = [with_columns(run.between(first, last), layout.schema) for run in runs]
        rows = newest_of(parts, layout.key_columns)
        if len(rows.hashes):
            yield rows


def living(rows: KeyedRows, now_us: int) -> KeyedRows:
    """Return the rows that are neither deleted nor expired."""
    alive = rows.living_at(now_us)
    return rows if alive.all() else rows.take(np.flatnonzero(alive))


def due_merge(runs: Sequence[RunEntry], most: int) -> Sequence[RunEntry]:
    """Return the newest runs, which are to be merged; none where there are fewer than `most`.

    `runs`: the newest first.
    """
    if len(runs) < most:
        return ()
    count, size = 1, runs[0].size
    while count < len(runs) and (count < 2 or runs[count].size < MERGE_RATIO * size):
        size += runs[count].size
        count += 1
    return runs[:count]
