"""Transactions of a database for those who need one after another: the relay, a consumer.

Whoever has an engine of SQLAlchemy has them already (`engine.begin`), and psycopg's pool, too
(`pool.connection`). Here are those for a file of SQLite.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from quire.calls.signal_safety import defer_signals
from quire.env.interpreter import Lock
from quire.errors import InvalidArgument
from quire.libraries.late_imports import importing

from .limits import DATABASE_BUSY_SECONDS
from .statements import Begin


def sqlite_database(path: str | os.PathLike[str]) -> Begin:
    """Transactions of a file of SQLite, by one connection that all threads use in turn.

        begin = sqlite_database("app.db")
        with begin() as connection:
            connection.execute("UPDATE ...")

    Each takes the right to write at its begin, and waits for it half a minute if others have it;
    its commit is synced (`PRAGMA synchronous = FULL`). The file is made if it is not there.
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise InvalidArgument(f"path {path!r:.100}: give the path of a file of SQLite")
    return _SqliteDatabase(path).begin


def database_of(target: str) -> Begin:
    """Transactions of the database that a text names: a URL of SQLAlchemy, or a file of SQLite.

    As the command line takes it: "app.db", "postgresql+psycopg://user@host/name".
    """
    if "://" not in target:
        return sqlite_database(target)
    try:
        with importing():
            from sqlalchemy import create_engine, exc
    except ModuleNotFoundError:
        raise InvalidArgument(
            "a URL needs SQLAlchemy: install it (pip install SQLAlchemy), or name a file of SQLite"
        ) from None
    try:
        return create_engine(target).begin
    except ModuleNotFoundError as error:
        raise InvalidArgument(
            f"a database of that URL needs the package {error.name}: install it, or name another "
            "driver in the URL, as in postgresql+psycopg://user@host/name"
        ) from None
    except exc.ArgumentError as error:
        raise InvalidArgument(f"that is no URL of SQLAlchemy: {error}") from None


def database_errors() -> tuple[type[Exception], ...]:
    """Return the errors of the databases that `database_of` gives."""
    if "sqlalchemy" not in sys.modules:
        return (sqlite3.Error,)
    with importing():
        from sqlalchemy.exc import SQLAlchemyError

    return sqlite3.Error, SQLAlchemyError


class _SqliteDatabase:
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path: Final = path
        self._lock: Final = Lock()
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def begin(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            connection = defer_signals(self._opened)
            try:  # a handler of a signal that came in the wait runs right after it
                connection.execute("BEGIN IMMEDIATE")
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
