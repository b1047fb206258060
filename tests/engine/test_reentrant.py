"""Calls from inside a call: by a signal's handler, a finaliser, a logging handler, a callback.

None may wait for its own thread. Each is refused, or done; the call that it came into goes on.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from types import FrameType
from typing import Any

import pytest

import quire
from quire.calls import signal_safety
from quire.engine.checkpoints.checkpoint import Checkpointer
from quire.engine.pages.block_places import Places
from quire.engine.pages.io_worker import Job
from quire.env import OsEnv
from quire.errors import ReentrantCall
from quire.interface.store import Store
from quire.journal.segments import SegmentSet
from tests.kit.waiting import SECONDS

TIMES = 100
NESTED = 10  # handlers within one another


@pytest.fixture
def store(store_path: str) -> Iterator[Store]:
    """With a queue, and room for all."""
    with quire.open(store_path, share=False) as store:
        store.create_queue("work", kind="work")
        store.create_queue("told", kind="work")
        yield store
        assert not store.failed
        assert store.admin.verify().ok


@contextmanager
def done_in_time() -> Iterator[None]:
    """A hang fails the test, by ending the process, where everything else may be stuck."""
    timer = threading.Timer(SECONDS, os.abort)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Tells:
    """Puts a message into "told", whoever calls; counts what came of it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.refused = 0
        self.put = 0
        self.inside = 0  # calls of this that have not ended
        self.errors: list[BaseException] = []

    def __call__(self) -> None:
        self.inside += 1
        try:
            self.store.put("told", b"x")
        except ReentrantCall:
            self.refused += 1
        except BaseException as error:
            self.errors.append(error)
            raise
        else:
            self.put += 1
        finally:
            self.inside -= 1

    def check(self, least: int) -> None:
        assert self.errors == []
        assert self.put + self.refused >= least
        assert self.store.queue("told").messages == self.put


def work(store: Store, rng: Random) -> None:
    """A few calls, of which any may be the one that is entered again."""
    store.put("work", b"1")
    with store.transaction() as transaction:
        transaction.put("work", b"2")
        transaction.put_many("work", [b"3", b"4"])
        transaction.get("work")
        transaction.get_many("work", 2)
    if rng.random() < 0.5:
        store.get("work", timeout=0.001)
    store.browse("work")
    with store.transaction() as transaction:
        transaction.get("work")
        transaction.rollback()
    store.get_many("work")


@pytest.mark.promise(2)
def test_a_handler_that_puts(store: Store, rng: Random) -> None:
    """Within a call it waits for the end, or is refused; outside it puts."""
    tells = Tells(store)
    before = signal.signal(signal.SIGUSR1, lambda *_: tells())
    ended = threading.Event()
    sent = 0

    def send() -> None:
        nonlocal sent
        while not ended.wait(rng.random() / 500):
            # One handler is called within another, as Python does it, where signals come faster.
            if tells.inside < NESTED:
                os.kill(os.getpid(), signal.SIGUSR1)
                sent += 1

    thread = threading.Thread(target=send)
    try:
        with done_in_time():
            thread.start()
            while tells.put + tells.refused < TIMES:  # of some that come at once, one runs
                work(store, rng)
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert sent >= TIMES
    tells.check(TIMES)
    assert tells.put > 0


class Finalised:
    """What calls when it goes: at once, and in the thread that lets go of it."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action

    def __del__(self) -> None:
        self.action()


class Cyclic(Finalised):
    """Garbage that the collector finds, at any allocation."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__(action)
        self.me = self


@pytest.mark.cases(2)
@pytest.mark.promise(2)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_finaliser_that_puts(store: Store, rng: Random, *, elsewhere: bool) -> None:
    """The collector runs it in the midst of a call; also in a thread that is not the main one."""
    tells = Tells(store)
    finalised = 0

    def tell() -> None:
        nonlocal finalised
        finalised += 1
        tells()

    def run() -> None:
        while finalised < TIMES:
            Cyclic(tell)
            work(store, rng)

    threshold = gc.get_threshold()
    gc.set_threshold(7, 2, 2)  # all the time
    try:
        with done_in_time():
            if elsewhere:
                thread = threading.Thread(target=run)
                thread.start()
                thread.join()
            else:
                run()
    finally:
        gc.set_threshold(*threshold)
        gc.collect()
    tells.check(TIMES)
    assert tells.refused > 0


