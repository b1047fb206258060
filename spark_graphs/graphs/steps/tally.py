"""The numbers that a step gathers while it runs. Thread-safe."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from quire.env import Env, OsEnv
from quire.env.interpreter import Lock
from quire.spark_graphs.graphs.batches.markers import AwaitedMarker
from quire.spark_graphs.graphs.spark.error_reason import error_report
from quire.spark_graphs.graphs.status import Phase
from quire.spark_graphs.limits import RATE_SECONDS

_NUMBERS: Final = (
    "number", "batches", "messages_in", "messages_out", "last_batch_seconds", "full",
    "dead_letters", "removed", "retries", "last_error", "last_error_us",
)  # fmt: skip


class StepTally:
    """The numbers of one step, since the start of its run."""

    def __init__(self, env: Env | None = None) -> None:
        self._env = env or OsEnv()
        self._lock = Lock()
        self._recent: deque[tuple[float, int, int]] = deque()  # when, messages in, messages out
        self._began = self._env.monotonic()
        self.phase = Phase.IDLE
        self.number: int | None = None
        self.batches = self.messages_in = self.messages_out = 0
        self.dead_letters = self.removed = self.retries = 0
        self.last_batch_seconds = 0.0
        self.full: tuple[str, ...] = ()
        self.awaited: AwaitedMarker | None = None
        self.last_error: str | None = None
        self.last_error_us: int | None = None

    def committed(
        self, number: int, came: int, went: int, dead: int, removed: int, seconds: float
    ) -> None:
        """A batch is done: so many messages came in, went out, are dead letters, were not there."""
        with self._lock:
            self.number = number
            self.batches += 1
            self.messages_in += came
            self.messages_out += went
            self.dead_letters += dead
            self.removed += removed
            self.last_batch_seconds = seconds
            self.retries = 0
            self.full = ()
            self._recent.append((self._env.monotonic(), came, went))
            self._forget()

    def failed(self, error: BaseException, advice: str = "") -> None:
        """A batch has failed; `advice`: what is to be done beside what the error says."""
        with self._lock:
            self.retries += 1
            self.last_error = error_report(error, advice)
            self.last_error_us = self._env.now_us()

    def numbers(self) -> dict[str, Any]:
        """Return the numbers by their names in `StepStatus`."""
        return {name: getattr(self, name) for name in _NUMBERS}

    def rates(self) -> tuple[float, float]:
        """Messages a second that came and went, over the last minute."""
        with self._lock:
            self._forget()
            seconds = min(RATE_SECONDS, self._env.monotonic() - self._began)
            came = sum(each[1] for each in self._recent)
            went = sum(each[2] for each in self._recent)
            return came / max(seconds, 1e-3), went / max(seconds, 1e-3)

    def _forget(self) -> None:
        oldest = self._env.monotonic() - RATE_SECONDS
        while self._recent and self._recent[0][0] < oldest:
            self._recent.popleft()
