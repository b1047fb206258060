"""Small transactions on messages of 100 bytes, as Quire and as SQLite make them.

Both have four queues and one for each thread. SQLite: WAL, synchronous=FULL (or OFF, where Quire
syncs nothing either), automatic checkpoints as they come. A queue is a table of its own, read by
its row ids, and the module keeps its statements prepared. A lone insert commits by itself, as
`store.put` does: SQLite's shortest way. Threads share one connection behind a lock: each waiting
for SQLite's own lock would be slower by far.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import quire
from bench.measuring.journal_in_memory import JournalInMemory
from bench.measuring.payloads import as_list

__all__ = ["THREADS", "QuireSide", "SmallSide", "SqliteSide"]

THREADS = 32
QUEUES = ("first", "second", "third", "fourth")


class SmallSide(Protocol):
    """A side of the two; each method but for the last three is one transaction."""

    def put(self) -> object:
        """A message into the first queue, by the shortest way."""

    def put_in_transaction(self) -> object:
        """A message into the second queue."""

    def get(self) -> object:
        """A message out of the first queue."""

    def move(self) -> object:
        """A message out of the second queue, and two into the third and the fourth."""

    def put_and_roll_back(self) -> object:
        """A message into the first queue, which is then not there."""

    def put_each(self, count: int) -> None:
        """Put so many into the first queue, one by one."""

    def get_each(self, count: int) -> None:
        """Get so many out of the first queue, one by one."""

    def drain(self) -> None:
        """Empty the third and the fourth queue."""

    def of_thread(self, number: int) -> Callable[[], object]:
        """A put into the thread's own queue, in a transaction of its own."""

    def close(self) -> None: ...


class QuireSide:
    """Quire, as it is opened without options."""

    def __init__(self, folder: Path, *, sync: bool, seed: int) -> None:
        env = None if sync else JournalInMemory()
        self._store = quire.open(str(folder / "quire"), env=env)
        self._payload = as_list(1, seed)[0]
        for name in QUEUES:
            self._store.create_queue(name, kind="work")
        for number in range(THREADS):
            self._store.create_queue(f"thread-{number}", kind="work", capacity=1 << 30)

    def put(self) -> object:
        return self._store.put("first", self._payload)

    def put_in_transaction(self) -> object:
        with self._store.transaction() as transaction:
            return transaction.put("second", self._payload)

    def get(self) -> object:
        with self._store.transaction() as transaction:
            message = transaction.get("first")
            assert message is not None
            return message.payload

    def move(self) -> object:
        with self._store.transaction() as transaction:
            message = transaction.get("second")
            assert message is not None
            transaction.put("third", message.payload)
            return transaction.put("fourth", message.payload)

    def put_and_roll_back(self) -> object:
        transaction = self._store.transaction()
        transaction.put("first", self._payload)
        transaction.rollback()
        return None

    def put_each(self, count: int) -> None:
        payload = self._payload
        with self._store.transaction() as transaction:
            for _ in range(count):
                transaction.put("first", payload)

    def get_each(self, count: int) -> None:
        with self._store.transaction() as transaction:
            for _ in range(count):
                message = transaction.get("first")
                assert message is not None
                _ = message.payload

    def drain(self) -> None:
        with self._store.transaction() as transaction:
            for name in ("third", "fourth"):
                while transaction.get_many(name):
                    pass

    def of_thread(self, number: int) -> Callable[[], object]:
        transaction_of, payload, name = self._store.transaction, self._payload, f"thread-{number}"

        def commit() -> None:
            with transaction_of() as transaction:
                transaction.put(name, payload)

        return commit

    def close(self) -> None:
        self._store.close()


class SqliteSide:
    """Python's sqlite3."""

    def __init__(self, folder: Path, *, sync: bool, seed: int) -> None:
        self._database = sqlite3.connect(
            folder / "sqlite.db", isolation_level=None, check_same_thread=False
        )
        self._execute = self._database.execute
        self._payload = as_list(1, seed)[0]
        self._lock = threading.Lock()
        self._execute("PRAGMA journal_mode=WAL")
        self._execute(f"PRAGMA synchronous={'FULL' if sync else 'OFF'}")
        for name in (*QUEUES, *(f"thread_{number}" for number in range(THREADS))):
            self._execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, payload BLOB NOT NULL)")

    def put(self) -> object:
        return self._execute("INSERT INTO first (payload) VALUES (?)", (self._payload,))

    def put_in_transaction(self) -> object:
        self._execute("BEGIN IMMEDIATE")
        self._execute("INSERT INTO second (payload) VALUES (?)", (self._payload,))
        return self._execute("COMMIT")

    def get(self) -> object:
        execute = self._execute
        execute("BEGIN IMMEDIATE")
        number, payload = execute("SELECT id, payload FROM first ORDER BY id LIMIT 1").fetchone()
        execute("DELETE FROM first WHERE id = ?", (number,))
        execute("COMMIT")
        return payload

    def move(self) -> object:
        execute = self._execute
        execute("BEGIN IMMEDIATE")
        number, payload = execute("SELECT id, payload FROM second ORDER BY id LIMIT 1").fetchone()
        execute("DELETE FROM second WHERE id = ?", (number,))
        execute("INSERT INTO third (payload) VALUES (?)", (payload,))
        execute("INSERT INTO fourth (payload) VALUES (?)", (payload,))
        return execute("COMMIT")

    def put_and_roll_back(self) -> object:
        self._execute("BEGIN IMMEDIATE")
        self._execute("INSERT INTO first (payload) VALUES (?)", (self._payload,))
        return self._execute("ROLLBACK")

    def put_each(self, count: int) -> None:
        execute, payload = self._execute, self._payload
        execute("BEGIN IMMEDIATE")
        for _ in range(count):
            execute("INSERT INTO first (payload) VALUES (?)", (payload,))
        execute("COMMIT")

    def get_each(self, count: int) -> None:
        execute = self._execute
        execute("BEGIN IMMEDIATE")
        for _ in range(count):
            number, _ = execute("SELECT id, payload FROM first ORDER BY id LIMIT 1").fetchone()
            execute("DELETE FROM first WHERE id = ?", (number,))
        execute("COMMIT")

    def drain(self) -> None:
        self._execute("DELETE FROM third")
        self._execute("DELETE FROM fourth")

    def of_thread(self, number: int) -> Callable[[], object]:
        execute, values, lock = self._execute, (self._payload,), self._lock
        insert = f"INSERT INTO thread_{number} (payload) VALUES (?)"

        def commit() -> None:
            with lock:
                execute(insert, values)

        return commit

    def close(self) -> None:
        self._database.close()
