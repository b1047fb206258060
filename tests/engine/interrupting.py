"""Calls that are interrupted by signals, sent by the system at random moments, and their outcome.

A handler runs in the main thread alone, so it is this one that makes the calls. A timer of the
system sends the signal a random time after a call has begun: between any two of its steps, in a
write, in a wait, or after it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from types import FrameType
from typing import Any

import pytest

from quire.env import OsEnv
from quire.errors import TransactionNotFound
from quire.interface.store import Store
from quire.interface.transaction import Transaction
from tests.kit.waiting import SECONDS

FEW = 40  # signals for each call, and 1,000 with -m long


class Alarm(BaseException):
    """What the handler raises."""


# One in the finaliser of a transaction Python only shows: that, and nothing else.
SHOWN = pytest.mark.filterwarnings(
    rf"ignore:(?s).*\b{__name__}\.Alarm:pytest.PytestUnraisableExceptionWarning"
)

_raises = [True]  # unset by a statement, in which no handler runs: what follows it is done whole
_raised = [0]


def _raise(number: int, frame: FrameType | None) -> None:
    if _raises[0]:
        _raised[0] += 1
        raise Alarm


@contextmanager
def raising(number: signal.Signals = signal.SIGALRM) -> Iterator[None]:
    """The signal's handler raises."""
    before = signal.signal(number, _raise)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(number, before)


def interrupted(action: Callable[[], object], seconds: float) -> bool:
    """Whether a signal that was sent after so many seconds was raised within the call.

    Also where it did not come out of it, since the action went on after an interrupted step.
    """
    before = _raised[0]
    _raises[0] = True
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
        action()
        _raises[0] = False
    except Alarm:
        assert _raised[0] > before
    finally:
        _raises[0] = False
        signal.setitimer(signal.ITIMER_REAL, 0)
    return _raised[0] > before


