"""Commands that move messages from queue to queue, and put dead letters back."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from quire.calls.wake_up import Thread
from quire.cli.command import Command, ExitStatus, argument
from quire.cli.opened_store import opened
from quire.cli.typed_values import add_where, count
from quire.env import OsEnv
from quire.errors import InvalidArgument
from quire.libraries.late_imports import importing

_COUNT: Final = argument("-n", dest="count", type=count, metavar="N", help="up to N; else all")


def _move(options: argparse.Namespace) -> int:
    with opened(options) as store:
        moved = store.admin.move(
            options.source, options.queue, where=options.where, max_messages=options.count
        )
    print(f"{moved} messages moved")
    return ExitStatus.DONE if moved else ExitStatus.NOTHING


def _redrive(options: argparse.Namespace) -> int:
    with opened(options) as store:
        done = store.admin.redrive(options.queue, options.where, options.count, options.to)
    print(f"{done} messages put back")
    return ExitStatus.DONE if done else ExitStatus.NOTHING


@contextmanager
def _in_words(table: str) -> Iterator[None]:
    """Raise an error of Quire for one that a database raises about an outbox."""
    with importing():
        from quire.databases.transactions import database_errors

    try:
        yield
    except database_errors() as error:
        reason = str(getattr(error, "orig", None) or error)
        raise InvalidArgument(
            f"the outbox {table} cannot be moved: {reason}; name the database that the programs "
            "put to, with its tables (`Outbox.create_tables`, or a migration: docs/databases.md)"
        ) from None


def _relay(options: argparse.Namespace) -> None:
    with importing():
        from quire.databases import Outbox, Relay, database_of
        from quire.remote import stop_on_signals

    with opened(options) as store, _in_words(options.table):
        if "://" not in options.database and not OsEnv().exists(options.database):
            raise InvalidArgument(
                f"there is no file {options.database}: name the database that the programs put to"
            )
        relay = Relay(store, Outbox(options.table), database_of(options.database))
        if options.drain:
            moved = 0
            while now := relay.step():
                moved += now
            print(f"{moved} messages moved")
            return
        with stop_on_signals() as end:

            def stop() -> None:
                end.wait()
                relay.stop()

            stopper = Thread(target=stop)
            stopper.start()
            try:
                relay.run()  # a signal's handler only sets the flag
            finally:
                end.set()
                stopper.join()


COMMANDS: Final = (
    Command(
        "move",
        "move messages to another queue",
        _move,
        (
            argument("source", metavar="SOURCE", help="QUEUE, or QUEUE/SUBSCRIPTION of a topic"),
            argument("queue", metavar="QUEUE", help="where they go"),
            _COUNT,
            add_where,
        ),
        "In transactions of 1,000. The exit status is 3 where there was none.",
        calls=("admin.move",),
    ),
    Command(
        "redrive",
        "put dead letters back to the queues where they come from",
        _redrive,
        (
            argument("queue", metavar="QUEUE", help="where the dead letters are"),
            _COUNT,
            argument("--to", metavar="QUEUE", help="put them there; else where they came from"),
            add_where,
        ),
        "The exit status is 3 where there was none.\n\n"
        "  quire redrive shop.quire failed\n  quire redrive shop.quire failed -n 10 --to orders",
        calls=("admin.redrive",),
    ),
    Command(
        "relay",
        "move what programs put to an outbox in their own database",
        _relay,
        (
            argument("database", metavar="DATABASE", help="a file of SQLite, or a URL"),
            argument("--table", default="quire_outbox", metavar="NAME", help="the outbox"),
            argument("--drain", action="store_true", help="end when nothing waits"),
        ),
        "Until it is told to end (Ctrl-C, SIGTERM). A URL is one of SQLAlchemy.\n\n"
        "  quire relay shop.quire app.db\n"
        "  quire relay shop.quire postgresql+psycopg://me@host/app --drain",
    ),
)
