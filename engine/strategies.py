"""Commit strategies: when a queue's space is checked, and against what.

Source: "Managing message queues" (JP 2008-547130), paragraphs 0062-0079. All keep promise 5: a
commit that has its journal record finds room for its commit records. They are the rows of one table
of formulas. T is the number of transactions that are open in the queue, R how many commits hold it
in reserve mode, the asking one included; sizes are bytes, `open` and `commit` those of the control
records:

| name | to open (T does not count it yet) | to write s | to commit |
|---|---|---|---|
| lock-all [0065-0068] | open | s | commit |
| reserve-at-open [0069-0073] | open + commit (T + 1) | s + commit T | 0 |
| reserve-mode [0074-0078] | open + commit (T + 1) | s + commit T while R > 0, else s | commit T |
| reserve-mode-counted [0079] | open + commit (T + 1) | s + commit R | commit R |

Under lock-all a commit also keeps writers out of all its queues, from its check to its end: the one
strategy under which a thread holds something of two queues at a time (their writers' locks, in the
order of the queues' ids).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from quire.errors import InvalidArgument
from quire.limits import COMMIT_BYTES, OPEN_BYTES


class Strategy(NamedTuple):
    """One row of the table. The queue's lock is held when it is asked, and no other queue's."""

    name: str
    locks_queues: bool
    open_need: Callable[[int], int]  # of T
    write_need: Callable[[int, int, int], int]  # of s, T, R
    commit_need: Callable[[int, int], int]  # of T, R


def _open_and_commits(opened: int) -> int:
    return OPEN_BYTES + COMMIT_BYTES * (opened + 1)


LOCK_ALL: Final = Strategy(
    "lock-all",
    locks_queues=True,
    open_need=lambda opened: OPEN_BYTES,
    write_need=lambda size, opened, reserving: size,
    commit_need=lambda opened, reserving: COMMIT_BYTES,
)
RESERVE_AT_OPEN: Final = Strategy(
    "reserve-at-open",
    locks_queues=False,
    open_need=_open_and_commits,
    write_need=lambda size, opened, reserving: size + COMMIT_BYTES * opened,
    commit_need=lambda opened, reserving: 0,
)
RESERVE_MODE: Final = Strategy(
    "reserve-mode",
    locks_queues=False,
    open_need=_open_and_commits,
    write_need=lambda size, opened, reserving: size + (COMMIT_BYTES * opened if reserving else 0),
    commit_need=lambda opened, reserving: COMMIT_BYTES * opened,
)
RESERVE_MODE_COUNTED: Final = Strategy(
    "reserve-mode-counted",
    locks_queues=False,
    open_need=_open_and_commits,
    write_need=lambda size, opened, reserving: size + COMMIT_BYTES * reserving,
    commit_need=lambda opened, reserving: COMMIT_BYTES * reserving,
)

STRATEGIES: Final = {
    strategy.name: strategy
    for strategy in (LOCK_ALL, RESERVE_AT_OPEN, RESERVE_MODE, RESERVE_MODE_COUNTED)
}


def strategy_named(name: str) -> Strategy:
    """By its name. Raises `InvalidArgument`."""
    found = STRATEGIES.get(name) if isinstance(name, str) else None
    if found is None:
        raise InvalidArgument(f"strategy {name!r}: there are {', '.join(STRATEGIES)}")
    return found


class BothLocks:
    """Two locks, held one inside the other."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, outer: threading.Lock, inner: threading.Lock) -> None:
        self._outer = outer
        self._inner = inner

    def __enter__(self) -> None:
        self._outer.acquire()
        self._inner.acquire()

    def __exit__(self, *exception: object) -> None:
        self._inner.release()
        self._outer.release()
