"""The waits of a client: for its socket, for another thread, for a time.

Nothing else in `remote/client` waits for long, so calls that are made in greenlets of an event
loop's thread (`use_greenlets`) suspend here alone: others go on in the thread meanwhile.

- Handlers of signals run in these waits, and may raise (UI2); nothing is received or sent there. So
  an exception that leaves a wait takes nothing with it.
- CW1: a greenlet waits as a thread does, and is told from others of its thread by `waiter`. What a
  thread has for its call, a greenlet has while it runs, and only then (UI7).
- CW2: a call that blocks the thread of a suspended greenlet, as one of a signal's handler does,
  waits for nothing that this greenlet is to do (`is_own`).
"""

from __future__ import annotations

import math
import select
import time
from _thread import get_ident
from collections.abc import Callable, Mapping
from typing import ParamSpec, Protocol, TypeVar

from quire.calls import signal_safety
from quire.calls.signal_safety import SuspendableCall, waiting
from quire.calls.wake_up import Condition, WakeUp
from quire.remote.limits import MAX_WAIT_SECONDS

P = ParamSpec("P")
R = TypeVar("R")
PollEvents = list[tuple[int, int]]


class WaitedSocket(Protocol):
    """A socket that is waited for, and a way to end the wait."""

    @property
    def socket_number(self) -> int:
        """Its file number."""

    @property
    def poll(self) -> select.poll:
        """Finds what there is, the end of the wait too."""

    room: bool
    """Room to send is waited for, too."""

    on_wake: Callable[[], object] | None
    """Called, too, by whoever ends the wait."""


class ClientGreenlet(SuspendableCall, Protocol):
    """A call of the client in a greenlet."""

    @property
    def thread(self) -> int:
        """The number of its thread."""

    def poll_for(self, poller: WaitedSocket, seconds: float) -> PollEvents:
        """As `poll_for`."""

    def wait_for(self, wake_up: ClientWakeUp, seconds: float) -> bool:
        """As `WakeUp.wait`."""

    def offload(self, action: Callable[[], R]) -> R:
        """Do it in a thread, while the greenlet is suspended."""


def _no_greenlet() -> None:
    """Return None: calls are made by threads."""


_get_greenlet: Callable[[], ClientGreenlet | None] = _no_greenlet


class ClientWakeUp(WakeUp):
    """A wake-up for a greenlet, too."""

    __slots__ = ("on_set",)

    def __init__(self) -> None:
        super().__init__()
        self.on_set: Callable[[], object] | None = None

    def set(self) -> None:
        super().set()
        on_set = self.on_set
        if on_set is not None:
            on_set()

    def take(self) -> bool:
        """Return True if it was set, which it is not any more."""
        return self._gate.acquire(blocking=False)

    def wait(self, timeout: float = math.inf) -> bool:
        call = _get_greenlet()
        return super().wait(timeout) if call is None else call.wait_for(self, timeout)


class ClientCondition(Condition):
    """A condition for greenlets, too: none of them suspends with its lock."""

    __slots__ = ()
    make_wake_up = ClientWakeUp


def _poll_for(poller: WaitedSocket, seconds: float) -> PollEvents:
    return waiting(poller.poll.poll, 1000 * min(seconds, MAX_WAIT_SECONDS))


waiter: Callable[[], object] = get_ident
"""Returns who waits here, one thing at a time: the thread's number, or the greenlet (CW1)."""

poll_for: Callable[[WaitedSocket, float], PollEvents] = _poll_for
"""Returns what the poller finds within so many seconds."""


def is_own(other: object) -> bool:
    """Return True if that waiter can do nothing before this call ends (CW2)."""
    call = _get_greenlet()
    if call is not None:
        return other is call
    return get_ident() in (other, getattr(other, "thread", None))


def first_of(waiters: Mapping[object, R]) -> R | None:
    """Return the value of the waiter that is to go on: a thread, if there is one (CW2)."""
    found = list(waiters.items())
    threads = (value for waiter, value in found if isinstance(waiter, int))
    return next(threads, found[0][1] if found else None)


def wait_for(wake_up: ClientWakeUp, seconds: float) -> None:
    """Wait until another one sets it, for so many seconds at most."""
    waiting(wake_up.wait, seconds)


def pause(seconds: float) -> None:
    """Let so much time pass."""
    call = _get_greenlet()
    waiting(time.sleep if call is None else call.suspend, seconds)


def offloaded(action: Callable[P, R]) -> Callable[P, R]:
    """Return an action that blocks, for whoever calls it: for a greenlet it is done in a thread."""

    def offload(*args: P.args, **kwargs: P.kwargs) -> R:
        call = _get_greenlet()
        if call is None:
            return action(*args, **kwargs)
        return waiting(call.offload, lambda: action(*args, **kwargs))

    return offload


def use_greenlets(get_greenlet: Callable[[], ClientGreenlet | None]) -> None:
    """Ask from now on whether a call is made in a greenlet. Threads of this process pay for it."""
    global _get_greenlet, poll_for, waiter

    def poll_of_greenlets(poller: WaitedSocket, seconds: float) -> PollEvents:
        call = get_greenlet()
        if call is None:
            return _poll_for(poller, seconds)
        return waiting(call.poll_for, poller, seconds)

    def get_waiter() -> object:
        call = get_greenlet()
        return get_ident() if call is None else call

    _get_greenlet, poll_for, waiter = get_greenlet, poll_of_greenlets, get_waiter
    signal_safety.use_greenlets(get_greenlet)
