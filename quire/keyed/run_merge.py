"""Several runs read as one: of each key the newest row. And which runs are merged.

MR1. Of all runs together about `WINDOW_BYTES` are in memory at a time.
MR2. A hash is in `MAX_RUNS` at most: who is to add one merges before, where it is in so many. The
     runs before those that are merged are larger than `MERGE_RATIO` times all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from quire.libraries import np

from .format import LAST_HASH
from .keyed_rows import KeyedRows, newest_of
from .limits import MERGE_RATIO, WINDOW_BYTES
from .manifest import KeyedManifest, RunEntry
from .row_layout import RowLayout, with_columns
from .run import KeyedRun
from .timer_mark import unfired


def merged_rows(
    manifest: KeyedManifest,
    entries: Sequence[RunEntry],
    runs: Sequence[KeyedRun],
    layout: RowLayout,
    hashes: tuple[int, int] = (0, LAST_HASH),
) -> Iterator[KeyedRows]:
    """Yield the newest row of each key, ascending by hash; deleted and expired ones, too. Timers
    that were fired are none any more.

    `entries`: some of the manifest's or all, the newest first; `runs`: each of them, open.
    `hashes`: the first and last of those.
    """
    low, high = hashes
    size = sum(entry.size for entry in entries)
    step = -(-(high - low + 1) // max(1, -(-size // WINDOW_BYTES)))
    for first in range(low, high + 1, step):
        last = min(first + step - 1, high)
        parts: list[KeyedRows] = []
        for entry, run in zip(entries, runs, strict=True):
            if entry.first <= last and first <= entry.last:
                rows = run.between(max(first, entry.first), min(last, entry.last))
                rows = with_columns(rows, layout.schema)
                parts.append(unfired(rows, manifest.fired_in(entry)))
        newest = newest_of(parts, layout.key_columns) if parts else None
        if newest is not None and len(newest.hashes):
            yield newest


def living(rows: KeyedRows, now_us: int) -> KeyedRows:
    """Return the rows that are neither deleted nor expired."""
    alive = rows.living_at(now_us)
    return rows if alive.all() else rows.take(np.flatnonzero(alive))


def due_merge(runs: Sequence[RunEntry], most: int) -> Sequence[RunEntry]:
    """Return the newest runs, which are to be merged; none where no hash is in so many as `most`.

    `runs`: the newest first.
    """
    if depth_of(runs) < most:
        return ()
    levels = _levels(runs)
    count, size = 1, sum(run.size for run in levels[0])
    for level in levels[1:]:
        more = sum(run.size for run in level)
        if count >= 2 and more >= MERGE_RATIO * size:
            break
        size += more
        count += 1
    return [run for level in levels[:count] for run in level]


def depth_of(runs: Sequence[RunEntry]) -> int:
    """Return in how many runs a hash is, at most: through so many goes the look for a key."""
    edges = sorted([(run.first, 1) for run in runs] + [(run.last + 1, -1) for run in runs])
    return max(accumulate(step for _, step in edges), default=0)


def _levels(runs: Sequence[RunEntry]) -> list[list[RunEntry]]:
    """Return runs, the newest first, by level: those of a level are newer than all of the next."""
    levels: list[list[RunEntry]] = []
    low = 0
    for run in runs:
        if not levels or run.high < low:
            levels.append([])
            low = run.low
        levels[-1].append(run)
        low = min(low, run.low)
    return levels
