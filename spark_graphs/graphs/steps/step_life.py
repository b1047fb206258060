"""The life of a step of a run: its thread, from its start to its end, and who may work on the step.

- What is done in the thread again and again is a subclass's (`_pass`), and so is what comes of an
  error.
- The step's subscriptions are held while any of its workers (its thread, and who puts its dead
  letters back, of one run at a time) is at work, and released with the last: so a step that was
  stopped or has failed can be reset, or run by somebody else.
- The subscriptions of a streaming step its query holds, which ends and begins with pauses and
  errors; its run holds names of its own. Else two runs would take the query from each other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, NotRequired, Self, TypedDict, Unpack

from quire.calls.wake_up import WakeUp
from quire.env import Env, OsEnv
from quire.env.interpreter import Lock
from quire.errors import QueueInUse
from quire.graphs import subscription_of
from quire.spark_graphs.graphs.definition import Step
from quire.spark_graphs.graphs.functions.step_function import StepWork
from quire.spark_graphs.graphs.spark.session import ended, has_ended
from quire.spark_graphs.graphs.status import Phase
from quire.spark_graphs.limits import RETRY_PAUSE_SECONDS
from quire.spark_graphs.planning.subscription_hold import hold

from .tally import StepTally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quire.env import FileLock


Restart = Literal["backoff", "never"]

_log: Final = logging.getLogger("quire.spark_graphs")


class RunArguments(TypedDict):
    """The arguments that the steps of a run have in common."""

    graph: str
    path: str
    spark: SparkSession
    restart: Restart
    notify: Callable[[], None]  # something has changed that somebody may wait for
    env: NotRequired[Env]


class StepLife:
    """A step of a run that works in a thread of its own."""

    def __init__(self, work: StepWork, **run: Unpack[RunArguments]) -> None:
        env = run.get("env")
        self.step: Step = work.step
        self.tally = StepTally(env)
        self.graph, self.path = run["graph"], run["path"]
        self.hold = StepHold(self.path, self.graph, self.step)
        self._work = work
        self._spark, self._restart, self._notify = run["spark"], run["restart"], run["notify"]
        self._env = env or OsEnv()
        self._wake = WakeUp()
        self._stopping = False
        self._is_failed = False  # by `fail`
        self._paused = False
        self._thread: threading.Thread | None = None

    def _start(
        self, make_thread: Callable[[Callable[[], None]], threading.Thread], phase: Phase
    ) -> None:
        self.tally.phase = phase
        self._thread = make_thread(self._run)
        self._thread.start()

    def stop(self) -> None:
        """Tell it to stop, as soon as it can."""
        self._stopping = True
        self._wake.set()

    def fail(self, error: Exception) -> None:
        """Have it end as failed, for what is no fault of its own; it is told at once."""
        self._is_failed = self._stopping = True
        self.tally.failed(error)
        self.tally.phase = Phase.FAILED
        self._wake.set()
        self._notify()

    def join(self, timeout: float) -> bool:
        """Wait until it has ended; False: it goes on."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True

    @property
    def is_alive(self) -> bool:
        """True until its thread has ended."""
        return self._thread is not None and self._thread.is_alive()

    def pause(self, paused: bool) -> None:
        """Begin no further batch; or go on."""
        if paused != self._paused:
            self._paused = paused
            self._wake.set()

    # Its thread

    def _run(self) -> None:
        _log.info("graph %s: step %s begins", self.graph, self.step.name)
        phase = Phase.STOPPED
        try:
            while not self._stopping:
                try:
                    self._pass()
                except BaseException as error:  # noqa: BLE001 - told, and tried again; sys.exit too
                    if not self._goes_on(error):
                        phase = Phase.STOPPED if self._stopping else Phase.FAILED
                        return
        finally:
            self._end()
            phase = Phase.FAILED if self._is_failed else phase
            self.tally.phase = phase
            _log.info("graph %s: step %s has %s", self.graph, self.step.name, phase)
            self._notify()

    def _pass(self) -> None:
        """Do something, or wait for what is to be done."""
        raise NotImplementedError

    def _goes_on(self, error: BaseException) -> bool:
        """After an error: pause, and try again; or not."""
        raise NotImplementedError

    def _end(self) -> None:
        """Let go of what it has, whatever comes of that."""

    def _set(self, phase: Phase) -> None:
        if self.tally.phase is not phase and not self._stopping:
            self.tally.phase = phase
            self._notify()

    def _is_spark_there(self) -> bool:
        """Return True if Spark is there; else the step ends as failed."""
        if has_ended(self._spark):
            self.fail(ended())
            return False
        return True

    def _note(self, error: BaseException, advice: str = "") -> None:
        """Note an error for the status."""
        self.tally.failed(error, advice)
        _log.warning("graph %s: step %s: %s", self.graph, self.step.name, self.tally.last_error)

    @property
    def _retry_pause(self) -> float:
        """Seconds, the more the more often it was tried."""
        return RETRY_PAUSE_SECONDS[min(self.tally.retries, len(RETRY_PAUSE_SECONDS)) - 1]


class StepHold:
    """Entered by each who works on the step. Thread-safe."""

    def __init__(self, path: str, graph: str, step: Step) -> None:
        self._path = path
        self._graph = graph
        self._step = step
        self._lock = Lock()
        self._file_lock: FileLock | None = None
        self._users = 0

    def __enter__(self) -> Self:
        """Raises QueueInUse where another run works on the step."""
        with self._lock:
            if self._file_lock is None:
                self._file_lock = self._lock_step()
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

        def work() -> None:
            try:
                target()
            finally:
                self.__exit__(None, None, None)

        return work

    def _lock_step(self) -> FileLock:
        step, name = self._step, subscription_of(self._graph, self._step.name)
        try:
            return hold(
                self._path, step.inputs, f"{name}.run" if step.kind == "streaming" else name
            )
        except QueueInUse:
            raise QueueInUse(
                f"step '{step.name}' of graph '{self._graph}' runs already, in this "
                "program or another one: stop that run first, or give this graph another name"
            ) from None
