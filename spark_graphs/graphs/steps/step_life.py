"""The life of a step of a run, from its start to its end, in a thread of its own.

What is done there again and again is its subclass's (`_pass`), and so is what comes of an error.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, NotRequired, TypedDict, Unpack

from quire.calls.wake_up import WakeUp
from quire.env import Env, OsEnv
from quire.spark_graphs.graphs.definition import Step
from quire.spark_graphs.graphs.functions.step_function import StepWork
from quire.spark_graphs.graphs.spark.session import ended, has_ended
from quire.spark_graphs.graphs.status import Phase
from quire.spark_graphs.limits import RETRY_PAUSE_SECONDS

from .tally import StepTally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Restart = Literal["backoff", "never"]

_log: Final = logging.getLogger("quire.spark_graphs")


class OfRun(TypedDict):
    """What the steps of a run have in common."""

    graph: str
    path: str
    spark: SparkSession
    restart: Restart
    told: Callable[[], None]  # something has changed that somebody may wait for
    env: NotRequired[Env]


class StepLife:
    """See the module."""

    def __init__(self, work: StepWork, **run: Unpack[OfRun]) -> None:
        env = run.get("env")
        self.step: Step = work.step
        self.tally = StepTally(env)
        self.graph, self.path = run["graph"], run["path"]
        self._work = work
        self._spark, self._restart, self._told = run["spark"], run["restart"], run["told"]
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
        self._told()

    def join(self, timeout: float) -> bool:
        """Wait until it has ended; False: it goes on."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True

    @property
    def is_alive(self) -> bool:
        """Whether it goes on."""
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
            self._told()

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
            self._told()

    def _is_spark_there(self) -> bool:
        """Else it ends as failed."""
        if has_ended(self._spark):
            self.fail(ended())
            return False
        return True

    def _note(self, error: BaseException, advice: str = "") -> None:
        """What the status tells of it."""
        self.tally.failed(error, advice)
        _log.warning("graph %s: step %s: %s", self.graph, self.step.name, self.tally.last_error)

    @property
    def _retry_pause(self) -> float:
        """Seconds, the more the more often it was tried."""
        return RETRY_PAUSE_SECONDS[min(self.tally.retries, len(RETRY_PAUSE_SECONDS)) - 1]
