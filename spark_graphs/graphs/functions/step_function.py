"""A step's function over a batch: DataFrames in, fragments out.

YWO1. What is collected in the driver are the names of fragments, or small blocks themselves, as
    large as a batch may be whose rows travel with its job: LOCAL_BYTES. Such a batch needs no
    Python worker, which costs more than all else. Retries of tasks, speculation and stages that
    are run again are safe, since only the fragments that Spark hands over count.
- The rows of such a batch are one partition, where Spark's own operators make all that becomes of
  them: it groups, joins and sorts them without a shuffle then, which costs more than all else.
  Code of the function's author may take long for each row, and has all cores.
YWO2. A step writes only to the queues that it names.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from quire.errors import InvalidArgument
from quire.libraries import pa
from quire.libraries.late_imports import importing
from quire.spark_graphs.fragments.fragment import Fragment
from quire.spark_graphs.graphs.batches.batch_inputs import Framed, Input
from quire.spark_graphs.graphs.batches.due_input import DueInput
from quire.spark_graphs.graphs.batches.row_ranges import RowRange
from quire.spark_graphs.graphs.batches.task_store import (
    POINTERS,
    PartWriter,
    TaskStore,
    fragments_of,
)
from quire.spark_graphs.graphs.definition import Step
from quire.spark_graphs.graphs.schemas import NO_SCHEMAS, Schemas, routes_of, typed_among
from quire.spark_graphs.graphs.spark.collected_rows import collected, collected_together
from quire.spark_graphs.graphs.spark.error_reason import text_of
from quire.spark_graphs.graphs.spark.user_code import has_user_code
from quire.spark_graphs.graphs.states.batch_states import BatchStates, StateChange, remove_written
from quire.spark_graphs.graphs.states.checked_changes import check_changes
from quire.spark_graphs.graphs.states.state_rows import StateRows
from quire.spark_graphs.graphs.step_state import StepState
from quire.spark_graphs.limits import LOCAL_BYTES, STATE_RANGES
from quire.spark_graphs.writing.row_sink import Routes

from .kept_values import KeptValues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_running = threading.local()
_TOO_MUCH: Final = "spark.driver.maxResultSize"


def running_values(step: str) -> KeptValues | None:
    """The values of the step whose function this thread is in; None: it is in another, or none."""
    found: tuple[str, Any] | None = getattr(_running, "values", None)
    return found[1]() if found is not None and found[0] == step else None


class StepResult(Struct, frozen=True):
    """The outputs of a step's function for some rows: nothing of it counts before its commit."""

    fragments: Sequence[Fragment] = ()
    changes: Sequence[StateChange] = ()
    times: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The latest event times, by state and queue, in microseconds since 1970."""


class StepWork:
    """A step's function with what it needs to run."""

    def __init__(
        self, step: Step, spark: SparkSession, tasks: TaskStore, schemas: Schemas = NO_SCHEMAS
    ) -> None:
        self.step = step
        self.tasks = tasks
        self.schemas = schemas
        self.typed: Routes = typed_among(step.writes, schemas)
        self._spark = spark
        self._written_bytes = 0  # by the last batch
        self._in_one_task = False  # small batches

    def run(
        self,
        inputs: Sequence[Input],
        runs: Sequence[Sequence[RowRange]],
        number: int,
        values: Callable[[], KeptValues],
        states: BatchStates | None = None,
    ) -> StepResult:
        """Call the function with some rows of each input, and have its outputs written.

        With rows of a state that are due it is the function of the state's timers. `values`: what
        gives the step's values, if the function asks for them. Raises what Spark raises, and what
        the function does.
        """
        by_tasks = not self._is_small(inputs) or self._finds_much(inputs, states)
        frames = self._frames(inputs, runs, by_tasks=by_tasks)
        frames = {q: self._gathered(rows, by_tasks=by_tasks) for q, rows in frames.items()}
        first = inputs[0]
        found = self._call(frames, number, values, states, by_tasks=by_tasks, due=first.due)
        if isinstance(first, DueInput):
            result = self._written(found, states, by_tasks=by_tasks)
            changes = [
                replace(each, fired=first.mark) if each.state == first.due else each
                for each in result.changes
            ]
            return replace(result, changes=changes)
        times = self._latest(frames) if self._event_times else {}
        return replace(self._written(found, states, by_tasks=by_tasks), times=times)

    def try_out(self, inputs: Sequence[Input], values: Callable[[], KeptValues]) -> None:
        """Call all functions without rows, plan event times, and see what kind of plans it is."""
        frames = self._frames(inputs, whole(inputs), by_tasks=False)
        plans = [*self._call(frames, -1, values, None).values()]
        for frame in frames.values():
            frame.selectExpr(*self._event_times)
        for state in self.step.states:
            if state.on_timer is not None:
                none = [DueInput.none_of(state)]
                plans += self.called(none, whole(none), -1, values).values()
        self._in_one_task = not any(has_user_code(each) for each in plans)

    def _gathered(self, rows: DataFrame, *, by_tasks: bool) -> DataFrame:
        """Return rows for a function, in one partition where that is enough."""
        return rows.coalesce(1) if self._in_one_task and not by_tasks else rows

    @property
    def _event_times(self) -> list[str]:
        """The expressions of the latest event times of an input."""
        timed = [each for each in self.step.states if each.event_time is not None]
        return [f"max(cast({each.event_time} as timestamp)) as `{each.name}`" for each in timed]

    def _latest(self, frames: Mapping[str, DataFrame]) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for queue, frame in frames.items():
            times = collected(frame.selectExpr(*self._event_times))
            for name in times.schema.names:
                (time_us,) = times.column(name).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
                if time_us.is_valid:
                    found.setdefault(name, {})[queue] = time_us.as_py()
        return found

    def _written(
        self, found: Mapping[str | None, DataFrame], states: BatchStates | None, *, by_tasks: bool
    ) -> StepResult:
        """Have outputs and changes of states written; nothing of it stays if it fails."""
        own = {each.name: each for each in self.step.states}
        outputs = {queue: rows for queue, rows in found.items() if queue not in own}
        changed = [(own[name], rows) for name, rows in found.items() if name in own]
        fragments: list[Fragment] = []
        changes: list[StateChange] = []
        try:
            if not by_tasks:
                self._here(outputs, changed, states, fragments, changes)
            elif outputs:
                fragments += self._by_tasks(outputs)
            if states is not None:
                for state, rows in changed if by_tasks else ():
                    changes.append(states.of(state).write_by_tasks(rows, STATE_RANGES))
                changes += states.unchanged(self.step.states, changes)
        except BaseException as error:
            remove_written(self.tasks.path, None, fragments, changes)
            if isinstance(error, Exception) and is_too_much(error):  # tried again, it goes by tasks
                self._written_bytes = LOCAL_BYTES + 1
            raise
        self._written_bytes = sum(each.charge_bytes for each in fragments)
        self._written_bytes += sum(each.size_bytes for each in changes)
        return StepResult(fragments, changes)

    def forget_written(self) -> None:
        """Expect a few rows next, whatever the last batch has written."""
        self._written_bytes = 0

    def _is_small(self, inputs: Sequence[Input]) -> bool:
        """Return True if a batch's rows, and its outputs', may travel with its job (YWO1)."""
        return sum(each.size_bytes for each in inputs) + self._written_bytes <= LOCAL_BYTES

    def _finds_much(self, inputs: Sequence[Input], states: BatchStates | None) -> bool:
        """Return True if the rows of a state that a batch may ask for are many bytes."""
        if states is None:
            return False
        count = sum(each.count for each in inputs)
        looked = (*self.step.states, *self.step.tables)
        return any(states.of(each).is_much(count) for each in looked)

    def called(
        self,
        inputs: Sequence[Framed],
        runs: Sequence[Sequence[RowRange]],
        number: int,
        values: Callable[[], KeptValues],
        states: BatchStates | None = None,
        *,
        by_tasks: bool = False,
    ) -> Mapping[str | None, DataFrame]:
        """Call the function for some rows of each input; its outputs are not made yet.

        Those are by queue or by state. `states`: None: they have no rows, as it is only tried.
        """
        frames = self._frames(inputs, runs, by_tasks=by_tasks)
        return self._call(frames, number, values, states, by_tasks=by_tasks, due=inputs[0].due)

    def _frames(
        self, inputs: Sequence[Framed], runs: Sequence[Sequence[RowRange]], *, by_tasks: bool
    ) -> dict[str, DataFrame]:
        return {
            each.queue: each.frame(self._spark, some, by_tasks=by_tasks)
            for each, some in zip(inputs, runs, strict=True)
        }

    def _call(
        self,
        frames: Mapping[str, DataFrame],
        number: int,
        values: Callable[[], KeptValues],
        states: BatchStates | None,
        *,
        by_tasks: bool = False,
        due: StepState | None = None,
    ) -> Mapping[str | None, DataFrame]:
        """Call the step's function; `due`: or that of a state's timers."""
        reads = self.step.reads if due is None else (due.name,)
        arguments: list[object] = [frames[queue] for queue in reads]
        how = {"by_tasks": by_tasks, "in_one_task": self._in_one_task and not by_tasks}
        for state in (*self.step.states, *self.step.tables):
            look = None if states is None else states.of(state)
            arguments.append(StateRows(state, self._spark, look, **how))
        function = None if due is None else due.on_timer
        _running.values = (self.step.name, values)
        try:
            if self.step.kind == "terminal":
                self.step.call(*arguments, number)
                return {}
            return self.outputs(self.step.call(*arguments, function=function))
        finally:
            _running.values = None

    def outputs(self, returned: object) -> Mapping[str | None, DataFrame]:
        """Return what a function has returned, by queue; None: each row says its own (YWO2).

        Raises InvalidArgument for what is no output of the step.
        """
        step = self.step
        found: Mapping[str | None, DataFrame]
        if returned is None:
            found = {}
        elif isinstance(returned, Mapping):
            found = dict(returned)
        else:
            rows = _frame(step, returned)
            if not step.writes and len(step.states) == 1:
                return self.outputs({step.states[0].name: rows})
            if not step.writes or (len(step.writes) > 1 and "queue" not in rows.columns):
                raise InvalidArgument(_whither(step))
            found = {step.writes[0] if len(step.writes) == 1 else None: rows}
        states = {each.name: each for each in step.states}
        names = (*step.writes, *states)
        strange = [name for name in found if name is not None and name not in names]
        if strange:
            changes = f", and changes {', '.join(states)}" if states else ""
            raise InvalidArgument(
                f"step '{step.name}' returned rows for {', '.join(map(str, strange))}; it writes "
                f"{', '.join(step.writes) or 'nothing'}{changes}"
            )
        for queue, rows in found.items():
            schema = _frame(step, rows, queue).schema
            try:
                if queue in states:
                    check_changes(states[queue], schema)
                else:
                    routes_of(schema, queue, self.typed)
            except InvalidArgument as error:
                also = ""
                if states and not isinstance(returned, Mapping):
                    also = f"; rows for {', '.join(states)} are returned in a dict, by that name"
                raise InvalidArgument(f"step '{step.name}': {error}{also}") from None
        return found

    def _by_tasks(self, outputs: Mapping[str | None, DataFrame]) -> list[Fragment]:
        """Have tasks write the outputs."""
        pointers = [
            rows.mapInArrow(self._writer(queue, rows), POINTERS) for queue, rows in outputs.items()
        ]
        return fragments_of(reduce(lambda a, b: a.union(b), pointers).collect())

    def _here(
        self,
        outputs: Mapping[str | None, DataFrame],
        changed: Sequence[tuple[StepState, DataFrame]],
        states: BatchStates | None,
        fragments: list[Fragment],
        changes: list[StateChange],
    ) -> None:
        """Have the rows of outputs and states come here, and write them: what is written is added
        to the fragments, and to the changes.
        """
        typed: dict[str | None, DataFrame] = {
            queue: rows for queue, rows in outputs.items() if queue in self.typed
        }
        plain = {queue: rows for queue, rows in outputs.items() if queue not in self.typed}
        if len(plain) > 1:
            plain = {None: with_queues(plain)}
        found = typed | plain
        tables = iter(collected_together([*found.values(), *(rows for _, rows in changed)]))
        for queue, rows in found.items():
            batches = iter(next(tables).to_batches())
            fragments += self._writer(queue, rows).fragments(batches)
        if states is not None:
            for state, _ in changed:
                changes.append(states.of(state).write(next(tables)))

    def _writer(self, queue: str | None, rows: DataFrame) -> PartWriter:
        routes = routes_of(rows.schema, queue, self.typed)
        allowed = routes.keys() if routes is not None else {*self.step.writes} - self.typed.keys()
        return PartWriter(self.tasks, queue, frozenset(allowed), self.step.name, routes)


