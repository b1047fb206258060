"""A step that runs: batch after batch, each one transaction, in a thread of its own.

YRN1. A step without anything to do costs nothing: its thread sleeps until the store says that there
    is a message, its trigger is due, or somebody wants something of it. One that waits for a marker
    looks whether there are more messages, MARKER_PAUSE_SECONDS after the last time.
YRN2. At the start, and after whatever went wrong, the step's number and where its subscriptions
    stand are read from the store: nothing that this process remembers outlives an error.
YRN3. While an output has no room the step holds no transaction, room or lock; others go on.
YRN4. What fails is tried again after a pause, a batch that stays the same twice at least; then its
    messages are told apart (trials.py), if the step has a queue for dead letters.
"""

from __future__ import annotations

import logging
import math
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, Unpack

from quire.env.interpreter import Lock
from quire.errors import QueueFull, StateConflict, StepFailed, StoreFailed
from quire.graphs import (
    awaited_markers,
    graph_state_name,
    pause_itself,
    paused_steps,
    tell_awaited,
)
from quire.keyed.limits import DUE_ROWS
from quire.libraries import pa
from quire.spark_graphs import connection
from quire.spark_graphs.checkpoint.offsets import Positions
from quire.spark_graphs.graphs.batches.batch_inputs import LoadedMessages
from quire.spark_graphs.graphs.batches.batch_planner import Batch, Planner, release, standing
from quire.spark_graphs.graphs.failures.failed_batch import Broken, Smaller, StepPoison
from quire.spark_graphs.graphs.failures.step_letters import StepLetters
from quire.spark_graphs.graphs.functions.step_function import StepResult, StepWork
from quire.spark_graphs.graphs.spark.session import described
from quire.spark_graphs.graphs.status import Phase
from quire.spark_graphs.graphs.step_state import StepState
from quire.spark_graphs.limits import (
    ATTEMPTS_BEFORE_TELLING,
    CONFLICTS_BEFORE_TELLING,
    FULL_HOLD_SECONDS,
    MARKER_PAUSE_SECONDS,
    WATCH_SECONDS,
)

from .step_commit import StepCommit, WaitForRoom, ledger_key
from .step_life import RunArguments, StepLife
from .step_memory import StepMemory
from .step_timers import StepTimers
from .trials import StepTrials

if TYPE_CHECKING:
    from quire.interface.store import Store
    from quire.interface.transaction import Transaction

T = TypeVar("T")
_log: Final = logging.getLogger("quire.spark_graphs")


