"""The thread that ends requests whose time is over (`quire.remote.client.overdue_requests`)."""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Iterator
from random import Random

import pytest

from quire.remote.client.overdue_requests import Overdue
from tests.kit.children import child
from tests.kit.limits import Limits
from tests.kit.waiting import eventually

LONG = 1000.0


class Requests:
    """What makes them: any number at a time, each with a turn as OT1 says."""

    def __init__(self, watcher: Overdue) -> None:
        self.ended = False
        self.over: list[tuple[float, float]] = []  # when it was to be ended, and the thread's time
        self.looks = 0
        self._watcher = watcher
        self._turns: list[list[float]] = []
        watcher.watch(self)

    def begin(self, until: float) -> list[float]:
        """One that waits until then (OT2); its turn."""
        turn = [until]
        self._turns.append(turn)
        if until < self._watcher.next_look:
            self._watcher.wake()
        return turn

    def look(self, time: float) -> float:
        """See `Waits`."""
        self.looks += 1
        first = math.inf
        for turn in list(self._turns):
            try:
                until = turn[0]
                if until > time:
                    first = min(first, until)
                    continue
                turn.pop()
            except IndexError:  # it is done
                self._turns.remove(turn)
                continue
            self.over.append((until, time))
            self._turns.remove(turn)
        return first


def is_done(turn: list[float]) -> bool:
    """Whether a request that ends takes its turn before the thread does."""
    try:
        turn.pop()
    except IndexError:
        return False
    return True


def threads() -> set[threading.Thread]:
    """Those that look for overdue requests, of whatever kind."""
    return {thread for thread in threading.enumerate() if thread.name == "quire-overdue"}


@pytest.fixture
def watcher(limits: Limits) -> Iterator[Overdue]:
    """One of the test's own, whose thread ends soon when nobody is left."""
    limits(OVERDUE_SECONDS=0.01)
    before = threads()
    yield Overdue()
    gc.collect()
    eventually(lambda: threads() <= before)


def test_each_ends_when_its_time_is_over(watcher: Overdue, rng: Random) -> None:
    """OT1, OT2: many at once, of many makers, in any order, and none before its time."""
    before = threads()
    makers = [Requests(watcher) for _ in range(50)]
    start = time.monotonic()
    expected: list[list[float]] = [[] for _ in makers]
    for _ in range(2000):
        chosen = rng.randrange(len(makers))
        at = start + rng.random() / 2
        expected[chosen].append(at)
        makers[chosen].begin(at)
    eventually(lambda: sum(len(maker.over) for maker in makers) == 2000)
    for maker, times in zip(makers, expected, strict=True):
        assert sorted(at for at, _ in maker.over) == sorted(times)
        assert all(at <= seen for at, seen in maker.over)
    assert len(threads() - before) == 1
    eventually(lambda: watcher.next_look == math.inf)  # asleep, until somebody begins


def test_one_that_has_less_time_wakes_the_thread(watcher: Overdue) -> None:
    """OT2: it sleeps until the first of them; what waits longer stays."""
    requests = Requests(watcher)
    start = time.monotonic()
    long = requests.begin(start + LONG)
    eventually(lambda: watcher.next_look == start + LONG)
    for count in range(1, 20):
        at = time.monotonic() + 0.01
        requests.begin(at)
        eventually(lambda n=count: len(requests.over) == n)  # type: ignore[misc]
        eventually(lambda: watcher.next_look == start + LONG)
    assert long == [start + LONG]
    looks = requests.looks
    requests.begin(start + 2 * LONG)  # which can wait for the next look
    assert watcher.next_look == start + LONG
    assert requests.looks == looks


