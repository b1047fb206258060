"""A range of a step's inputs, once more or for the first time, through its function.

- Batches of a backfill are transactions as those of the step are, but the subscriptions do not
  move. How far it has come in each input is in the ledger, with what it has put: repeated, it goes
  on there, and when it is done it has no effect.
- It has values of its own, so that those of the step stay what its own batches make of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from quire.arguments import check_name
from quire.env import OsEnv
from quire.errors import InvalidArgument
from quire.graphs import step_state_name
from quire.interface.starts import Time, check_time
from quire.spark_graphs import connection
from quire.spark_graphs.checkpoint.offsets import Positions

from .batches.batch_planner import Batch, Planner, release
from .batches.task_store import TaskStore
from .definition import GraphPlace, GraphQueue, Step
from .functions.kept_values import KeptValues
from .functions.step_function import StepWork, whole
from .preparing import check_no_aliases, open_step_state, prepare
from .schemas import schemas_of
from .spark.session import described, ended, has_ended
from .states.batch_states import BatchStates, StateAccess
from .steps.step_commit import StepCommit, ledger_key

if TYPE_CHECKING:
    from quire.interface.store import Store

Bound = int | Time | Mapping[str, int] | None


class Backfill:
    """One backfill of a step."""

    def __init__(
        self,
        place: GraphPlace,
        queues: Mapping[str, GraphQueue],
        step: Step,
        tasks: TaskStore,
        name: str | None,
        to: Mapping[str, str],
    ) -> None:
        if step.kind == "streaming":
            raise InvalidArgument(
                f"step '{step.name}' is a streaming query: what it makes of a range depends on "
                "what Spark keeps of the messages before"
            )
        if not isinstance(to, Mapping):
            raise InvalidArgument(f"to {to!r:.100}: give a mapping of outputs to other queues")
        strange = [str(output) for output in to if output not in step.writes]
        if strange:
            raise InvalidArgument(f"step '{step.name}' does not write {', '.join(strange)}")
        read = [queue for queue in to.values() if check_name(queue, "queue") in step.inputs]
        if read:
            raise InvalidArgument(
                f"step '{step.name}' reads '{read[0]}': have the backfill write to another queue"
            )
        self._place = place
        self._queues = queues
        self._name = None if name is None else check_name(name, "backfill")
        self._to = to
        self._step = step
        self._tasks = tasks
        self._env = OsEnv()
        self._access = StateAccess(place.path, self._env)

    def run(self, start: Bound, end: Bound) -> int:
        """Run all of the range; return how many messages of it were done here."""
        step, path = self._step, self._place.path
        store_of = connection.call
        outputs = replace(
            step, writes=tuple(self._to.get(each, each) for each in step.writes), states=()
        )
        store_of(path, lambda store: check_no_aliases(store, (*step.inputs, *outputs.writes)))
        schemas = store_of(path, lambda store: schemas_of(store, self._queues))
        # What takes the place of a typed output, and is not there, is made with the same columns.
        made = {
            new: GraphQueue(new, {"schema": schemas.get(old)})
            for old, new in self._to.items()
            if new not in schemas
        }
        queues = {**made, **self._queues}
        found = store_of(
            path,
            lambda store: prepare(store, self._place.name, [outputs], queues, subscribe=False),
        )
        places = {old: found[new].schema for old, new in self._to.items()}
        created_us = {queue: found[queue].created_us for queue in step.inputs}
        begins = store_of(path, lambda store: self._bounds(store, start, first=True))
        ends = store_of(path, lambda store: self._bounds(store, end, first=False))
        wrong = [queue for queue in begins if begins[queue] > ends[queue]]
        if wrong:
            raise InvalidArgument(
                f"the range of '{wrong[0]}' ends at {ends[wrong[0]]}, before it begins, at "
                f"{begins[wrong[0]]}"
            )
        name = self._name or _digest(start, end, begins, ends, self._to)
        identity = f"{step.name}/backfill/{name}"
        keys = {queue: f"{ledger_key(self._place.name, identity)}/{queue}" for queue in begins}
        # As the values: what the step's own batches make of its states stays.
        states = tuple(replace(each, place=f"{each.stored}.{name}") for each in step.states)
        for each in states:
            store_of(path, lambda store, own=each: open_step_state(store, own))  # type: ignore[misc]
        self._work = StepWork(
            replace(step, states=states), self._place.spark, self._tasks, schemas | places
        )
        planner = Planner(created_us, step.limit, self._tasks, schemas, step.marker)
        done = number = 0
        while True:
            reached = store_of(path, lambda store: store.integration.ledger_many(keys.values()))
            at = {q: max(begins[q], reached.get(key, 0)) for q, key in keys.items()}
            if all(at[queue] >= ends[queue] for queue in ends):
                return done
            batch = store_of(
                path,
                lambda s, at=at: planner.plan(s, at, ends, whole=True, is_last=True),  # type: ignore[misc]
            )
            if batch is not None:  # else there is more to look through for markers
                done += self._do(batch, number, keys, identity)
                number += 1

    def _do(self, batch: Batch, number: int, keys: Mapping[str, str], identity: str) -> int:
        step, path = self._step, self._place.path
        values: list[KeptValues] = []
        name = step_state_name(self._place.name, identity.replace("/", "."))

        states = BatchStates(self._access)

        def kept() -> KeptValues:
            if not values:
                items = connection.call(path, lambda store: store.states.items(name))
                values.append(KeptValues(step.name, items))
            return values[0]

        try:
            with described(self._place.spark, self._place.name, identity, number, restore=True):
                result = self._work.run(batch.inputs, whole(batch.inputs), number, kept, states)
            moved = {
                keys[queue]: end for queue, end in batch.ends.items() if end > batch.begins[queue]
            }
            commit = StepCommit(
                path,
                moved,
                [
                    replace(each, queue=self._to.get(each.queue, each.queue))
                    for each in result.fragments
                ],
                values=values[0] if values else None,
                values_name=name,
                changes=result.changes,
            )
            rest = None if step.when_full == "fail" else self._rest
            return batch.messages if commit.commit_with_room(rest) else 0
        finally:
            states.close()
            release(path, batch)

    def _rest(self, seconds: float, full: tuple[str, ...]) -> bool:
        if has_ended(self._place.spark):
            raise ended()
        self._env.sleep(seconds)
        return True

    def _bounds(self, store: Store, bound: Bound, *, first: bool) -> Positions:
        """Positions for each input."""
        queues = self._step.inputs
        if bound is None:
            there = store.integration.positions_many(list(queues))
            return {queue: there[queue][0 if first else 1] for queue in queues}
        if isinstance(bound, Mapping):
            if set(bound) != set(queues):
                raise InvalidArgument(
                    f"give a position for each of {', '.join(queues)}, not for "
                    f"{', '.join(map(str, bound)) or 'none'}"
                )
            return {queue: _position(bound[queue]) for queue in queues}
        if isinstance(bound, int) and not isinstance(bound, bool):
            return {queue: _position(bound) for queue in queues}
        seconds = check_time(bound) / 1e6
        return {queue: store.admin.position_at(queue, seconds) for queue in queues}


def _position(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidArgument(f"position {value!r:.100}: give an int from 0 on")
    return value


def _digest(
    start: Bound, end: Bound, begins: Positions, ends: Positions, to: Mapping[str, str]
) -> str:
    """Return the name of a backfill: a digest of its range, as given or as it is, and outputs."""
    identity: list[object] = [begins if start is None else str(start)]
    identity.append(ends if end is None else str(end))
    if to:
        identity.append(dict(to))
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
