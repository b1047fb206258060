"""The states of a step in one batch: looked at once, and changed by the batch's commit.

YST1. A batch looks at each state once, in the driver: all that it asks for is as of that commit,
    and whatever a trial or a task does again sees the same. The look has a lease until the batch
    is done with.
YST2. Where another transaction has changed the state since, the batch's commit raises
    StateConflict, also for a state that the batch has looked at and not changed. Of a table only
    the look counts.
YST3. What is written for a state is part of it with the batch's commit, or of nothing: its files
    are removed, or left to age as those of failed tasks are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from quire.env import Env
from quire.errors import QuireError
from quire.keyed import KeyedState, StateLook, WrittenRun, open_state
from quire.keyed.timer_mark import TimerMark
from quire.libraries import np, pa, pc
from quire.spark_graphs import connection
from quire.spark_graphs.fragments.fragment import Fragment
from quire.spark_graphs.graphs.batches.due_input import DueInput
from quire.spark_graphs.graphs.spark.collected_rows import collected
from quire.spark_graphs.graphs.step_state import StepState
from quire.spark_graphs.limits import LEASE_SECONDS
from quire.spark_graphs.planning.lease_renewal import renewal_of
from quire.spark_graphs.task_files.task_files import files_at

from .state_tasks import (
    WRITTEN,
    RangeTagger,
    RowFinder,
    RowWriter,
    rows_at_once,
    written_by,
    written_of,
)
from .written_files import remove_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from quire.interface.store import Store
    from quire.interface.transaction import Transaction

T = TypeVar("T")


class StateAccess:
    """The states of a step, opened by this process. Thread-safe."""

    def __init__(self, path: str, env: Env) -> None:
        self.path = path
        self.env = env
        self._opened: tuple[Store | None, dict[str, KeyedState]] = None, {}  # of which store

    def call(self, state: StepState, action: Callable[[KeyedState], T]) -> T:
        """Do something with a state. Raises what reaching the store raises, too."""
        return connection.call(
            self.path, lambda store: action(self.state_in(store, state)), env=self.env
        )

    def state_in(self, store: Store, state: StepState) -> KeyedState:
        """Return the state, as this store's; what it has in memory is kept while that stays."""
        owner, opened = self._opened
        if store is not owner:
            opened = {}
            self._opened = store, opened
        found = opened.get(state.stored)
        if found is None:
            found = open_state(
                store, state.stored, env=self.env, files=files_at(self.path, self.env)
            )
            opened[state.stored] = found
        return found


