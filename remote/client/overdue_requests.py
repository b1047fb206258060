"""Requests whose time is over: one thread of the process ends their connections.

A time-out of the socket's would cost each request a timer of the system's, which takes longer than
all else that Python does for it. Here a request costs a list, and a look at the clock.

- OT1: a request has a turn, a list of one: until when it waits. Who takes that out, by `pop`, has
  the turn, and nobody else: the request as it ends, or the thread, once the time is over.
- OT2: the thread is asleep until the first of these times, or while there is no request. A request
  that cannot wait for its next look wakes it: a turn is there first, then it looks at `next_look`;
  the thread says first that it looks, and looks then. So one of them sees the other.
- OT3: the thread ends when nobody is left who may make a request. In the child of a fork there is
  none of the parent's.
"""

from __future__ import annotations

import math
import weakref
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from quire.calls.wake_up import Thread
from quire.env import after_fork
from quire.remote.limits import MAX_WAIT_SECONDS, OVERDUE_SECONDS
from quire.remote.wire.sockets import now


class Waits(Protocol):
    """A maker of requests, one at a time."""

    ended: bool  # it makes none any more

    def look(self, time: float) -> float:
        """End what is overdue at the time; when to look again, infinite where nothing waits."""


class Overdue:
    """The thread, and what it looks at."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, with no thread."""
        self.next_look = math.inf  # also where nothing waits: who begins then wakes it
        self._news: SimpleQueue[weakref.ref[Waits] | None] = SimpleQueue()
        self._to_start = [True]  # who takes it out starts the thread

    def watch(self, one: Waits) -> None:
        """Look at it from now on, as long as somebody else holds it."""
        news = self._news
        news.put(weakref.ref(one, lambda _: news.put(None)))
        try:
            self._to_start.pop()
        except IndexError:
            return
        try:
            Thread(target=self._run, name="quire-overdue").start()
        except RuntimeError:  # no more threads: the next one tries again, and this one just waits
            self._to_start.append(True)

    def wake(self) -> None:
        """A request cannot wait for the next look (OT2)."""
        self._news.put(None)

    def _run(self) -> None:
        news, watched = self._news, list[weakref.ref[Waits]]()
        was_idle = False
        while True:
            self.next_look = math.inf
            time, first = now(), math.inf
            watched = [r for r in watched if (one := r()) is not None and not one.ended]
            for reference in watched:
                one = reference()
                if one is not None:
                    first = min(first, one.look(time))
                del one
            is_idle = first == math.inf
            if is_idle and not was_idle:  # the next request is likely to come soon
                first = time + OVERDUE_SECONDS
            if is_idle and was_idle and not watched and self._ends():
                return
            was_idle = is_idle
            self.next_look = first
            try:
                left = None if first == math.inf else min(max(0.0, first - now()), MAX_WAIT_SECONDS)
                found = news.get(timeout=left)
                if found is not None:
                    watched.append(found)
            except Empty:
                pass

    def _ends(self) -> bool:
        """With nothing to look at: whether the thread is to end, and the next one starts anew."""
        self._to_start.append(True)
        if self._news.empty():  # who comes from now on starts one
            return True
        try:
            self._to_start.pop()
        except IndexError:  # another has been started
            return True
        return False


overdue: Final = Overdue()


def _forget_in_child(parent: int) -> None:
    overdue.forget()


after_fork(_forget_in_child)
