"""A process that moves an amount between a PostgreSQL table and a queue, and dies at a step of it.

    python -m tests.coordination.transfer STORE CONNINFO --direction to-table|to-queue ...

The table `account` and the queue `amounts` each hold money. A transfer changes both, and notes its
identifier and amount on both sides: in the table `transfer` and in the topic `done`. The process
starts its coordinator, which recovers, and then transfers once, or with `--forever` on and on.

`--die-at STEP` names a step (see `STEPS`); what dies there is the process itself, by SIGKILL, or
with `--victim` its PostgreSQL session or the store's owner, after which the process goes on until
it fails. `--coordinator` takes one of the canaries instead of the real one.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import psycopg

import quire
from quire.coordination import Coordinator, Participant, connect

__all__ = ["RECOVERY_STEPS", "REFUSED_STEPS", "START", "STEPS", "create", "recovered"]

NAME: Final = "bank"
APPLICATION: Final = "quire-transfer"
OPTIONS: Final[dict[str, Any]] = {"segment_bytes": 4 << 20, "share": False}
START: Final = 1000  # on each side
PIECES: Final = 20
START_SECONDS: Final = 300.0

# In the order in which they are reached when "queue" is the first participant.
STEPS: Final = (
    "started",
    "queue begun",
    "table begun",
    "queue changed",
    "table changed",
    "queue prepared",
    "table prepared",
    "decided",
    "queue committed",
    "table committed",
)
COMMITTED_FROM: Final = STEPS.index("decided")
REFUSED_STEPS: Final = ("queue rolled back", "table rolled back")
RECOVERY_STEPS: Final = ("queue recovered", "table recovered")


class Refused(Exception):
    """A participant did not prepare: the transfer is to be rolled back."""


class Watched:
    """A participant that says which step was reached; it may refuse to prepare."""

    def __init__(
        self, name: str, participant: Participant, reached: Callable[[str], None], refuses: bool
    ) -> None:
        self._name = name
        self._participant = participant
        self._reached = reached
        self._refuses = refuses

    def xid(self, format_id: int, gtrid: str, bqual: str) -> Any:
        """The participant's own."""
        return self._participant.xid(format_id, gtrid, bqual)

    def tpc_begin(self, xid: Any) -> None:
        """Begun."""
        self._participant.tpc_begin(xid)
        self._reached(f"{self._name} begun")

    def tpc_prepare(self) -> None:
        """Prepared, or refused."""
        if self._refuses:
            raise Refused
        self._participant.tpc_prepare()
        self._reached(f"{self._name} prepared")

    def tpc_commit(self, *xid: Any) -> None:
        """Decided, and then committed."""
        if not xid:
            self._reached("decided")
        self._participant.tpc_commit(*xid)
        self._reached(f"{self._name} {'recovered' if xid else 'committed'}")

    def tpc_rollback(self, *xid: Any) -> None:
        """Rolled back."""
        self._participant.tpc_rollback(*xid)
        self._reached(f"{self._name} {'recovered' if xid else 'rolled back'}")

    def tpc_recover(self) -> Any:
        """The participant's own."""
        return self._participant.tpc_recover()


class Hasty(Coordinator):
    """A canary: each participant is committed as soon as it is prepared, before the others are."""

    @contextlib.contextmanager
    def transaction(self) -> Iterator[str]:
        """Break CO1."""
        self._number += 1
        gtrid = self._gtrid(self._number)
        for name, participant in self._participants.items():
            participant.tpc_begin(participant.xid(0x71756972, gtrid, name))
        yield gtrid
        for participant in self._participants.values():
            participant.tpc_prepare()
            participant.tpc_commit()


class Forgetful(Coordinator):
    """A canary: it commits without having written down that it will."""

    def _decide(self) -> None:
        """Break CO1."""


COORDINATORS: Final = {"real": Coordinator, "hasty": Hasty, "forgetful": Forgetful}


