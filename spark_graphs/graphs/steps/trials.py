"""A step's function tried over a batch: with all rows, and where it fails with parts of them.

- Nothing of a trial counts but what is returned for a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from quire.errors import QuireError
from quire.libraries.late_imports import importing
from quire.spark_graphs.graphs.batches.batch_inputs import Input, Leased, Near
from quire.spark_graphs.graphs.batches.row_ranges import RowRange
from quire.spark_graphs.graphs.batches.task_store import StoreTrouble
from quire.spark_graphs.graphs.failures.driver_plan import plan_in_driver
from quire.spark_graphs.graphs.failures.failed_batch import StepPoison
from quire.spark_graphs.graphs.failures.poison import (
    Fails,
    FailsOf,
    NoPoison,
    PlanRange,
    Poison,
    SelectedRows,
    without,
)
from quire.spark_graphs.graphs.functions.kept_values import ValueRefused
from quire.spark_graphs.graphs.functions.step_function import (
    StepResult,
    StepWork,
    is_too_much,
    whole,
)
from quire.spark_graphs.graphs.spark.error_reason import text_of
from quire.spark_graphs.graphs.spark.session import has_ended, quiet
from quire.spark_graphs.graphs.states.batch_states import remove_written
from quire.spark_graphs.graphs.status import Phase

from .step_memory import StepMemory
from .tally import StepTally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Ended(Exception):
    """The step was told to stop."""


class StepTrials:
    """Tries the function of one step. For one thread at a time."""

    def __init__(
        self,
        work: StepWork,
        spark: SparkSession,
        memory: StepMemory,
        tally: StepTally,
        *,
        notify: Callable[[], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._work = work
        self._spark = spark
        self._memory = memory
        self._tally = tally
        self._notify = notify
        self._is_stopping = is_stopping
        self._failures: dict[tuple[str, int], int] = {}  # of the batch with this number

    def run(
        self,
        inputs: Sequence[Input],
        number: int,
        poison: StepPoison,
        *,
        attempts: int,
        can_narrow: Callable[[int], bool],
    ) -> tuple[StepResult, Sequence[Poison]]:
        """Return the function's outputs, and the rows that it fails with (YRN4).

        `poison`: of this function. `attempts`: how often it has to have failed before rows are told
        apart. `can_narrow`: whether a batch of so many rows can be planned with fewer. Raises
        Smaller, Broken.
        """
        counts = [each.count for each in inputs]
        known = poison.known(inputs)
        try:
            return self._attempt(inputs, number, without(counts, known.poison)), known.poison
        except Exception as error:
            batch = inputs[0].queue, number
            failures = self._failures.get(batch, 0) + 1
            self._failures = {batch: failures}
            if not self._may_be_poison(error) or failures < attempts:
                raise
            first = error
        near = [Near(each) for each in inputs]
        fails, plan = self.fails(near, number), self.plan(near, number)
        phase, self._tally.phase = self._tally.phase, Phase.ISOLATING
        self._work.forget_written()
        self._notify()
        try:
            found = poison.isolate(inputs, fails, known, cut=can_narrow(sum(counts)), plan=plan)
        except NoPoison as none:
            first.add_note(f"nothing of it goes to the dead letters: {none}")
            raise first from None
        finally:
            self._tally.phase = phase
        return self._attempt(inputs, number, without(counts, found.poison)), found.poison

    def committed(self) -> None:
        """The batch is done."""
        self._failures = {}

    def fails(self, near: Sequence[Near], number: int) -> Fails:
        """Return trials of the function with some rows."""

        def trial(selection: SelectedRows) -> Exception | None:
            self._check_stopping()
            parts = [each.part(runs) for each, runs in zip(near, selection, strict=True)]
            try:
                try:
                    found = self._attempt(parts, number, whole(parts))
                except Exception as error:
                    if not is_too_much(error):
                        raise
                    found = self._attempt(parts, number, whole(parts))
            except Exception as error:
                if not self._may_be_poison(error):
                    raise
                return error
            access = self._memory.access
            remove_written(access.path, access.env, found.fragments, found.changes)
            return None

        return trial

    def plan(self, near: Sequence[Near], number: int) -> PlanRange:
        """Return a planner of trials, for rows that are few enough to be planned together."""

        def plan(index: int, run: RowRange) -> FailsOf | None:
            parts = [each.part([run] if at == index else []) for at, each in enumerate(near)]
            if isinstance(parts[index], Leased):
                return None
            self._memory.begin_call()
            found = plan_in_driver(
                self._work, self._spark, parts, index, number, self._memory.values
            )
            return found and self._unless_stopped(found)

        return plan

    def _unless_stopped(self, fails: FailsOf) -> FailsOf:
        def trial(begin: int, end: int) -> Exception | None:
            self._check_stopping()
            return fails(begin, end)

        return trial

    def _check_stopping(self) -> None:
        if self._is_stopping():
            raise Ended

    def _attempt(self, inputs: Sequence[Input], number: int, selection: SelectedRows) -> StepResult:
        self._memory.begin_call()
        with quiet():  # what it fails with is told by the step
            values, states = self._memory.values, self._memory.states()
            return self._work.run(inputs, selection, number, values, states)

    def _may_be_poison(self, error: Exception) -> bool:
        """Return True if a message may be at fault: not the store, nor an unplanned query."""
        with importing():
            from pyspark.errors import AnalysisException

        is_of_rows = isinstance(error, ValueRefused) or not isinstance(error, QuireError)
        return (
            self._work.step.dead is not None
            and not self._is_stopping()
            and is_of_rows
            and not isinstance(error, (AnalysisException, StoreTrouble))
            and StoreTrouble.__name__ not in text_of(error)  # as Spark hands it on
            and not has_ended(self._spark)
        )
