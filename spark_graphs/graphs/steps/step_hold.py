"""Who does a step: its thread, and who puts its dead letters back, of one run at a time.

- The step's subscriptions are held while any of them is at work, and let go of with the last: so a
  step that was stopped or has failed can be reset, or run by somebody else.
- The subscriptions of a streaming step its query holds, which ends and begins with pauses and
  errors; its run holds names of its own. Else two runs would take the query from each other.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from quire.env.interpreter import Lock
from quire.errors import QueueInUse
from quire.graphs import subscription_of
from quire.spark_graphs.planning.subscription_hold import hold

if TYPE_CHECKING:
    from quire.env import FileLock

    from .step_runner import StepRunner
    from .stream_runner import StreamRunner


class StepHold:
    """Entered by each who works on the step. Thread-safe."""

    def __init__(self, runner: StepRunner | StreamRunner) -> None:
        self._runner = runner
        self._lock = Lock()
        self._file_lock: FileLock | None = None
        self._users = 0

    def __enter__(self) -> Self:
        """Raises QueueInUse where another run works on the step."""
        with self._lock:
            if self._file_lock is None:
                self._file_lock = self._taken()
            self._users += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._file_lock is not None:
                self._file_lock.release()
                self._file_lock = None

    def over(self, target: Callable[[], None]) -> Callable[[], None]:
        """The target of a thread, as one who works on the step; it is entered with the call."""
        self.__enter__()

        def held() -> None:
            try:
                target()
            finally:
                self.__exit__(None, None, None)

        return held

    def _taken(self) -> FileLock:
        step = self._runner.step
        name = subscription_of(self._runner.graph, step.name)
        try:
            return hold(
                self._runner.path,
                step.inputs,
                f"{name}.run" if step.kind == "streaming" else name,
            )
        except QueueInUse:
            raise QueueInUse(
                f"step '{step.name}' of graph '{self._runner.graph}' runs already, in this "
                "program or another one: stop that run first, or give this graph another name"
            ) from None
