"""A keyed state at one version, for tasks: processes that have neither the store nor a transaction.

- KL1: what a task reads is as of the look's version, and of its time: rows that have expired by
  then are gone, whenever the task runs, or runs again.
- KL2: what tasks write is part of the state with the commit that adopts it, if the state still has
  the look's version then; else it is part of nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from quire.env import Env, OsEnv
from quire.errors import InvalidArgument, StoreCorrupt
from quire.libraries import np, pa

from .format import NEVER
from .fragment_files import FragmentFiles
from .hash_ranges import range_numbers, range_of
from .key_hash import hashes_of
from .keyed_rows import KeyedRows, newest_of
from .limits import DUE_ROWS, LOOK_MESSAGE_BYTES, RUN_MESSAGE_BYTES
from .manifest import PREFIX, KeyedManifest, RunEntry
from .open_runs import OpenRuns, run_in_memory, run_of_file
from .row_arguments import batch_of, check_due, keys_of
from .row_changes import deleted_rows, expiry, put_rows, size_of, times_of, written_layout
from .row_layout import RowLayout, layout_by
from .row_lookup import DueRows, RowLookup
from .run import KeyedRun
from .run_merge import living, merged_rows
from .run_output import RunOutput, WrittenRun
from .timer_mark import BEFORE_ALL, TimerMark

if TYPE_CHECKING:
    from numpy.typing import NDArray


class StateLook(Struct, frozen=True):
    """A keyed state as it is at one moment: made by `KeyedState.look`, and pickled for tasks.

        look = totals.look()                                # the driver
        numbers = look.range_numbers(keys, 8)               # who of 8 tasks has which keys

        before = look.rows_of(files, keys)                  # task 3: any keys
        written = look.write(files, after, gone, number=3, count=8)   # those of range 3 only

        with store.transaction() as txn:                    # the driver
            totals.adopt(txn, look, all_written)
        totals.end_look(look)

    `files`: where tasks find the store's files, `FragmentFiles`: those of the directory, or of a
    server. A look's lease keeps its runs in place while merges go on: it lasts as long as any lease
    (`store.integration.renew_lease(look.lease_id)`).
    """

    name: str
    store_id: int
    manifest: KeyedManifest
    payloads: Mapping[int, bytes]  # of runs that are no files, by id
    now_us: int  # when it was made
    lease_id: int

    @property
    def version(self) -> int:
        """The version of the state; each change of it has the next one."""
        return self.manifest.version

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows, those of the key first."""
        return self._layout.shown

    @property
    def key_names(self) -> list[str]:
        """The columns of the key."""
        return list(self._layout.key_names)

    def range_numbers(self, keys: Any, count: int) -> NDArray[np.int64]:
        """Return in which of `count` ranges each key is: who shares the keys by it has each once.

        `keys` as for `KeyedChanges.get`. Raises InvalidArgument.
        """
        return range_numbers(self.hashes(keys), count)

    def hashes(self, keys: Any) -> NDArray[np.uint64]:
        """Return the hash of each key, by which ranges and timers of one time are in their order.

        `keys` as for `KeyedChanges.get`. Raises InvalidArgument.
        """
        return hashes_of(keys_of(self.name, self._layout, keys))

    # In a task

    def rows_of(self, files: FragmentFiles, keys: Any) -> pa.RecordBatch:
        """Return the rows of these keys that there are, in the order of the keys.

        `keys` as for `KeyedChanges.get`. Raises InvalidArgument, StoreCorrupt.
        """
        columns = keys_of(self.name, self._layout, keys)
        return self._lookup(files).find(columns, hashes_of(columns))

    def timers_of(self, files: FragmentFiles, keys: Any) -> pa.Array:
        """Return the time of the timer of each key's row; null where it has none."""
        columns = keys_of(self.name, self._layout, keys)
        return self._lookup(files).timers(columns, hashes_of(columns))

    def due_mark(self, files: FragmentFiles, until: int, limit: int = DUE_ROWS) -> TimerMark | None:
        """Return up to where timers are dealt with by this look's tasks; None: none is due.

        `until`: a time. `limit`: so many rows are due up to the mark at most, of all ranges
        together; fewer or none where rows were put anew. The driver hands the mark to its tasks,
        each of which looks by `due_rows`, and to `KeyedState.adopt`, with whose commit they have
        fired, whether there were rows or not. Raises InvalidArgument, StoreCorrupt.
        """
        check_due(until, limit)
        return self._lookup(files).due_mark(until, limit, BEFORE_ALL)

    def next_timer(self, files: FragmentFiles) -> int | None:
        """Return the earliest time at which a row may be due; None: there is none."""
        return self._lookup(files).next_timer()

    def due_rows(
        self, files: FragmentFiles, mark: TimerMark, number: int = 0, count: int = 1
    ) -> DueRows:
        """Return the rows of a range whose timers are due up to the mark, the earliest first.

        A row that is put again for one of their keys has the timer that its put says. Raises
        InvalidArgument, StoreCorrupt.
        """
        return self._lookup(files).due(mark, BEFORE_ALL, range_of(number, count))

    def rows_in(
        self, files: FragmentFiles, number: int = 0, count: int = 1
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a range of `count`, in the order of their keys' hashes.

        Some 4 MiB of them are in memory at a time. Raises InvalidArgument, StoreCorrupt.
        """
        first, last = range_of(number, count)
        inside = [run for run in self.manifest.runs if run.first <= last and first <= run.last]
        runs = [self._open(files, run) for run in inside]
        for rows in merged_rows(self.manifest, inside, runs, self._layout, (first, last)):
            alive = living(rows, self.now_us)
            if len(alive.hashes):
                yield self._layout.shown_rows(alive.batch)

    def write(
        self,
        files: FragmentFiles,
        rows: Any = (),
        deletes: Any = (),
        number: int = 0,
        count: int = 1,
        expires_us: Any = None,
        timers: Any = None,
        env: Env | None = None,
    ) -> WrittenRun | None:
        """Write what becomes of keys of one range, as a run that `KeyedState.adopt` takes.

        One run for each range, of all that its task changes. None: there is nothing to write.

        `rows`: put in the place of what their keys have, as `KeyedChanges.put` takes them; of one
        key twice the later one. `deletes`: keys whose rows go, as `KeyedChanges.get` takes them;
        one that `rows` has too is put. `number`, `count`: the range that all these keys are in.
        `expires_us`: when each row expires, in microseconds since 1970; None, or null for a row:
        what the state says. `timers`: for each row when it is due, as `KeyedChanges.put` takes
        them. Raises InvalidArgument, DiskFull.
        """
        changed = self._changed(rows, deletes, expires_us, timers)
        if changed is None:
            return None
        first, last = range_of(number, count)
        if int(changed.hashes[0]) < first or int(changed.hashes[-1]) > last:
            raise InvalidArgument(
                f"keyed state {self.name!r}: keys of another range than {number} of {count}: share "
                "them by range_numbers(keys, count)"
            )
        layout = written_layout(self._layout, changed)
        output = RunOutput(
            files, PREFIX + self.name, self.store_id, layout, (env or OsEnv()).random_u64(),
            size_of(layout, changed), len(changed.hashes), (first, last),
            min(RUN_MESSAGE_BYTES, LOOK_MESSAGE_BYTES // count),
        )  # fmt: skip
        try:
            output.add(changed)
            return output.finish()
        except BaseException:
            output.abort()
            raise

    def _changed(self, rows: Any, deletes: Any, expires_us: Any, timers: Any) -> KeyedRows | None:
        layout, parts = self._layout, list[KeyedRows]()
        batch = batch_of(layout, rows)
        count = 0 if batch is None else len(batch)
        lasting = expiry(self.now_us, self.manifest.definition.ttl_us)
        expires = times_of("expires_us", expires_us, count, lasting)
        due = times_of("timers", timers, count, NEVER)
        if batch is not None and count:
            parts.append(put_rows(layout, batch, expires, due))
        gone = keys_of(self.name, layout, deletes)
        if len(gone[0]):
            parts.append(deleted_rows(layout, gone))
        return newest_of(parts, layout.key_columns) if parts else None

    def _open(self, files: FragmentFiles, entry: RunEntry) -> KeyedRun:
        runs = _open_runs(self.store_id, self.name)
        run = runs.get(entry.id)
        if run is None:
            where = f"{PREFIX}{self.name}: run {entry.name}"
            if entry.file:
                where += f" (file {entry.file:016x})"
                try:
                    reader = files.open_large(PREFIX + self.name, entry.file, self.store_id)
                except StoreCorrupt as error:
                    raise StoreCorrupt(
                        f"{where}: {error}; look anew if the look's lease has ended"
                    ) from error
                run = run_of_file(reader, entry, where)
            else:
                run = run_in_memory(self.payloads[entry.id], entry.id, where)
            runs.retain({each.id for each in self.manifest.runs})
            runs.keep(entry.id, run)
        return run

    def _lookup(self, files: FragmentFiles) -> RowLookup:
        return RowLookup(self.manifest, self._layout, partial(self._open, files), self.now_us)

    @property
    def _layout(self) -> RowLayout:
        return layout_by(self.manifest)


@lru_cache(maxsize=64)
def _open_runs(store_id: int, name: str) -> OpenRuns:
    """Return the runs of a state that are open in this process, which tasks share."""
    return OpenRuns()
