"""The heartbeat of a connection to another machine: a thread of its own.

HB1. The server ends a connection of which nothing comes for as long as its hello says; here
    something is sent several times in that time, also while the program does other work.
HB2. A connection whose server answers no PING in that time, and sends nothing else, is ended: who
    waits in a get, for however long, learns that nobody is there.
HB3. The thread keeps no connection from being dropped, and ends with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from quire.calls.wake_up import Thread, WakeUp
from quire.remote.limits import HEARTBEATS_IN_TIME


class Beating(Protocol):
    """A connection, as far as its heartbeat has to do with it."""

    @property
    def ended(self) -> Exception | None:
        """The error that has ended it, if one has."""

    @property
    def moved_at(self) -> float:
        """The time at which the latest part of a long frame came or went."""

    def is_answered(self, seconds: float) -> bool:
        """Return True if the owner answers a PING within so many seconds."""

    def cut(self) -> None:
        """End it."""


def begin_heartbeat(connection: Beating, seconds: float) -> Callable[[], None]:
    """Begin the heartbeat of a connection; return what ends it, which waits for nothing."""
    stop = WakeUp()
    Thread(_beat, (weakref.ref(connection), seconds, stop), "quire-heartbeat").start()
    return stop.set


def _beat(found: Callable[[], Beating | None], seconds: float, stop: WakeUp) -> None:
    while not stop.wait(seconds / HEARTBEATS_IN_TIME):
        connection = found()
        if connection is None or connection.ended is not None:
            return
        began = monotonic()
        if not connection.is_answered(seconds) and connection.moved_at < began:
            connection.cut()  # (HB2)
        del connection  # (HB3)