class Calls:
    """The calls of a store, and what is there if each is whole or not there."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.number = 0
        self.put_surely: set[bytes] = set()  # what was acknowledged
        self.put_perhaps: set[bytes] = set()
        self.got: list[bytes] = []
        self.perhaps_got: set[bytes] = set()  # in a joined store, by a commit that is in doubt
        self.pairs = 0

    def new(self) -> bytes:
        self.number += 1
        return b"%d" % self.number

    def put(self) -> None:
        payload = self.new()
        self.put_perhaps.add(payload)
        self.store.put("work", payload)
        _raises[0] = False
        self.put_surely.add(payload)

    def put_many(self) -> None:
        payloads = [self.new() for _ in range(3)]
        self.put_perhaps.update(payloads)
        self.store.put_many("work", payloads)
        self.put_surely.update(payloads)

    def commit(self) -> None:
        """The same message to two queues: both or none."""
        payload = self.new()
        transaction = self.store.transaction()
        try:
            with transaction:
                transaction.put("left", payload)
                transaction.put("right", payload)
        finally:
            _raises[0] = False
            self.pairs += transaction.state == "committed"

    def get(self) -> None:
        self._take(lambda transaction: [transaction.get("work")])

    def get_again(self) -> None:
        """Of what was given back, which is found another way than what simply comes next."""
        with self.store.transaction() as transaction:
            transaction.get_many("work", 2)
            transaction.rollback()
        self.get()

    def get_many(self) -> None:
        self._take(lambda transaction: transaction.get_many("work", 3))

    def wait(self) -> None:
        self._take(lambda transaction: transaction.get_many("work", 3, timeout=0.001))

    def wait_for_none(self) -> None:
        assert self.store.get("empty", timeout=0.003) is None

    def _take(self, get: Callable[[Transaction], Any]) -> None:
        """What a committed transaction was given is got; what it has not, is there again."""
        transaction = self.store.transaction()
        given: Any = ()
        found: list[bytes] = []
        try:
            with transaction:
                with suppress(Alarm):  # the body goes on: what it was not given is not lost
                    given = get(transaction)
                found = [message.payload for message in given if message]
                if transaction.state == "open":
                    transaction.put("count", b"%d" % len(found))
        finally:
            _raises[0] = False
            self._note(transaction, found)

    def _note(self, transaction: Transaction, found: list[bytes]) -> None:
        if transaction.state == "committed":
            self.got += found
        elif transaction.state == "in doubt":
            self.perhaps_got |= set(found)

    def consume(self) -> None:
        """At least once: what was processed may come again, if its commit was interrupted."""
        with self.store.consume("work", 2, timeout=0) as consumer:
            for batch in consumer:
                transaction = consumer.transaction
                payloads = [message.payload for message in batch]
                try:
                    consumer.acknowledge()
                finally:
                    _raises[0] = False
                    self._note(transaction, payloads)
                break

    def roll_back(self) -> None:
        with self.store.transaction() as transaction:
            transaction.put("work", b"never")
            transaction.get("work")
            transaction.rollback()

    def prepare(self) -> None:
        payload = self.new()
        xid = f"x{self.number}"
        try:
            with self.store.transaction() as transaction:
                transaction.put("left", payload)
                transaction.put("right", payload)
                transaction.prepare(xid)
            self.store.prepared.commit(xid)
        finally:
            _raises[0] = False
            for info in self.store.prepared.list():
                with suppress(TransactionNotFound):  # an owner is just deciding it
                    self.store.prepared.commit(info.xid)

    def define(self) -> None:
        name = f"q{self.number}"
        self.number += 1
        self.store.create_queue(name, kind="topic", exist_ok=True)
        self.store.subscribe(name, "reader")
        self.store.put(name, b"x")
        self.store.unsubscribe(name, "reader")
        self.store.drop_queue(name)

    def look(self) -> None:
        self.store.browse("work", max_messages=5)
        self.store.status()
        self.store.queues()
        self.store.admin.transactions()
        self.store.integration.ledger("nothing")

    def checkpoint(self) -> None:
        self.store.admin.checkpoint()

    def state(self) -> None:
        with self.store.transaction() as transaction:
            transaction.get_value("s", "k")
            transaction.set_value("s", "k", self.new())

    def check(self) -> None:
        """Nothing is lost, doubled or half; nothing is held by anybody."""
        store = self.store
        assert not store.failed, vars(store)["_context"].sequencer.failure
        until = OsEnv().monotonic() + SECONDS
        while (
            store.admin.transactions() and OsEnv().monotonic() < until
        ):  # an owner is to see its end
            OsEnv().sleep(0.01)
        assert store.admin.transactions() == []
        for info in store.queues():
            assert (info.open_transactions, info.reserving) == (0, 0), info
            for place in store.subscriptions(info.name):
                assert place.delivered == 0, place
        left, right = (
            [bytes(m.payload) for m in store.browse(name, max_messages=1 << 20)]
            for name in ("left", "right")
        )
        assert left == right
        assert len(left) == len(set(left))
        assert len(left) >= self.pairs
        while batch := store.get_many("work", 1000):
            self.got += [bytes(message.payload) for message in batch]
        assert len(self.got) == len(set(self.got))
        assert self.put_surely <= {*self.got, *self.perhaps_got} <= self.put_perhaps
        assert store.admin.verify().ok


NAMES = (
    "put", "put_many", "commit", "get", "get_again", "get_many", "wait", "wait_for_none", "consume",
    "roll_back", "prepare", "define", "look", "checkpoint", "state",
)  # fmt: skip


def prepared(store: Store) -> Calls:
    """With the queues that the calls use."""
    for name in ("work", "left", "right", "empty", "count"):
        store.create_queue(name, kind="work", exist_ok=True)
    return Calls(store)


def interrupt(calls: Calls, name: str, rng: Random, rounds: int) -> int:
    """How many of the rounds' signals were raised within a call."""
    action = getattr(calls, name)
    shortest = 1.0
    for _ in range(5):
        start = OsEnv().monotonic()
        action()
        shortest = min(shortest, OsEnv().monotonic() - start)
    count = 0
    with raising():
        for _ in range(rounds):
            if name in ("get", "get_again", "get_many", "wait", "consume", "roll_back"):
                calls.put_many()
            count += interrupted(action, rng.random() * shortest * 1.2)
    return count
