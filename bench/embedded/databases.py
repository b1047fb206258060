"""An outbox and an inbox: what a message takes on its way through them, beside a queue in SQLite.

A program has its rows in SQLite (WAL, synchronous=FULL). With each it sends a message of 100 bytes,
in one transaction, and a consumer's effect of each message is a row again, exactly once. By Quire
that is an outbox, a relay, and an inbox. The hand-written queue is a table of the same database:
a message is inserted beside the row, and deleted beside the effect. That is one transaction, in
which no other consumer gets any further; or it is claimed before it, as worker pools do.

Transactions of SQLite are those of `sqlite_database` for all, so what differs is what is in them.
All is done by one thread of one process, and each operation in each turn, so that a ratio is of two
that had the machine at the same time: it is taken within each turn, and is the median. Processor
time is that of the whole process, its own and the system's; what waits is the disk.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any, Protocol

import quire
from bench.figure import BenchmarkSetting, Figure, Result, Table
from bench.measuring.payloads import as_list
from quire.databases import Inbox, Outbox, Relay, sqlite_database

__all__ = ["DATABASE_SIDES", "RATIOS", "DatabaseSide", "run"]

MESSAGES = 100  # of a turn
CLAIM_SECONDS = 60.0

ROW = "the program's row alone"
PUT, GET = "store.put", "a get with its commit"
SEND, MOVE_ONE = "a row and outbox.put", "the relay, one at a time"
MOVE_MANY = "the relay, all of a turn at once"
TAKE = "a get and an effect, with an inbox"
SEND_BY_HAND = "by hand: a row and a message"
TAKE_BY_HAND = "by hand: a message and its effect"
TAKE_CLAIMED = "by hand: claimed, then its effect"
WAY = "from row to effect"
WAY_BY_HAND = "by hand: from row to effect"
WAY_CLAIMED = "by hand, claimed: from row to effect"
RATIOS = (
    (SEND, ROW),
    (SEND, SEND_BY_HAND),
    (SEND, PUT),
    (MOVE_MANY, PUT),
    (MOVE_ONE, PUT),
    (TAKE, GET),
    (TAKE, TAKE_BY_HAND),
    (TAKE, TAKE_CLAIMED),
    (WAY, WAY_BY_HAND),
    (WAY, WAY_CLAIMED),
)


class DatabaseSide(Protocol):
    """A way of a message from the program's transaction to its effect."""

    def send(self, payload: bytes) -> None:
        """A row, and a message with it."""

    def move(self) -> int:
        """Move the messages to where they are taken from; return how many were moved."""

    def take(self) -> None:
        """A message, and the row that is its effect."""

    def counts(self) -> tuple[int, int, int]:
        """Rows, effects, and messages that are on their way."""

    def close(self) -> None: ...


