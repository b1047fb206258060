"""Graphs as the state of a store keeps them: definitions, and requests to their steps.

The state `graph.<graph>` has `definition`, `pause/<step>`, `replay/<step>`, `awaits/<step>` and
`time/<step>/<state>`, the latest event times by queue; `graph.<graph>.step.<step>` has the step's
own values. So every process that has the store sees it, whichever runs the graph.

- What a step is told outlives the graph's run, and is seen by it soon.
- KG2: a step is reset by one transaction, and only while nobody runs it.
- KG3: a step that waits for markers says so where it begins to, and takes it back before its next
  batch: so what is there is what it lacked when it last looked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from quire.arguments import check_max_messages, check_name
from quire.errors import InvalidArgument, NotFound, QueueInUse, StateConflict
from quire.interface.starts import Start
from quire.keyed import KeyedState

from .definition import GraphDefinition, StepDefinition, subscription_of

if TYPE_CHECKING:
    from quire.interface.store import Store

_DEFINITION = "definition"
_PREFIX = "graph."
_OF_STEP = ".step."


def graph_state_name(graph: str) -> str:
    """The state in which the store keeps what it knows of a graph."""
    return f"{_PREFIX}{graph}"


def step_state_name(graph: str, step: str) -> str:
    """The state with a step's own values."""
    return f"{_PREFIX}{graph}{_OF_STEP}{step}"


def graph_names(store: Store) -> list[str]:
    """The graphs that were started in the store, in their order."""
    names = [name for name in store.states.names() if name.startswith(_PREFIX)]
    return [
        name.removeprefix(_PREFIX)
        for name in names
        if _OF_STEP not in name and store.states.get(name, _DEFINITION) is not None
    ]


def save_graph(store: Store, definition: GraphDefinition) -> None:
    """Have the store know a graph, as it is now."""
    name, data = graph_state_name(definition.name), definition.to_bytes()
    if store.states.get(name, _DEFINITION) != data:
        with store.transaction() as txn:
            txn.set_value(name, _DEFINITION, data)


def load_graph(store: Store, graph: str) -> GraphDefinition:
    """Raises InvalidArgument where the store knows no graph of the name."""
    found = store.states.get(graph_state_name(check_name(graph, "graph")), _DEFINITION)
    if found is None:
        known = ", ".join(graph_names(store)) or "none"
        raise InvalidArgument(
            f"the store at {store.path} knows no graph {graph!r}; it knows {known}: give one, "
            "or start this one first"
        )
    return GraphDefinition.of_bytes(found)


def step_of(definition: GraphDefinition, step: str) -> StepDefinition:
    """Raises InvalidArgument for a step that the graph does not have."""
    for each in definition.steps:
        if each.name == step:
            return each
    names = ", ".join(each.name for each in definition.steps)
    raise InvalidArgument(f"graph '{definition.name}' has no step {step!r:.100}; it has {names}")


def _instructions(store: Store, graph: str, what: str) -> dict[str, object]:
    """Return the instructions of one sort, by step."""
    found = store.states.items(graph_state_name(graph))
    prefix = f"{what}/"
    return {
        key.removeprefix(prefix): json.loads(data)
        for key, data in found.items()
        if key.startswith(prefix)
    }


def paused_steps(store: Store, graph: str) -> set[str]:
    """Return the steps that are to pause."""
    return {step for step, paused in _instructions(store, graph, "pause").items() if paused}


def pause_reason(store: Store, graph: str, step: str) -> str:
    """Return why a step has paused by itself; "": it has not, or somebody has paused it."""
    found = _instructions(store, graph, "pause").get(step)
    return found if isinstance(found, str) else ""


def pause_itself(store: Store, graph: str, step: str, reason: str) -> None:
    """A step pauses, until somebody has it go on (`set_paused`)."""
    with store.transaction() as txn:
        data = json.dumps(reason).encode()
        txn.set_value(graph_state_name(graph), f"pause/{step}", data)


def set_paused(store: Store, graph: str, step: str | None, paused: bool) -> list[str]:
    """Tell a step, or all (None), to pause or to go on; which they are. Raises InvalidArgument."""
    definition = load_graph(store, graph)
    steps = definition.steps if step is None else (step_of(definition, step),)
    with store.transaction() as txn:
        for each in steps:
            data = b"true" if paused else None
            txn.set_value(graph_state_name(graph), f"pause/{each.name}", data)
    return [each.name for each in steps]


