"""The dead letters of a step's batches, as its commits put them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from quire.env import Env
from quire.libraries import pa
from quire.spark_graphs import connection
from quire.spark_graphs.graphs.batches.batch_inputs import Input, Near
from quire.spark_graphs.graphs.batches.due_input import DueInput
from quire.spark_graphs.graphs.batches.row_ranges import RowRange
from quire.spark_graphs.graphs.definition import Step
from quire.spark_graphs.graphs.schemas import Schemas

from .dead_letters import Letter, RowFailure, due_letter, letter, together
from .poison import Poison


class StepLetters:
    """Makes the dead letters of one step."""

    def __init__(self, path: str, graph: str, subscription: str, step: Step, env: Env) -> None:
        self._path = path
        self._title = f"{graph}/{step.name}"
        self._subscription = subscription
        self._step = step
        self._env = env

    def of_batch(
        self, inputs: Sequence[Input], number: int, poison: Sequence[Poison]
    ) -> list[tuple[str, pa.RecordBatch]]:
        """Return the rows that the step fails with as dead letters, with the queue for them."""
        if not poison:
            return []
        assert self._step.dead is not None
        now = self.schemas_now()
        runs: list[list[RowRange]] = [[] for _ in inputs]
        for each in poison:
            runs[each.index].append((each.number, each.number + 1))
        parts = [
            Near(each.grown(now.get(each.queue))).part(own)
            for each, own in zip(inputs, runs, strict=True)
        ]
        next_of = [itertools.count() for _ in inputs]
        found = []
        for each in poison:
            failure = RowFailure(self._title, number, each.reason, each.trace, self._env.now_us())
            part = parts[each.index]
            found.append(self._letter(part, next(next_of[each.index]), failure, now))
        return [(self._step.dead, each) for each in together(found)]

    def _letter(self, part: Input, row: int, failure: RowFailure, now: Schemas) -> Letter:
        if isinstance(part, DueInput):
            return due_letter(part.message(row), failure, part.due.stored, int(part.times[row]))
        schema_ddl = now.get(self._step.dead or "")
        return letter(part.message(row), failure, self._subscription, schema_ddl)

    def schemas_now(self) -> Schemas:
        """Return the schemas of the inputs and of the dead letters' queue, with new columns."""
        names = {*self._step.inputs, self._step.dead or self._step.inputs[0]}
        return connection.call(
            self._path,
            lambda store: {info.name: info.schema for info in store.queues(list(names))},
            env=self._env,
        )