def is_too_much(error: Exception) -> bool:
    """Return True for the error of a result that is too large for the driver."""
    return _TOO_MUCH in text_of(error)


def with_queues(outputs: Mapping[str | None, DataFrame]) -> DataFrame:
    """Outputs of several queues of bytes in one DataFrame, with a column `queue`."""
    with importing():
        from pyspark.sql import functions as f

    frames = [
        rows.withColumns({"queue": f.lit(queue), "payload": f.col("payload").cast("binary")})
        for queue, rows in outputs.items()
    ]
    found: DataFrame = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
    return found


def whole(inputs: Sequence[Input]) -> list[list[RowRange]]:
    """Return all rows of each input."""
    return [[(0, each.count)] for each in inputs]


def _frame(step: Step, returned: Any, name: object = None) -> DataFrame:
    """Check that it is a DataFrame; `name`: of the queue or state that it is returned for."""
    if not hasattr(returned, "mapInArrow"):
        place = "" if name is None else f" for '{name}'"
        raise InvalidArgument(
            f"step '{step.name}' returned {_type_name(returned)}{place}: return a DataFrame of "
            "Spark, or a dict of them by output queue and by state, or None for nothing at all"
        )
    rows: DataFrame = returned
    if rows.isStreaming != (step.kind == "streaming"):
        raise InvalidArgument(
            f"step '{step.name}' returned a DataFrame that is "
            f"{'a stream' if rows.isStreaming else 'no stream'}, and the step is "
            f"{'none' if rows.isStreaming else 'one'}: make what it returns of the DataFrames that "
            "it is arguments"
        )
    return rows


def _type_name(value: object) -> str:
    """Return the type's name with its module, as pandas has a DataFrame too."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _whither(step: Step) -> str:
    if not step.writes and step.states:
        names = ", ".join(each.name for each in step.states)
        return f"step '{step.name}' changes {names}: return a dict of DataFrames by state"
    if not step.writes:
        return f"step '{step.name}' returned rows, and writes nothing: give it `writes`"
    return (
        f"step '{step.name}' writes {', '.join(step.writes)}: return a dict of DataFrames by "
        "queue, or one whose column `queue` says where each row goes"
    )
