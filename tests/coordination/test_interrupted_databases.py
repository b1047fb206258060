"""A signal that raises while a program's database, or a participant, begins a transaction."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from quire.coordination import Coordinator, connect
from quire.databases import Outbox, Relay, sqlite_database
from tests.kit.moments import Alarm, alarmed, at_moment, moments_of, some_moments
from tests.kit.waiting import SECONDS, ends, eventually


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """Another program's connection, which waits for nobody."""
    with closing(sqlite3.connect(path, timeout=0.0, isolation_level=None)) as connection:
        yield connection


def test_a_begin_that_was_interrupted_in_its_wait_leaves_no_transaction(tmp_path: Path) -> None:
    """The signal came while another writer had the file: that writes on, and so does this one."""
    path = tmp_path / "app.db"
    begin = sqlite_database(path)
    waits, ended = threading.Event(), threading.Event()

    def write() -> None:
        with connected(path) as other:
            other.execute("BEGIN IMMEDIATE")
            waits.set()
            assert ended.wait(SECONDS)
            other.execute("COMMIT")

    with begin() as connection:
        connection.execute("CREATE TABLE book (entry INTEGER)")
    writer = threading.Thread(target=write)
    writer.start()
    assert waits.wait(SECONDS)

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGALRM)
        ended.set()

    with alarmed():
        timer = threading.Timer(0.2, interrupt)
        timer.start()
        try:
            with begin():
                raise AssertionError("the signal was lost")
        except Alarm:  # while what was raised is there still
            with connected(path) as other:
                other.execute("BEGIN IMMEDIATE")
                other.execute("ROLLBACK")
            with begin() as connection:
                connection.execute("INSERT INTO book VALUES (1)")
    timer.join()
    writer.join()
    with connected(path) as other:
        assert other.execute("SELECT * FROM book").fetchall() == [(1,)]


def test_an_interrupt_at_any_step_leaves_no_transaction_of_a_database(tmp_path: Path) -> None:
    """Each transaction is whole, or was not made; the next begins."""
    path = tmp_path / "app.db"
    begin = sqlite_database(path)
    with begin() as connection:
        connection.execute("CREATE TABLE book (entry INTEGER)")

    def write(database: Any = begin) -> None:
        with database() as connection:
            connection.execute("INSERT INTO book VALUES (1)")
            connection.execute("INSERT INTO book VALUES (2)")

    def first() -> None:
        write(sqlite_database(path))  # which opens its connection

    with connected(path) as other:
        for action in (write, first):
            for moment in range(1, moments_of(action) + 1):
                at_moment(action, moment)
                other.execute("BEGIN IMMEDIATE")
                entries = [entry for (entry,) in other.execute("SELECT entry FROM book")]
                other.execute("DELETE FROM book")
                other.execute("COMMIT")
                assert entries in ([], [1, 2]), moment
        with begin() as connection:
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


# An interrupt in the finaliser of what is dropped open Python only shows: that, and nothing else.
@pytest.mark.filterwarnings(
    r"ignore:(?s).*\bmoments\.Alarm:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("most", [8, pytest.param(0, marks=pytest.mark.long)])
def test_an_interrupt_at_any_step_of_a_coordinator_leaves_nothing_begun(
    sim_store: Any, rng: Random, most: int
) -> None:
    """All participants have it or none; what could not be stepped back from is refused in words."""
    store = sim_store

    def coordinated() -> Coordinator:
        return Coordinator(store, "till", {"a": connect(store), "b": connect(store)})

    def put(coordinator: Coordinator) -> None:
        with coordinator.transaction():
            for name in ("a", "b"):
                participant: Any = coordinator._participants[name]
                participant.put("work", b"x")

    first = coordinated()
    for moment in some_moments(lambda: put(first), rng, most):
        coordinator = coordinated()
        at_moment(lambda own=coordinator: put(own), moment)  # type: ignore[misc]
        if coordinator._open:  # it says so, and the next one recovers
            del coordinator
        else:
            put(coordinator)
        store.prepared.list()
        coordinator = coordinated()
        assert not store.prepared.list(), moment
        assert len(store.get_many("work")) % 2 == 0, moment
    eventually(lambda: not store.admin.transactions())


def test_an_interrupted_wake_or_stop_leaves_no_relay_waiting(store: Any, tmp_path: Path) -> None:
    """What is woken afterwards is, by any thread; and `stop` ends it."""
    begin = sqlite_database(tmp_path / "app.db")
    outbox = Outbox()
    with begin() as connection:
        outbox.create_tables(connection)
    for stop in (False, True):
        relay = Relay(store, outbox, begin)
        interrupted = relay.stop if stop else relay.wake
        for moment in range(1, moments_of(interrupted) + 1):
            relay = Relay(store, outbox, begin)
            interrupted = relay.stop if stop else relay.wake
            running = threading.Thread(target=relay.run, args=(SECONDS,), daemon=True)
            running.start()
            with suppress(Alarm):
                at_moment(interrupted, moment)
            assert ends(relay.wake), moment
            assert ends(relay.stop), moment
            running.join(SECONDS)
            assert not running.is_alive(), moment
