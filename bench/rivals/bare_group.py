"""The least that a group commit of Python threads can be, to compare a real one with.

Threads share a written and synced page and wake one another up in a chain, as Quire's do (decision
6); whoever comes first leads. Nothing is encoded, checked, copied or applied: what is left is the
interpreter and the operating system.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import pairwise

from bench.rivals.bare_loop import BareLoop

__all__ = ["BareGroup"]


class BareTurn:
    __slots__ = ("done", "follower", "gate")

    def __init__(self) -> None:
        self.gate = threading.Lock()
        self.gate.acquire()
        self.done = False
        self.follower: BareTurn | None = None

    def open(self) -> None:
        with suppress(RuntimeError):  # it is open
            self.gate.release()


class BareGroup:
    """`commit` returns when a page was synced after the call. Thread-safe."""

    def __init__(self, loop: BareLoop) -> None:
        self.commits = 0
        self.groups = 0
        self._loop = loop
        self._lead = threading.Lock()
        self._line: list[BareTurn] = []

    def commit(self) -> None:
        turn = BareTurn()
        self._line.append(turn)
        while not turn.done:
            if self._lead.acquire(blocking=False):
                if not turn.done:
                    self._write(turn)
                self._lead.release()
                for first in self._line[:1]:
                    first.open()
            else:
                turn.gate.acquire()
        if turn.follower is not None:
            turn.follower.open()

    def status(self) -> dict[str, int]:
        """Return the counts by the names of a store's."""
        return {"commits": self.commits, "groups": self.groups}

    def _write(self, leader: BareTurn) -> None:
        group = self._line[:]
        del self._line[: len(group)]
        self._loop.step()
        chain = [leader, *(turn for turn in group if turn is not leader)]
        for turn, follower in pairwise(chain):
            turn.follower = follower
        # The last one first: who is awake already leaves at once, and wakes the next one, for good.
        for turn in reversed(chain):
            turn.done = True
        self.commits += len(group)
        self.groups += 1
