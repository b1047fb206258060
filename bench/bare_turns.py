"""Threads that take turns as group commit has them, and nothing else: the floor of its rate.

Each turn waits for its group; the first of a group writes one page for all of it, directly, and
each wakes the next. There are no messages, no records and no state: what is left is the
interpreter's lock, the waking of threads, and the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from quire.env import OsEnv

__all__ = ["BareTurns"]

PAGE = 4096
PAGES = 4096  # of the file, which is written round and round


class _Turn:
    __slots__ = ("done", "follower", "gate")

    def __init__(self) -> None:
        self.gate = threading.Lock()
        self.gate.acquire()
        self.done = False
        self.follower: _Turn | None = None


class BareTurns:
    """See the module."""

    def __init__(self, folder: Path, *, sync: bool) -> None:
        env = OsEnv()
        path = str(folder / "bare")
        with open(path, "wb") as file:
            file.write(bytes(PAGE * PAGES))
        self._file = env.open_file(path, direct=True) if sync else None
        self._page = env.aligned_buffer(PAGE)
        self._guard = threading.Lock()
        self._line: list[_Turn] = []
        self._led = False
        self._groups = 0

    def of_thread(self, number: int) -> Callable[[], object]:
        """What a thread repeats."""
        return self._take_turn

    def _take_turn(self) -> None:
        turn = _Turn()
        with self._guard:
            self._line.append(turn)
            leads, self._led = not self._led, True
        if not leads:
            turn.gate.acquire()
        if not turn.done:
            self._lead()
        if turn.follower is not None:
            turn.follower.gate.release()

    def _lead(self) -> None:
        with self._guard:
            group, self._line = self._line, []
        if self._file is not None:
            self._file.write(self._groups % PAGES * PAGE, self._page)
            self._file.sync()
        self._groups += 1
        for turn, follower in pairwise(group):
            turn.follower = follower
        for turn in group:
            turn.done = True
        with self._guard:
            if self._line:
                self._line[0].gate.release()
            else:
                self._led = False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
