"""Several runs read as one: of each key the newest row. And which runs are merged.

MR1. Of all runs together about `WINDOW_BYTES` are in memory at a time.
MR2. A hash is in `MAX_RUNS` at most: who is to add one merges before, where it is in so many. The
     run before those that are merged is larger than `MERGE_RATIO` times all of them.
MR3. A merge reads some `RANGE_BYTES`, of one range of hashes; larger runs are merged range by
     range. Until all of its ranges are merged a run stays, and counts in the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from quire.libraries import np

from .format import LAST_HASH
from .keyed_rows import KeyedRows, newest_of
from .limits import MERGE_RATIO, RANGE_BYTES, WINDOW_BYTES
from .manifest import KeyedManifest, RunEntry
from .row_layout import RowLayout, with_columns
from .run import KeyedRun
from .timer_mark import unfired

_ALL: Final = float(LAST_HASH + 1)


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
    size = sum(
        entry.within(max(low, entry.first), min(high, entry.last)).kept
        for entry in entries
        if entry.first <= high and low <= entry.last
    )
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


class DueMerge(NamedTuple):
    """Runs that are to become one, in a range of hashes: what they have outside of it stays."""

    runs: Sequence[RunEntry]  # the newest first
    hashes: tuple[int, int]  # the first and the last
    is_part: bool  # others of the same runs are to follow
    is_oldest: bool  # nothing is older than they are: what is deleted may go

    def outside(self, run: RunEntry) -> list[tuple[int, int]]:
        """Return the ranges of a run that stay."""
        first, last = self.hashes
        sides = [(run.first, min(run.last, first - 1)), (max(run.first, last + 1), run.last)]
        return [side for side in sides if side[0] <= side[1]]


def due_merge(runs: Sequence[RunEntry], most: int, *, small: bool = False) -> DueMerge | None:
    """Return what is to be merged; None where no hash is in so many runs as `most`.

    `runs`: the newest first. `small`: the newest ones only, as many as a range has bytes.
    """
    depth, place = deepest(runs)
    if depth < most:
        return None
    here = [run for run in runs if run.first <= place <= run.last]
    count, density = 1, _density(here[0])
    for run in here[1:]:
        more = _density(run)
        if small and (density + more) * _ALL > RANGE_BYTES:
            break
        if not small and count >= 2 and more >= MERGE_RATIO * density:
            break
        density += more
        count += 1
    if count < 2:
        return None
    return _merge_in(runs, here[count - 1].low, place, _cell(place, density))


def merge_at(runs: Sequence[RunEntry], place: int, density: float) -> tuple[DueMerge | None, int]:
    """Return what makes one run of all in the range of a hash, and the first hash of the next one.

    `density`: bytes a hash.
    """
    cell = _cell(place, density)
    found = _merge_in(runs, min(run.low for run in runs), place, cell) if runs else None
    return found, cell[1] + 1


def density_of(runs: Sequence[RunEntry]) -> float:
    """Return how many bytes runs have a hash, on average."""
    return sum(run.kept for run in runs) / _ALL


def deepest(runs: Sequence[RunEntry]) -> tuple[int, int]:
    """Return in how many runs a hash is, at most, and the first such hash: through so many goes the
    look for a key.
    """
    edges = sorted([(run.first, 1) for run in runs] + [(run.last + 1, -1) for run in runs])
    depth, found = 0, (0, 0)
    for place, step in edges:
        depth += step
        if depth > found[0]:
            found = depth, place
    return found


def _merge_in(
    runs: Sequence[RunEntry], low: int, place: int, cell: tuple[int, int]
) -> DueMerge | None:
    """Return the merge of what has versions from `low` on, in a cell, around a hash.

    Up to where a run begins that has older versions, too.
    """
    first, last = cell
    for run in runs:
        if run.low < low <= run.high:
            if run.last < place:
                first = max(first, run.last + 1)
            elif run.first > place:
                last = min(last, run.first - 1)
    inside = [run for run in runs if run.first <= last and first <= run.last]
    chosen = [run for run in inside if run.high >= low]
    if not chosen:
        return None
    first = max(first, min(run.first for run in chosen))
    last = min(last, max(run.last for run in chosen))
    is_part = cell != (0, LAST_HASH)
    return DueMerge(chosen, (first, last), is_part, len(chosen) == len(inside))


def _cell(place: int, density: float) -> tuple[int, int]:
    """Return the range of a hash: all of them, or a half, or a quarter, and so on, in which so many
    bytes a hash are `RANGE_BYTES` at most.
    """
    size = LAST_HASH + 1
    while density * size > RANGE_BYTES and size > 1:
        size >>= 1
    first = place // size * size
    return first, first + size - 1


def _density(run: RunEntry) -> float:
    return run.kept / (run.last - run.first + 1)
