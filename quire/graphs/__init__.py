"""Graphs of steps as their store knows them: looked at, drawn and told, without Spark."""

from .command import add_commands
from .definition import (
    GraphDefinition,
    QueueDefinition,
    StepDefinition,
    sources_of,
    subscription_of,
)
from .drawing import draw, write_drawing
from .kept import (
    ask_replay,
    asked_replays,
    awaited_markers,
    graph_names,
    graph_state_name,
    load_graph,
    pause_itself,
    pause_reason,
    paused_steps,
    reset_step,
    save_graph,
    set_paused,
    step_state_name,
    take_replay,
    tell_awaited,
)
from .sight import (
    GraphSight,
    InputSight,
    LeftSubscription,
    QueueSight,
    StepSight,
    left_subscriptions,
    see,
)
from .words import explain

__all__ = [
    "GraphDefinition",
    "GraphSight",
    "InputSight",
    "LeftSubscription",
    "QueueDefinition",
    "QueueSight",
    "StepDefinition",
    "StepSight",
    "add_commands",
    "ask_replay",
    "asked_replays",
    "awaited_markers",
    "draw",
    "explain",
    "graph_names",
    "graph_state_name",
    "left_subscriptions",
    "load_graph",
    "pause_itself",
    "pause_reason",
    "paused_steps",
    "reset_step",
    "save_graph",
    "see",
    "set_paused",
    "sources_of",
    "step_state_name",
    "subscription_of",
    "take_replay",
    "tell_awaited",
    "write_drawing",
]
