"""Signals that raise at random moments: in a joined store, and in an owner beside others."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack, suppress
from random import Random

import pytest

import quire
from quire.errors import StoreLocked
from quire.interface.store import Store
from quire.remote.client.channel import Channel
from quire.remote.client.connection import OwnerConnection
from tests.engine.interrupting import FEW, NAMES, SHOWN, Alarm, interrupt, prepared
from tests.kit.actors import actor
from tests.kit.children import child
from tests.kit.waiting import SECONDS, eventually

ROUNDS = [FEW, pytest.param(1000, marks=pytest.mark.long)]

pytestmark = SHOWN


@pytest.mark.promise(2)
@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("name", NAMES)
def test_promise_2_signals_that_raise_in_a_joined_store(
    store_path: str, rng: Random, name: str, rounds: int
) -> None:
    """Each call is whole, or was not made; a transaction's state is true; the owner goes on."""
    with quire.open(store_path), quire.open(store_path) as joined:
        assert joined.role == "joined"
        calls = prepared(joined)
        count = interrupt(calls, name, rng, rounds)
        calls.check()
        assert count > rounds / 20


class Others:
    """Threads with joined stores of their own, which put and get all the time."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(2)]
        self.errors: list[BaseException] = []
        self.moved: list[int] = []  # by whom
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        try:
            with quire.open(self._path) as store:
                queue = f"other{number}"
                store.create_queue(queue, kind="work", exist_ok=True)
                count = 0
                while not self._ended.is_set():
                    store.put(queue, b"%d" % count)
                    message = store.get(queue)
                    assert message is not None
                    assert message.payload == b"%d" % count
                    count += 1
                    self.moved.append(number)
        except BaseException as error:
            self.errors.append(error)
            raise

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.promise(2)
@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("name", NAMES)
def test_promise_2_signals_that_raise_in_an_owner_with_others(
    store_path: str, rng: Random, name: str, rounds: int
) -> None:
    """It leads, or follows, groups of their commits: none of them is refused."""
    with quire.open(store_path) as store:
        assert store.role == "owner"
        others = Others(store_path)
        try:
            calls = prepared(store)
            eventually(lambda: others.moved or others.errors)
            interrupt(calls, name, rng, rounds)
        finally:
            others.end()
        assert others.errors == []
        calls.check()


OTHER = """
import sys, threading
import quire
with quire.open(sys.argv[1]) as store:
    queue = "other" + sys.argv[2]
    store.create_queue(queue, kind="work", exist_ok=True)
    print(store.role, flush=True)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), ended.set())).start()
    count = 0
    while not count or not ended.is_set():
        store.put(queue, b"%d" % count)
        assert store.get(queue).payload == b"%d" % count
        count += 1
    print(count, flush=True)
"""


@pytest.mark.promise(2)
@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("name", NAMES)
def test_promise_2_signals_that_raise_in_an_owner_that_took_over(
    store_path: str, rng: Random, name: str, rounds: int
) -> None:
    """Beside joined processes, which are refused nothing."""
    with ExitStack() as held:
        with actor(store_path) as first:
            assert first.role == "owner"
            store = held.enter_context(quire.open(store_path))
            assert store.role == "joined"
            first.kill()
        calls = prepared(store)
        assert store.role == "owner"
        others = [held.enter_context(child(OTHER, store_path, str(n))) for n in range(2)]
        for other in others:
            assert other.line() == "joined"
        count = interrupt(calls, name, rng, rounds)
        for other in others:
            other.say("end")
        for other in others:
            assert int(other.line()) > 0
            assert other.wait() == 0
        assert count
        calls.check()


def test_an_interrupt_at_a_joined_transaction_s_first_request_leaves_it_usable(
    store_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no channel then, or one that can be used."""
    borrow = OwnerConnection.borrow

    def interrupted(connection: OwnerConnection, wait: float | None = None) -> Channel:
        monkeypatch.undo()
        borrow(connection, wait)
        raise KeyboardInterrupt

    with quire.open(store_path) as owner, quire.open(store_path) as joined:
        owner.create_queue("work", kind="work")
        owner.put("work", b"1")
        transaction = joined.transaction()
        monkeypatch.setattr(OwnerConnection, "borrow", interrupted)
        with pytest.raises(KeyboardInterrupt):
            transaction.get("work")
        message = transaction.get("work")
        assert message is not None
        transaction.commit()
        assert transaction.state == "committed"
        assert owner.queue("work").messages == 0


def once_let_go(path: str) -> Store:
    """The store, owned here.

    An interrupt as its `with` block begins or ends, before a call does, leaves a store to its
    finaliser, and that has another thread let go of it.
    """
    opened: list[Store] = []

    def is_opened() -> bool:
        with suppress(StoreLocked):
            opened.append(quire.open(path, share=False))
        return bool(opened)

    eventually(is_opened)
    return opened[0]


@pytest.mark.promise(2)
@pytest.mark.parametrize("joins", [False, True])
def test_promise_2_signals_that_raise_while_a_store_is_opened_and_closed(
    store_path: str, rng: Random, *, joins: bool
) -> None:
    """No lock and no thread is left behind; the next one opens it."""
    owner = quire.open(store_path) if joins else None
    before = threading.active_count()

    def open_and_close() -> None:
        with quire.open(store_path) as store:
            store.create_queue("work", kind="work", exist_ok=True)

    def interrupted(number: int, frame: object) -> None:
        raise Alarm

    handler = signal.signal(signal.SIGALRM, interrupted)
    count = 0
    try:
        for _ in range(FEW):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, rng.random() / 20)
                    open_and_close()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                count += 1
            if owner is None:  # nobody has it
                with once_let_go(store_path) as store:
                    assert store.admin.verify().ok
    finally:
        signal.signal(signal.SIGALRM, handler)
    if owner is not None:
        assert owner.admin.verify().ok
        owner.close()
        before -= 1
    assert count
    for thread in threading.enumerate():
        if thread.name.startswith("quire"):
            thread.join(SECONDS)
    assert not [t.name for t in threading.enumerate() if t.name.startswith("quire")]


def test_ctrl_c_ends_a_joined_get_that_waits(store_path: str) -> None:
    """Ctrl-C ends a get of a joined store that waits at once; nothing is taken."""
    with quire.open(store_path) as owner, quire.open(store_path) as joined:
        owner.create_queue("work", kind="work")
        timer = threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            joined.get("work", timeout=100)
        timer.join()
        owner.put("work", b"1")
        message = joined.get("work")
        assert message is not None
        assert message.payload == b"1"
