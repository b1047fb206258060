"""Two-phase commit: a transaction is prepared, and later decided.

Preparing follows the steps of a commit (see `committer`) up to a PREPARE record, so that all
that can fail fails here; the blocks always go to the data file, from which no checkpoint has to
move them. The decision is a record of its own. Message ids are given with it, in commit order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import Protocol

from quire.engine.pages.places import Extent
from quire.engine.queues.prepared import Participant, Prepared
from quire.engine.queues.queue import Queue, Taken
from quire.engine.queues.state import State
from quire.engine.records import format
from quire.engine.records.commit_record import Entry, Part, Read
from quire.engine.records.prepared_record import (
    DecisionRecord,
    PrepareRecord,
    fill_decision,
    pack_decision,
    pack_prepare,
)
from quire.engine.records.sections import PendingSection, pack_sections
from quire.env import Env

from .committer import Committer
from .written import Written


class Prepare:
    """A change: a transaction becomes a prepared one."""

    durable = True
    relieves = comes_first = False

    __slots__ = ("_prepared", "_sections", "_state", "applied", "record")

    def __init__(
        self,
        state: State,
        transaction_id: int,
        prepared: Prepared,
        sections: Sequence[PendingSection],
    ) -> None:
        self._state = state
        self._prepared = prepared
        self._sections = sections
        self.record = pack_prepare(transaction_id, prepared.record, pack_sections(sections))
        self.applied = False

    def place(self) -> None:
        for section in self._sections:
            section.check()
        self._state.check_entries(self._prepared.record.entries)
        self._state.prepared.place(self._prepared)
        try:
            for section in self._sections:
                section.place()
        except BaseException:
            self.withdraw()
            raise

    def withdraw(self) -> None:
        self._state.prepared.withdraw(self._prepared)
        for section in self._sections:
            section.withdraw()

    def apply(self, address: int) -> None:
        self._state.fold.prepare(self._prepared.record, "prepare")
        for section in self._sections:
            section.apply(self._prepared.record.prepared_us)


class Decision:
    """A change: a prepared transaction is committed, or rolled back.

    `expected`: decide this one only, not a later one of the same xid.
    """

    durable = relieves = True  # what it is about has its place already
    comes_first = False

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
        decision = DecisionRecord(self._xid, self._first_id, self._time_us, self._prepared.messages)
        with self._state.values.changing:
            self._state.fold.decide(
                decision, self._commit, address, "decision", self._prepared.transaction_id
            )


class Preparing(Participant, Protocol):
    """The transaction that is prepared."""

    id: int
    prepared: Prepared | None  # what the store holds for it


class TwoPhase:
    """The two steps. Thread-safe."""

    def __init__(self, env: Env, state: State, committer: Committer) -> None:
        self._env = env
        self._state = state
        self._committer = committer

    def prepare(
        self,
        transaction: Preparing,
        xid: str,
        written: Collection[Written],
        taken: Sequence[Taken],
        passed: Sequence[Read],
        entries: Sequence[Entry],
        sections: Sequence[PendingSection] = (),
    ) -> None:
        """Make the transaction a prepared one; `transaction.prepared` tells whether it is.

        Raises QueueFull, DiskFull, XidExists, KeyHeld,
        AlreadyCommitted, StateConflict with nothing changed, StoreFailed.
        """
        committer = self._committer
        reads = [*(Read(*got[:4]) for got in taken), *passed]
        with ExitStack() as held:
            committer.lock_all(written, held)
            with self._state.releasing(reads):
                pass  # they can be, as far as can be told before the decision
            try:
                self._prepare(transaction, xid, written, len(taken), reads, entries, sections)
            finally:
                if transaction.prepared is not None and transaction.prepared.stands:
                    committer.leave_unused(transaction.id, written)
        committer.after_commit()

    def _prepare(
        self,
        transaction: Preparing,
        xid: str,
        written: Collection[Written],
        taken: int,
        reads: Sequence[Read],
        entries: Sequence[Entry],
        sections: Sequence[PendingSection],
    ) -> None:
        committer = self._committer
        pieces = committer.encode(written)
        reserved: list[Queue] = []
        extents: Collection[Extent] = ()
        try:
            committer.reserve(written, reserved)
            extents = committer.place(pieces, inline_limit=0)
            record = PrepareRecord(
                xid,
                taken,
                self._env.now_us(),
                # There are no blocks any more.
                [piece for _, own in pieces for piece in own if isinstance(piece, Part)],
                reads,
                entries,
            )
            transaction.prepared = Prepared(record, transaction, transaction.id)
            committer.sequencer.submit(
                Prepare(self._state, transaction.id, transaction.prepared, sections)
            )
        except BaseException:
            if transaction.prepared is None or not transaction.prepared.stands:
                transaction.prepared = None
                committer.undo(reserved, extents)
            raise

    def decide(self, xid: str, *, commit: bool, expected: Prepared | None = None) -> None:
        """Commit or roll back a prepared transaction. Raises TransactionNotFound, StoreCorrupt."""
        reads = self._state.prepared.reads_of(xid) if commit else ()
        with self._state.releasing(reads):
            self._committer.sequencer.submit(Decision(self._state, xid, expected, commit=commit))
        self._committer.after_commit()
