"""The merges of a keyed state: transactions of their own, one after another, range by range.

- KY3: a merge is a transaction of its own, which changes no row: who reads the state meanwhile, or
  changes it, goes on.
- One process merges at a time: it holds a name of the store. Two that merge all the same, as one
  was not seen for a while, are told apart by the values of the runs (KM2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from quire.errors import PositionLost, QueueInUse, ResourceExhausted, StateConflict
from quire.interface.transaction import Transaction

from .format import LAST_HASH
from .keyed_reader import KeyedReader, KeyedStore
from .limits import (
    AHEAD_RUNS,
    GIVE_UP_WAIT_SECONDS,
    MAX_RUNS,
    MERGE_LOCK_SECONDS,
    MERGE_POLL_SECONDS,
    MERGE_WAIT_SECONDS,
    MERGED_RUNS,
    MOST_RUNS,
)
from .manifest import MERGED_BYTES, RunEntry, version_of
from .row_layout import layout_by, layout_of
from .run_files import RunGone
from .run_merge import (
    DueMerge,
    deepest,
    density_of,
    due_merge,
    living,
    merge_at,
    merged_rows,
)
from .run_output import RunOutput, WrittenRun


class MergeStop(Exception):
    """A merge whose caller does not want it any more."""


class KeyedMerges:
    """Merges the runs of one keyed state. Thread-safe."""

    def __init__(self, store: KeyedStore, reader: KeyedReader) -> None:
        self._store = store
        self._reader = reader

    def merge_due(self) -> None:
        """Merge until no hash is in too many runs (MR2)."""
        while True:
            runs = self._reader.manifest().runs
            depth, _ = deepest(runs)
            if depth < MAX_RUNS:
                return
            merge = due_merge(runs, MAX_RUNS)
            assert merge is not None
            try:
                done = self._try(merge)
            except ResourceExhausted:
                if depth >= MOST_RUNS:
                    raise
                return  # who only reads goes on meanwhile
            if depth >= MOST_RUNS:
                if done is None:  # the one that another process does now is waited for
                    self._reader.env.sleep(MERGE_POLL_SECONDS)
                continue
            if done is None:
                return
            if done and merge.is_part:  # the others are left to later calls
                small = due_merge(self._reader.manifest().runs, MAX_RUNS, small=True)
                if small is not None:
                    self._try(small)
                return

    def merge_some(self) -> bool:
        """Merge the newest runs in one range, where there are several; whether any were."""
        while True:
            merge = due_merge(self._reader.manifest().runs, MERGED_RUNS)
            if merge is None:
                return False
            done = self._try(merge)
            if done is not False:
                return bool(done)

    def merge_ahead(self, give_up: Callable[[], bool]) -> bool:
        """Merge some in one range, before a transaction has to; False: there is nothing to do."""
        merge = due_merge(self._reader.manifest().runs, AHEAD_RUNS)
        # Where others were faster (False) there may be more.
        return merge is not None and self._try(merge, give_up) is not None

    def merge_all(self) -> bool:
        """Merge all runs to one of each range; whether there were any."""
        density, place, any_done = density_of(self._reader.manifest().runs), 0, False
        while place <= LAST_HASH:
            merge, after = merge_at(self._reader.manifest().runs, place, density)
            done = True if merge is None else self._try(merge)
            if done is None:
                self._reader.env.sleep(MERGE_POLL_SECONDS)
            if done:
                place, any_done = after, any_done or merge is not None
        return any_done

    def take(
        self,
        txn: Transaction,
        runs: Sequence[RunEntry],
        merge: DueMerge | None = None,
        wait_seconds: float = MERGE_WAIT_SECONDS,
    ) -> None:
        """Remove runs in a transaction; with a merge what is inside of its range.

        Raises StateConflict, also where another one has them for so long, and RunGone.
        """
        files, values = self._reader.files, self._reader.values
        now = self._reader.manifest().runs
        left = Counter(run.id for run in now)
        ids = {run.id for run in runs}
        for entry in now:
            if entry.id in ids:  # also other parts of the runs, which are to stay meanwhile
                txn.get_value(values, entry.key)
        for entry in runs:
            if txn.get_value(values, entry.key) != entry.value():
                raise StateConflict(f"run {entry.name} was merged already: look anew")
            txn.set_value(values, entry.key, None)
            rest = [] if merge is None else merge.outside(entry)
            left[entry.id] += len(rest) - 1
            for first, last in rest:
                part = entry.within(first, last)
                txn.set_value(values, part.key, part.value())
        for entry in {entry.id: entry for entry in runs}.values():
            if left[entry.id]:
                continue
            if not txn.remove(files.queue, files.message_id(entry), wait_seconds):
                raise StateConflict(f"run {entry.name} was merged already: look anew")

    def _try(self, merge: DueMerge, give_up: Callable[[], bool] | None = None) -> bool | None:
        """Return True once it is done, False where others were faster; None: others go on, or it
        was given up.
        """
        try:
            with self._alone() as lease_id:
                self._merge(merge, lease_id, give_up)
        except (QueueInUse, MergeStop):
            return None
        except StateConflict:
            return False
        except RunGone as error:
            self._reader.check_gone(merge.runs, error)
            return False
        return True

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """A block in which nobody else merges. Raises QueueInUse."""
        integration = self._store.integration
        lease_id = integration.lease_names([f"{self._reader.values}/merge"], MERGE_LOCK_SECONDS)
        try:
            yield lease_id
        finally:
            integration.end_lease(lease_id)

    def _merge(
        self, merge: DueMerge, lease_id: int, give_up: Callable[[], bool] | None = None
    ) -> None:
        files, values = self._reader.files, self._reader.values
        wait_seconds = MERGE_WAIT_SECONDS if give_up is None else GIVE_UP_WAIT_SECONDS
        output, txn = None, self._store.transaction()
        try:
            with txn:
                self.take(txn, merge.runs, merge, wait_seconds)
                output = self._output(merge)
                written = self._write(merge, output, lease_id, give_up)
                if written.rows:
                    low = min(run.low for run in merge.runs)
                    files.put(txn, written, low, max(run.high for run in merge.runs))
                size = version_of(txn.get_value(values, MERGED_BYTES)) + written.size
                txn.set_value(values, MERGED_BYTES, b"%d" % size)
        finally:
            if output is not None and txn.state == "rolled back":
                output.abort()

    def _output(self, merge: DueMerge) -> RunOutput:
        """Return the writer of the run that takes the place of what is merged."""
        shown = layout_by(self._reader.manifest())
        timed = any(run.timers for run in merge.runs)
        layout = layout_of(shown.words, shown.key_columns, timed=timed)
        parts = [run.within(*_both(run, merge.hashes)) for run in merge.runs]
        size, count = sum(part.kept for part in parts), sum(part.rows for part in parts)
        return self._reader.files.new_run(layout, size, count, merge.hashes)

    def _write(
        self,
        merge: DueMerge,
        output: RunOutput,
        lease_id: int,
        give_up: Callable[[], bool] | None,
    ) -> WrittenRun:
        """Write that run. Raises MergeStop."""
        reader, renew = self._reader, self._store.integration.renew_lease
        manifest, now_us = reader.manifest(), reader.env.now_us()
        shown, opened = layout_by(manifest), reader.opened(merge.runs)
        for rows in merged_rows(manifest, merge.runs, opened, shown, merge.hashes):
            if give_up is not None and give_up():
                raise MergeStop
            output.add(living(rows, now_us) if merge.is_oldest else rows)
            with suppress(PositionLost):  # then the values tell who was faster
                renew(lease_id, MERGE_LOCK_SECONDS)
        return output.finish()


def _both(run: RunEntry, hashes: tuple[int, int]) -> tuple[int, int]:
    return max(run.first, hashes[0]), min(run.last, hashes[1])
