"""Long work beside commits that gives way to them.

A thread that computes keeps the interpreter for 5 ms before it has to give way, and a commit needs
the interpreter back after its write: so work of many small steps rests when a commit is under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from quire.engine.commits.sequencer import Sequencer
from quire.env import Env
from quire.limits import PACE_REST_SECONDS, PACE_STEPS, PACE_WORK_SECONDS

T = TypeVar("T")


class Pace:
    """For one thread."""

    def __init__(self, env: Env, sequencer: Sequencer) -> None:
        self._env = env
        self._sequencer = sequencer
        self._since = env.monotonic()

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """The items, with rests."""
        for number, item in enumerate(items, 1):
            yield item
            if not number % PACE_STEPS:
                self.rest()

    def rest(self) -> None:
        """Give way, if it is time to."""
        if self._env.monotonic() - self._since > PACE_WORK_SECONDS:
            if self._sequencer.busy:
                self._env.sleep(PACE_REST_SECONDS)
            self._since = self._env.monotonic()
