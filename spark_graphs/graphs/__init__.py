"""Graphs of steps between queues: what is defined, what runs it, and what it tells."""

from .graph import Graph
from .run import Run
from .status import InputStatus, Phase, QueueStatus, RunStatus, StepStatus

__all__ = ["Graph", "InputStatus", "Phase", "QueueStatus", "Run", "RunStatus", "StepStatus"]
