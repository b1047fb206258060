"""Commit strategies: what a commit checks in each of its queues before its journal record.

Source: "Managing message queues" (JP 2008-547130), paragraphs 0062-0079. They are the rows of one
table of formulas. T is the number of transactions that are open in the queue, R how many commits
hold it in reserve mode, the asking one included; `commit` is the size of a commit record:

| name | a commit finds room for |
|---|---|
| lock-all [0065-0068] | commit |
| reserve-at-open [0069-0073] | 0 |
| reserve-mode [0074-0078] | commit T |
| reserve-mode-counted [0079] | commit R |

What opening and writing leave is the same for all (S1 and S2 of `queues.reservation`), so that each
of these finds it, unless the queue's capacity was lowered meanwhile.

Under lock-all a commit also keeps writers out of all its queues, from its check to its end: the one
strategy under which a thread holds something of two queues at a time (their writers' locks, in the
order of the queues' ids).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from quire.errors import InvalidArgument
from quire.limits import COMMIT_BYTES


class Strategy(NamedTuple):
    """One row of the table. The queue's lock is held when it is asked, and no other queue's."""

    name: str
    locks_queues: bool
    commit_need: Callable[[int, int], int]  # of T, R


LOCK_ALL: Final = Strategy(
    "lock-all",
    locks_queues=True,
    commit_need=lambda opened, reserving: COMMIT_BYTES,
)
RESERVE_AT_OPEN: Final = Strategy(
    "reserve-at-open",
    locks_queues=False,
    commit_need=lambda opened, reserving: 0,
)
RESERVE_MODE: Final = Strategy(
    "reserve-mode",
    locks_queues=False,
    commit_need=lambda opened, reserving: COMMIT_BYTES * opened,
)
RESERVE_MODE_COUNTED: Final = Strategy(
    "reserve-mode-counted",
    locks_queues=False,
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
