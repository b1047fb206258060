"""Messages that a program puts in a transaction of its own database, for a relay to move.

A message is a row. It is there when the program's transaction has committed, and never was where
that was rolled back. What the store shall never take, for it names no queue or asks for what the
queue does not obey, stays as a row that says why.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Unpack

from msgspec import Struct

from quire.arguments import Bytes, check_name, check_request_id
from quire.env import Env, OsEnv
from quire.errors import InvalidArgument
from quire.messages.message_fields import Fields, check_payload, with_moments
from quire.messages.put_options import PutOptions

from .statements import Dialect, check_table, statements_of
from .tables import OUTBOX_TABLES, create, ddl, sqlalchemy_tables

if TYPE_CHECKING:
    from sqlalchemy import MetaData, Table


class OutboxInfo(Struct, frozen=True):
    """An outbox as a transaction of its database sees it."""

    waiting: int  # messages that are to be moved; those of the batch that is moved just now, too
    waiting_bytes: int  # of their payloads
    oldest_us: int | None  # when the oldest of them was put: microseconds since the epoch
    refused: int  # messages that the store has not taken
    batches: int  # that were begun


class RefusedMessage(Struct, frozen=True):
    """A message that the store has not taken. It stays until `retry` or `discard`."""

    id: int  # of its row
    queue: str
    payload: bytes
    options: Mapping[str, Any]
    put_us: int
    reason: str


class Outbox:
    """A table of messages on their way into queues, in the database of a program.

        outbox = Outbox()
        with engine.begin() as connection:
            connection.execute(...)
            outbox.put(connection, "orders", b"3 apples")

    A `Relay` moves them, in the order of their rows. `table`: its name; each table is an outbox of
    its own, with its own order. Every method takes a connection of `sqlite3` or `psycopg`, a
    Connection or Session of SQLAlchemy, or `django.db.connection`, and runs in the transaction that
    this is in. It raises InvalidArgument for others, and what the database raises.
    """

    def __init__(self, table: str = "quire_outbox", *, env: Env | None = None) -> None:
        self.table: Final = check_table(table)
        self._env = env or OsEnv()

    def create_tables(self, connection: object) -> None:
        """Make the two tables, where they are not there yet."""
        create(statements_of(connection), self.table, OUTBOX_TABLES)

    def ddl(self, dialect: Dialect) -> list[str]:
        """The statements that make the tables, for a migration: "sqlite" or "postgresql"."""
        return ddl(self.table, OUTBOX_TABLES, dialect)

    def add_to(self, metadata: MetaData) -> list[Table]:
        """The tables in SQLAlchemy's words, as parts of the program's own."""
        return sqlalchemy_tables(metadata, self.table, OUTBOX_TABLES)

    def put(
        self, connection: object, queue: str, payload: Bytes, **options: Unpack[PutOptions]
    ) -> None:
        """Put one message, as a part of the transaction that the connection is in.

        `options`: as of `Transaction.put`, but no `timeout`: nobody waits here. `ttl` and `delay`
        count from this call. What cannot be a message raises InvalidArgument at once, and so does a
        connection that is in no transaction and commits each statement by itself; what the
        queue does not take is found out by the relay, and kept (`refused`).
        """
        self.put_many(connection, queue, [payload], **options)

    def put_many(
        self,
        connection: object,
        queue: str,
        payloads: Iterable[Bytes],
        **options: Unpack[PutOptions],
    ) -> None:
        """Put many messages with the same options, in this order; see `put`."""
        check_name(queue, "queue")
        kept = self._checked(dict(options))
        now_us = self._env.now_us()
        statements = statements_of(connection)
        if statements.commits_alone:
            raise InvalidArgument(
                f"connection {connection!r:.100} commits each statement by itself, so that the "
                "message would not come with the rest: put in the transaction of your change "
                "(`BEGIN`; in Django transaction.atomic)"
            )
        statements.change_many(
            f"INSERT INTO {self.table} (queue, payload, options, put_us)"
            " VALUES (:queue, :payload, :options, :put_us)",
            [
                {
                    "queue": queue,
                    "payload": check_payload(payload),
                    "options": kept,
                    "put_us": now_us,
                }
                for payload in payloads
            ],
        )

    def info(self, connection: object) -> OutboxInfo:
        """Return how many messages wait, and since when."""
        statements = statements_of(connection)
        (waiting, size, oldest), *_ = statements.rows(
            f"SELECT count(*), coalesce(sum(length(payload)), 0), min(put_us) FROM {self.table}"
            " WHERE refused IS NULL"
        )
        (refused,), *_ = statements.rows(
            f"SELECT count(*) FROM {self.table} WHERE refused IS NOT NULL"
        )
        batches = [row[0] for row in statements.rows(f"SELECT batch FROM {self.table}_relay")]
        return OutboxInfo(waiting, int(size), oldest, refused, sum(batches))

    def refused(self, connection: object, max_messages: int = 1000) -> list[RefusedMessage]:
        """The messages that the store has not taken, the oldest first."""
        found = statements_of(connection).rows(
            f"SELECT id, queue, payload, options, put_us, refused FROM {self.table}"
            " WHERE refused IS NOT NULL ORDER BY id LIMIT :limit",
            limit=max_messages,
        )
        return [
            RefusedMessage(number, queue, bytes(payload), json.loads(options or "{}"), us, reason)
            for number, queue, payload, options, us, reason in found
        ]

    def retry(self, connection: object, *ids: int) -> int:
        """Let the relay try refused messages again, those of the ids or all; how many they are.

        They are moved with what waits then, after what was moved meanwhile.
        """
        return self._of_refused(connection, f"UPDATE {self.table} SET refused = NULL", ids)

    def discard(self, connection: object, *ids: int) -> int:
        """Delete refused messages, those of the ids or all; how many they were."""
        return self._of_refused(connection, f"DELETE FROM {self.table}", ids)

    def reset(self, connection: object) -> None:
        """Begin anew, after OutboxMismatch: all that waits is moved, whatever was moved before.

        Stop the relays first. Where the store is an older copy, what was moved since that copy is
        lost but what waits here is moved once. Where the database is, what waits here may have been
        moved already: delete the rows that the store has, or they come twice.
        """
        statements_of(connection).change(f"DELETE FROM {self.table}_relay")

    def _of_refused(self, connection: object, change: str, ids: tuple[int, ...]) -> int:
        statements = statements_of(connection)
        where = " WHERE refused IS NOT NULL"
        if not ids:
            return statements.change(change + where)
        return sum(statements.change(f"{change}{where} AND id = :id", id=number) for number in ids)

    def _checked(self, options: dict[str, Any]) -> str | None:
        """The options as they are kept; their times are moments."""
        request_id = check_request_id(options.pop("request_id", None))
        if options.pop("timeout", None) is not None:
            raise InvalidArgument(
                "timeout of a put to an outbox: leave it out; nobody waits for room here, the "
                "relay tries until there is some"
            )
        values = {
            name: value
            for name, value in with_moments(options, self._env.now_us).items()
            if value is not None
        }
        Fields.of(**values)
        if "attributes" in values:
            values["attributes"] = dict(values["attributes"])
        if request_id is not None:
            values["request_id"] = request_id
        return json.dumps(values, separators=(",", ":")) if values else None
