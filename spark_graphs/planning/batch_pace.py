"""When a micro-batch begins: at once, or when there is enough for it.

- A micro-batch waits for `minOffsetsPerTrigger` messages, and at most `maxTriggerDelay` from the
  last one on. The first one of a process does not wait: what was there before may wait long.
"""

from __future__ import annotations

import math

from quire.env import Env, OsEnv
from quire.spark_graphs.options import ReadOptions


class MicroBatchPace:
    """When the last micro-batch was, and whether the next one is due."""

    def __init__(self, options: ReadOptions, env: Env | None = None) -> None:
        self._least = options.min_messages
        self._delay_seconds = options.max_delay_seconds
        self._env = env or OsEnv()
        self._last = -math.inf

    def is_due(self, waiting: int) -> bool:
        """Whether a micro-batch begins now, with so many messages waiting; if so it is the last."""
        now = self._env.monotonic()
        is_early = not waiting or now - self._last < self._delay_seconds
        if self._least is not None and waiting < self._least and is_early:
            return False
        self._last = now
        return True
