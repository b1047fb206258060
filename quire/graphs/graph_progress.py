"""A graph as its store shows it, whoever runs it: how far its steps are, what its queues hold."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from quire.errors import QueueNotFound

from .definition import GraphDefinition, subscription_of
from .kept_graphs import awaited_markers, pause_reason, paused_steps, step_state_name
from .state_sight import StateSight, see_state

if TYPE_CHECKING:
    from quire.interface.store import Store


class InputSight(Struct, frozen=True):
    """An input of a step."""

    queue: str
    position: int  # everything below is done with
    lag_messages: int
    lag_bytes: int  # about, by the mean of what the queue holds
    is_subscribed: bool = True  # False: nothing is kept for the step, and no lag is told


class StepSight(Struct, frozen=True):
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
    states: tuple[StateSight, ...] = ()  # that it remembers by key

    @property
    def lag_messages(self) -> int:
        """The lag of all inputs together."""
        return sum(each.lag_messages for each in self.inputs)


class QueueSight(Struct, frozen=True):
    """A queue."""

    name: str
    kind: str
    messages: int
    used_bytes: int
    capacity_bytes: int
    schema: str | None  # of a typed queue

    @property
    def fill(self) -> float:
        """The used share of its capacity: 0.0 to 1.0."""
        return min(1.0, self.used_bytes / self.capacity_bytes)


class LeftSubscription(Struct, frozen=True):
    """A subscription that has a graph's name and is of none of its steps: of one that it had.

    Nobody reads by it, and it keeps its queue's messages, until a queue with a capacity is full.
    """

    queue: str
    subscription: str
    messages: int  # that it keeps
    command: str  # that ends it

    def __str__(self) -> str:
        return (
            f"subscription {self.subscription} of queue {self.queue} is of no step of the graph, "
            f"and keeps {self.messages} messages; it ends with: {self.command}"
        )


class GraphSight(Struct, frozen=True):
    """The progress of a graph."""

    steps: Mapping[str, StepSight]
    queues: Mapping[str, QueueSight]  # those that are there
    left: tuple[LeftSubscription, ...] = ()


def see(store: Store, definition: GraphDefinition) -> GraphSight:
    """Return the graph's progress now. Raises what reaching the store raises."""
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
    numbers = store.integration.ledger_many(keys)
    steps = {}
    for step, key in zip(definition.steps, keys, strict=True):
        dead = queues.get(step.dead or "")
        steps[step.name] = StepSight(
            step.name,
            tuple(
                _input(store, queues[queue], names, ends[queue])
                for queue, names in step.sources_by_queue(definition.name).items()
                if queue in queues
            ),
            numbers.get(key),
            step.name in paused,
            len(store.states.items(step_state_name(definition.name, step.name))),
            0 if dead is None else dead.messages,
            awaited.get(step.name, {}),
            pause_reason(store, definition.name, step.name) if step.name in paused else "",
            tuple(sight for name in step.states if (sight := see_state(store, name)) is not None),
        )
    return GraphSight(steps, queues, left_subscriptions(store, definition))


def left_subscriptions(store: Store, definition: GraphDefinition) -> tuple[LeftSubscription, ...]:
    """Return those of steps that the graph has no more, or that are read otherwise now."""
    own = {source for step in definition.steps for source in step.sources(definition.name)}
    prefix = subscription_of(definition.name, "")
    return tuple(
        LeftSubscription(
            info.name,
            each.name,
            each.pending,
            shlex.join(["quire", "unsubscribe", store.path, info.name, each.name]),
        )
        for info in store.queues()
        if any(name.startswith(prefix) for name in info.subscriptions)
        for each in store.subscriptions(info.name)
        if each.name.startswith(prefix) and (info.name, each.name) not in own
    )


def _input(store: Store, queue: QueueSight, names: Collection[str], end: int) -> InputSight:
    found = {each.name: each.position for each in store.subscriptions(queue.name)}
    position = min((found.get(name, end) for name in names), default=end)
    mean = queue.used_bytes / queue.messages if queue.messages else 0.0
    lag = max(0, end - position)
    is_subscribed = found.keys() >= set(names)
    return InputSight(queue.name, end - lag, lag, int(lag * mean), is_subscribed=is_subscribed)
