"""Waits, and what wakes them, when a signal's handler raises at any step of either (WK1 to WK4)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from quire.calls.signal_safety import defer_signals
from quire.calls.wake_up import Condition, Thread, WakeUp
from quire.env.interpreter import Lock
from tests.kit.children import child
from tests.kit.moments import Alarm, at_moment, moments_of
from tests.kit.waiting import SECONDS, ends

SOON = 0.001
# One in the finaliser of a thread Python only shows: that, and nothing else.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:(?s).*\bmoments\.Alarm:pytest.PytestUnraisableExceptionWarning"
)


def _strike() -> None:
    raise Alarm


def set_and_wait(wake_up: WakeUp) -> None:
    """All calls of a wake-up, each of which some moment interrupts."""
    wake_up.set()
    wake_up.set()
    wake_up.is_set()
    wake_up.wait(SOON)
    wake_up.wait(SOON)
    wake_up.clear()
    wake_up.set()
    wake_up.clear()


def test_a_wake_up_is_kept_until_somebody_waits() -> None:
    """Set twice is once; a wait takes it, and so does `clear`."""
    wake_up = WakeUp()
    assert not wake_up.wait(0.0)
    wake_up.set()
    wake_up.set()
    assert wake_up.is_set()
    assert wake_up.wait()
    assert not wake_up.is_set()
    assert not wake_up.wait(SOON)
    wake_up.set()
    wake_up.clear()
    wake_up.clear()
    assert not wake_up.wait(-1.0)


def test_an_interrupt_at_any_step_leaves_no_wake_up_locked() -> None:
    """WK1: what others set afterwards wakes, and setting waits for nobody."""
    wake_up = WakeUp()
    moments = moments_of(lambda: set_and_wait(wake_up))
    assert moments > 15
    for moment in range(1, moments + 1):
        assert at_moment(lambda: set_and_wait(wake_up), moment, _strike), moment
        assert ends(wake_up.set), moment
        assert ends(lambda: wake_up.wait(SECONDS), SECONDS / 2), moment
        wake_up.clear()


def test_a_wake_up_may_be_set_by_a_handler_in_the_midst_of_a_wait() -> None:
    """WK1: whatever step of the wait it runs in."""
    wake_up = WakeUp()
    for moment in range(1, moments_of(lambda: WakeUp().wait(0.0)) + 1):
        at_moment(lambda: wake_up.wait(0.0), moment, wake_up.set)
        wake_up.clear()


def test_an_interrupt_at_any_step_leaves_no_condition_locked() -> None:
    """WK3: nor do those who wait miss what is told later."""
    condition = Condition(Lock())
    changes = 0

    def change() -> None:
        nonlocal changes
        with condition:
            changes += 1
            condition.notify_all()

    def use() -> None:
        change()
        condition.wait_until(lambda: False, SOON)

    moments = moments_of(use)
    for moment in range(1, moments + 1):
        with suppress(Alarm):
            at_moment(use, moment)  # by a signal, as a wait holds back its handler
        seen = changes
        waiting = threading.Thread(
            target=condition.wait_until, args=(lambda seen=seen: changes > seen,), daemon=True
        )
        waiting.start()
        assert ends(change), moment
        waiting.join(SECONDS)
        assert not waiting.is_alive(), moment


def test_all_who_wait_for_a_condition_are_woken() -> None:
    """And who waits in vain has its time."""
    condition = Condition(Lock())
    is_open = False
    waiting = [
        threading.Thread(target=condition.wait_until, args=(lambda: is_open, SECONDS))
        for _ in range(5)
    ]
    for each in waiting:
        each.start()
    assert not condition.wait_until(lambda: False, SOON)
    with condition:
        is_open = True
        condition.notify_all()
    for each in waiting:
        each.join(SECONDS)
        assert not each.is_alive()


def test_an_interrupt_at_any_step_of_its_start_leaves_no_thread_stuck() -> None:
    """WK4: it runs to its end, or was not started."""

    def start(run: Callable[[], None]) -> Thread:
        thread = Thread(target=run)
        thread.start()
        return thread

    moments = moments_of(lambda: start(lambda: None))
    before = threading.active_count()
    for moment in range(1, moments + 1):
        at_moment(lambda: start(lambda: None), moment)
    assert ends(lambda: defer_signals(_come_to_rest, before))


def _come_to_rest(count: int) -> None:
    while threading.active_count() > count + 1:  # and the one that looks
        threading.Event().wait(SOON)


FORKING = """
import os, signal, sys, threading
from quire.calls.wake_up import WakeUp
shared = [WakeUp() for _ in range(3)]
going = True
def use(wake_up):
    while going:
        wake_up.set()
        wake_up.wait()
        wake_up.wait(0.002)
threads = [threading.Thread(target=use, args=(each,)) for each in shared]
for thread in threads:
    thread.start()
statuses = set()
for _ in range(10):
    pid = os.fork()
    if not pid:
        signal.alarm(60)
        for each in shared:
            each.set()
            each.wait(0.0)
            each.set()
            assert each.wait(30.0)
        os._exit(0)
    statuses.add(os.waitpid(pid, 0)[1])
going = False
for thread in threads:
    thread.join()
print(statuses, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_child_sets_what_its_parents_threads_use() -> None:
    """WK1: no thread that is not there any more holds it."""
    with child(FORKING) as process:
        assert process.line() == "{0}"
        assert process.wait() == 0
