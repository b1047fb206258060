"""Queues as tables of databases: one durable transaction for each put and each get.

Both sync their log at each commit, as Quire does, and find the oldest message by their primary key.
SQLite: WAL and synchronous=FULL. PostgreSQL: as it is installed, so with fsync and
synchronous_commit, in a process of its own behind a Unix socket; statements are prepared, payloads
travel in binary form and are not compressed. A get takes the oldest message that no other
transaction holds (SKIP LOCKED), as consumers beside one another would.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Protocol

import psycopg

import quire

__all__ = ["PostgresQueue", "QuireQueue", "SqliteQueue", "TableQueue"]


class TableQueue(Protocol):
    """A queue that puts and gets one message at a time."""

    name: str

    def put(self, payload: bytes) -> None:
        """Put in one durable transaction."""

    def get(self) -> bytes:
        """The oldest message, taken; one durable transaction."""

    def close(self) -> None: ...


class QuireQueue:
    """Quire, as it is opened without options."""

    name = "Quire"

    def __init__(self, folder: Path) -> None:
        self._store = quire.open(str(folder / "quire"))
        self._store.create_queue("queue", kind="work")

    def put(self, payload: bytes) -> None:
        self._store.put("queue", payload)

    def get(self) -> bytes:
        with self._store.transaction() as transaction:
            message = transaction.get("queue")
            assert message is not None
            return bytes(message.payload)

    def close(self) -> None:
        self._store.close()


class SqliteQueue:
    """SQLite in WAL mode, synchronous=FULL."""

    name = "SQLite"

    def __init__(self, folder: Path) -> None:
        self._database = sqlite3.connect(folder / "sqlite.db", isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute(
            "CREATE TABLE message (id INTEGER PRIMARY KEY AUTOINCREMENT, payload BLOB NOT NULL)"
        )

    def put(self, payload: bytes) -> None:
        self._database.execute("INSERT INTO message (payload) VALUES (?)", (payload,))

    def get(self) -> bytes:
        execute = self._database.execute
        execute("BEGIN IMMEDIATE")
        number, payload = execute("SELECT id, payload FROM message ORDER BY id LIMIT 1").fetchone()
        execute("DELETE FROM message WHERE id = ?", (number,))
        execute("COMMIT")
        return bytes(payload)

    def close(self) -> None:
        self._database.close()


class PostgresQueue:
    """PostgreSQL; the connection is closed with the queue."""

    name = "PostgreSQL"

    def __init__(self, connection: psycopg.Connection[tuple[bytes]]) -> None:
        self._connection = connection
        connection.autocommit = True
        connection.prepare_threshold = 0
        connection.execute("DROP TABLE IF EXISTS message")
        connection.execute(
            "CREATE TABLE message (id bigserial PRIMARY KEY, payload bytea NOT NULL)"
        )
        connection.execute("ALTER TABLE message ALTER payload SET STORAGE EXTERNAL")
        self._cursor = connection.cursor(binary=True)

    def put(self, payload: bytes) -> None:
        self._cursor.execute("INSERT INTO message (payload) VALUES (%b)", (payload,))

    def get(self) -> bytes:
        row = self._cursor.execute(
            "DELETE FROM message WHERE id = (SELECT id FROM message ORDER BY id"
            " FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING payload"
        ).fetchone()
        assert row is not None
        return bytes(row[0])

    def close(self) -> None:
        self._connection.close()
