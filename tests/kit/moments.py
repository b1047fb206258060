"""A signal at one moment of a call: each moment can have its turn.

CPython runs a signal's handler where a function begins and after a call of one that is built in. A
profiler hears of both, and sends the signal there: so it takes the way that a signal of the system
takes, and Quire holds it back where it holds back those.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType
from typing import Any


class Alarm(BaseException):
    """What the handler raises."""


def _raise(number: int, frame: FrameType | None) -> None:
    raise Alarm


def _send() -> None:
    signal.raise_signal(signal.SIGALRM)


def at_moment(
    action: Callable[[], object], moment: int, strike: Callable[[], None] = _send
) -> bool:
    """Do it, with a signal at the moment of that number: whether that was raised out of it.

    `strike`: what is done there instead; one that raises `Alarm` is not held back by anybody.
    """
    return _heard(action, moment, strike)[0]


def moments_of(action: Callable[[], object]) -> int:
    """How many moments it has."""
    return _heard(action, 0, _send)[1]


def some_moments(
    action: Callable[[], object], rng: Random, most: int, last: int = 0
) -> Iterator[int]:
    """Up to so many of its moments, drawn, in their order, and those at its end; 0: all."""
    count = moments_of(action)
    every = range(1, max(count - last, 0) + 1)
    yield from every if not most or most >= len(every) else sorted(rng.sample(every, most))
    yield from range(every.stop, count + 1)


@contextmanager
def alarmed() -> Iterator[Callable[[], None]]:
    """A block in which what is given sends the signal."""
    before = signal.signal(signal.SIGALRM, _raise)
    try:
        yield _send
    finally:
        signal.signal(signal.SIGALRM, before)


def _heard(
    action: Callable[[], object], moment: int, strike: Callable[[], None]
) -> tuple[bool, int]:
    count = 0

    def hear(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        if event in ("call", "c_return"):
            count += 1
            if count == moment:
                strike()

    before = signal.signal(signal.SIGALRM, _raise)
    gc.disable()  # finalisers of what other tests have dropped are not to be interrupted
    sys.setprofile(hear)
    try:
        action()
    except Alarm:
        return True, count
    finally:
        sys.setprofile(None)
        gc.enable()
        signal.signal(signal.SIGALRM, before)
    return False, count