def awaited_markers(store: Store, graph: str) -> dict[str, dict[str, str]]:
    """Return what steps wait for: by step and queue the value of the marker it lacks, or ""."""
    found = _instructions(store, graph, "awaits")
    return {step: lacking for step, lacking in found.items() if isinstance(lacking, dict)}


def tell_awaited(store: Store, graph: str, step: str, lacking: Mapping[str, str]) -> None:
    """Have the store know which markers a step waits for; none: it does not wait."""
    with store.transaction() as txn:
        data = json.dumps(dict(lacking)).encode() if lacking else None
        txn.set_value(graph_state_name(graph), f"awaits/{step}", data)


def event_time_key(step: str, state: str) -> str:
    """Return the key of the latest event times that the timers of a step's state go by."""
    return f"time/{step}/{state}"


def event_times(store: Store, graph: str, step: str) -> dict[str, dict[str, int]]:
    """Return the latest event times of a step's inputs: by state and queue, in microseconds."""
    found = _instructions(store, graph, f"time/{step}")
    return {state: times for state, times in found.items() if isinstance(times, dict)}


def requested_replays(store: Store, graph: str) -> dict[str, int | None]:
    """Steps whose dead letters are to be put back through them, each with how many at most."""
    found = _instructions(store, graph, "replay")
    return {step: limit if isinstance(limit, int) else None for step, limit in found.items()}


def ask_replay(store: Store, graph: str, step: str, max_messages: int | None = None) -> str:
    """Ask for the dead letters of a step to be put back through it; the queue where they are.

    `max_messages`: the most; None: all. Whoever runs the graph does it soon; else who runs it next.
    Raises InvalidArgument.
    """
    if max_messages is not None:
        check_max_messages(max_messages)
    found = step_of(load_graph(store, graph), step)
    if found.dead is None:
        raise InvalidArgument(f"step '{step}' has no queue for dead letters")
    with store.transaction() as txn:
        data = json.dumps(max_messages).encode()
        txn.set_value(graph_state_name(graph), f"replay/{step}", data)
    return found.dead


def take_replay(store: Store, graph: str, step: str) -> bool:
    """Take the question back, as it is answered; False: somebody else has."""
    try:
        with store.transaction() as txn:
            if txn.get_value(graph_state_name(graph), f"replay/{step}") is None:
                return False
            txn.set_value(graph_state_name(graph), f"replay/{step}", None)
    except StateConflict:
        return False
    return True


def reset_step(store: Store, graph: str, step: str, to: Start = "earliest") -> Mapping[str, int]:
    """Move a step's positions, and forget its values and rows, in one transaction (KG2).

    `to`: where its inputs are read from then on, as `Store.subscribe` takes it: "earliest" is the
    first message that is kept. What it has put stays. Returns the positions by queue. Raises
    QueueInUse while the step runs, PositionLost, InvalidArgument.
    """
    found = step_of(load_graph(store, graph), step)
    if found.kind == "streaming":
        raise InvalidArgument(
            f"step '{step}' is a streaming query, whose progress is in Spark's checkpoint: remove "
            "its folder there, and give the step another name"
        )
    subscription = subscription_of(graph, step)
    names = [f"{queue}/{subscription}" for queue in sorted(found.inputs)]
    try:
        lease_id = store.integration.lease_names(names)
    except QueueInUse:
        raise QueueInUse(f"step '{step}' of graph '{graph}' runs: stop it first") from None
    try:
        state = step_state_name(graph, step)
        with store.transaction() as txn:
            for key in store.states.items(state):
                txn.set_value(state, key, None)
            for key in event_times(store, graph, step):
                txn.set_value(graph_state_name(graph), event_time_key(step, key), None)
            for name in found.states:
                with suppress(NotFound):  # the graph was not started with it yet
                    KeyedState(store, name).clear(txn)
            for queue in found.inputs:
                txn.seek(f"{queue}/{subscription}", to)
    finally:
        store.integration.end_lease(lease_id)
    return {
        queue: each.position
        for queue in found.inputs
        for each in store.subscriptions(queue)
        if each.name == subscription
    }