def test_what_is_done_is_not_ended(watcher: Overdue) -> None:
    """OT1: who takes the turn first has it, and it is one of both, each time."""
    requests = Requests(watcher)
    turns = [requests.begin(time.monotonic() + LONG) for _ in range(100)]
    assert all(map(is_done, turns))
    marked = requests.begin(time.monotonic())
    eventually(lambda: not marked)
    assert len(requests.over) == 1
    done = rounds = 0
    while rounds < 3000 and not (rounds > 300 and 0 < done < rounds):
        rounds += 1
        turn = requests.begin(time.monotonic() + 20e-6)
        done += is_done(turn)
        eventually(lambda n=rounds - done: len(requests.over) == 1 + n)  # type: ignore[misc]
    assert len(requests.over) + done == 1 + rounds


@pytest.mark.parametrize("dropped", [False, True])
def test_the_thread_ends_with_the_last_maker(watcher: Overdue, *, dropped: bool) -> None:
    """OT3: whether it says so or is dropped; who comes then has another thread."""
    before = threads()
    for _ in range(3):
        makers = [Requests(watcher) for _ in range(3)]
        makers[0].begin(time.monotonic())
        eventually(lambda m=makers: len(m[0].over) == 1)  # type: ignore[misc]
        (thread,) = threads() - before
        if dropped:
            makers.clear()
            gc.collect()
        else:
            for number in range(3):
                makers[number].ended = True
            watcher.wake()
        thread.join(60)
        assert not thread.is_alive()
        assert threads() <= before


def test_makers_that_come_as_the_thread_ends(
    watcher: Overdue, monkeypatch: pytest.MonkeyPatch, limits: Limits, rng: Random
) -> None:
    """OT3: each is looked at, wherever the thread is just then."""
    limits(OVERDUE_SECONDS=0.0)
    started: list[threading.Thread] = []
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "quire-overdue":
            started.append(thread)
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    for number in range(500):
        requests = Requests(watcher)
        turn = requests.begin(time.monotonic())
        eventually(lambda t=turn: not t)  # type: ignore[misc]
        assert len(requests.over) == 1
        requests.ended = True
        watcher.wake()
        for _ in range(rng.randrange(300)):  # the thread is somewhere on its way to its end
            threading.get_ident()
        if number % 10 == 0:
            eventually(lambda: not any(thread.is_alive() for thread in started))
    assert len(started) > 1


def test_no_thread_is_to_be_had(watcher: Overdue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes next tries again, and then all are looked at."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        first = Requests(watcher)
        turn = first.begin(time.monotonic())
    assert turn
    second = Requests(watcher)
    eventually(lambda: not turn)
    assert len(first.over) == 1
    assert not second.over


FORKING = """
import os, sys, time
from quire.remote.client.overdue_requests import overdue
from tests.remote.test_overdue import Requests, threads
from tests.kit.waiting import eventually

mine = Requests(overdue)
kept = mine.begin(time.monotonic() + 1000)
eventually(lambda: threads() and overdue.next_look > time.monotonic() + 900)
for depth in range(3):
    process = os.fork()
    if process:
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7
        break
    try:
        assert not threads(), "the parent's thread"
        assert kept, "a request of the parent's was ended"
        looks = mine.looks
        own = Requests(overdue)
        turn = own.begin(time.monotonic() + 0.01)
        eventually(lambda: not turn)
        assert len(threads()) == len(own.over) == 1
        assert mine.looks == looks, "what makes requests in the parent is looked at"
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
else:
    os._exit(7)
turn = mine.begin(time.monotonic()) if not depth else []
eventually(lambda: not turn)
if depth:
    os._exit(7)
print("done", flush=True)
"""


def test_a_child_that_is_forked_begins_anew() -> None:
    """OT3: it has no thread of its parent's and nothing to look at, and so has its own child."""
    with child(FORKING) as process:
        assert process.line() == "done"
        assert process.wait() == 0


def test_what_is_looked_at_is_held_by_nobody(watcher: Overdue) -> None:
    """A maker that is dropped with a request in hand is gone."""
    gone: list[str] = []

    class Noted(Requests):
        def __del__(self) -> None:
            gone.append(threading.current_thread().name)

    requests = Noted(watcher)
    requests.begin(time.monotonic() + LONG)
    eventually(lambda: watcher.next_look != math.inf)
    del requests
    gc.collect()
    eventually(lambda: len(gone) == 1)