class StepRunner(StepLife):
    """One step of a run, that Spark's streaming has no part in."""

    def __init__(
        self, work: StepWork, created_us: dict[str, int], **run: Unpack[RunArguments]
    ) -> None:
        super().__init__(work, **run)
        self.schemas = work.schemas
        self.subscription = f"{self.graph}.{self.step.name}"
        self._planner = Planner(
            created_us, self.step.limit, work.tasks, work.schemas, self.step.marker
        )
        self._sources = {queue: f"{queue}/{self.subscription}" for queue in self.step.inputs}
        self._created_us = created_us
        self._key = ledger_key(self.graph, self.step.name)
        self._known: tuple[int, Positions] | None = None  # the last number, where the inputs stand
        self.memory = StepMemory(self.path, self.graph, self.step, self._env)
        self.letters = StepLetters(self.path, self.graph, self.subscription, self.step, self._env)
        self._timers = StepTimers(self.graph, self.step, self._env)
        self.timed = self._timers.states  # that have timers
        self._lacking: dict[str, str] | None = None  # as the store knows it, where that is known
        self._awaited: set[str] = set()  # the sources that tell when there is something
        self._is_broken = False  # it has paused by itself, which the store knows
        share, seconds = self.step.poison_share, self.step.poison_seconds
        self._poison: dict[StepState | None, StepPoison] = {
            None: StepPoison(share, seconds, self._env)
        }  # of its own function, and of those of timers
        for state in self._timers.states:
            function = f"the function of the timers of state '{state.name}'"
            self._poison[state] = StepPoison(share, seconds, self._env, function, "rows")
        self.trials = StepTrials(
            work, self._spark, self.memory, self.tally,
            notify=self._notify, is_stopping=lambda: self._stopping,
        )  # fmt: skip
        self._hurried = False
        self._begun = -1e9  # when the last batch was begun
        # A step that ends with its first error has one attempt.
        self._attempts = 1 if self._restart == "never" else ATTEMPTS_BEFORE_TELLING
        self._conflicts = 0  # in a row, of its states with whoever else changes them
        self.turn = Lock()  # held for each batch, also by who puts dead letters back

    # Who has it run

    def start(self, make_thread: Callable[[Callable[[], None]], threading.Thread]) -> None:
        """Begin. Raises what reaching the store raises."""
        self._stopping = self._is_failed = False
        self.tally.number = self._call(lambda store: store.integration.ledger(self._key))
        self._start(make_thread, Phase.IDLE)

    def hurry(self, hurried: bool) -> None:
        """Not wait for the trigger; or wait again."""
        self._hurried = hurried
        self._wake.set()

    def _call(self, action: Callable[[Store], T]) -> T:
        """Do something with the store. Raises what reaching it raises, too."""
        return connection.call(self.path, action, env=self._env)

    # Its thread

    def _pass(self) -> None:
        self._wake.clear()
        if self._paused or self._is_broken:
            self._rest(Phase.PAUSED, WATCH_SECONDS if self._is_broken else None)
            self._is_broken = self._is_broken and not self._stopping and self._is_to_pause()
            return
        early = self._begun + self.step.trigger_seconds - self._env.monotonic()
        if early > 0 and not self._hurried:
            self._rest(Phase.IDLE, early)
            return
        with self.turn:
            is_done = self.do_next()
        awaited = self.tally.awaited
        if is_done:
            self._notify()
        elif awaited is None:
            self._await_messages()
            self._rest(Phase.IDLE, self._timers.seconds_left)
        elif awaited.is_complete:
            self._rest(Phase.ALIGNING, MARKER_PAUSE_SECONDS)

    def _is_to_pause(self) -> bool:
        return self.step.name in self._call(lambda store: paused_steps(store, self.graph))

    def do_next(self) -> bool:
        """Do the next batch; False: there is nothing to read. Who calls holds `turn`.

        Raises what prevents it.
        """
        if self._timers.states and self._fire():
            return True
        batch = self._call(self._plan)
        if self.step.marker is not None:
            self._tell_awaited()
        if batch is None:
            return False
        self._begun = self._env.monotonic()
        self._do(batch)
        return True

    def _fire(self) -> bool:
        """Have the timers fire that are due, of one state at a time; False: there are none."""
        if self._known is None:
            self._known = self._call(self._look)
        due = self._timers.find_due(self.memory.access, min(self._planner.limit.messages, DUE_ROWS))
        if due is None:
            return False
        looked, rows = due
        self.memory.begin_with(looked)
        _, positions = self._known
        self._do(Batch(positions, positions, (rows,), self._created_us, None))
        return True

    def _look_again(self, conflict: StateConflict) -> None:
        """Somebody else has changed a state: the batch is run again."""
        _log.info("graph %s, step %s: %s", self.graph, self.step.name, conflict)
        self._known = None
        self._conflicts += 1
        if self._conflicts % CONFLICTS_BEFORE_TELLING == 0:
            self._note(
                conflict,
                f". That was so {self._conflicts} times in a row: who else changes the state "
                "leaves a batch no time; have it pause between its changes, or have its own state",
            )

    def _rest(self, phase: Phase, seconds: float | None) -> None:
        self._set(phase)
        if not self._stopping:
            self._wake.wait(math.inf if seconds is None else seconds)

    def _await_messages(self) -> None:
        """Have the store tell when there is something (YRN1)."""
        for source in self._sources.values():
            if source not in self._awaited:
                self._awaited.add(source)
                arrived = partial(self._arrived, source)
                self._call(lambda store, own=(source, arrived): store.integration.when_ready(*own))  # type: ignore[misc]

    def _arrived(self, source: str) -> None:
        self._awaited.discard(source)
        self._wake.set()

    def _plan(self, store: Store) -> Batch | None:
        """The next batch; None: there is nothing to read."""
        if self._known is None:
            self._known = self._look(store)
        _, begins = self._known
        ends = {
            queue: end for queue, (_, end) in store.integration.positions_many(list(begins)).items()
        }
        if all(ends[queue] <= begin for queue, begin in begins.items()):
            self.tally.awaited = None
            return None
        batch = self._planner.plan(store, begins, ends)
        self.tally.awaited = self._planner.awaited
        return batch

    def _tell_awaited(self) -> None:
        """Have the store know which markers are lacking, where that has changed (KG3)."""
        awaited = self.tally.awaited
        lacking = {} if awaited is None or not awaited.is_complete else dict(awaited.lacking)
        graph, step = self.graph, self.step.name

        def tell(store: Store) -> None:
            known = self._lacking
            if known is None:
                known = awaited_markers(store, graph).get(step, {})
            if known != lacking:
                tell_awaited(store, graph, step, lacking)

        if lacking != self._lacking:
            self._call(tell)
            self._lacking = lacking

    def _look(self, store: Store) -> tuple[int, Positions]:
        """The last number and where the inputs stand (YRN2).

        In this order: who has committed in between has a number that refuses ours.
        """
        last = store.integration.ledger(self._key)
        self.memory.forget_values()
        self._timers.load(store)
        positions = standing(store, dict.fromkeys(self._sources, self.subscription))
        self.tally.number = last
        return -1 if last is None else last, positions

    def _goes_on(self, error: BaseException) -> bool:
        if self._stopping:
            return False
        self._known = self._lacking = None
        if not self._is_spark_there():
            return False
        if isinstance(error, Broken):
            error = self._broken(error)
        self._note(error, self._advice(error))
        _log.debug("%s", "".join(traceback.format_exception(error)))
        if self._restart == "never":
            return False
        if self._is_broken:
            return not self._stopping
        self._wake.clear()
        self._rest(Phase.RETRYING, self._retry_pause)
        return not self._stopping

    def _broken(self, error: Broken) -> StepFailed:
        """Pause, for whoever runs the graph and whenever; what the status tells."""
        for each in self._poison.values():
            each.forget_all()
        failure = StepFailed(
            f"{error}. Messages and timers stay as they are, those of the last batch too. Mend "
            "the function, start the graph again, then "
            f"`quire graph resume {self.path} {self.graph} {self.step.name}`. "
            "With `poison_share=1.0` the step goes on whatever the share is"
        )
        if self._restart != "never":  # then it ends
            self._call(lambda store: pause_itself(store, self.graph, self.step.name, str(failure)))
            self._is_broken = True
        return failure

    def _advice(self, error: BaseException) -> str:
        """Return what somebody has to do before it can go on."""
        owner = connection.owner_of(self.path) if isinstance(error, StoreFailed) else None
        if owner is None:
            return ""
        return (
            f". The step goes on when process {owner}, which has the store open, has closed it or "
            "has ended: an owner that was started in the background ends by itself; end any other"
        )

    # A batch

    def _do(self, batch: Batch) -> None:
        assert self._known is not None
        number = self._known[0] + 1
        began = self._env.monotonic()
        self.tally.phase = Phase.RUNNING
        poison_of = self._poison[batch.inputs[0].due]
        try:
            with described(self._spark, self.graph, self.step.name, number):
                result, poison = self.trials.run(
                    batch.inputs,
                    number,
                    poison_of,
                    attempts=self._attempts,
                    can_narrow=self._planner.can_narrow,
                )
                letters = self.letters.of_batch(batch.inputs, number, poison)
            if self._commit(batch, number, result, letters, began):
                if not poison_of.is_slow:
                    self._planner.grow()
                poison_of.committed([each.count for each in batch.inputs], poison)
        except Smaller as smaller:
            self._planner.narrow(smaller.rows)
        except StateConflict as conflict:
            self._look_again(conflict)
        finally:
            self.memory.end_batch()
            release(self.path, batch)

    # Its commit

    def _commit(
        self,
        batch: Batch,
        number: int,
        result: StepResult,
        letters: list[tuple[str, pa.RecordBatch]],
        began: float,
    ) -> bool:
        """Commit a batch; False: it was not done by this."""
        commit = StepCommit(
            self.path,
            {self._key: number},
            result.fragments,
            {self._sources[queue]: end for queue, end in batch.ends.items()},
            {self._sources[queue]: made for queue, made in self._created_us.items()},
            letters,
            self.memory.known_values,
            self.memory.values_name,
            self._env,
            result.changes,
            self._settings(result),
        )
        try:
            is_done = commit.commit_with_room(self._remaining_wait())
        except QueueFull:
            if self.step.when_full == "wait" and batch.rows > 1:  # no room would be enough
                self._planner.shrink(batch.rows // 2)
            raise
        if not is_done:
            self._known = None
            return False
        self.memory.committed()
        self.trials.committed()
        self._timers.committed(result.times)
        # After a lost answer they are read from the store again (YRN2).
        self._known = None if commit.may_have_committed else (number, dict(batch.ends))
        self._conflicts = 0
        went = sum(each.messages for each in result.fragments)
        seconds = self._env.monotonic() - began
        came = batch.messages
        dead = sum(each.num_rows for _, each in letters)
        self.tally.committed(number, came, went, dead, batch.removed, seconds)
        return True

    def _settings(self, result: StepResult) -> dict[tuple[str, str], bytes]:
        """Return what its commit says of event time, by state and key."""
        settings = self._timers.settings(result.times)
        return {(graph_state_name(self.graph), key): data for key, data in settings.items()}

    def _remaining_wait(self) -> WaitForRoom | None:
        """Return the rests of a batch that waits for room; None: the step fails instead."""
        until = self._env.monotonic() + FULL_HOLD_SECONDS

        def rest(seconds: float, full: tuple[str, ...]) -> bool:
            self.tally.full = full
            self._wake.clear()
            self._rest(Phase.WAITING, seconds)
            return not self._stopping and self._env.monotonic() <= until

        return None if self.step.when_full == "fail" else rest

    # Dead letters that are put back

    def replay_messages(
        self, inputs: Sequence[LoadedMessages], store: Store, txn: Transaction
    ) -> None:
        """Put messages through the function, all that follows from them into a transaction.

        Who calls holds `turn`. What the function fails with is put to the dead letters again.
        """
        number = -1 if self.tally.number is None else self.tally.number
        with described(self._spark, self.graph, self.step.name, number, restore=True):
            try:
                result, poison = self.trials.run(
                    inputs,
                    number,
                    StepPoison(1.0, math.inf, self._env),
                    attempts=1,
                    can_narrow=lambda rows: False,
                )
                letters = self.letters.of_batch(inputs, number, poison)
            finally:
                self.memory.end_batch()
        self._timers.load(store)  # it may be the first thing that the run does
        commit = StepCommit(
            self.path,
            {},
            result.fragments,
            letters=letters,
            values=self.memory.known_values,
            values_name=self.memory.values_name,
            changes=result.changes,
            settings=self._settings(result),
        )
        commit.enter(store, txn)
        self.look_anew()

    def look_anew(self) -> None:
        """Look at the store again, as who calls, and holds `turn`, is about to change it."""
        self.memory.forget_values()
        self._known = None
        self._wake.set()  # there may be timers that are due
