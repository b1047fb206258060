"""Group commit: everybody gets an outcome, whatever comes between; Ctrl-C reaches one thread."""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from quire.engine.commits.sequencer import Sequencer
from quire.errors import StoreFailed
from tests.kit.waiting import SECONDS, eventually


class Journal:
    """Writes nothing, as long as `gate` is closed; `one_by_one` it closes again each time."""

    max_group_bytes = 1 << 20

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.writing = threading.Event()
        self.groups = 0
        self.one_by_one = False
        self.pause: Callable[[], None] = lambda: None
        self.sizes: list[int] = []  # of the groups, in records

    def write_group(self, records: Sequence[bytes], durable: bool = True) -> int:
        """The address of the first record; all are of 8 bytes."""
        self.writing.set()
        assert self.gate.wait(SECONDS)
        if self.one_by_one:
            self.gate.clear()
        self.pause()
        self.groups += 1
        self.sizes.append(len(records))
        return 1000 * self.groups


class Change:
    """Tells what happened to it; `place` and `apply` may be given something to do."""

    record = bytes(8)
    durable = True
    relieves = comes_first = False

    def __init__(
        self,
        place: Callable[[], None] = lambda: None,
        apply: Callable[[], None] = lambda: None,
    ) -> None:
        self.place = place
        self._apply = apply
        self.applied = False
        self.address = 0
        self.outcome: BaseException | str = "none"

    def withdraw(self) -> None:
        """It was not written."""

    def apply(self, address: int) -> None:
        """It is durable."""
        self._apply()
        self.address = address

    def submit(self, sequencer: Sequencer) -> None:
        """The outcome, noted."""
        try:
            sequencer.submit(self)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.outcome = error
        else:
            self.outcome = "committed"


def interrupt() -> None:
    """What a signal's handler does, wherever it happens to come."""
    raise KeyboardInterrupt


@contextmanager
def leading(sequencer: Sequencer, journal: Any) -> Iterator[Change]:
    """Another thread is writing a group; it is let go on at the end, and everyone has finished."""
    before = set(threading.enumerate())
    first = Change()
    threading.Thread(target=first.submit, args=(sequencer,), daemon=True).start()
    assert journal.writing.wait(SECONDS)
    yield first
    journal.gate.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(SECONDS)
        assert not thread.is_alive(), "a thread hangs"


def in_line(sequencer: Sequencer, *changes: Change) -> None:
    """Submit them by threads of their own, in this order; they wait for the group being written."""
    for change in changes:
        waiting = len(sequencer._queue)
        threading.Thread(target=change.submit, args=(sequencer,), daemon=True).start()
        while len(sequencer._queue) == waiting:
            time.sleep(0.001)


@pytest.fixture
def journal() -> Any:
    """A journal that waits."""
    return Journal()


def signal_when(condition: Callable[[], bool], then: Callable[[], None] = lambda: None) -> None:
    """Send this process SIGINT once the condition holds; the main thread gets the exception."""

    def send() -> None:
        while not condition():
            time.sleep(0.001)
        time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        then()

    threading.Thread(target=send, daemon=True).start()


@pytest.mark.cases(4)
@pytest.mark.fuzz
def test_nobody_is_left_waiting(rng: random.Random, rounds: int) -> None:
    """Threads come and go, the interpreter switches between any two steps: all get an outcome.

    Each round ends with nobody coming along any more who would take a forgotten one with him.
    """
    interval = sys.getswitchinterval()
    try:
        for _ in range(rounds * 8):
            sys.setswitchinterval(rng.choice([1e-6, 5e-6, 5e-5]))
            _round(rng)
    finally:
        sys.setswitchinterval(interval)


