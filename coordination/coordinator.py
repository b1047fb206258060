"""A coordinator: one transaction over any number of PEP 249 connections, all of it or nothing.

What it decides is in the ledger of a Quire store, which may be one of the participants or not:

1. Every participant prepares.
2. The decision to commit is one durable commit to the ledger. It is the atomic point.
3. Every participant commits.

Whoever starts a coordinator of the same name later finds what an earlier one left in doubt, and
commits what was decided and rolls back the rest (presumed abort: to roll back needs no record).

- CO1: no participant commits before all have prepared and the decision is durable.
- CO2: an identifier is used once: `name/store/start.number`, where the start is counted in the
  ledger. A prepare of an earlier coordinator that takes effect late is rolled back by the next
  recovery, and never taken for another transaction.
- CO3: a coordinator decides nothing once another of its name has started: both write the same
  ledger key, with rising versions, and the earlier one's decision fails with AlreadyCommitted.
- CO4: only the last decision can be in doubt: a coordinator begins nothing new before every
  participant has carried out the one before. Two ledger keys are all it ever needs.
- CO5: it leaves alone what is not its own: other formats, names, stores and participants.

Ledger: `name.number` is the last number used, or reserved by a start; `name.decided` the last one
that was decided to commit. Both hold start * 2**32 + number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from quire.callbacks import check_function
from quire.calls.signal_safety import defer_signals
from quire.errors import (
    AlreadyCommitted,
    CommitUnfinished,
    DiskFull,
    InvalidArgument,
    KeyHeld,
    TransactionError,
)

if TYPE_CHECKING:
    from quire.interface.store import Store

FORMAT_ID: Final = 0x71756972  # "quir"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,24}", re.ASCII)
_NUMBER_BITS: Final = 32


class Participant(Protocol):
    """The two-phase part of PEP 249: `quire.coordination.Connection`, psycopg's, and others."""

    def xid(self, format_id: int, gtrid: str, bqual: str, /) -> Any:
        """An identifier for the calls below."""

    def tpc_begin(self, xid: Any, /) -> None:
        """Begin a two-phase transaction."""

    def tpc_prepare(self) -> None:
        """The first phase."""

    def tpc_commit(self, xid: Any = ..., /) -> None:
        """The second phase; with an xid, of what `tpc_recover` found."""

    def tpc_rollback(self, xid: Any = ..., /) -> None:
        """Roll back; with an xid, what `tpc_recover` found."""

    def tpc_recover(self) -> Sequence[Any]:
        """Return all prepared transactions."""


class RecoveredTransactions(Struct, frozen=True):
    """The transactions that a coordinator found in doubt at its start: (participant, global id) of
    each.
    """

    committed: tuple[tuple[str, str], ...]
    rolled_back: tuple[tuple[str, str], ...]


class Coordinator:
    """One transaction over any number of connections of PEP 249: all of it or nothing.

    What it decides is in the ledger of `store`. For one thread at a time.

    After an error that leaves a participant in doubt it refuses to go on: make a new one, over new
    connections, which recovers.
    """

    def __init__(self, store: Store, name: str, participants: Mapping[str, Participant]) -> None:
        """Start, and resolve what an earlier coordinator of the name left in doubt.

        `participants`: by names that stay the same from start to start. All of them must be there.
        Raises InvalidArgument, AlreadyCommitted if two start at the same time, and what the
        participants raise.
        """
        for text in (name, *participants):
            if not isinstance(text, str) or _NAME.fullmatch(text) is None:
                raise InvalidArgument(f"name {text!r}: use 1 to 24 of A-Z a-z 0-9 _ -")
        check_function(
            "store's method", getattr(store, "transaction", store), "give a store of quire.open"
        )
        self._store = store
        self._name = name
        self._participants = dict(participants)
        self._prefix = f"{name}/{store.integration.store_id:016x}/"
        self._open: set[str] = set()  # participants that have not ended the current transaction
        self._number = self._start()
        self.recovered: Final = self._recover()

    @contextmanager
    def transaction(self) -> Iterator[str]:
        """Run a with block: commit over all participants on success, roll back on an exception.

        Gives the global id. An error of a participant before the decision rolls all back and is
        raised. Raises CommitUnfinished if the commit was decided, and a participant does not have
        it yet.
        """
        if self._open:
            raise TransactionError(
                f"the transaction has not ended at {sorted(self._open)}: end it, or make a new "
                "coordinator over new connections, which recovers"
            )
        self._number += 1
        gtrid = self._gtrid(self._number)
        with ExitStack() as undo:
            for name, participant in self._participants.items():
                defer_signals(self._begin, participant, name, gtrid, undo)
            yield gtrid
            for participant in self._participants.values():
                participant.tpc_prepare()
            prepared = undo.pop_all()  # from here on an unknown outcome must not roll back
        try:
            self._decide()
        except (AlreadyCommitted, KeyHeld, DiskFull) as reason:  # for sure not decided
            try:
                prepared.close()
            except Exception as error:  # such as: a later coordinator has rolled it back already
                raise reason from error
            raise
        self._finish()

    # Inside

    def _start(self) -> int:
        """Reserve this start's numbers, and end all that an earlier coordinator might decide."""
        last = self._store.integration.ledger(f"{self._name}.number") or 0
        number = ((last >> _NUMBER_BITS) + 1) << _NUMBER_BITS
        with self._store.transaction() as transaction:
            transaction.enter(f"{self._name}.number", number)
        return number

    def _recover(self) -> RecoveredTransactions:
        decided = self._store.integration.ledger(f"{self._name}.decided")
        last = None if decided is None else self._gtrid(decided)
        committed, rolled_back = [], []
        for name, participant in self._participants.items():
            for xid in participant.tpc_recover():
                format_id, gtrid, bqual = xid
                if format_id != FORMAT_ID or bqual != name or not gtrid.startswith(self._prefix):
                    continue  # CO5
                if gtrid == last:
                    participant.tpc_commit(xid)
                    committed.append((name, gtrid))
                else:
                    participant.tpc_rollback(xid)
                    rolled_back.append((name, gtrid))
        return RecoveredTransactions(tuple(committed), tuple(rolled_back))

    def _gtrid(self, number: int) -> str:
        start, count = number >> _NUMBER_BITS, number & ((1 << _NUMBER_BITS) - 1)
        return f"{self._prefix}{start}.{count}"

    def _decide(self) -> None:
        with self._store.transaction() as transaction:
            transaction.enter(f"{self._name}.number", self._number)
            transaction.enter(f"{self._name}.decided", self._number)

    def _begin(self, participant: Participant, name: str, gtrid: str, undo: ExitStack) -> None:
        """Begin there, and note that it has begun, in one step for handlers of signals."""
        participant.tpc_begin(participant.xid(FORMAT_ID, gtrid, name))
        self._open.add(name)
        undo.callback(self._roll_back, name)

    def _roll_back(self, name: str) -> None:
        self._participants[name].tpc_rollback()
        self._open.discard(name)

    def _commit(self, name: str) -> None:
        self._participants[name].tpc_commit()
        self._open.discard(name)

    def _finish(self) -> None:
        """Tell all of them, also when one cannot be told."""
        try:
            with ExitStack() as commits:
                for name in reversed(self._participants):
                    commits.callback(self._commit, name)
        except Exception as error:
            raise CommitUnfinished(
                f"the commit is decided and stands, but {sorted(self._open)} cannot be told: make "
                "a new coordinator over new connections, which tells them"
            ) from error
