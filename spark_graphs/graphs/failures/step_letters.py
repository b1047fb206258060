"""The dead letters of a step's batches, as its commits put them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from quire.env import Env
from quire.libraries import pa
from quire.spark_graphs import connection
from quire.spark_graphs.graphs.batches.batch_inputs import Input, Near, RowRange
from quire.spark_graphs.graphs.definition import Step
from quire.spark_graphs.graphs.schemas import Schemas

from .dead_letters import Letter, letter, together
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
        """Return the messages that the step fails with as dead letters, with the queue for them."""
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
        found = [
            self._letter(parts[each.index].message(next(next_of[each.index])), number, each, now)
            for each in poison
        ]
        return [(self._step.dead, each) for each in together(found)]

    def _letter(self, message: pa.RecordBatch, number: int, poison: Poison, now: Schemas) -> Letter:
        return letter(
            message,
            step=self._title,
            subscription=self._subscription,
            number=number,
            reason=poison.reason,
            trace=poison.trace,
            now_us=self._env.now_us(),
            dead_schema_ddl=now.get(self._step.dead or ""),
        )

    def schemas_now(self) -> Schemas:
        """Return the schemas of the inputs and of the dead letters' queue, with new columns."""
        names = {*self._step.inputs, self._step.dead or self._step.inputs[0]}
        return connection.call(
            self._path,
            lambda store: {info.name: info.schema for info in store.queues(list(names))},
            env=self._env,
        )