class ProgramDatabase:
    """The program's own tables, as every side has them."""

    def __init__(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")  # the file keeps it
        self.begin = sqlite_database(str(path))
        with self.begin() as connection:
            connection.execute("CREATE TABLE sold (what BLOB NOT NULL)")
            connection.execute("CREATE TABLE booked (what BLOB NOT NULL)")

    def sell(self, payload: bytes) -> None:
        """The row, and nothing else."""
        with self.begin() as connection:
            _sell(connection, payload)

    def count(self, table: str) -> int:
        """Return the number of its rows."""
        with self.begin() as connection:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def _sell(connection: Any, payload: bytes) -> None:
    connection.execute("INSERT INTO sold VALUES (?)", (payload,))


def _book(connection: Any, payload: bytes) -> None:
    connection.execute("INSERT INTO booked VALUES (?)", (payload,))


class ThroughQuire:
    """Outbox, relay, a queue of a store of its own, inbox."""

    def __init__(self, folder: Path) -> None:
        self._database = ProgramDatabase(folder / "quire.db")
        self._outbox, inbox = Outbox(), Inbox()
        with self._database.begin() as connection:
            self._outbox.create_tables(connection)
            inbox.create_tables(connection)
        self.store = quire.open(str(folder / "store"))
        for name in ("orders", "plain"):
            self.store.create_queue(name, kind="work")
        self._relay = Relay(self.store, self._outbox, self._database.begin)

        @inbox.handles("orders", self._database.begin)
        def book(order: quire.Message, connection: Any) -> None:
            _book(connection, order.payload)

        self._book = book

    def send(self, payload: bytes) -> None:
        with self._database.begin() as connection:
            _sell(connection, payload)
            self._outbox.put(connection, "orders", payload)

    def move(self) -> int:
        return self._relay.step()

    def take(self) -> None:
        with self.store.transaction() as transaction:
            order = transaction.get("orders")
            assert order is not None
            self._book(order, transaction)

    def counts(self) -> tuple[int, int, int]:
        with self._database.begin() as connection:
            waiting = self._outbox.info(connection).waiting
        waiting += len(self.store.browse("orders").payloads())
        return self._database.count("sold"), self._database.count("booked"), waiting

    def put_plain(self, payload: bytes) -> None:
        """A durable put, with no database."""
        self.store.put("plain", payload)

    def get_plain(self) -> None:
        """A durable get, with no database."""
        with self.store.transaction() as transaction:
            message = transaction.get("plain")
            assert message is not None
            _ = message.payload

    def close(self) -> None:
        self.store.close()


class ByHand:
    """A table, from which a message is taken in the transaction of its effect."""

    def __init__(self, folder: Path) -> None:
        self._database = ProgramDatabase(folder / f"{type(self).__name__}.db")
        with self._database.begin() as connection:
            connection.execute(
                "CREATE TABLE message (id INTEGER PRIMARY KEY, payload BLOB NOT NULL,"
                " claimed_until REAL NOT NULL DEFAULT 0)"
            )

    def send(self, payload: bytes) -> None:
        with self._database.begin() as connection:
            _sell(connection, payload)
            connection.execute("INSERT INTO message (payload) VALUES (?)", (payload,))

    def move(self) -> int:
        return 0  # it is there

    def take(self) -> None:
        with self._database.begin() as connection:
            number, payload = connection.execute(
                "SELECT id, payload FROM message ORDER BY id LIMIT 1"
            ).fetchone()
            _book(connection, payload)
            connection.execute("DELETE FROM message WHERE id = ?", (number,))

    def counts(self) -> tuple[int, int, int]:
        count = self._database.count
        return count("sold"), count("booked"), count("message")

    def close(self) -> None:
        pass


class Claimed(ByHand):
    """The same, with a claim before, so that several consumers work at a time."""

    def take(self) -> None:
        now = time.time()
        with self._database.begin() as connection:
            number, payload = connection.execute(
                "UPDATE message SET claimed_until = ? WHERE id ="
                " (SELECT id FROM message WHERE claimed_until < ? ORDER BY id LIMIT 1)"
                " RETURNING id, payload",
                (now + CLAIM_SECONDS, now),
            ).fetchone()
        with self._database.begin() as connection:
            _book(connection, payload)
            connection.execute("DELETE FROM message WHERE id = ?", (number,))


DATABASE_SIDES: tuple[Callable[[Path], DatabaseSide], ...] = (ThroughQuire, ByHand, Claimed)


# What is measured ---------------------------------------------------------------------------------


class MessageCosts:
    """The costs of a message by each operation: microseconds, in each turn."""

    def __init__(self) -> None:
        self.processor: dict[str, list[float]] = {}
        self.wall: dict[str, list[float]] = {}

    def measure(self, operation: str, calls: Iterable[Callable[[], object]], messages: int) -> None:
        """A turn: the calls, which are made one after another, take so many messages through."""
        began, spent = time.perf_counter(), time.process_time()
        for call in calls:
            call()
        spent, wall = time.process_time() - spent, time.perf_counter() - began
        self.processor.setdefault(operation, []).append(spent * 1e6 / messages)
        self.wall.setdefault(operation, []).append(wall * 1e6 / messages)

    def add_sum(self, name: str, operations: Sequence[str]) -> None:
        """Operations that a message goes through, as one."""
        for times in (self.processor, self.wall):
            turns = zip(*(times[operation] for operation in operations), strict=True)
            times[name] = [sum(turn) for turn in turns]

    def ratio(self, operation: str, to: str) -> float:
        """Return the ratio of processor times, within each turn: the median."""
        both = zip(self.processor[operation], self.processor[to], strict=True)
        return median(one / other for one, other in both)


def run(setting: BenchmarkSetting) -> list[Result]:
    """Ratios of processor times, and a table of all."""
    payloads = as_list(setting.scaled(MESSAGES, 8), setting.seed)
    with ExitStack() as stack:
        alone = ProgramDatabase(setting.folder / "alone.db")
        ours = ThroughQuire(setting.folder)
        stack.callback(ours.close)
        by_hand, claimed = ByHand(setting.folder), Claimed(setting.folder)
        _turn(MessageCosts(), payloads, alone, ours, by_hand, claimed)  # warm-up
        costs = MessageCosts()
        turns = setting.scaled(40, 1)
        for _ in range(turns):
            _turn(costs, payloads, alone, ours, by_hand, claimed)
        sent = (turns + 1) * len(payloads)
        _check(ours, 2 * sent)
        _check(by_hand, sent)
        _check(claimed, sent)
    costs.add_sum(WAY, (SEND, MOVE_MANY, TAKE))
    costs.add_sum(WAY_BY_HAND, (SEND_BY_HAND, TAKE_BY_HAND))
    costs.add_sum(WAY_CLAIMED, (SEND_BY_HAND, TAKE_CLAIMED))
    return [
        *(
            Figure(f"{one}: processor to {other}", costs.ratio(one, other), "times")
            for one, other in RATIOS
        ),
        _table(costs, len(payloads)),
    ]


def _turn(
    costs: MessageCosts,
    payloads: list[bytes],
    alone: ProgramDatabase,
    ours: ThroughQuire,
    by_hand: DatabaseSide,
    claimed: DatabaseSide,
) -> None:
    """Each operation once with all messages."""
    count = len(payloads)

    def each(operation: str, call: Callable[[bytes], object]) -> None:
        costs.measure(operation, (partial(call, payload) for payload in payloads), count)

    def times(operation: str, call: Callable[[], object]) -> None:
        costs.measure(operation, [call] * count, count)

    each(ROW, alone.sell)
    each(PUT, ours.put_plain)
    times(GET, ours.get_plain)
    each(SEND, ours.send)
    costs.measure(MOVE_MANY, [ours.move], count)
    times(TAKE, ours.take)
    one_by_one = MessageCosts()
    for payload in payloads:
        ours.send(payload)
        one_by_one.measure(MOVE_ONE, [ours.move], 1)
    costs.processor.setdefault(MOVE_ONE, []).append(fmean(one_by_one.processor[MOVE_ONE]))
    costs.wall.setdefault(MOVE_ONE, []).append(fmean(one_by_one.wall[MOVE_ONE]))
    for _ in payloads:
        ours.take()
    each(SEND_BY_HAND, by_hand.send)
    times(TAKE_BY_HAND, by_hand.take)
    for payload in payloads:
        claimed.send(payload)
    times(TAKE_CLAIMED, claimed.take)


def _check(side: DatabaseSide, count: int) -> None:
    """Raise RuntimeError where not each message was sent, and had its effect, once."""
    side.move()  # deletes what the store has
    if side.counts() != (count, count, 0):
        raise RuntimeError(f"{side.counts()} rows, effects and waiting messages, of {count}")


def _table(costs: MessageCosts, count: int) -> Table:
    rows: list[list[float | str]] = []
    for operation, processor in costs.processor.items():
        wall = median(costs.wall[operation])
        rows.append([operation, f"{median(processor):,.0f}", f"{wall:,.0f}", f"{1e6 / wall:,.0f}"])
    columns = ["operation", "processor, us a message", "wall, us a message", "messages a second"]
    return Table(f"Turns of {count} messages of 100 bytes, one thread, p50", columns, rows)
