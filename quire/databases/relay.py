"""The relay: what waits in an outbox goes into its queues, each message exactly once.

What it has moved is a value in the store's state, set by the transaction that puts the messages.
That transaction has read the value before, and so does not commit once another relay has gone on.

- Any number of relays may run, in any processes, and die at any step: of each message one put
  commits. What tells so is never forgotten, other than request ids are.
- Messages are put in the order of their rows. Those of one transaction are in the order of
  their puts; what was committed before another transaction put its first message is before that.
- RL3: what a queue does not take for what it is (there is no such queue, it does not obey an
  option) does not stop the others: it stays in the outbox with the reason. What there is no room
  for, or that is stopped, is waited for, and all that is behind it waits, too.
- RL4: where several are refused together, fewer are tried, at last one alone: so a reason is told
  of the right one, and a queue takes as many as it has room for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from quire.arguments import check_max_messages, check_timeout
from quire.callbacks import check_function
from quire.calls.wake_up import WakeUp
from quire.env import Env, OsEnv
from quire.errors import (
    Conflict,
    InvalidArgument,
    NoRoom,
    OutboxMismatch,
    QueueDisabled,
    QueueNotFound,
    RemoteError,
    StateConflict,
    TransactionError,
)
from quire.limits import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS
from quire.loggers import logger

from .batch_plan import BatchPlan, OutboxBatch, OutboxRow, Progress
from .limits import RELAY_BATCH_MESSAGES, RELAY_POLL_SECONDS, RELAY_REASON_CHARACTERS
from .outbox import Outbox
from .statements import Begin, statements_of

if TYPE_CHECKING:
    from quire.interface.store import Store
    from quire.interface.transaction import Transaction

STATE: Final = "quire.outbox"
"""The state whose values tell what of each outbox is in the store, by its id."""

_log: Final = logger("quire.databases")
_OF_THE_MESSAGE: Final = (InvalidArgument, QueueNotFound)  # RL3
_OF_ITS_QUEUE: Final = (NoRoom, QueueDisabled)
_PASSES: Final = (*_OF_ITS_QUEUE, Conflict, RemoteError, TransactionError)
_OF_A_DATABASE: Final = frozenset({"OperationalError", "InterfaceError"})  # PEP 249: may pass


class Relay:
    """Moves what waits in an outbox into the queues of a store.

        relay = Relay(store, outbox, engine.begin)
        threading.Thread(target=relay.run).start()
        ...
        relay.stop()

    `store`: of `quire.open`, owned or joined; it may join the one that `quire.aio` has opened in
    the same process. `begin`: begins a transaction of the outbox's database:
    `engine.begin` of SQLAlchemy, `sqlite_database("app.db")`, `pool.connection` of psycopg's pool,
    or any function whose result is used by `with`, gives a connection and commits at the end.
    `max_messages`: how many are moved in one transaction at most.

    Relays of the same outbox may run in several processes; one of them moves. `run` is for a thread
    of its own, `step` for a loop of the program's.
    """

    def __init__(
        self,
        store: Store,
        outbox: Outbox,
        begin: Begin,
        *,
        max_messages: int = RELAY_BATCH_MESSAGES,
        env: Env | None = None,
    ) -> None:
        states = getattr(store, "states", store)
        check_function(
            "store's method",
            getattr(states, "get", states),
            "give a store of quire.open, not of quire.aio",
        )
        if not isinstance(outbox, Outbox):
            raise InvalidArgument(f"outbox {outbox!r:.100}: give an Outbox")
        check_function("begin", begin, "give a function that begins a transaction, as engine.begin")
        self._store = store
        self._begin = begin
        if check_max_messages(max_messages) > RELAY_BATCH_MESSAGES:
            raise InvalidArgument(f"max_messages {max_messages}: up to {RELAY_BATCH_MESSAGES}")
        self._max_messages = max_messages
        self._plan = BatchPlan(outbox.table, env or OsEnv(), self._max_messages)
        self._outbox_id: str | None = None
        self._at_once = self._max_messages  # messages that are tried in one transaction (RL4)
        self._stopped = False
        self._woken = WakeUp()

    def step(self) -> int:
        """Move up to `max_messages`; how many were put. 0: nothing waits, or another relay moves.

        Raises QueueFull, QueueDisabled, DiskFull and others where the next message cannot be put
        now: nothing is lost, try again. Raises OutboxMismatch, and what the database raises.
        """
        found = self._next()
        return 0 if found is None else self._put(*found)

    def run(self, poll: float = RELAY_POLL_SECONDS) -> None:
        """Move what comes, until `stop`. Looks every `poll` seconds, or when `wake` is called.

        What passes by itself is tried again, after longer and longer pauses, and logged
        (`quire.databases`): a queue is full or stopped, the owner or the database is away. Raises
        StoreFailed, StoreClosed, OutboxMismatch, and what else the database raises; at the first
        look all but that SQLite's file is locked by another writer, as there may be no tables.
        """
        check_timeout(poll)
        pause = FIRST_PAUSE_SECONDS
        while not self._stopped:
            self._woken.clear()
            try:
                moved = self.step()
            except Exception as error:
                if not (_passes(error) if self._outbox_id else _is_locked(error)):
                    raise
                _log.warning("the outbox waits: %s: %s", type(error).__name__, error)
                self._woken.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                continue
            pause = FIRST_PAUSE_SECONDS
            if not moved and not self._stopped:
                self._woken.wait(poll)

    def wake(self) -> None:
        """Let `run` look at once: a transaction with messages has committed. By any thread."""
        self._woken.set()

    def stop(self) -> None:
        """Let `run` return when the batch in work is done. By any thread, also before `run`."""
        self._stopped = True
        self._woken.set()

    # Inside

    def _next(self) -> tuple[str, bytes | None, OutboxBatch] | None:
        """The batch to be put, of which outbox, and the progress that it follows."""
        if self._outbox_id is None:
            with self._begin() as connection:
                outbox_id = self._plan.outbox_id(statements_of(connection))
            self._outbox_id = outbox_id
        name = self._outbox_id
        seen: tuple[bytes | None] | None = None
        while True:
            value = self._store.states.get(STATE, name)
            try:
                with self._begin() as connection:
                    batch = self._plan.next(statements_of(connection), name, Progress.of(value))
            except StateConflict:
                return None
            except OutboxMismatch:
                # Where another relay has gone on, the store told so before the database did.
                if seen == (value,):
                    raise
                seen = (value,)
            else:
                return None if batch is None else (name, value, batch)

    def _put(self, name: str, value: bytes | None, batch: OutboxBatch) -> int:
        progress = Progress.of(value)
        if progress.batch != batch.number:
            progress = Progress(batch.number)
        moved, rows = 0, batch.rows
        while True:
            some = rows[: self._at_once]
            rest = rows[len(some) :]
            through = some[-1].id if rest else batch.last_id
            after = Progress(batch.number, through, progress.refused)
            try:
                if not self._commit(name, value, some, after):
                    return moved
                moved += len(some)
            except _OF_ITS_QUEUE + _OF_THE_MESSAGE as error:
                if len(some) > 1:
                    self._at_once = len(some) // 2
                    continue
                if not isinstance(error, _OF_THE_MESSAGE):
                    raise
                _log.warning(
                    "message %d of the outbox was refused: %s: %s",
                    some[0].id, type(error).__name__, error,
                )  # fmt: skip
                reason = f"{type(error).__name__}: {error}"[:RELAY_REASON_CHARACTERS]
                refused = (*progress.refused, (some[0].id, reason))
                after = Progress(batch.number, through, refused)
                if not self._commit(name, value, (), after):
                    return moved
            self._at_once = min(2 * self._at_once, self._max_messages)
            if not rest:
                return moved
            progress, value, rows = after, after.encode(), rest

    def _commit(
        self, name: str, before: bytes | None, rows: Sequence[OutboxRow], after: Progress
    ) -> bool:
        """Put them, and note it; False: another relay has gone on."""
        try:
            with self._store.transaction() as transaction:
                if transaction.get_value(STATE, name) != before:
                    transaction.rollback()
                    return False
                for row in rows:
                    _put_row(transaction, row)
                transaction.set_value(STATE, name, after.encode())
        except StateConflict:
            return False
        return True


def _put_row(transaction: Transaction, row: OutboxRow) -> None:
    options: dict[str, Any] = {} if row.options is None else json.loads(row.options)
    transaction.put(row.queue, row.payload, **options)


def _is_locked(error: Exception) -> bool:
    """Return True if somebody else writes the file of SQLite: by its words, whoever raises them.

    A transaction that has read meets that at once, however long it would wait for a lock.
    """
    return "database is locked" in str(error)


def _passes(error: Exception) -> bool:
    """Return True if the error may not come the next time."""
    if isinstance(error, OutboxMismatch):
        return False
    return isinstance(error, _PASSES) or not _OF_A_DATABASE.isdisjoint(
        kind.__name__ for kind in type(error).__mro__
    )
