"""A keyed state in a transaction: rows that it reads, and changes with its commit.

- KC1: what is read is as of the transaction's first look, with its own changes; if another one
  has changed rows of the state by the time of the commit, that raises StateConflict.
- KC2: changes are in memory until the block's end, and are one run then. Until then the
  transaction refuses to commit, or to be prepared.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self
from weakref import WeakMethod

from msgspec import Struct

from quire.arguments import check_seconds
from quire.errors import InvalidArgument, StateConflict, TransactionClosed, TransactionError
from quire.interface.store_objects import TransactionCalls
from quire.interface.transaction import Transaction
from quire.libraries import np, pa
from quire.moments import Duration

from .format import NEVER
from .key_hash import hashes_of
from .keyed_reader import Found, KeyedReader
from .keyed_rows import KeyedRows, newest_of
from .limits import DUE_ROWS, MAX_PENDING_BYTES
from .manifest import FIRED, PUT_BYTES, VERSION, version_of
from .open_runs import run_in_memory
from .row_arguments import batch_of, check_due, keys_of
from .row_changes import deleted_rows, expiry, put_rows, size_of, times_of, written_layout
from .row_layout import layout_by
from .row_lookup import DueRows, RowLookup
from .run import KeyedRun
from .run_writer import RunWriter
from .timer_mark import BEFORE_ALL, TimerMark


class _ChangedRows(Struct):
    """Some of what is pending. Each part has half as many rows as the one before, or fewer: so many
    small puts are sorted a few times each, not each time all of them.
    """

    rows: KeyedRows
    run: KeyedRun | None = None  # of them, once they were looked for


class KeyedChanges:
    """The rows of a keyed state in one transaction: made by `KeyedState.within`, a `with` block.

        with store.transaction() as txn, totals.within(txn) as rows:
            before = rows.get(keys)
            rows.put(after)

    What was put and deleted takes effect with the transaction's commit, after the end of the block.
    For one thread.
    """

    def __init__(self, reader: KeyedReader, txn: Transaction) -> None:
        self._reader = reader
        self._txn = txn
        self._parts: list[_ChangedRows] = []  # what is pending, the newest last
        self._fired: TimerMark | None = None  # what was due up to it has fired
        self._ended = False
        value = txn.get_value(reader.values, VERSION)
        self._manifest = reader.manifest()
        self._layout = layout_by(self._manifest)
        if version_of(value) != self._manifest.version:
            raise StateConflict(
                f"keyed state {reader.name!r} was changed while this transaction began to read it, "
                "or is changed twice by it, or is in another store: roll back and begin again, "
                "with one `within` block"
            )
        reader.put_run_files.remove_left(self._manifest)
        if isinstance(txn, TransactionCalls):
            txn.end_after(WeakMethod(self._check_complete))

    def __del__(self) -> None:
        if not self._ended and (self._parts or self._fired):
            warnings.warn(
                f"changes of keyed state {self._reader.name!r} were dropped before the end of "
                "their block, and are in no transaction: use a with block, or call end()",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def get(self, keys: Any) -> pa.RecordBatch:
        """Return the rows of these keys that there are, in the order of the keys.

        `keys`: a RecordBatch or Table with the columns of the key; where that is one column a list
        or an array of its values, too. Raises InvalidArgument, StateConflict, StoreCorrupt.
        """
        self._check_open()
        columns = keys_of(self._reader.name, self._layout, keys)
        hashes = hashes_of(columns)
        return self._look(lambda rows: rows.find(columns, hashes))

    def timers(self, keys: Any) -> pa.Array:
        """Return the time of the timer of each key's row; null where it has none."""
        self._check_open()
        columns = keys_of(self._reader.name, self._layout, keys)
        hashes = hashes_of(columns)
        return self._look(lambda rows: rows.timers(columns, hashes))

    def due(self, until: int, limit: int = DUE_ROWS) -> DueRows:
        """Return the rows whose timers are due, up to and with a time, the earliest ones first.

        With the commit they have fired: the rows stay, without these timers. At most `limit` of
        them; the next call goes on behind them, in this block or in a later one, until there are
        none. Rows that this block has put, or deleted, are not among them. Raises InvalidArgument,
        StateConflict, StoreCorrupt.
        """
        self._check_open()
        check_due(until, limit)
        after = self._fired or BEFORE_ALL
        while True:
            mark = self._look(partial(RowLookup.due_mark, until=until, limit=limit, after=after))
            found = self._look(partial(RowLookup.due, until=mark or after, after=after))
            if mark is None:
                return found
            after = mark
            if len(found.timers):
                self._fired = mark
                return found

    def put(self, rows: Any, ttl: Duration | None = None, timers: Any = None) -> None:
        """Put rows, each in the place of what its key has; of one key twice the later one.

        `rows`: a RecordBatch, a Table, a DataFrame of pandas or polars, or a list of mappings, with
        the columns of the state in any order. `ttl`: seconds until they are gone by themselves;
        None: what the state says. `timers`: for each row when `due` has it, a whole number in an
        array or a list, null for none; None: none of them has a timer. Raises InvalidArgument.
        """
        self._check_open()
        batch = batch_of(self._layout, rows)
        if batch is None:
            return
        ttl_us = self._manifest.definition.ttl_us
        if ttl is not None:
            ttl_us = int(check_seconds(ttl) * 1_000_000)
        expires = expiry(self._reader.env.now_us(), ttl_us)
        lasting = np.full(len(batch), expires, np.int64)
        times = times_of("timers", timers, len(batch), NEVER)
        self._add(put_rows(self._layout, batch, lasting, times))

    def set_timers(self, keys: Any, timers: Any) -> None:
        """Set when the rows of these keys are due; they stay as they are else.

        Keys without a row are passed over. `keys` as for `get`, `timers` as for `put`, one for each
        key; of one key twice the later one. Raises InvalidArgument, StateConflict, StoreCorrupt.
        """
        self._check_open()
        columns = keys_of(self._reader.name, self._layout, keys)
        hashes = hashes_of(columns)
        times = times_of("timers", timers, len(hashes), NEVER)
        self._add(self._look(lambda rows: rows.rows_with_timers(columns, hashes, times)))

    def delete(self, keys: Any) -> None:
        """Delete the rows of these keys, as `get` takes them; those that are not there, too."""
        self._check_open()
        columns = keys_of(self._reader.name, self._layout, keys)
        self._add(deleted_rows(self._layout, columns))

    def end(self) -> None:
        """Write what was changed into the transaction: what the end of the block does."""
        self._check_open()
        self._ended = True
        parts, self._parts = self._parts, []
        if not (parts or self._fired) or self._txn.state == "rolled back":
            return
        if self._txn.state != "open":
            raise TransactionClosed(
                f"the transaction is {self._txn.state}, and the changes of keyed state "
                f"{self._reader.name!r} are not in it: let the `within` block end before"
            )
        values, version = self._reader.values, self._manifest.version + 1
        if version_of(self._txn.get_value(values, VERSION)) != self._manifest.version:
            raise StateConflict(
                f"keyed state {self._reader.name!r} was changed by its transaction beside this "
                "block, whose changes are not in it: roll back, and have one `within` block"
            )
        if self._fired is not None:
            self._txn.set_value(values, FIRED, self._manifest.fired_value(self._fired))
        if not parts:
            self._txn.set_value(values, VERSION, b"%d" % version)
            return
        rows = newest_of([part.rows for part in reversed(parts)], self._layout.key_columns)
        layout = written_layout(self._layout, rows)
        made = self._reader.files.new_run(layout, size_of(layout, rows), len(rows.hashes))
        try:
            made.add(rows)
            run = made.finish()
            self._txn.set_value(values, VERSION, b"%d" % version)
            size = self._manifest.put_bytes + run.size
            self._txn.set_value(values, PUT_BYTES, b"%d" % size)
        except BaseException:
            made.abort()
            raise
        self._reader.put_run_files.note(self._txn, run.file)
        self._reader.files.put(self._txn, run, version, version)

    def _add(self, rows: KeyedRows) -> None:
        if not len(rows.hashes):
            return
        parts, key_columns = self._parts, self._layout.key_columns
        size = rows.batch.nbytes + sum(part.rows.batch.nbytes for part in parts)
        if size > MAX_PENDING_BYTES:
            raise InvalidArgument(
                f"the changes of keyed state {self._reader.name!r} in one transaction would take "
                f"{size} bytes: at most {MAX_PENDING_BYTES}; commit, and go on in another one"
            )
        parts.append(_ChangedRows(newest_of([rows], key_columns)))
        while len(parts) > 1 and len(parts[-2].rows.hashes) < 2 * len(parts[-1].rows.hashes):
            newer, older = parts.pop(), parts.pop()
            parts.append(_ChangedRows(newest_of([newer.rows, older.rows], key_columns)))

    def _runs(self) -> list[KeyedRun]:
        for part in self._parts:
            if part.run is None:
                part.run = self._run_of(part.rows)
        return [part.run for part in reversed(self._parts) if part.run is not None]

    def _look(self, use: Callable[[RowLookup], Found]) -> Found:
        found, self._manifest = self._reader.look(self._manifest, use, self._runs())
        return found

    def _run_of(self, rows: KeyedRows) -> KeyedRun:
        data = bytearray()
        layout = written_layout(self._layout, rows)
        writer = RunWriter(data.extend, layout, 0, size_of(layout, rows), len(rows.hashes))
        writer.add(rows)
        writer.finish()
        return run_in_memory(bytes(data), 0, f"changes of keyed state {self._reader.name!r}")

    def _check_complete(self) -> None:
        """Refuse that the transaction ends: it would have all but the rows (KC2)."""
        if not self._ended and (self._parts or self._fired):
            raise TransactionError(
                f"the changes of keyed state {self._reader.name!r} are not in the transaction "
                "before the end of their `within` block: end it first, then commit or prepare"
            )

    def _check_open(self) -> None:
        if self._ended:
            raise InvalidArgument(
                f"this block of keyed state {self._reader.name!r} has ended: begin another one"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None and not self._ended:
            self.end()
        self._ended = True
