"""Transactions of a database for those who need one after another: the relay, a consumer.

Whoever has an engine of SQLAlchemy has them already (`engine.begin`), and psycopg's pool, too
(`pool.connection`). Here are those for a file of SQLite.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from .limits import DATABASE_BUSY_SECONDS
from .statements import Begin


def sqlite_database(path: str) -> Begin:
    """Transactions of a file of SQLite, by one connection that all threads use in turn.

        begin = sqlite_database("app.db")
        with begin() as connection:
            connection.execute("UPDATE ...")

    Each takes the right to write at its begin, and waits for it half a minute if others have it;
    its commit is synced (`PRAGMA synchronous = FULL`). The file is made if it is not there.
    """
    return _SqliteDatabase(path).begin


def database_of(target: str) -> Begin:
    """Transactions of the database that a text names: a URL of SQLAlchemy, or a file of SQLite.

    As the command line takes it: "app.db", "postgresql+psycopg://user@host/name".
    """
    if "://" not in target:
        return sqlite_database(target)
    from sqlalchemy import create_engine

    return create_engine(target).begin


class _SqliteDatabase:
    def __init__(self, path: str) -> None:
        self._path: Final = path
        self._lock: Final = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def begin(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(
                self._path,
                timeout=DATABASE_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            self._connection.execute("PRAGMA synchronous = FULL")
        return self._connection
