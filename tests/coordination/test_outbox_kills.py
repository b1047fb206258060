"""Outbox and inbox under kill -9: of the program, the relay, the consumer and the store's owner.

After each kill what is left is done by processes that live, and the books are checked: each entry
that the program has committed is in the queue once, in its writer's order, and nothing else is;
and of each message the effect is in the database once.
"""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.databases import Inbox, Outbox, Relay
from quire.databases.statements import Begin, statements_of
from tests.coordination.outbox_program import DIE, OPTIONS, consume, relay, write
from tests.coordination.program_databases import database
from tests.kit.children import Child, child
from tests.kit.violation import Violation
from tests.kit.waiting import SECONDS, eventually

pytestmark = pytest.mark.crash

FORMS = ["sqlite-sqlite_database", "sqlite-sqlalchemy", "postgresql-psycopg"]
TABLES = ("quire_outbox", "quire_outbox_relay", "quire_inbox", "quire_inbox_source")
STEPS = {"write": 90, "relay": 40, "consume": 120}  # more than there are in most runs


@dataclass
class Shop:
    """A database and a store, and what was seen of them so far."""

    path: str
    form: str
    target: str
    begin: Begin
    count: int = 0
    seen: list[str] = field(default_factory=list)

    def name(self) -> str:
        """Of another writer."""
        self.count += 1
        return f"w{self.count}"

    @contextmanager
    def process(self, role: str, die_at: int) -> Iterator[Child]:
        """A process, when it has begun."""
        with child(
            DIE, role, self.path, self.form, self.target, str(die_at), self.name()
        ) as started:
            assert started.line() == "begun"
            yield started

    def dies(self, role: str, die_at: int) -> bool:
        """Whether a process that is to die at a step came so far."""
        with self.process(role, die_at) as process:
            status = process.wait()
        assert status in (0, -signal.SIGKILL), f"{role} ended with {status}"
        return status != 0

    def booked(self, table: str = "book") -> list[str]:
        """All entries of a table."""
        with self.begin() as connection:
            rows = statements_of(connection).rows(f"SELECT entry FROM {table}")
        return [row[0] for row in rows]

    def check_outbox(self, store: Any) -> None:
        """All that is booked is in the queue, once, in its order. Raises Violation."""
        relay(store, self.begin)
        moved = [payload.decode() for payload in store.get_many("orders", 1 << 20).payloads()]
        check_moved(self.booked(), [*self.seen, *moved])
        self.seen += moved

    def check_inbox(self, store: Any) -> None:
        """All that is in the queue has its effect, once. Raises Violation."""
        relay(store, self.begin)
        consume(store, self.begin)
        check_moved(self.booked(), self.booked("effect"), in_order=False)


def check_moved(booked: list[str], moved: list[str], *, in_order: bool = True) -> None:
    """What must be true of entries and messages, whatever died before."""
    twice = [entry for entry, count in Counter(moved).items() if count > 1]
    if twice:
        raise Violation(f"twice: {twice}")
    if set(booked) != set(moved):
        raise Violation(f"on one side only: {sorted(set(booked) ^ set(moved))}")
    for writer in {entry.partition(".")[0] for entry in moved}:
        its = [entry for entry in moved if entry.partition(".")[0] == writer]
        if in_order and its != sorted(its):
            raise Violation(f"in another order: {its}")


@pytest.fixture(params=FORMS)
def shop(request: pytest.FixtureRequest, tmp_path: Path, store_path: str) -> Iterator[Shop]:
    """Both empty, with all tables."""
    kind, form = request.param.split("-")
    if kind == "sqlite":
        target = str(tmp_path / "app.db")
    else:
        target = request.getfixturevalue("cluster").conninfo
    with database(form, target) as begin:
        with begin() as connection:
            for table in (*TABLES, "book", "effect"):
                statements_of(connection).change(f"DROP TABLE IF EXISTS {table}")
        with begin() as connection:
            Outbox().create_tables(connection)
            Inbox().create_tables(connection)
            statements_of(connection).change("CREATE TABLE book (entry TEXT)")
            statements_of(connection).change("CREATE TABLE effect (entry TEXT)")
        with quire.open(store_path, **OPTIONS) as store:
            store.create_queue("orders")
        yield Shop(store_path, form, target, begin)


def kill_outbox(shop: Shop, rng: random.Random, count: int) -> int:
    """Kill writers and relays at their steps, and look; how many have died."""
    died = 0
    for n in range(count):
        role = ("write", "relay")[n % 2]
        if role == "relay":
            write(shop.begin, shop.name())
        died += shop.dies(role, rng.randint(1, STEPS[role]))
        if rng.random() < 0.7:  # else the next one finds what this one has left
            with quire.open(shop.path, **OPTIONS) as store:
                shop.check_outbox(store)
    with quire.open(shop.path, **OPTIONS) as store:
        shop.check_outbox(store)
        assert store.admin.verify().ok
    return died


