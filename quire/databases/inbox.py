"""The inbox of a program's own database: a message has its effect there once, however often it
comes.

A message that is handled leaves its id in a table, in the transaction that has its effect. One that
is delivered again is found there, and its effect is not made again. The message is released, by the
commit of the transaction that has got it, after that.

- IB1: a message is its source, its id, and the time of its commit. A store that goes on from an
  older copy gives ids again, but no times: what it commits is new.
- What is cleaned up was read, durably, by all that the store tells; and what is as old as it
  counts as handled from then on (`low_us`). So a consumer that was lost long ago, and goes on with
  a message that others have handled, finds that.
- IB3: where that bound moves while a consumer handles a message, one waits for the other: both
  lock the source's row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

from quire.arguments import check_source, split_source
from quire.callbacks import check_done, check_function, check_takes
from quire.env import Env, OsEnv
from quire.errors import InvalidArgument, SubscriptionNotFound
from quire.messages.message import Message
from quire.moments import Duration, seconds_of

from .limits import INBOX_KEEP_SECONDS
from .statements import Begin, Dialect, Statements, check_table, statements_of
from .tables import INBOX_TABLES, create, ddl, sqlalchemy_tables

if TYPE_CHECKING:
    from sqlalchemy import MetaData, Table

    from quire.interface.store import Store
    from quire.interface.transaction import Transaction

R = TypeVar("R")
_BEGIN: Final = "give a function that begins a transaction, as engine.begin"
_MANUAL: Final = (
    "give a function of a message and a connection that has done its work when it returns"
)


class Inbox:
    """A table of the messages that were handled, in the database of a program.

        inbox = Inbox()
        workers = quire.Workers(store)

        @workers.on("orders")
        @inbox.handles("orders", engine.begin)
        def book(order, connection):
            connection.execute(...)

    `table`: its name. Sources of several stores take a table for each store. Methods take
    connections as those of `Outbox` do.
    """

    def __init__(self, table: str = "quire_inbox", *, env: Env | None = None) -> None:
        self.table: Final = check_table(table)
        self._env = env or OsEnv()

    def create_tables(self, connection: object) -> None:
        """Make the two tables, where they are not there yet."""
        create(statements_of(connection), self.table, INBOX_TABLES)

    def ddl(self, dialect: Dialect) -> list[str]:
        """The statements that make the tables, for a migration: "sqlite" or "postgresql"."""
        return ddl(self.table, INBOX_TABLES, dialect)

    def add_to(self, metadata: MetaData) -> list[Table]:
        """The tables in SQLAlchemy's words, as parts of the program's own."""
        return sqlalchemy_tables(metadata, self.table, INBOX_TABLES)

    def is_new(self, connection: object, source: str, message: Message) -> bool:
        """Return True if the message was not handled before; it counts as handled with this
        transaction.

        Call it in the transaction that has the effect, before it; where it returns False, make
        none. Commit that transaction, then the one that has got the message. `source`: where it was
        got from. Where another consumer handles it just now, that one's end is waited for.
        """
        check_source(source)
        if not isinstance(message, Message):
            raise InvalidArgument(f"message {message!r:.100}: give a Message, as a get returns it")
        statements = statements_of(connection)
        noted = statements.change(
            f"INSERT INTO {self.table} (source, message_id, message_us)"
            " VALUES (:source, :number, :us) ON CONFLICT DO NOTHING",
            source=source,
            number=message.id,
            us=message.time,
        )
        if not statements.in_transaction:
            raise InvalidArgument(
                f"connection {connection!r:.100} commits each statement by itself: begin a "
                "transaction, which has the message's effect, too"
            )
        if noted == 0:
            return False
        if message.time >= self._low_us(statements, source):
            return True
        statements.change(  # the row that is its own
            f"DELETE FROM {self.table}"
            " WHERE source = :source AND message_id = :number AND message_us = :us",
            source=source,
            number=message.id,
            us=message.time,
        )
        return False

    def handles(
        self, source: str, begin: Begin
    ) -> Callable[[Callable[[Message, Any], object]], Callable[[Message, Transaction], None]]:
        """A decorator, below `Workers.on`: the function is called as `handle(message, connection)`.

        In a transaction that `begin` begins, and only for what is new. When it returns, that is
        committed, then the worker releases the message. If it raises, both are rolled back, and the
        message comes again, or goes to the dead letters, as its queue says (docs/handling.md). It
        puts messages by an `Outbox`: the worker's transaction does not commit together with its
        effect, and what it puts may be lost.
        """
        check_source(source)
        check_function("begin", begin, _BEGIN)

        def decorate(
            function: Callable[[Message, Any], object],
        ) -> Callable[[Message, Transaction], None]:
            check_function("handler", function, _MANUAL)
            check_takes("handler", function, 2, _MANUAL)

            @wraps(function)
            def handle(message: Message, transaction: Transaction) -> None:
                with begin() as connection:
                    if self.is_new(connection, source, message):
                        check_done("handler", function, function(message, connection))

            return handle

        return decorate

    def clean(
        self, store: Store, begin: Begin, source: str, *, keep: Duration = INBOX_KEEP_SECONDS
    ) -> int:
        """Delete what is kept of messages that cannot be delivered again; how many they were.

        Those that the source has read, with all before them, and that were committed more than
        `keep` seconds ago: as long as you may go back to an older copy of the store. It is safe
        while consumers run. A subscription that is moved back on purpose (`seek`) delivers
        again what counts as handled: `forget` that first.

        Raises QueueNotFound, SubscriptionNotFound, StoreFailed, and what the database raises.
        """
        looks = getattr(store, "subscriptions", store)
        check_function("store's method", looks, "give a store of quire.open, not of quire.aio")
        check_function("begin", begin, _BEGIN)
        seconds = seconds_of(keep)
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds < 0:
            raise InvalidArgument(f"keep {keep!r:.100}: give seconds from 0, or a timedelta")
        with begin() as connection:
            newest = statements_of(connection).rows(
                f"SELECT max(message_us) FROM {self.table} WHERE source = :source",
                source=check_source(source),
            )[0][0]
        if newest is None:
            return 0
        unread_us = _first_unread_us(store, source)
        store.sync()  # what is read will be read after a power failure, too
        low_us = newest if unread_us is None else min(newest, unread_us)
        low_us = min(low_us, self._env.now_us() - round(seconds * 1e6))
        with begin() as connection:
            statements = statements_of(connection)
            self._add_source(statements, source)
            statements.change(
                f"UPDATE {self.table}_source SET low_us = :low WHERE source = :source"
                " AND low_us < :low",
                low=low_us,
                source=source,
            )
            return statements.change(
                f"DELETE FROM {self.table} WHERE source = :source AND message_us < :low",
                low=low_us,
                source=source,
            )

    def forget(self, connection: object, source: str) -> int:
        """Handle all of a source that is delivered from now on, also again; how many were known.

        For a subscription that is moved back on purpose. Stop its consumers first.
        """
        statements = statements_of(connection)
        statements.change(
            f"DELETE FROM {self.table}_source WHERE source = :source", source=check_source(source)
        )
        return statements.change(f"DELETE FROM {self.table} WHERE source = :source", source=source)

    def _low_us(self, statements: Statements, source: str) -> int:
        """Return the time before which messages count as handled.

        Nobody moves it until this transaction ends (IB3).
        """
        share = " FOR SHARE" if statements.dialect == "postgresql" else ""
        query = f"SELECT low_us FROM {self.table}_source WHERE source = :source{share}"
        found = statements.rows(query, source=source)
        if not found:
            self._add_source(statements, source)
            found = statements.rows(query, source=source)
        return int(found[0][0])

    def _add_source(self, statements: Statements, source: str) -> None:
        statements.change(
            f"INSERT INTO {self.table}_source (source, low_us) VALUES (:source, 0)"
            " ON CONFLICT DO NOTHING",
            source=source,
        )


def _first_unread_us(store: Store, source: str) -> int | None:
    """Return the time of commit of the first message that the source has not read; None: it has
    read all.
    """
    queue, subscription = split_source(source)
    for info in store.subscriptions(queue):
        if info.name == (subscription or ""):
            break
    else:
        raise SubscriptionNotFound(f"{source}: no such subscription; `store.subscriptions` lists")
    found = store.browse(source, start=info.position, max_messages=1)
    return found[0].time if found else None