def create(path: str, conninfo: str) -> None:
    """Both sides, with START each."""
    with quire.open(path, **OPTIONS) as store:
        store.create_queue("amounts", kind="work")
        store.create_queue("done", kind="topic")
        store.subscribe("done", "audit")
        with store.transaction() as transaction:
            transaction.put_many("amounts", [str(START // PIECES).encode()] * PIECES)
    with contextlib.closing(psycopg.connect(conninfo)) as table:
        for xid in table.tpc_recover():
            table.tpc_rollback(xid)
        table.execute("DROP TABLE IF EXISTS account, transfer")
        table.execute("CREATE TABLE account (owner text PRIMARY KEY, amount bigint NOT NULL)")
        table.execute("CREATE TABLE transfer (id text PRIMARY KEY, amount bigint NOT NULL)")
        table.execute("INSERT INTO account VALUES ('ann', %s)", (START,))
        table.commit()


def session(conninfo: str) -> psycopg.Connection[Any]:
    """A connection, once the sessions of an earlier process that was killed have ended.

    Such a session may still be carrying out the last statement it was sent.
    """
    table = connected(conninfo)
    table.execute(
        "SELECT pg_terminate_backend(pid, 300000) FROM pg_stat_activity"
        " WHERE application_name = %s AND pid <> pg_backend_pid()",
        (APPLICATION,),
    )
    table.commit()
    return table


def connected(conninfo: str) -> psycopg.Connection[Any]:
    """A connection, as soon as PostgreSQL has recovered from a crash."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return psycopg.connect(conninfo, application_name=APPLICATION)
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


@contextlib.contextmanager
def recovered(path: str, conninfo: str) -> Iterator[tuple[Any, psycopg.Connection[Any]]]:
    """Store and table after a start of the real coordinator, which recovers."""
    with (
        quire.open(path, **OPTIONS) as store,
        contextlib.closing(session(conninfo)) as table,
    ):
        Coordinator(store, NAME, {"queue": connect(store), "table": table})
        yield store, table


def transfer(
    coordinator: Coordinator, queue: Any, table: Any, amount: int, reached: Callable[[str], None]
) -> None:
    """Move the amount out of the table; without one, move a message's amount into the table."""
    with coordinator.transaction() as name:
        if amount:
            queue.put("amounts", str(amount).encode())
        else:
            message = queue.get("amounts")
            assert message is not None, "the queue is empty"
            amount = -int(message.payload)
        queue.put("done", f"{name} {-amount}".encode())
        reached("queue changed")
        table.execute("UPDATE account SET amount = amount - %s", (amount,))
        table.execute("INSERT INTO transfer VALUES (%s, %s)", (name, -amount))
        reached("table changed")


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("conninfo")
    parser.add_argument("--direction", choices=["to-table", "to-queue"], default="to-table")
    parser.add_argument("--amount", type=int, default=START // PIECES)
    parser.add_argument("--first", choices=["queue", "table"], default="queue")
    parser.add_argument("--die-at", default="")
    parser.add_argument("--victim", choices=["self", "session", "owner"], default="self")
    parser.add_argument("--refuse", action="store_true", help="the second one does not prepare")
    parser.add_argument("--recover-only", action="store_true")
    parser.add_argument("--forever", action="store_true")
    parser.add_argument("--coordinator", choices=list(COORDINATORS), default="real")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parsed(arguments)
    share = options.victim == "owner"
    with (
        quire.open(options.store, **{**OPTIONS, "share": share}) as store,
        contextlib.closing(session(options.conninfo)) as table,
    ):
        victims = {
            "self": os.getpid(),
            "session": table.info.backend_pid,
            "owner": getattr(store, "owner_process_id", 0),
        }

        def reached(step: str) -> None:
            if step == options.die_at:
                options.die_at = ""
                os.kill(victims[options.victim], signal.SIGKILL)

        queue = connect(store)
        names = ["queue", "table"] if options.first == "queue" else ["table", "queue"]
        sides: dict[str, Any] = {"queue": queue, "table": table}
        coordinator = COORDINATORS[options.coordinator](
            store,
            NAME,
            {
                name: Watched(name, sides[name], reached, options.refuse and name == names[1])
                for name in names
            },
        )
        if options.recover_only:
            return
        reached("started")
        for count in itertools.count():
            to_queue = options.direction == "to-queue"
            if options.forever:  # to and fro, whatever the last process has left
                to_queue = store.queue("amounts").messages < PIECES
            with contextlib.suppress(Refused):
                transfer(coordinator, queue, table, options.amount if to_queue else 0, reached)
            if not options.forever:
                return
            print(count, flush=True)


if __name__ == "__main__":
    main()
