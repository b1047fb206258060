"""The timers of a step's states: how far event time has come, and when to look for what is due.

YTM1. Event time is the least, of all inputs, of the latest time of their messages, less the delay.
    The latest times are part of the commit of the batch that has them: event time never goes back
    but by a reset, and a batch that is run again sees what the one before has left.
- Each commit may have set timers, or have moved event time: the step looks after it, and else when
  the next timer of the clock is due.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from quire.env import Env
from quire.graphs import event_time_key, event_times
from quire.keyed.format import NEVER
from quire.spark_graphs.graphs.batches.due_input import DueInput
from quire.spark_graphs.graphs.definition import Step
from quire.spark_graphs.graphs.states.batch_states import BatchState, StateAccess
from quire.spark_graphs.graphs.step_state import StepState

if TYPE_CHECKING:
    from quire.interface.store import Store

_BEFORE_ALL: Final = -NEVER

LatestTimes = Mapping[str, Mapping[str, int]]
"""By state and queue, in microseconds since 1970."""


class StepTimers:
    """The timers of a step, as far as they are known. For one thread."""

    def __init__(self, graph: str, step: Step, env: Env) -> None:
        self.states = tuple(each for each in step.states if each.on_timer is not None)
        self._graph = graph
        self._step = step
        self._env = env
        self._latest: dict[str, dict[str, int]] = {}
        self._next: dict[str, int | None] = {}  # by state that was looked into: what is due next

    def load(self, store: Store) -> None:
        """Read from the store how far event time has come; look for what is due."""
        self._next.clear()
        if self.states:
            self._latest = event_times(store, self._graph, self._step.name)

    def until(self, state: StepState) -> int | None:
        """Return up to when timers are due (YTM1); None: none is."""
        if state.event_time is None:
            return self._env.now_us()
        latest = self._latest.get(state.name, {})
        if any(queue not in latest for queue in self._step.inputs):
            return None
        return min(latest[queue] for queue in self._step.inputs) - state.delay_us

    def find_due(self, access: StateAccess, limit: int) -> tuple[BatchState, DueInput] | None:
        """Return a state that has timers that are due, and their rows; None: there is none.

        The look at the state is to be closed.
        """
        for state in self.states:
            until, known = self.until(state), self._next.get(state.name, _BEFORE_ALL)
            if until is None or known is None or known > until:
                continue
            looked = BatchState(access, state)
            try:
                mark = looked.due_mark(until, limit)
                if mark is not None:
                    return looked, looked.due_input(mark)
                self._next[state.name] = looked.next_timer()
            except BaseException:
                looked.close()
                raise
            looked.close()
        return None

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the next timer of the clock; None: there is none."""
        times = [self._next.get(each.name) for each in self.states if each.event_time is None]
        known = [each for each in times if each is not None]
        return max(0.0, (min(known) - self._env.now_us()) / 1e6) if known else None

    def settings(self, times: LatestTimes) -> dict[str, bytes]:
        """Return what a batch's commit says of event time, by the keys of the graph's state."""
        return {
            event_time_key(self._step.name, state): json.dumps(self._after(state, own)).encode()
            for state, own in times.items()
            if self._after(state, own) != self._latest.get(state)
        }

    def committed(self, times: LatestTimes) -> None:
        """A batch is done: there may be something due."""
        for state, own in times.items():
            self._latest[state] = self._after(state, own)
        self._next.clear()

    def _after(self, state: str, own: Mapping[str, int]) -> dict[str, int]:
        before = self._latest.get(state, {})
        return {**before, **{q: max(time, before.get(q, time)) for q, time in own.items()}}
