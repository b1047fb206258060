"""A graph as its store shows it, whoever runs it: how far its steps are, what its queues hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quire.errors import QueueNotFound

from .definition import GraphDefinition
from .kept import (
    awaited_markers,
    pause_reason,
    paused_steps,
    step_state_name,
    subscription_of,
)

if TYPE_CHECKING:
    from quire.store import Store


@dataclass(frozen=True, slots=True)
class InputSight:
    """An input of a step."""

    queue: str
    position: int  # everything below is done with
    lag_messages: int
    lag_bytes: int  # about, by the mean of what the queue holds
    is_subscribed: bool = True  # False: nothing is kept for the step, and no lag is told


@dataclass(frozen=True, slots=True)
class StepSight:
    """A step."""

    name: str
    inputs: tuple[InputSight, ...]
    number: int | None  # of the last batch that is committed
    is_paused: bool
    state_keys: int  # how many values it keeps
    dead_letters: int  # that wait in its queue for them
    awaits: Mapping[str, str] = field(default_factory=dict)
    """By queue, the value of the marker that it lacked at the last look, "": any; or nothing."""
    paused_for: str = ""  # why it has paused by itself

    @property
    def lag_messages(self) -> int:
        """Of all inputs together."""
        return sum(each.lag_messages for each in self.inputs)


@dataclass(frozen=True, slots=True)
class QueueSight:
    """A queue."""

    name: str
    kind: str
    messages: int
    used_bytes: int
    capacity_bytes: int
    schema: str | None  # of a typed queue

    @property
    def fill(self) -> float:
        """How much of its capacity is used: 0.0 to 1.0."""
        return min(1.0, self.used_bytes / self.capacity_bytes)


@dataclass(frozen=True, slots=True)
class GraphSight:
    """All of a graph."""

    steps: Mapping[str, StepSight]
    queues: Mapping[str, QueueSight]  # those that are there


def see(store: Store, definition: GraphDefinition) -> GraphSight:
    """How it is now. Raises what reaching the store raises."""
    queues: dict[str, QueueSight] = {}
    ends: dict[str, int] = {}
    for name in definition.queue_names:
        try:
            info = store.queue(name)
        except QueueNotFound:
            continue  # the graph was not started yet
        ends[name] = info.end_position
        queues[name] = QueueSight(
            name, info.kind, info.messages, info.used_bytes, info.capacity_bytes,
            getattr(info, "schema", None),
        )  # fmt: skip
    paused = paused_steps(store, definition.name)
    awaited = awaited_markers(store, definition.name)
    keys = [f"graph/{definition.name}/{step.name}" for step in definition.steps]
    numbers = store.ledger_many(keys)
    steps = {}
    for step, key in zip(definition.steps, keys, strict=True):
        dead = queues.get(step.dead or "")
        steps[step.name] = StepSight(
            step.name,
            tuple(
                _input(store, definition.name, step.name, queues[queue], ends[queue])
                for queue in step.inputs
                if queue in queues
            ),
            numbers.get(key),
            step.name in paused,
            len(store.state_items(step_state_name(definition.name, step.name))),
            0 if dead is None else dead.messages,
            awaited.get(step.name, {}),
            pause_reason(store, definition.name, step.name) if step.name in paused else "",
        )
    return GraphSight(steps, queues)


def _input(store: Store, graph: str, step: str, queue: QueueSight, end: int) -> InputSight:
    name = subscription_of(graph, step)
    found = [each for each in store.subscriptions(queue.name) if each.name == name]
    position = min(found[0].position, end) if found else end
    mean = queue.used_bytes / queue.messages if queue.messages else 0.0
    lag = end - position
    return InputSight(queue.name, position, lag, int(lag * mean), is_subscribed=bool(found))
