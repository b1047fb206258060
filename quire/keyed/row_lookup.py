"""Rows found in several runs, by their keys or as their timers are due: of each key the newest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from quire.libraries import np, pa

from .format import LAST_HASH, NEVER, timer_type
from .keyed_rows import KeyedRows, concat_rows, newest_of
from .limits import KEYS_AT_ONCE
from .manifest import KeyedManifest, RunEntry
from .newest_rows import LookedRun, newest_rows
from .row_layout import RowLayout, with_columns
from .run import KeyedRun
from .timer_mark import BEFORE_ALL, TimerMark, unfired

if TYPE_CHECKING:
    from numpy.typing import NDArray


class DueRows(NamedTuple):
    """Rows whose timers are due."""

    rows: pa.RecordBatch
    timers: pa.Array
    """The time of each row's timer."""


class RowLookup(NamedTuple):
    """A manifest's runs, and how they are opened. Its methods raise what that does, and
    StoreCorrupt.
    """

    manifest: KeyedManifest
    layout: RowLayout
    opened: Callable[[RunEntry], KeyedRun]
    now_us: int
    own: Sequence[KeyedRun] = ()  # newer ones, the newest first

    def find(self, keys: Sequence[pa.Array], hashes: NDArray[np.uint64]) -> pa.RecordBatch:
        """Return the rows of the keys that live now, in the order of the keys."""
        places, rows = self._newest(keys, hashes)
        order = np.argsort(places, kind="stable")
        alive = rows.living_at(self.now_us)[order]
        return self.layout.shown_rows(rows.batch.take(pa.array(order[alive])))

    def timers(self, keys: Sequence[pa.Array], hashes: NDArray[np.uint64]) -> pa.Array:
        """Return the time of each key's timer; null: it has none."""
        places, rows = self._newest(keys, hashes)
        times = np.full(len(hashes), NEVER, np.int64)
        times[places] = np.where(rows.living_at(self.now_us), rows.timers, NEVER)
        return _times(times)

    def rows_with_timers(
        self, keys: Sequence[pa.Array], hashes: NDArray[np.uint64], times: NDArray[np.int64]
    ) -> KeyedRows:
        """Return the rows that there are, with new timers; of one key the later one first."""
        places, rows = self._newest(keys, hashes)
        order = np.argsort(places, kind="stable")[::-1]
        order = order[rows.living_at(self.now_us)[order]]
        return rows.take(order)._replace(timers=times[places[order]])

    def due_mark(self, until: int, limit: int, after: TimerMark) -> TimerMark | None:
        """Return a mark up to which at most so many rows are due, later ones than `after`; None:
        none is due.

        It may be that fewer are, or none: those of rows that were put anew count, too.
        """
        end = TimerMark(until)
        timers = self._earliest(end, after, limit + 1)
        if len(timers) <= limit:
            return end if len(timers) else None
        last = timers[limit - 1]
        return TimerMark(int(last["time"]), int(last["hash"]))

    def next_timer(self) -> int | None:
        """Return the earliest time at which a row may be due; None: there is none.

        It may be that no row is due then: that of a row that was put anew counts, too.
        """
        timers = self._earliest(TimerMark(NEVER - 1), BEFORE_ALL, 1)
        return int(timers[0]["time"]) if len(timers) else None

    def _earliest(self, end: TimerMark, after: TimerMark, count: int) -> NDArray[np.void]:
        """Return the first timers of all runs after a mark, at least so many if there are."""
        found = [np.zeros(0, timer_type())]
        for entry in self.manifest.runs:
            if entry.timers:
                begin, hashes = self._after(entry, after), (entry.first, entry.last)
                found.append(self.opened(entry).due(begin, end, hashes, count))
        timers = np.concatenate(found)
        return timers[np.lexsort((timers["hash"], timers["time"]))]

    def due(
        self, until: TimerMark, after: TimerMark, within: tuple[int, int] = (0, LAST_HASH)
    ) -> DueRows:
        """Return the rows whose timers are due up to a mark, after another; in their order.

        `within`: the first and the last hash of those that count.
        """
        found: list[KeyedRows] = []
        for entry in self.manifest.runs:
            if entry.timers:
                found += self._candidates(entry, until, after, within)
        candidates = newest_of(found, self.layout.key_columns) if found else self._none()
        keys, hashes = candidates.batch.columns[: self.layout.key_columns], candidates.hashes
        places, rows = self._replace(own=())._newest(keys, hashes)
        due = until.reaches(rows.timers, rows.hashes) & rows.living_at(self.now_us)
        due &= ~after.reaches(rows.timers, rows.hashes)
        for run in self.own:  # what was put by now has another timer, which is not due yet
            changed = run.find(hashes, keys, np.arange(len(hashes)))
            if changed is not None:
                due &= ~np.isin(places, changed.wanted)
        rows = rows.take(np.flatnonzero(due))
        rows = rows.take(np.lexsort((rows.hashes, rows.timers)))
        return DueRows(self.layout.shown_rows(rows.batch), _times(rows.timers))

    def _candidates(
        self, entry: RunEntry, until: TimerMark, after: TimerMark, within: tuple[int, int]
    ) -> list[KeyedRows]:
        """Return the rows of a run that would be due if no newer one has their keys."""
        hashes = max(entry.first, within[0]), min(entry.last, within[1])
        after = self._after(entry, after)
        if hashes[0] > hashes[1] or after >= until:
            return []
        run = self.opened(entry)
        timers = run.due(after, until, hashes, entry.timers)
        keys = np.unique(timers["hash"])
        found = run.find(keys, (), np.arange(len(keys))) if len(keys) else None
        if found is None:
            return []
        rows = with_columns(found.rows, self.layout.schema)
        due = until.reaches(rows.timers, rows.hashes) & ~after.reaches(rows.timers, rows.hashes)
        return [rows.take(np.flatnonzero(due))]

    def _after(self, entry: RunEntry, after: TimerMark) -> TimerMark:
        return max(after, self.manifest.fired_in(entry))

    def _newest(
        self, keys: Sequence[pa.Array], hashes: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int64], KeyedRows]:
        """Return the newest row of each key that has one, and the places of their keys."""
        places: list[NDArray[np.int64]] = []
        parts: list[KeyedRows] = []
        ordered = np.argsort(hashes, kind="stable")
        for start in range(0, len(ordered), KEYS_AT_ONCE):
            some = ordered[start : start + KEYS_AT_ONCE]
            at = pa.array(some)
            own = [column.take(at) for column in keys]
            for found, mark in newest_rows(self._looked_at(), own, hashes[some]):
                places.append(some[found.wanted])
                parts.append(unfired(with_columns(found.rows, self.layout.schema), mark))
        if not parts:
            return np.zeros(0, np.int64), self._none()
        return np.concatenate(places), concat_rows(parts)

    def _looked_at(self) -> list[LookedRun]:
        """Return all runs, the newest first."""
        own = [
            LookedRun(run.first, run.last, BEFORE_ALL, partial(_return_run, run))
            for run in self.own
        ]
        return own + [
            LookedRun(
                entry.first, entry.last, self.manifest.fired_in(entry), partial(self.opened, entry)
            )
            for entry in self.manifest.runs
        ]

    def _none(self) -> KeyedRows:
        batch = pa.RecordBatch.from_pylist([], schema=self.layout.schema)
        times = np.zeros(0, np.int64)
        return KeyedRows(np.zeros(0, np.uint64), times, np.zeros(0, np.bool_), times, batch)


def _return_run(run: KeyedRun) -> KeyedRun:
    return run


def _times(times: NDArray[np.int64]) -> pa.Array:
    return pa.array(times, pa.int64(), mask=times == NEVER)