@pytest.mark.promise(2)
def test_a_finaliser_that_puts_in_a_thread_of_the_store(
    store_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold a lock, or be waited for by a commit: who waits for it there waits for ever."""
    refused: set[str] = set()
    told: list[str] = []

    def tell(where: str) -> None:
        name = threading.current_thread().name
        try:
            owned.put("told", b"told")
            told.append(f"{where} in {name}")
        except ReentrantCall:
            refused.add(name.partition(" ")[0])

    def in_its_midst(kind: type, name: str) -> None:
        real = getattr(kind, name)

        def method(*arguments: Any, **named: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                Finalised(lambda: tell(name))  # a collection of another thread's may be on
            return real(*arguments, **named)

        monkeypatch.setattr(kind, name, method)

    options: dict[str, Any] = {"segment_bytes": 1 << 20, "checkpoint_bytes": 2 << 20}
    with quire.open(store_path, share=False, data_files=2, **options) as owned, done_in_time():
        for number in range(2):
            owned.create_queue(f"work{number}", kind="work", data_file=number)
        owned.create_queue("told", kind="work")
        in_its_midst(
            SegmentSet, "prepare_next"
        )  # holds the lock that a full segment's commit takes
        in_its_midst(Checkpointer, "run")
        in_its_midst(Places, "trim")
        in_its_midst(Job, "run")
        while refused < {"quire-maintenance", "quire-io"}:
            with owned.transaction() as txn:
                for number in range(2):
                    txn.put_many(f"work{number}", [bytes(1000)] * 400)
            for number in range(2):
                owned.get_many(f"work{number}")
        assert told == []
        monkeypatch.undo()
        assert owned.admin.verify().ok


@pytest.mark.promise(2)
def test_a_logging_handler_that_puts(store: Store) -> None:
    """A callback that fails is logged in the midst of the commit that brought the message."""
    tells = Tells(store)

    class Putting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tells()

    def fail() -> None:
        raise ValueError

    handler = Putting()
    logger = logging.getLogger("quire.callbacks")
    logger.addHandler(handler)
    try:
        with done_in_time():
            for number in range(TIMES):
                store.integration.when_ready("work", fail)
                assert store.put("work", b"1") > 0
                assert (tells.put + tells.refused, tells.errors) == (number + 1, [])
                store.get("work")
    finally:
        logger.removeHandler(handler)
    tells.check(TIMES)


def test_a_logging_handler_that_raises(store: Store) -> None:
    """What it raises does not come into the commit."""

    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            store.put("told", b"x")
            raise ValueError

    def fail() -> None:
        raise ValueError

    handler = Raising()
    logger = logging.getLogger("quire.callbacks")
    logger.addHandler(handler)
    try:
        with done_in_time():
            store.integration.when_ready("work", fail)
            store.put("work", b"1")
    finally:
        logger.removeHandler(handler)
    assert store.queue("work").messages == 1


def test_a_callback_that_puts_is_refused(store: Store) -> None:
    """It is called under a queue's lock."""
    tells = Tells(store)
    with done_in_time():
        for _ in range(TIMES):
            store.integration.when_ready("work", tells)
            store.put("work", b"1")
            store.get("work")
    assert (tells.put, tells.refused) == (0, TIMES)


@contextmanager
def alarm(action: Callable[[], object]) -> Iterator[list[object]]:
    """When the main thread's call waits, its handler does this; what came of it."""
    found: list[object] = []
    ended = threading.Event()

    def send() -> None:
        while not signal_safety._main.waits:
            if ended.wait(0.01):
                return
        os.kill(os.getpid(), signal.SIGALRM)

    def handle(number: int, frame: FrameType | None) -> None:
        try:
            found.append(action())
        except quire.QuireError as error:
            found.append(type(error))

    before = signal.signal(signal.SIGALRM, handle)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        with done_in_time():
            yield found
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGALRM, before)


def test_a_handler_puts_what_the_interrupted_call_waits_for(store: Store) -> None:
    """A get that waits lets calls in."""
    with store.transaction() as transaction, alarm(lambda: store.put("work", b"1")) as found:
        message = transaction.get("work", timeout=SECONDS)
    assert message is not None
    assert found == [message.id]


