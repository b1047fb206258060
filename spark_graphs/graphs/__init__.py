"""Graphs of steps between queues: what is defined, what runs it, and what it tells."""

from .graph import Graph
from .run import Run
from .states.state_rows import StateRows
from .status import InputStatus, Phase, QueueStatus, RunStatus, StepStatus
from .step_state import keyed

__all__ = [
    "Graph", "InputStatus", "Phase", "QueueStatus", "Run", "RunStatus", "StateRows", "StepStatus",
    "keyed",
]  # fmt: skip
