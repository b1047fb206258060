"""A step's work done in Python alone, without Spark: for tests of what is around it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from quire.spark_graphs.fragments.fragment import Fragment
from quire.spark_graphs.graphs.batches.due_input import DueInput
from quire.spark_graphs.graphs.batches.row_ranges import RowRange
from quire.spark_graphs.graphs.batches.task_store import TaskStore
from quire.spark_graphs.graphs.definition import Step
from quire.spark_graphs.graphs.functions.step_function import StepResult, StepWork
from quire.spark_graphs.graphs.preparing import prepare
from quire.spark_graphs.graphs.steps.step_runner import StepRunner

GRAPH = "g"
Function = Callable[..., dict[str, list[bytes]]]


class PlainWork(StepWork):
    """The function gets lists of payloads, and returns lists of payloads by queue.

    That of a state's timers gets a list of rows, and returns the same.
    """

    def run(
        self,
        inputs: Sequence[Any],
        runs: Sequence[Sequence[RowRange]],
        number: int,
        values: Any,
        states: Any = None,
    ) -> StepResult:
        due = inputs[0]
        if isinstance(due, DueInput):
            found = self._fragments(due.due.on_timer(rows_of(due, runs[0])))  # type: ignore[misc]
            changes = [replace(states.of(due.due).unchanged(), fired=due.mark)]
            return StepResult(found, changes)
        given = [
            [
                each.message(row).column("payload")[0].as_py()
                for begin, end in some
                for row in range(begin, end)
            ]
            for each, some in zip(inputs, runs, strict=True)
        ]
        return StepResult(self._fragments(self.step.function(*given)))

    def _fragments(self, returned: dict[str, list[bytes]]) -> list[Fragment]:
        fragments: list[Fragment] = []
        for queue, payloads in returned.items():
            batch = pa.RecordBatch.from_pydict({"payload": pa.array(payloads, pa.binary())})
            fragments += self.tasks.write(iter([batch]), queue, None)
        return fragments


def rows_of(due: DueInput, runs: Sequence[RowRange]) -> list[dict[str, Any]]:
    """Some of the rows that are due."""
    found: list[dict[str, Any]] = due.part(runs).rows.to_pylist()
    return found


class PlainSpark:
    """What a runner asks of a session of Spark Connect."""

    def addTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        """Nothing is tagged."""

    def removeTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        """Nothing is tagged."""


def runner_of(store: Any, step: Step, restart: Any = "backoff") -> StepRunner:
    """A runner of the step, with the queues that it needs; it is not started."""
    spark: Any = PlainSpark()
    found = prepare(store, GRAPH, [step], {})
    return StepRunner(
        PlainWork(step, spark, TaskStore(store.path, store.integration.store_id)),
        {queue: found[queue].created_us for queue in step.inputs},
        graph=GRAPH,
        path=store.path,
        spark=spark,
        restart=restart,
        notify=lambda: None,
    )


def step(function: Function, reads: Any = "in", writes: Any = "out", **options: Any) -> Step:
    """A step of the function."""
    names = (reads,) if isinstance(reads, str) else tuple(reads)
    outputs = (writes,) if isinstance(writes, str) else tuple(writes)
    made = Step(name="s", kind="step", function=function, reads=names, writes=outputs)
    return replace(made, **options)


def thread(target: Callable[[], None]) -> threading.Thread:
    """What a run makes for a step."""
    return threading.Thread(target=target, daemon=True)