def test_a_handler_uses_the_transaction_that_waits_for_a_message(store: Store) -> None:
    """Nothing of it is held meanwhile; so a rollback ends the wait."""
    transaction = store.transaction()
    with (
        alarm(transaction.rollback) as found,
        pytest.raises(quire.TransactionClosed),
    ):
        transaction.get("work", timeout=SECONDS)
    assert found == [None]


def test_a_handler_is_refused_the_transaction_that_waits_for_room(store: Store) -> None:
    """The waiting call holds it; another transaction makes the room."""
    store.create_queue("full", kind="work", max_messages=1, overflow="wait")
    store.put("full", b"1")
    transaction = store.transaction()
    refused: list[Any] = []

    def make_room() -> object:
        try:
            transaction.rollback()
        except ReentrantCall as error:
            refused.append(error)
        return store.get("full")

    with alarm(make_room) as found:
        transaction.put("full", b"2", timeout=SECONDS)
    transaction.commit()
    assert len(refused) == 1
    assert len(found) == 1
    assert store.get_many("full").payloads() == [b"2"]


def test_handlers_are_the_program_s_again(store: Store) -> None:
    """Also where one is changed within a call, as by a finaliser."""
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    store.put("work", b"1")
    store.admin.checkpoint()
    with pytest.raises(quire.QueueNotFound):
        store.put("nowhere", b"1")
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == handlers

    def change() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)

    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        store.integration.when_ready("work", change)
        store.get_many("work")
        store.put("work", b"1")
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGALRM, before)


def test_signals_run_once_each_in_their_order(store: Store) -> None:
    """After the call; if one raises, the others run all the same."""
    ran: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        ran.append(number)
        assert frame is not None
        if number == signal.SIGUSR1:
            raise KeyError

    def send() -> None:
        for number in (signal.SIGUSR1, signal.SIGALRM, signal.SIGUSR1):
            os.kill(os.getpid(), number)
            len(ran)
        assert ran == []

    numbers = (signal.SIGUSR1, signal.SIGALRM)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        store.integration.when_ready("work", send)
        with pytest.raises(KeyError):
            store.put("work", b"1")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert ran == list(numbers)
    assert store.queue("work").messages == 1


def test_a_handler_that_changes_between_calls_is_in_its_place_after_each(store: Store) -> None:
    """The usual one, too, which a put takes away without a look at it first."""
    before = signal.getsignal(signal.SIGINT)
    try:
        for handler in (before, signal.SIG_IGN, lambda *_: None, signal.SIG_DFL, before):
            store.put("work", b"1")
            signal.signal(signal.SIGINT, handler)
            store.put("work", b"2")
            assert signal.getsignal(signal.SIGINT) is handler
            store.put("work", b"3")
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


class Told(Exception):
    """By a handler."""


def test_a_handler_of_any_signal_waits_for_the_end_of_a_call(store: Store) -> None:
    """Of one that is seldom used as well: a store looks at all of them now and then."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise Told

    def send() -> None:
        try:
            os.kill(os.getpid(), signal.SIGWINCH)
            len(sent)
        except Told:
            sent.append("too early")
        else:
            sent.append("noted")

    sent: list[str] = []
    before = signal.signal(signal.SIGWINCH, handle)
    env = OsEnv()
    until = env.monotonic() + SECONDS
    try:
        while "noted" not in sent and env.monotonic() < until:
            store.get_many("work")
            store.integration.when_ready("work", send)
            with suppress(Told):
                store.put("work", b"1")
            env.sleep(0.05)
    finally:
        signal.signal(signal.SIGWINCH, before)
    assert sent[-1] == "noted"


def test_a_fork_in_another_thread_has_the_program_s_handlers(store: Store) -> None:
    """While the main thread is in a call, whose end the child does not see."""
    statuses: list[int] = []

    def fork() -> None:
        child = os.fork()
        if not child:
            fine = signal.getsignal(signal.SIGINT) is signal.default_int_handler
            with suppress(BaseException):
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(1000):
                    pass
                fine = False
            os._exit(not fine)
        statuses.append(os.waitpid(child, 0)[1])

    def fork_elsewhere() -> None:
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()

    store.integration.when_ready("work", fork_elsewhere)
    with done_in_time():
        store.put("work", b"1")
    assert statuses == [0]
