"""Merges beside: one thread that merges keyed states, a range at a time, while others change them.

- KMT1: where it keeps up, whoever changes a state finds nothing to merge. Where it does not they
  merge as they do without it (MR2).
- KMT2: what goes wrong with a state is told and logged, once, and tried again after a pause; the
  thread goes on with the others.
- Without changes the thread sleeps: the store calls back when one is committed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from quire.calls.wake_up import Thread, WakeUp
from quire.env import Env, OsEnv
from quire.errors import InvalidArgument
from quire.loggers import logger

from .keyed_state import KeyedState
from .limits import MERGE_RETRY_SECONDS

Result = TypeVar("Result")
_log: Final = logger("quire.keyed")


class StateReach(Protocol):
    """A way to a state, whose store may be another one from call to call."""

    def __call__(self, action: Callable[[KeyedState], Result], /) -> Result:
        """Do something with the state. Raises what reaching it raises, too."""


class MergeThread:
    """A thread that merges keyed states from `start` to `stop`, or in a `with` block."""

    def __init__(self, states: Mapping[str, StateReach], env: Env | None = None) -> None:
        self._is_ending = False
        self._wake = WakeUp()
        self._thread: Thread | None = None
        machine = env or OsEnv()
        self._merged = {
            name: _MergedState(name, reach, self._wake, machine, self._gives_up)
            for name, reach in states.items()
        }

    @property
    def errors(self) -> dict[str, str]:
        """Errors that prevent merges now, by the name of the state."""
        found = {name: each.error for name, each in self._merged.items()}
        return {name: error for name, error in found.items() if error is not None}

    def start(self) -> None:
        """Begin, once."""
        if self._merged:
            self._thread = Thread(target=self._run, name="quire-merging")
            self._thread.start()

    def stop(self, timeout: float = math.inf) -> bool:
        """End; a merge that is under way is given up. False: after `timeout` seconds it goes on."""
        self._is_ending = True
        self._wake.set()
        if self._thread is None:
            return True
        self._thread.join(None if timeout == math.inf else timeout)
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _gives_up(self) -> bool:
        return self._is_ending

    def _run(self) -> None:
        merged = list(self._merged.values())
        try:
            while not self._is_ending:
                went_on = [each.go_on() for each in merged]  # each by a range
                if not any(went_on):
                    self._wake.wait(min(each.pause() for each in merged))
        finally:
            for each in merged:
                each.withdraw()


class _MergedState:
    """A state that is merged. For the thread, but for `error` and for being due."""

    def __init__(
        self, name: str, reach: StateReach, wake: WakeUp, env: Env, gives_up: Callable[[], bool]
    ) -> None:
        self.error: str | None = None
        self._name = name
        self._reach = reach
        self._wake = wake
        self._env = env
        self._gives_up = gives_up
        self._is_due = True  # there may be something to merge
        self._failures = 0  # in a row
        self._retry_at = -math.inf
        self._withdraw: Callable[[], None] | None = None

    def go_on(self) -> bool:
        """Merge a range; False: there is nothing to merge for now. It raises nothing (KMT2)."""
        if not self._is_due or self.pause() > 0 or self._gives_up():
            return False
        self._is_due = False  # what is put from here on makes it due again
        try:
            if self._reach(self._merge):
                self._is_due = True
        except Exception as error:  # noqa: BLE001 whatever it is, others are merged
            self._failed(error)
        else:
            self.error, self._failures, self._retry_at = None, 0, -math.inf
        return self._is_due and not self._failures

    def _merge(self, state: KeyedState) -> bool:
        position = state.position()
        if state.merge_ahead(self._gives_up):
            return True
        self._withdraw = state.when_changed(position, self._call_back)
        return False

    def pause(self) -> float:
        """Return for how many seconds there is nothing to do unless something is put."""
        if not self._is_due:
            return math.inf
        return max(0.0, self._retry_at - self._env.monotonic())

    def withdraw(self) -> None:
        """Have the store call back no more."""
        if self._withdraw is not None:
            self._withdraw()

    def _call_back(self) -> None:
        self._is_due = True
        self._wake.set()

    def _failed(self, error: Exception) -> None:
        self._is_due = True
        self._failures += 1
        pauses = MERGE_RETRY_SECONDS
        pause = pauses[min(self._failures, len(pauses)) - 1]
        self._retry_at = self._env.monotonic() + pause
        text = f"{type(error).__name__}: {error}"
        if text != self.error:
            _log.warning("keyed state %s is not merged: %s", self._name, text)
        self.error = text


def merging(*states: KeyedState) -> MergeThread:
    """Merge states in a thread of their own, in a `with` block, while others change them.

        with keyed.merging(totals):
            ...                       # transactions find nothing to merge

    Its `errors` tell what prevents merges, by the name of the state: they are logged, and tried
    again. End the block before the store is closed. Raises InvalidArgument.
    """
    for each in states:
        if not isinstance(each, KeyedState):
            raise InvalidArgument(f"state {each!r:.100}: give what keyed.open_state returns")
    return MergeThread({each.name: _at_hand(each) for each in states})


def _at_hand(state: KeyedState) -> StateReach:
    def reach(action: Callable[[KeyedState], Result], /) -> Result:
        return action(state)

    return reach
