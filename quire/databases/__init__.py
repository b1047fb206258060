"""Quire beside a database of the program's own, without two-phase commit: an outbox and an inbox.

An outbox is a table to which messages are put in the program's own transaction; a relay moves them
into queues, each exactly once. An inbox is a table of what was handled: the effect that a message
has on the database happens once, however often it is delivered. The database is SQLite or
PostgreSQL, by `sqlite3`, `psycopg`, SQLAlchemy or Django (see docs/databases.md).
"""

from .inbox import Inbox
from .outbox import Outbox, OutboxInfo, RefusedMessage
from .relay import Relay
from .transactions import database_of, sqlite_database

__all__ = [
    "Inbox",
    "Outbox",
    "OutboxInfo",
    "RefusedMessage",
    "Relay",
    "database_of",
    "sqlite_database",
]
