"""The pace of a query: when a micro-batch begins, and how often a source looks for messages.

- A micro-batch waits for `minOffsetsPerTrigger` messages, and at most `maxTriggerDelay` from the
  last one on. The first one of a process does not wait: what was there before may wait long.
- Without a trigger interval Spark asks for the latest offset a hundred times a second. Each time
  costs work in Spark, in the source's process and in the store's owner, and nobody gains from it
  once a query has had nothing to do for a while.

YI1. A look waits first for a tenth of the time that there was nothing, IDLE_PAUSE_SECONDS at most.
    So what comes after a short pause is seen at once, and what comes after a long one soon.
YI2. No look waits after a micro-batch of the query, from whichever source it was; nor if the last
    look was as long ago, as with a trigger interval.
"""

from __future__ import annotations

import math

from quire.env import Env, OsEnv
from quire.spark_graphs.limits import IDLE_PAUSE_SECONDS, IDLE_SHARE
from quire.spark_graphs.options import ReadOptions


class MicroBatchPace:
    """The time of the last micro-batch, and so of the next."""

    def __init__(self, options: ReadOptions, env: Env | None = None) -> None:
        self._least = options.min_messages
        self._delay_seconds = options.max_delay_seconds
        self._env = env or OsEnv()
        self._last = -math.inf

    def is_due(self, waiting: int) -> bool:
        """Return True if a micro-batch begins now, with so many messages; then it is the last."""
        now = self._env.monotonic()
        is_early = not waiting or now - self._last < self._delay_seconds
        if self._least is not None and waiting < self._least and is_early:
            return False
        self._last = now
        return True


class Idling:
    """Paces the looks of one source."""

    def __init__(self, env: Env | None = None) -> None:
        self._env = env or OsEnv()
        self._idle_since: float | None = None
        self._looked = 0.0

    def pause(self) -> None:
        """Before a look: wait as YI1 says."""
        now = self._env.monotonic()
        if self._idle_since is None:
            self._idle_since = self._looked = now
        due = min(IDLE_PAUSE_SECONDS, (now - self._idle_since) * IDLE_SHARE)
        rest = self._looked + due - now
        if rest > 0:
            self._env.sleep(rest)
        self._looked = self._env.monotonic()

    def end(self) -> None:
        """There is something to do (YI2)."""
        self._idle_since = None
