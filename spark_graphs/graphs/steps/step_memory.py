"""A step's memory: its values and the rows of its states, as the batch at hand sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.env import Env
from quire.graphs import step_state_name
from quire.spark_graphs import connection
from quire.spark_graphs.graphs.definition import Step
from quire.spark_graphs.graphs.functions.kept_values import KeptValues
from quire.spark_graphs.graphs.states.batch_states import BatchState, BatchStates, StateAccess

if TYPE_CHECKING:
    from quire.interface.store import Store


class StepMemory:
    """The memory of one step. For one thread at a time."""

    def __init__(self, path: str, graph: str, step: Step, env: Env) -> None:
        self.access = StateAccess(path, env)
        self.values_name = step_state_name(graph, step.name)
        self.known_values: KeptValues | None = None  # those that the store has, where they are read
        self._step = step.name
        self._states: BatchStates | None = None

    def values(self) -> KeptValues:
        """Return the step's values, as its function sees them."""
        if self.known_values is None:

            def read(store: Store) -> KeptValues:
                return KeptValues(self._step, store.states.items(self.values_name))

            self.known_values = connection.call(self.access.path, read, env=self.access.env)
        return self.known_values

    def states(self) -> BatchStates:
        """Return the rows of the states, which stay as they are until `end_batch` (YST1)."""
        if self._states is None:
            self._states = BatchStates(self.access)
        return self._states

    def begin_with(self, looked: BatchState) -> None:
        """Begin a batch that has looked at a state before."""
        self._states = BatchStates(self.access, looked)

    def begin_call(self) -> None:
        """The function is called anew."""
        if self.known_values is not None:
            self.known_values.forget_changes()

    def end_batch(self) -> None:
        """Forget what a batch has seen of the states."""
        states, self._states = self._states, None
        if states is not None:
            states.close()

    def forget_values(self) -> None:
        """They are read from the store again."""
        self.known_values = None

    def committed(self) -> None:
        """The changes of values stand."""
        if self.known_values is not None:
            self.known_values.committed()
