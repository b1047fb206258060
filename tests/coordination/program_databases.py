"""The databases that a program may have, by each way to them: what outbox and inbox are tested on.

    with database("psycopg", target) as begin: ...

`target` is the path of a file of SQLite, or the conninfo of PostgreSQL.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any, Final

from quire.databases import sqlite_database
from quire.databases.statements import Begin

__all__ = ["POSTGRESQL_FORMS", "SQLITE_FORMS", "database"]

SQLITE_FORMS: Final = ("sqlite_database", "sqlite3", "sqlalchemy", "session", "django")
POSTGRESQL_FORMS: Final = ("psycopg", "sqlalchemy", "session", "django")


@contextlib.contextmanager
def database(form: str, target: str) -> Iterator[Begin]:
    """Transactions of the database, by one of the forms."""
    is_postgresql = "dbname=" in target
    match form:
        case "sqlite_database":
            yield sqlite_database(target)
        case "sqlite3":
            yield lambda: _sqlite3(target)
        case "psycopg":
            yield lambda: _psycopg(target)
        case "django":
            with _django(target, is_postgresql) as begin:
                yield begin
        case _:
            with _sqlalchemy(form, target, is_postgresql) as begin:
                yield begin


@contextlib.contextmanager
def _sqlite3(path: str) -> Iterator[sqlite3.Connection]:
    """As the module's documentation has it: transactions begin with what changes something."""
    with contextlib.closing(sqlite3.connect(path, timeout=60)) as connection, connection:
        connection.row_factory = sqlite3.Row
        yield connection


def _psycopg(conninfo: str) -> Any:
    import psycopg
    from psycopg.rows import dict_row

    return psycopg.connect(conninfo, row_factory=dict_row)


@contextlib.contextmanager
def _sqlalchemy(form: str, target: str, is_postgresql: bool) -> Iterator[Begin]:
    import sqlalchemy.orm

    if is_postgresql:
        import psycopg

        engine = sqlalchemy.create_engine(
            "postgresql+psycopg://", creator=lambda: psycopg.connect(target)
        )
    else:
        engine = sqlalchemy.create_engine(f"sqlite:///{target}", connect_args={"timeout": 60})
    try:
        yield engine.begin if form == "sqlalchemy" else sqlalchemy.orm.sessionmaker(engine).begin
    finally:
        engine.dispose()


@contextlib.contextmanager
def _django(target: str, is_postgresql: bool) -> Iterator[Begin]:
    import django
    from django.conf import settings
    from django.db import connections, transaction

    if not settings.configured:
        settings.configure(DATABASES={"default": {}}, USE_TZ=True)
        django.setup()
    options: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": target}
    if is_postgresql:
        parts = dict(part.split("=", 1) for part in target.split())
        options = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts["dbname"],
            "USER": parts["user"],
            "HOST": parts["host"],
        }
    connections.databases[target] = connections.configure_settings(
        {"default": {}, target: options}
    )[target]

    here = threading.get_ident()

    @contextlib.contextmanager
    def begin() -> Iterator[Any]:
        try:
            with transaction.atomic(using=target):
                yield connections[target]
        finally:
            if threading.get_ident() != here:  # each thread has a connection of its own
                connections[target].close()

    try:
        yield begin
    finally:
        connections[target].close()
        del connections[target], connections.databases[target]
