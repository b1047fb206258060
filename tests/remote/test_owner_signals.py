"""What a process that owns a store does when it is sent a signal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from quire.remote.server.signals import SignalFlag, on_hangup, stop_on_signals

EVERY_SECONDS = 0.0002
TIMES = 3000


@contextmanager
def alarms(flag: SignalFlag) -> Iterator[list[int]]:
    """SIGALRM all the time, whose handler sets the flag; counts them."""
    seen: list[int] = []

    def handle(*_: object) -> None:
        seen.append(1)
        flag.set()

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, EVERY_SECONDS, EVERY_SECONDS)
    try:
        yield seen
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_handler_sets_the_flag_in_the_midst_of_its_use() -> None:
    """A lock that the interrupted code holds would never be given back."""
    flag = SignalFlag()
    with alarms(flag) as seen:
        for _ in range(TIMES):
            assert flag.wait(100)
            flag.clear()
            flag.set()
            flag.clear()
            flag.wait(0)
    assert seen
    flag.close()


def test_a_flag_that_is_set_again_and_again_stays_set() -> None:
    """More often than its socket has room for."""
    flag = SignalFlag()
    assert not flag.wait(0)
    for _ in range(100_000):
        flag.set()
    assert flag.wait(0)
    flag.clear()
    assert not flag.wait(0)
    flag.close()


def test_sigterm_sets_the_flag_and_the_handlers_come_back() -> None:
    """Also when it comes twice."""
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals() as end:
        assert not end.wait(0)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        assert end.wait(100)
        assert end.wait(100)
    assert signal.getsignal(signal.SIGTERM) is before


def test_sighup_lets_a_thread_do_something_each_time() -> None:
    """And nothing is left of that when the block ends."""
    before = signal.getsignal(signal.SIGHUP)
    done = threading.Semaphore(0)
    with on_hangup(done.release):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
            assert done.acquire(timeout=100)
    assert signal.getsignal(signal.SIGHUP) is before
    assert "quire-hangup" not in [thread.name for thread in threading.enumerate()]


def test_a_signal_that_another_thread_is_given_ends_the_wait() -> None:
    """The system wakes that thread, not the one that waits and has the handlers to run.

    As it is with a signal that comes the moment before the main thread begins to wait.
    """
    with stop_on_signals() as end:
        told = threading.Event()

        def run() -> None:
            told.wait(0.1)  # the main thread waits by then, as a rule
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            told.wait(100)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            assert end.wait(100)
        finally:
            told.set()
            thread.join()
    assert signal.set_wakeup_fd(-1) == -1