def kill_inbox(shop: Shop, rng: random.Random, count: int) -> int:
    """Kill consumers at their steps, and look; how many have died."""
    died = 0
    for _ in range(count):
        write(shop.begin, shop.name())
        with quire.open(shop.path, **OPTIONS) as store:
            relay(store, shop.begin)
        died += shop.dies("consume", rng.randint(1, STEPS["consume"]))
        if rng.random() < 0.7:
            with quire.open(shop.path, **OPTIONS) as store:
                shop.check_inbox(store)
    with quire.open(shop.path, **OPTIONS) as store:
        shop.check_inbox(store)
        assert store.admin.verify().ok
    return died


@pytest.mark.promise(1, 2)
def test_writers_and_relays_that_die_at_their_steps(shop: Shop, rng: random.Random) -> None:
    """Some of each, in turn."""
    kill_outbox(shop, rng, 6)


@pytest.mark.cases(3)
@pytest.mark.promise(1, 2)
def test_consumers_that_die_at_their_steps(shop: Shop, rng: random.Random) -> None:
    """Some of them."""
    kill_inbox(shop, rng, 4)


@pytest.mark.long
@pytest.mark.promise(1, 2)
@pytest.mark.parametrize("side", ["outbox", "inbox"])
def test_a_hundred_that_die_at_their_steps(shop: Shop, rng: random.Random, side: str) -> None:
    """The same, until a hundred have died."""
    died = 0
    while died < 100:
        died += (kill_outbox if side == "outbox" else kill_inbox)(shop, rng, 20)
    print(f"{died} killed at their steps")


def kill_owners(shop: Shop, rng: random.Random, count: int) -> None:
    """Kill the owner that a relay, or a consumer, has joined, at random moments."""
    for _ in range(count):
        with ExitStack() as stack:
            owner = stack.enter_context(child(OWNER, shop.path))
            assert owner.line() == "owner"
            store: Any = stack.enter_context(quire.open(shop.path, **OPTIONS))
            assert store.role == "joined"
            moves = Relay(store, Outbox(), shop.begin, max_messages=3)
            thread = threading.Thread(target=moves.run, args=(0.001,))
            thread.start()
            timer = threading.Timer(rng.random() * 0.1, owner.kill)
            timer.start()
            try:
                write(shop.begin, shop.name())
                timer.join(SECONDS)
                moves.wake()
                eventually(lambda: waiting(shop) == 0)
            finally:
                moves.stop()
                thread.join()
            shop.check_outbox(store)


OWNER = """
import sys
from quire.opening import open
with open(sys.argv[1], segment_bytes=4 << 20) as store:
    print(store.role, flush=True)
    sys.stdin.readline()
"""


def waiting(shop: Shop) -> int:
    """How many messages the outbox has."""
    with shop.begin() as connection:
        return Outbox().info(connection).waiting


@pytest.mark.promise(1)
def test_an_owner_that_is_killed_under_a_relay(shop: Shop, rng: random.Random) -> None:
    """The relay goes on with the next one, and puts nothing twice."""
    kill_owners(shop, rng, 2)


@pytest.mark.long
@pytest.mark.promise(1)
def test_thirty_owners_that_are_killed(shop: Shop, rng: random.Random) -> None:
    """The same for longer."""
    kill_owners(shop, rng, 30)


# Canaries -------------------------------------------------------------------------------------


def test_a_relay_that_notes_nothing_is_caught(shop: Shop) -> None:
    """It puts, and dies before it has deleted."""
    write(shop.begin, "w")
    with quire.open(shop.path, **OPTIONS) as store:
        Relay(store, Outbox(), shop.begin).step()
        store.states.drop("quire.outbox")
        with pytest.raises(Violation, match="twice"):
            shop.check_outbox(store)


def test_an_inbox_that_notes_nothing_is_caught(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer dies between the commit in the database and that in the store."""
    monkeypatch.setattr(Inbox, "is_new", lambda *_: True)
    write(shop.begin, "w")
    with quire.open(shop.path, **OPTIONS) as store:
        relay(store, shop.begin)
        with store.transaction() as transaction:
            message = transaction.get("orders")
            assert message is not None
            Inbox().handles("orders", shop.begin)(
                lambda message, connection: statements_of(connection).change(
                    "INSERT INTO effect VALUES (:entry)", entry=message.payload.decode()
                )
            )(message, transaction)
            transaction.rollback()
        with pytest.raises(Violation, match="twice"):
            shop.check_inbox(store)


@pytest.mark.parametrize(
    ("booked", "moved", "says"),
    [
        (["a.1"], [], "one side"),
        ([], ["a.1"], "one side"),
        (["a.1"], ["a.1", "a.1"], "twice"),
        (["a.1", "a.2"], ["a.2", "a.1"], "order"),
    ],
)
def test_books_that_are_wrong(booked: list[str], moved: list[str], says: str) -> None:
    """Each way of it is found."""
    with pytest.raises(Violation, match=says):
        check_moved(booked, moved)