class BatchState:
    """A state in one batch."""

    def __init__(self, access: StateAccess, state: StepState) -> None:
        self.state = state
        self._task_state = replace(state, on_timer=None)  # a function of the driver's alone
        self._access = access
        self._look: StateLook = access.call(state, lambda keyed: keyed.look(LEASE_SECONDS))
        renewal_of(access.path, os.getpid()).add(self._look.lease_id)

    def close(self) -> None:
        """Let go of the runs that the look keeps in place; a lease that is left runs out."""
        with suppress(QuireError):
            renewal_of(self._access.path, os.getpid()).remove(self._look.lease_id)

    # Reading

    def is_much(self, rows: int) -> bool:
        """Return True if so many rows are more than the driver is to have, about."""
        return rows > rows_at_once(self._look)

    def find(self, keys: DataFrame) -> pa.RecordBatch:
        """Return the rows of these keys here, each once."""
        table = collected(keys)
        for name in table.schema.names:
            if table.column(name).null_count:
                table = table.filter(pc.is_valid(table.column(name)))
        finder = RowFinder(self._access.path, self._look, self.state.columns)
        return finder.rows_of(table.group_by(table.schema.names).aggregate([]))

    def find_by_tasks(self, keys: DataFrame, schema: StructType) -> DataFrame:
        """Return the rows of these keys, each once, as tasks find them."""
        finder = RowFinder(self._access.path, self._look, self.state.columns)
        return keys.dropna().distinct().mapInArrow(finder, schema)

    def due_mark(self, until: int, limit: int) -> TimerMark | None:
        """Return up to where the timers are that are due next, of so many rows; None: none is.

        Of fewer where the rows are large.
        """
        limit = min(limit, rows_at_once(self._look))
        return self._look.due_mark(files_at(self._access.path), until, limit)

    def next_timer(self) -> int | None:
        """Return the earliest time at which a row may be due; None: there is none."""
        return self._look.next_timer(files_at(self._access.path))

    def due_input(self, mark: TimerMark) -> DueInput:
        """Return the rows whose timers are due up to the mark."""
        found = self._look.due_rows(files_at(self._access.path), mark)
        rows = pa.Table.from_batches([found.rows.select(list(self.state.columns))])
        times, hashes = np.asarray(found.timers), self._look.hashes(found.rows)
        return DueInput(self.state, rows, times, hashes, self._look.version, mark)

    # Changing

    def write(self, rows: pa.Table) -> StateChange:
        """Write what becomes of the state's rows, here. Raises RowRefused."""
        run = written_by(self._access.path, self._task_state, self._look, rows)
        return StateChange(self._access, self.state, self._look, () if run is None else (run,))

    def write_by_tasks(self, rows: DataFrame, ranges: int) -> StateChange:
        """Have tasks write it, of so many ranges of keys. Raises what Spark raises."""
        tagger = RangeTagger(self._task_state, self._look, ranges)
        writer = RowWriter(self._access.path, self._task_state, self._look, ranges)
        tagged = rows.mapInArrow(tagger, tagger.schema_of(rows.schema))
        written = tagged.repartition(ranges, tagger.column).mapInArrow(writer, WRITTEN).collect()
        return StateChange(self._access, self.state, self._look, written_of(written))

    def unchanged(self) -> StateChange:
        """Return no change: the state has to be as it was (YST2)."""
        return StateChange(self._access, self.state, self._look)


class StateChange(Struct, frozen=True):
    """The change of a state by a batch (YST3)."""

    access: StateAccess
    state: StepState
    look: StateLook
    written: Sequence[WrittenRun] = ()
    fired: TimerMark | None = None  # the timers up to it are dealt with

    @property
    def size_bytes(self) -> int:
        """The bytes of what was written."""
        return sum(each.size for each in self.written)

    def enter(self, store: Store, txn: Transaction) -> None:
        """Put it into the batch's transaction. Raises StateConflict (YST2)."""
        self.access.state_in(store, self.state).adopt(txn, self.look, self.written, self.fired)


def remove_written(
    path: str, env: Env | None, fragments: Sequence[Fragment], changes: Sequence[StateChange]
) -> None:
    """Remove the files of outputs, and of changes of states, that no commit can have."""
    files = {each.ltds_id for each in fragments}
    files |= {run.file or None for each in changes for run in each.written}
    remove_files(path, env, files)


class BatchStates:
    """The states of a step, as one batch sees them. For one thread."""

    def __init__(self, access: StateAccess, *looked: BatchState) -> None:
        self._access = access
        self._looked = {each.state.name: each for each in looked}

    def of(self, state: StepState) -> BatchState:
        """Return a state, looked at now or before (YST1)."""
        found = self._looked.get(state.name)
        if found is None:
            found = self._looked[state.name] = BatchState(self._access, state)
        return found

    def unchanged(
        self, states: Sequence[StepState], changes: Sequence[StateChange]
    ) -> list[StateChange]:
        """Return those of the states that were looked at and have no change (YST2)."""
        changed = {each.state.name for each in changes}
        looked = [each.name for each in states if each.name in self._looked]
        return [self._looked[name].unchanged() for name in looked if name not in changed]

    def close(self) -> None:
        """Let go of all looks."""
        looked, self._looked = self._looked, {}
        for each in looked.values():
            each.close()
