"""The waits of a client: for its socket, for another thread, for a time.

Nothing else in `remote/client` waits for long, so a driver that runs many calls in one thread
replaces these functions alone.

- Handlers of signals run in these waits, and may raise (UI2); nothing is received or sent there. So
  an exception that leaves a wait takes nothing with it.
"""

from __future__ import annotations

import select
import time
from _thread import get_ident
from typing import Final, Protocol

from quire.calls.signal_safety import waiting
from quire.calls.wake_up import WakeUp
from quire.remote.limits import MAX_WAIT_SECONDS

waiter: Final = get_ident  # the number of who waits here, one thing at a time: the thread's


class WaitedSocket(Protocol):
    """A socket that is waited for, and a way to end the wait."""

    @property
    def poll(self) -> select.poll:
        """Finds what there is, the end of the wait too."""


def is_own(other: object) -> bool:
    """Return True if that waiter can do nothing before this call ends."""
    return other == get_ident()


def poll_for(poller: WaitedSocket, seconds: float) -> list[tuple[int, int]]:
    """Return what the poller finds within so many seconds."""
    return waiting(poller.poll.poll, 1000 * min(seconds, MAX_WAIT_SECONDS))


def wait_for(wake_up: WakeUp, seconds: float) -> None:
    """Wait until another one sets it, for so many seconds at most."""
    waiting(wake_up.wait, seconds)


def pause(seconds: float) -> None:
    """Let so much time pass."""
    waiting(time.sleep, seconds)