def _round(rng: random.Random) -> None:
    journal = Journal()
    journal.gate.set()
    journal.pause = lambda: time.sleep(rng.choice([0, 0, 1e-5, 2e-4]))
    sequencer = Sequencer(journal)  # type: ignore[arg-type]
    sequencer._group_bytes = 8 * rng.choice([1, 3, 6, 1000])
    changes: list[Change] = []
    ran: list[int] = []

    def work(steps: list[bool]) -> None:
        for is_exclusive in steps:
            if is_exclusive:
                sequencer.exclusive(lambda: ran.append(1))
            else:
                change = Change()
                changes.append(change)
                change.submit(sequencer)

    plans = [
        [rng.random() < 0.1 for _ in range(rng.choice([1, 2, 5, 20]))]
        for _ in range(rng.choice([2, 3, 5, 12, 32]))
    ]
    threads = [threading.Thread(target=work, args=(plan,), daemon=True) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "a thread hangs"
    assert [change.outcome for change in changes] == ["committed"] * len(changes)
    assert len({change.address for change in changes}) == len(changes)
    assert len(changes) + len(ran) == sum(map(len, plans))
    assert sum(journal.sizes) == len(changes)
    assert not sequencer.busy


@pytest.mark.parametrize("behind", [0, 2])
@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_interrupted_in_line(journal: Any, ahead: int, behind: int) -> None:
    """First in line or not: it is committed, and who comes before and after it (C8, C9)."""
    sequencer = Sequencer(journal)
    mine, others = Change(), [Change() for _ in range(ahead + behind)]

    def follow() -> None:
        while len(sequencer._queue) <= ahead:
            time.sleep(0.001)
        in_line(sequencer, *others[ahead:])

    with leading(sequencer, journal) as first:
        in_line(sequencer, *others[:ahead])
        threading.Thread(target=follow, daemon=True).start()
        signal_when(lambda: len(sequencer._queue) > ahead + behind, journal.gate.set)
        mine.submit(sequencer)
    assert isinstance(mine.outcome, KeyboardInterrupt)
    assert mine.applied
    assert mine.address
    assert [change.outcome for change in (first, *others)] == ["committed"] * (len(others) + 1)
    assert sequencer.failure is None
    sequencer.submit(Change())


def test_a_signals_handler_may_wait_for_the_others_of_the_group(journal: Any) -> None:
    """The main thread wakes nobody: what its handler waits for comes to an end (C10)."""
    sequencer = Sequencer(journal)
    mine, others = Change(), [Change() for _ in range(4)]
    waited: list[bool] = []

    def handle(*_: object) -> None:
        journal.gate.set()
        until = time.monotonic() + SECONDS
        while any(change.outcome == "none" for change in others) and time.monotonic() < until:
            time.sleep(0.001)
        waited.append(all(change.outcome == "committed" for change in others))

    def follow() -> None:
        while len(sequencer._queue) < 3:
            time.sleep(0.001)
        in_line(sequencer, *others[2:])

    before = signal.signal(signal.SIGINT, handle)
    try:
        with leading(sequencer, journal):
            in_line(sequencer, *others[:2])
            threading.Thread(target=follow, daemon=True).start()
            signal_when(lambda: len(sequencer._queue) == 5)
            mine.submit(sequencer)
    finally:
        signal.signal(signal.SIGINT, before)
    assert waited == [True]
    assert mine.outcome == "committed"


def test_a_signals_handler_may_wait_for_those_in_line(journal: Any) -> None:
    """The main thread alone is to be woken up: somebody else is told to lead the next group."""
    sequencer = Sequencer(journal)
    mine, later = Change(), [Change() for _ in range(2)]
    waited: list[bool] = []

    def handle(*_: object) -> None:
        end = time.monotonic() + SECONDS
        while any(change.outcome == "none" for change in later) and time.monotonic() < end:
            time.sleep(0.001)
        waited.append(all(change.outcome == "committed" for change in later))

    def follow() -> None:
        eventually(lambda: len(sequencer._queue) == 2)
        journal.gate.set()
        eventually(lambda: journal.sizes == [1] and not sequencer._queue)
        in_line(sequencer, *later)  # the group of the two is being written, by the first of them
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(0.05)
        journal.one_by_one = False
        journal.gate.set()

    journal.one_by_one = True
    before = signal.signal(signal.SIGINT, handle)
    try:
        with leading(sequencer, journal):
            in_line(sequencer, Change())
            threading.Thread(target=follow, daemon=True).start()
            mine.submit(sequencer)
    finally:
        signal.signal(signal.SIGINT, before)
    assert waited == [True]
    assert mine.outcome == "committed"


def test_an_interrupted_exclusive_action_lets_commits_go_on(journal: Any) -> None:
    """Waiting for it, and in it."""
    sequencer = Sequencer(journal)
    ran: list[int] = []
    with leading(sequencer, journal):
        signal_when(lambda: len(sequencer._queue) > 0)
        with pytest.raises(KeyboardInterrupt):
            sequencer.exclusive(lambda: ran.append(1))
    with pytest.raises(KeyboardInterrupt):
        sequencer.exclusive(interrupt)
    sequencer.exclusive(lambda: ran.append(2))
    sequencer.submit(Change())
    assert ran == [2]
    assert sequencer.failure is None


@pytest.mark.parametrize("where", ["place", "apply"])
def test_an_interrupted_leader_leaves_nobody_waiting(journal: Any, where: str) -> None:
    """The others of its group learn that the store has failed (C6), not of the signal."""
    sequencer = Sequencer(journal)
    mine, other = Change(**{where: interrupt}), Change()
    with leading(sequencer, journal) as first:
        in_line(sequencer, mine, other)
    assert first.outcome == "committed"
    assert isinstance(mine.outcome, KeyboardInterrupt)
    assert isinstance(other.outcome, StoreFailed)
    assert other.address == 0
    with pytest.raises(StoreFailed, match="open it again"):
        sequencer.submit(Change())
    with pytest.raises(StoreFailed):
        sequencer.submit(Change())
