"""The place of a source among those that Spark makes of one load.

Where both sides of a join have a load's columns, Spark makes a source of it for each side. Each has
a process of its own and the same data source, unpickled, and knows neither its query nor the other.

YOL1. Spark makes all sources of a query, one after another, before it asks any of them anything.
    So a source that is made while another one of its load has been asked is of another query. It
    waits for the end of that, and is refused if that does not come.
YOL2. The sources of one load in one query have numbers, in the order in which they are made, which
    is that of the query's plan. The first one streams by the load's subscription, each further one
    by a subscription of its own, so that none releases what another has not read.
YOL3. A number is in the offsets of its source. Where two queries of one load begin at the same
    moment, their sources are taken for those of one; each then keeps to its own subscription, and
    one that has got another's number when they begin again is refused (stream_reader.py).
YOL4. A number is free again when its process ends, however it ends.
"""

from __future__ import annotations

import sys
from typing import Final

from msgspec.structs import replace

from quire.env import Env, FileLock, OsEnv
from quire.errors import QueueInUse
from quire.spark_graphs.limits import MAX_SOURCES_OF_A_LOAD
from quire.spark_graphs.options import ReadOptions

from .subscription_hold import in_use, take, try_to_take

_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"


def is_source() -> bool:
    """Return True in the process of a streaming source: readers are made elsewhere, too."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == _RUNNER


class LoadTurn:
    """A number among the sources of a load, for as long as this process lives."""

    def __init__(self, options: ReadOptions, load: int, env: Env | None = None) -> None:
        """`load`: what tells it from other loads. Raises QueueInUse (YOL1)."""
        self._env = env or OsEnv()
        self._options = options
        self._request_names = [
            f"{load:016x} asked {number + 1}" for number in range(MAX_SOURCES_OF_A_LOAD)
        ]
        self._locks: list[FileLock] = []
        self._take(self._request_names).release()
        for number in range(1, MAX_SOURCES_OF_A_LOAD + 1):
            found = try_to_take(options.path, [f"{load:016x} made {number}"], self._env)
            if not isinstance(found, str):
                self._locks.append(found)
                break
        else:
            raise self._refusal()
        self._number = number
        self._begun = False

    def options(self) -> ReadOptions:
        """Return the options of this source (YOL2)."""
        subscription = self._options.subscription
        if self._number == 1 or subscription is None:
            return self._options
        name = f"{subscription}.source{self._number}"
        return replace(self._options, subscription=name, source=self._number)

    def begin(self) -> None:
        """Spark asks something: all sources of the query are made."""
        if not self._begun:
            self._locks.append(self._take([self._request_names[self._number - 1]]))
            self._begun = True

    def end(self) -> None:
        """Free the number, as the end of the process does (YOL4)."""
        while self._locks:
            self._locks.pop().release()

    def _take(self, names: list[str]) -> FileLock:
        return take(self._options.path, names, lambda _: self._refusal(), self._env)

    def _refusal(self) -> QueueInUse:
        queues = ", ".join(self._options.queues) or self._options.pattern or ""
        return in_use(queues, self._options.subscription or "")
