"""Calls that are made with ever less room on the stack, down to none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

from quire.limits import CALL_LEVELS

R = TypeVar("R")
WALKED = CALL_LEVELS + 32  # levels above the last one, where the first of them has room for all


def at(depth: int, action: Callable[[], R]) -> R:
    """Do it that much deeper than here."""
    return at(depth - 1, action) if depth else action()


def deepest() -> int:
    """The most that `at` can be asked for from where this is called."""
    depth = sys.getrecursionlimit()
    while True:
        try:
            at(depth, bool)
        except RecursionError:
            depth -= 1
        else:
            return depth


def depths() -> Iterator[int]:
    """From where there is room to where there is none, one by one."""
    last = deepest()
    yield from range(last - WALKED, last + 5)


def done(depth: int, action: Callable[[], object]) -> bool:
    """Whether it was done at the depth; else the stack had no room."""
    try:
        at(depth, action)
    except RecursionError:
        return False
    return True
