"""The processes of the kill tests of outbox and inbox, which die by SIGKILL at a step.

    main("write" | "relay" | "consume", STORE, FORM, TARGET, DIE_AT, NAME)

`write` books entries and puts each to the outbox in the same transaction, and rolls every fourth
back. `relay` moves what waits. `consume` books the messages of the queue by an inbox. Each prints a
line when it has come so far that it can be killed, and goes on until all is done.

A step is each statement that goes to the database, and the moments before and after each commit
there and in the store; the process dies at step number DIE_AT, counted from 1.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any, Final

import quire
from quire.databases import Inbox, Outbox, Relay, statements
from quire.databases.statements import Begin, statements_of
from quire.engine.transactions.transaction import EmbeddedTransaction
from tests.coordination.program_databases import database

__all__ = ["BOOKED", "OPTIONS", "Steps", "main", "write"]

OPTIONS: Final[dict[str, Any]] = {"segment_bytes": 4 << 20}
BOOKED: Final = 12  # entries that a writer tries, in pairs
DIE: Final = """
import sys
from tests.coordination.outbox_program import main
main(*sys.argv[1:])
"""


class Steps:
    """Counts the steps of the process, and ends it at one."""

    def __init__(self, die_at: int) -> None:
        self._left = die_at

    def reached(self) -> None:
        """One more."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A function before and after which is a step."""

        def watched(*arguments: Any, **options: Any) -> Any:
            self.reached()
            result = call(*arguments, **options)
            self.reached()
            return result

        return watched

    def watch(self) -> None:
        """Have the statements and commits of this process be steps."""
        for kind in (statements._ByCursor, statements._BySqlalchemy):
            for name in ("_run", "change_many"):
                setattr(kind, name, self.around(getattr(kind, name)))
        commit = self.around(EmbeddedTransaction.commit)
        EmbeddedTransaction.commit = commit  # type: ignore[method-assign]

    def watched(self, begin: Begin) -> Begin:
        """Transactions around whose commit is a step."""

        @contextlib.contextmanager
        def begun() -> Iterator[Any]:
            with begin() as connection:
                yield connection
                self.reached()
            self.reached()

        return begun


def write(begin: Begin, name: str) -> None:
    """Book entries in pairs, each with its message; every fourth pair is rolled back."""
    outbox = Outbox()
    for n in range(0, BOOKED, 2):
        with contextlib.suppress(KeyError), begin() as connection:
            for entry in (f"{name}.{n:02}", f"{name}.{n + 1:02}"):
                statements_of(connection).change("INSERT INTO book VALUES (:entry)", entry=entry)
                outbox.put(connection, "orders", entry.encode())
            if n % 8 == 6:
                raise KeyError


def relay(store: Any, begin: Begin) -> None:
    """Move all that waits."""
    moves = Relay(store, Outbox(), begin, max_messages=5)
    while moves.step():
        pass


def consume(store: Any, begin: Begin) -> None:
    """Book each message, once; a failure in the midst of it now and then."""
    inbox = Inbox()

    @inbox.handles("orders", begin)
    def book(message: quire.Message, connection: Any) -> None:
        entry = message.payload.decode()
        statements_of(connection).change("INSERT INTO effect VALUES (:entry)", entry=entry)
        if message.failed_count == 0 and entry.endswith("3"):
            raise KeyError(entry)

    while True:
        with contextlib.suppress(KeyError), store.transaction() as transaction:
            message = transaction.get("orders")
            if message is None:
                return
            book(message, transaction)
        inbox.clean(store, begin, "orders", keep=0)


def main(role: str, path: str, form: str, target: str, die_at: str, name: str) -> None:
    """See the module."""
    steps = Steps(int(die_at))
    with contextlib.ExitStack() as stack:
        begin = stack.enter_context(database(form, target))
        if role == "write":
            steps.watch()
            print("begun", flush=True)
            write(steps.watched(begin), name)
            return
        store = stack.enter_context(quire.open(path, **OPTIONS))
        steps.watch()
        print("begun", flush=True)
        (relay if role == "relay" else consume)(store, steps.watched(begin))
