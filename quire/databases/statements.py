"""SQL by whatever connection a program has: `sqlite3`, `psycopg`, SQLAlchemy or Django.

Each statement is written once, with parameters as `:name`, in what SQLite and PostgreSQL have in
common. It runs in the transaction that the connection is in; nothing here begins or ends one.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Final, Literal, Protocol, TypeAlias, cast

from quire.errors import InvalidArgument
from quire.libraries.late_imports import importing

Dialect = Literal["sqlite", "postgresql"]
Begin: TypeAlias = Callable[[], AbstractContextManager[Any]]
"""Begins a transaction: what it returns is used by `with`, which gives the connection, and at its
end commits, or rolls back on an exception. `engine.begin` of SQLAlchemy is one."""

DIALECTS: Final[tuple[str, ...]] = ("sqlite", "postgresql")
_TABLE: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}", re.ASCII)
_PARAMETER: Final = re.compile(r":([a-z_]+)")


class Statements(Protocol):
    """A connection, as far as tables of ours are concerned."""

    @property
    def dialect(self) -> Dialect:
        """The SQL that it speaks."""

    @property
    def in_transaction(self) -> bool:
        """True if changes by it wait for a commit."""

    @property
    def commits_alone(self) -> bool:
        """True if the next statement would be a transaction of its own."""

    def rows(self, sql: str, **values: Any) -> Sequence[Sequence[Any]]:
        """Return all rows of a query."""

    def change(self, sql: str, **values: Any) -> int:
        """Run a statement; how many rows it has changed."""

    def change_many(self, sql: str, values: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement with each of the values."""


def statements_of(connection: object) -> Statements:
    """Return the statements of a connection or session.

    Raises InvalidArgument for an unknown one.
    """
    if isinstance(connection, sqlite3.Connection):
        return _ByCursor(
            "sqlite",
            lambda: _sqlite_cursor(connection),
            lambda: connection.in_transaction,
            connection.isolation_level is None or getattr(connection, "autocommit", False) is True,
            named=True,
        )
    of = cast(Any, connection)
    if hasattr(of, "get_bind"):  # a session of SQLAlchemy
        return _BySqlalchemy(_known(of.get_bind().dialect.name), of)
    if hasattr(of, "exec_driver_sql"):  # a connection of it
        return _BySqlalchemy(_known(of.dialect.name), of)
    if hasattr(of, "vendor") and hasattr(of, "cursor"):  # Django's
        return _ByCursor(
            _known(of.vendor), of.cursor, lambda: of.in_atomic_block, of.get_autocommit()
        )
    if type(of).__module__.partition(".")[0] == "psycopg" and hasattr(of, "cursor"):
        return _ByCursor(
            "postgresql",
            lambda: _psycopg_cursor(of),
            lambda: bool(of.info.transaction_status),  # not idle
            of.autocommit,
        )
    raise InvalidArgument(
        f"connection {connection!r:.100}: give one of sqlite3 or psycopg, not an asynchronous one, "
        "a Connection or Session of SQLAlchemy, or django.db.connection"
    )


def check_table(name: object) -> str:
    """A table's name, which stands in statements as it is."""
    if isinstance(name, str) and _TABLE.fullmatch(name):
        return name
    raise InvalidArgument(
        f"table {name!r:.100}: use 1 to 40 of a-z 0-9 _ and do not begin with a digit"
    )


def _known(dialect: str) -> Dialect:
    if dialect in DIALECTS:
        return cast(Dialect, dialect)
    raise InvalidArgument(
        f"a database of {dialect!r}: outbox and inbox are written for {' and '.join(DIALECTS)}"
    )


def _sqlite_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    cursor = connection.cursor()
    cursor.row_factory = None  # the program's own may make anything of a row
    return cursor


def _psycopg_cursor(connection: Any) -> Any:
    with importing():
        from psycopg.rows import tuple_row

    return connection.cursor(row_factory=tuple_row)


@cache
def _as_pyformat(sql: str) -> str:
    return _PARAMETER.sub(r"%(\1)s", sql)


class _ByCursor:
    """A connection of PEP 249."""

    def __init__(
        self,
        dialect: Dialect,
        cursor: Callable[[], Any],
        in_transaction: Callable[[], bool],
        begins_none: bool,
        *,
        named: bool = False,
    ) -> None:
        self._dialect: Dialect = dialect
        self._cursor = cursor
        self._in_transaction = in_transaction
        self._begins_none = begins_none  # the program begins transactions, or has none
        self._named = named  # parameters are `:name`; else `%(name)s`

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    @property
    def in_transaction(self) -> bool:
        return self._in_transaction()

    @property
    def commits_alone(self) -> bool:
        return self._begins_none and not self._in_transaction()

    def rows(self, sql: str, **values: Any) -> Sequence[Sequence[Any]]:
        cursor = self._run(sql, values)
        try:
            return cast(Sequence[Sequence[Any]], cursor.fetchall())
        finally:
            cursor.close()

    def change(self, sql: str, **values: Any) -> int:
        cursor = self._run(sql, values)
        changed = cursor.rowcount
        cursor.close()
        return int(changed)

    def change_many(self, sql: str, values: Sequence[Mapping[str, Any]]) -> None:
        if values:  # Django's cursor reads the first of them
            cursor = self._cursor()
            cursor.executemany(sql if self._named else _as_pyformat(sql), values)
            cursor.close()

    def _run(self, sql: str, values: Mapping[str, Any]) -> Any:
        cursor = self._cursor()
        if values:
            cursor.execute(sql if self._named else _as_pyformat(sql), values)
        else:
            cursor.execute(sql)
        return cursor


class _BySqlalchemy:
    """A Connection or a Session."""

    def __init__(self, dialect: Dialect, connection: Any) -> None:
        self._dialect: Dialect = dialect
        self._connection = connection

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction())

    @property
    def commits_alone(self) -> bool:
        """Never: SQLAlchemy begins a transaction with the first statement."""
        return False

    def rows(self, sql: str, **values: Any) -> Sequence[Sequence[Any]]:
        return cast(Sequence[Sequence[Any]], self._run(sql, values).fetchall())

    def change(self, sql: str, **values: Any) -> int:
        return int(self._run(sql, values).rowcount)

    def change_many(self, sql: str, values: Sequence[Mapping[str, Any]]) -> None:
        if values:
            self._run(sql, list(values))

    def _run(self, sql: str, values: Any) -> Any:
        return self._connection.execute(_as_text(sql), values)


@cache
def _as_text(sql: str) -> Any:
    with importing():
        from sqlalchemy import text

    return text(sql)
