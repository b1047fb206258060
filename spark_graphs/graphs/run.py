"""A graph that runs: what its steps do, and what they are told.

- While a run goes on nobody else runs its steps on this machine: their subscriptions are held
  (`StepHold`). Where that cannot be seen, from another machine, the batches' numbers see to it
  that each batch counts once.
- Ending the program, in whatever way, is as good as stopping the run.
- The states of all steps are merged in one thread, beside their batches (KMT1).
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from quire.arguments import check_max_messages, check_timeout
from quire.calls.signal_safety import defer_signals
from quire.calls.wake_up import Condition, Thread
from quire.env import OsEnv
from quire.env.interpreter import Lock
from quire.errors import InvalidArgument, StepFailed, StepTimeout
from quire.graphs import paused_steps, requested_replays, take_replay
from quire.keyed import MergeThread
from quire.libraries.late_imports import importing
from quire.spark_graphs import connection
from quire.spark_graphs.limits import RETRY_PAUSE_SECONDS, STOP_SECONDS, WATCH_SECONDS

from .definition import GraphPlace
from .functions.step_function import StepWork
from .graph_status import look
from .spark.session import cancel, ended, has_ended
from .status import Phase, RunStatus
from .steps.replay import replay
from .steps.step_life import Restart, RunArguments
from .steps.step_runner import StepRunner
from .steps.stream_runner import StreamRunner

if TYPE_CHECKING:
    from quire.reports.info import QueueInfo

Runner = StepRunner | StreamRunner
Ends = dict[str, dict[str, int]]  # by step, and by queue that it reads

_BUSY: Final = (
    Phase.STARTING, Phase.RUNNING, Phase.ISOLATING, Phase.WAITING, Phase.RETRYING
)  # fmt: skip
_ENDED: Final = (Phase.STOPPED, Phase.FAILED)
_log: Final = logging.getLogger("quire.spark_graphs")


class Run:
    """Made by `Graph.start`; as a `with` block it is stopped at the end. Thread-safe."""

    def __init__(
        self,
        place: GraphPlace,
        works: Mapping[str, StepWork],
        queues: Mapping[str, QueueInfo],
        restart: Restart,
    ) -> None:
        self._place = place
        self._changed = Condition(Lock())
        self._changes = 0  # so many were told
        self._is_ending = False
        self._spark_has_ended = False
        self._lock = Lock()
        self.runners: dict[str, Runner] = {
            name: self._runner(work, queues, restart) for name, work in works.items()
        }
        self._merging = MergeThread(
            {
                state.stored: partial(runner.memory.access.call, state)
                for runner in self.runners.values()
                if isinstance(runner, StepRunner)
                for state in runner.step.states
            }
        )

    def _runner(self, work: StepWork, queues: Mapping[str, QueueInfo], restart: Restart) -> Runner:
        place, step = self._place, work.step
        run = RunArguments(
            graph=place.name, path=place.path, spark=place.spark, restart=restart, notify=self._tell
        )
        if step.kind == "streaming":
            return StreamRunner(work, f"{place.checkpoints}/{place.name}/{step.name}", **run)
        return StepRunner(work, {queue: queues[queue].created_us for queue in step.inputs}, **run)

    def begin(self) -> None:
        """Start all steps. Raises QueueInUse, and what Spark raises."""
        paused = self._paused()
        for name, runner in self.runners.items():
            runner.pause(name in paused)
        with contextlib.ExitStack() as holds:  # of all steps, before any of them begins
            for runner in self.runners.values():
                holds.enter_context(runner.hold)
            for name in sorted(self.runners, key=self._is_plain):
                self._start(name)  # streaming ones first: Spark may refuse them
        defer_signals(self._thread(self._watch).start)
        self._merging.start()
        # One of its own: nothing that the store makes wait keeps it from being seen.
        Thread(target=self._watch_spark, name="quire-graph-spark-watch").start()

    def _start(self, name: str) -> None:
        runner = self.runners[name]
        with runner.hold as hold:
            runner.start(lambda target: self._thread(hold.over(target)))

    def _is_plain(self, name: str) -> bool:
        return isinstance(self.runners[name], StepRunner)

    # What it tells

    def status(self) -> RunStatus:
        """Return the status of all steps and queues now. Raises what reaching the store raises."""
        return look(self._place.name, self._place.path, self.runners, self._merging.errors)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every step has been stopped or has failed; False: the time is over.

        `timeout`: in seconds; None: for ever. Raises InvalidArgument.
        """
        seconds = None if timeout is None else check_timeout(timeout)
        return self._until(lambda: all(self._has_ended(name) for name in self.runners), seconds)

    # What it is told

    def drain(self, timeout: float | None = None) -> None:
        """Return when all inputs are empty, without waiting for triggers.

        A streaming step has read what its query has committed; one that begins is waited for. What
        lies behind the last markers of a step with `marker` is not waited for.
        `timeout`: in seconds; None: for ever. Raises StepFailed where a step that has something to
        read has ended or is paused, StepTimeout, InvalidArgument, and what reaching the store
        raises.
        """
        env = OsEnv()
        deadline = None if timeout is None else env.monotonic() + check_timeout(timeout)
        self._hurry(True)
        try:
            before: Ends | None = None
            while True:
                changes = self._changes
                behind, ends = self._behind()
                # Twice the same: so nothing came into any input between the two looks, at which
                # each step had read all of its own.
                if not behind and ends == before:
                    return
                before = None if behind else ends
                if behind and deadline is not None and env.monotonic() > deadline:
                    raise StepTimeout(
                        f"after {timeout} seconds there is more to read: {behind} messages; wait "
                        "for longer, or see in `run.status()` what holds it up"
                    )
                if behind:
                    self._until(partial(self._has_changed_since, changes), RETRY_PAUSE_SECONDS[0])
        finally:
            self._hurry(False)

    def stop(self, step: str | None = None) -> None:
        """Stop a step, or all of them; batches that are not committed are given up.

        Returns when they have ended; then they may be reset, or run by somebody else. Raises
        InvalidArgument for a step that it does not have, StepTimeout where one does not end
        within a minute.
        """
        names = list(self.runners) if step is None else [self._checked(step)]
        for name in names:
            self.runners[name].stop()
            if isinstance(self.runners[name], StepRunner):
                cancel(self._place.spark, self._place.name, name)
        if step is None:
            self._merging.stop(0.0)  # told, while the steps end
        for name in names:
            self._join(name)
        if step is None:
            self._is_ending = True
            self._tell()
            if not self._merging.stop(STOP_SECONDS):
                raise StepTimeout(
                    f"a merge of the states goes on after {STOP_SECONDS:g} seconds: stop again, or "
                    "end the program, which loses nothing"
                )

    def resume(self, step: str) -> None:
        """Start a step again that was stopped or has failed.

        Raises InvalidArgument, QueueInUse where another run has begun it since, StepFailed where
        Spark has ended, and what Spark raises.
        """
        runner = self.runners[self._checked(step)]
        if self._is_ending:
            raise InvalidArgument("this run was stopped: start the graph again")
        if self._spark_has_ended:
            raise ended()
        with self._lock:
            if not runner.is_alive:
                self._start(step)

    def replay(self, dead: str, step: str, max_messages: int | None = None) -> int:
        """Put the dead letters of a step back through it; how many they were.

        What it fails with again is a dead letter again. Each batch is one transaction that takes
        them from the queue `dead`. `max_messages`: the most; None: all that are there now. Raises
        InvalidArgument, QueueNotFound, QueueFull, QueueInUse where another run works on the step,
        StateConflict where others change its states all the time, and what Spark raises.
        """
        if max_messages is not None:
            check_max_messages(max_messages)
        runner = self.runners[self._checked(step)]
        if not isinstance(runner, StepRunner) or runner.step.dead is None:
            raise InvalidArgument(f"step '{step}' has no dead letters")
        with runner.hold:
            return replay(runner, dead, max_messages)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # Inside

    def _checked(self, step: str) -> str:
        if not isinstance(step, str) or step not in self.runners:
            raise InvalidArgument(
                f"this run has no step {step!r:.100}; it has {', '.join(self.runners)}"
            )
        return step

    def _tell(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def _has_changed_since(self, changes: int) -> bool:
        return self._changes != changes

    def _until(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        return self._changed.wait_until(condition, math.inf if timeout is None else timeout)

    def _has_ended(self, name: str) -> bool:
        return self.runners[name].tally.phase in _ENDED

    def _join(self, name: str) -> None:
        env = OsEnv()
        deadline = env.monotonic() + STOP_SECONDS
        runner = self.runners[name]
        while not runner.join(WATCH_SECONDS):
            if isinstance(runner, StepRunner):  # a job that began since
                cancel(self._place.spark, self._place.name, name)
            if self._spark_has_ended:
                return  # it has failed; what its function still does counts once, as ever
            if env.monotonic() > deadline:
                raise StepTimeout(
                    f"step '{name}' goes on after {STOP_SECONDS:g} seconds, as its function does "
                    "not return: stop it again, or end the program, which loses nothing"
                )

    def _hurry(self, hurried: bool) -> None:
        for runner in self.runners.values():
            runner.hurry(hurried)

    def _behind(self) -> tuple[str, Ends]:
        """Return the steps that have something to read, as text; and where the inputs end.

        Raises StepFailed (see `drain`).
        """
        found = []
        ends = {}
        for name, step in self.status().steps.items():
            awaited = self.runners[name].tally.awaited
            inputs = {each.queue: (each.position, each.end_position) for each in step.inputs}
            ends[name] = {queue: end for queue, (_, end) in inputs.items()}
            has_done_all = awaited is not None and awaited.is_about(inputs)
            lag = 0 if has_done_all else step.lag_messages
            if step.phase is Phase.FAILED or (lag and step.phase in (Phase.STOPPED, Phase.PAUSED)):
                raise StepFailed(
                    f"step '{name}' is {step.phase} and {lag} messages behind"
                    f"{f': {step.last_error}' if step.last_error else ''}"
                )
            if lag or step.phase in _BUSY:
                found.append(f"{name} {lag}")
        return ", ".join(found), ends

    def _thread(self, target: Callable[[], None]) -> threading.Thread:
        with importing():
            from pyspark import InheritableThread

        thread = InheritableThread(target, session=self._place.spark)
        thread.daemon = True
        return thread

    def _paused(self) -> set[str]:
        """The steps that somebody has told to pause, with or without a run."""
        name = self._place.name
        return connection.call(self._place.path, lambda store: paused_steps(store, name))

    def _requested_replays(self) -> dict[str, int | None]:
        """The steps whose dead letters somebody wants to be put back (`quire graph replay`)."""
        name = self._place.name
        found = connection.call(self._place.path, lambda store: requested_replays(store, name))
        return {step: limit for step, limit in found.items() if step in self.runners}

    def _watch_spark(self) -> None:
        """Have all steps fail when Spark has ended: those at rest would never see it."""
        while not self._until(lambda: self._is_ending, WATCH_SECONDS):
            if has_ended(self._place.spark):
                self._spark_has_ended = True
                _log.error("graph %s: Spark has ended, and with it this run", self._place.name)
                for runner in self.runners.values():
                    if runner.is_alive:
                        runner.fail(ended())
                return

    def _watch(self) -> None:
        paused: set[str] = set()
        replaying: threading.Thread | None = None
        while not self._until(lambda: self._is_ending, WATCH_SECONDS):
            try:
                before, paused = paused, self._paused()
                requested = self._requested_replays()
            except Exception as error:  # noqa: BLE001 - or nobody would see a pause any more
                _log.debug("graph %s: %s", self._place.name, error)
                continue
            for name, runner in self.runners.items():
                if (name in paused) != (name in before):
                    _log.info(
                        "graph %s, step %s: %s",
                        self._place.name,
                        name,
                        "told to pause" if name in paused else "told to go on",
                    )
                runner.pause(name in paused)
            if requested and (replaying is None or not replaying.is_alive()):
                step, limit = next(iter(requested.items()))
                replaying = self._thread(partial(self._answer, step, limit))
                defer_signals(replaying.start)

    def _answer(self, step: str, max_messages: int | None) -> None:
        """Put dead letters back, as somebody has asked for, and say how many they were."""
        place = self._place
        try:
            dead = self.runners[step].step.dead or ""
            done = self.replay(dead, step, max_messages)
            _log.info("graph %s, step %s: %d dead letters put back", place.name, step, done)
        except Exception:  # noqa: BLE001 whatever the step's function raises; it is not asked for again
            _log.exception("graph %s, step %s: dead letters not put back", place.name, step)
        connection.call(place.path, lambda store: take_replay(store, place.name, step))
