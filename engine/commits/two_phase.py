"""Two-phase commit: a transaction is prepared, and later decided.

Preparing takes the steps of a commit (see `committer`), so that all that can fail fails here. Its
record is held, and the blocks always go to the data file, from which no checkpoint has to move
them. The decision is a record of its own. Message ids are given with it, in commit order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from quire.engine.queues.prepared import Prepared
from quire.engine.queues.queue import Taken
from quire.engine.queues.state import State
from quire.engine.records.commit_record import Entry, Read
from quire.engine.records.sections import (
    Decides,
    DecidesSection,
    Failures,
    Held,
    Numbers,
    PendingSection,
    ValuesSection,
)

from .committer import Committer, Committing
from .written import Written


class TwoPhase:
    """The two steps. Thread-safe."""

    def __init__(self, state: State, committer: Committer) -> None:
        self._state = state
        self._committer = committer

    def prepare(
        self,
        transaction: Committing,
        xid: str,
        written: Collection[Written],
        taken: Sequence[Taken],
        passed: Sequence[Read],
        entries: Sequence[Entry],
        values: ValuesSection | None,
    ) -> None:
        """Make the transaction a prepared one; `transaction.prepared` tells whether it is.

        Raises QueueFull, DiskFull, XidExists, KeyHeld,
        AlreadyCommitted, StateConflict with nothing changed, StoreFailed.
        """
        self._committer.commit(
            transaction, written, taken, passed, entries, light=False, values=values,
            held=Held(xid, len(taken)),
        )  # fmt: skip

    def decide(self, xid: str, *, commit: bool, expected: Prepared | None = None) -> None:
        """Commit or roll back a prepared transaction. Raises TransactionNotFound, StoreCorrupt."""
        state = self._state
        said = Decides(xid, commit, 0)
        with state.releasing(state.prepared.reads_of(xid) if commit else ()):
            decides = DecidesSection(
                state.prepared, state.values.changing, state.fold, said, expected
            )
            before: list[PendingSection] = []
            if commit:
                heard = self._committer.heard(state.prepared.reads_of(xid))
                before += [PendingSection(state.fold, Numbers(heard))] if heard else []
            elif failures := state.prepared.failing(xid):
                before.append(PendingSection(state.fold, Failures(failures)))
            self._committer.record(*before, decides)
        self._committer.after_commit()
