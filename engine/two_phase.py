"""Two-phase commit: a transaction is prepared, and later decided.

Preparing follows the steps of a commit (see `manager`) up to a PREPARE record, so that all that can
fail fails here; the blocks always go to the data file, from which no checkpoint has to move them.
The decision is a record of its own. Message ids are given with it, in commit order.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from typing import TYPE_CHECKING

from . import format
from .commit_record import Entry, Read
from .places import Extent
from .prepared import Prepared
from .prepared_record import PrepareRecord, fill_decision, pack_decision, pack_prepare
from .queue import Queue
from .state import State
from .written import Written

if TYPE_CHECKING:
    from .manager import Manager
    from .transaction import Transaction


class Prepare:
    """A change: a transaction becomes a prepared one."""

    __slots__ = ("_prepared", "_state", "applied", "record")

    def __init__(self, state: State, transaction_id: int, prepared: Prepared) -> None:
        self._state = state
        self._prepared = prepared
        self.record = pack_prepare(transaction_id, prepared.record)
        self.applied = False

    def place(self) -> None:
        self._state.check_entries(self._prepared.record.entries)
        self._state.prepared.place(self._prepared)

    def withdraw(self) -> None:
        self._state.prepared.withdraw(self._prepared)

    def apply(self, address: int) -> None:
        self._state.prepared.apply(self._prepared, live=True)


class Decision:
    """A change: a prepared transaction is committed, or rolled back.

    `expected`: decide this one only, not a later one of the same xid.
    """

    __slots__ = ("_commit", "_expected", "_first_id", "_prepared", "_state", "_time_us", "_xid",
                 "applied", "record")  # fmt: skip

    def __init__(self, state: State, xid: str, expected: Prepared | None, *, commit: bool) -> None:
        self._state = state
        self._xid = xid
        self._expected = expected
        self._commit = commit
        self._prepared: Prepared | None = None
        self._first_id = 0
        self._time_us = 0
        self.record = pack_decision(
            format.COMMIT_PREPARED if commit else format.ROLLBACK_PREPARED, xid
        )
        self.applied = False

    def place(self) -> None:
        state = self._state
        self._prepared = prepared = state.prepared.decide(self._xid, self._expected)
        messages = prepared.messages
        first_id, self._time_us = state.take_ids(messages if self._commit else 0)
        if self._commit:
            self._first_id = first_id
        fill_decision(self.record, self._first_id, self._time_us, messages)

    def withdraw(self) -> None:
        if self._prepared is not None:
            self._state.prepared.undecide(self._prepared)

    def apply(self, address: int) -> None:
        assert self._prepared is not None
        if self._commit:
            self._state.commit_prepared(self._prepared, self._first_id, self._time_us)
        else:
            self._state.prepared.roll_back(self._prepared)


class TwoPhase:
    """What the manager does for it. Thread-safe."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def prepare(
        self,
        transaction: Transaction,
        xid: str,
        written: list[Written],
        taken: int,
        reads: list[Read],
        entries: list[Entry],
    ) -> None:
        """Make the transaction a prepared one; `transaction.prepared` tells whether it is.

        Raises QueueFull, DiskFull, XidExists, KeyHeld, AlreadyCommitted with nothing changed,
        StoreFailed. `reads` begins with the `taken` ones, which are in flight.
        """
        with ExitStack() as held:
            self._manager.committer.lock_all(written, held)
            try:
                self._prepare(transaction, xid, written, taken, reads, entries)
            finally:
                if transaction.is_prepared:
                    self._manager.committer.leave_unused(transaction.id, written)
        self._manager.committer.after_commit()

    def _prepare(
        self,
        transaction: Transaction,
        xid: str,
        written: list[Written],
        taken: int,
        reads: list[Read],
        entries: list[Entry],
    ) -> None:
        manager = self._manager
        with manager.state.releasing(reads):
            pass  # they can be, as far as can be told before the decision
        groups, pieces = manager.committer.pieces_of(written)
        reserved: list[Queue] = []
        extents: Collection[Extent] = ()
        try:
            manager.committer.reserve(groups, reserved)
            extents = manager.committer.write_data(groups, pieces, inline_limit=0)
            record = PrepareRecord(
                xid,
                taken,
                manager.env.now_us(),
                [part for _, parts in groups for part in parts],
                reads,
                entries,
            )
            transaction.prepared = Prepared(record, groups, transaction, transaction.id)
            change = Prepare(manager.state, transaction.id, transaction.prepared)
            manager.sequencer.submit(change)
        except BaseException:
            if not transaction.is_prepared:
                transaction.prepared = None
                manager.committer.undo(reserved, extents)
            raise

    def decide(self, xid: str, *, commit: bool, expected: Prepared | None = None) -> None:
        """Commit or roll back a prepared transaction. Raises TransactionNotFound, StoreCorrupt."""
        manager = self._manager
        reads = manager.state.prepared.reads_of(xid) if commit else ()
        with manager.state.releasing(reads):
            manager.sequencer.submit(Decision(manager.state, xid, expected, commit=commit))
        manager.committer.after_commit()
