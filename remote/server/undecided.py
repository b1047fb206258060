"""Transactions that this owner's clients have prepared, for their decision.

- What is prepared is not tied to the stream on which that was done: any stream may decide it, by
  its xid, or by the number that the answer to its prepare gave.
UN2. A decision that names a number reaches that transaction or none.
- What is decided is remembered for a while, so that its client learns the outcome that another one
  brought about; the latest `REMEMBERED_DECISIONS` of them.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from quire.arguments import check_xid
from quire.env.interpreter import Lock
from quire.errors import InvalidArgument, RemoteError, TransactionClosed, TransactionNotFound
from quire.interface.store import Store
from quire.interface.transaction import Transaction
from quire.remote.limits import REMEMBERED_DECISIONS
from quire.remote.wire import protocol
from quire.reports.info import TransactionState

if TYPE_CHECKING:
    from quire.remote.wire.delivered_messages import Answer
    from quire.remote.wire.protocol import Decision, Header
    from quire.remote.wire.put_places import Placing


class UndecidedTransaction(NamedTuple):
    """A transaction that was prepared, and what it puts."""

    xid: str
    transaction: Transaction
    placing: Placing

    @property
    def state(self) -> TransactionState:
        return TransactionState(self.transaction.state)

    def placed(self) -> Header:
        """Nothing, unless it has committed."""
        return self.placing.answer() if self.state is TransactionState.COMMITTED else {}


class Undecided:
    """The prepared transactions of this owner's clients. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._numbers = itertools.count(1)
        self._entries: dict[int, UndecidedTransaction] = {}

    def add(self, xid: str, transaction: Transaction, placing: Placing) -> int:
        """A transaction was prepared; its number."""
        with self._lock:
            number = next(self._numbers)
            self._entries[number] = UndecidedTransaction(xid, transaction, placing)
            over = [n for n, e in self._entries.items() if e.state is not TransactionState.PREPARED]
            for old in over[:-REMEMBERED_DECISIONS]:
                del self._entries[old]
        return number

    def answer(self, decision: Decision, header: Header) -> Iterator[Answer]:
        """Decide; tell what is known of the transaction if it was prepared here."""
        arguments = header.get("arguments")
        if not isinstance(arguments, dict) or arguments.keys() - {"xid", "number"}:
            raise RemoteError(f"{decision.value} takes an xid, and the number of a transaction")
        xid, number = check_xid(arguments.get("xid")), _check_number(arguments.get("number"))
        if number is None:
            number, entry = self._waiting(xid)
            self._decide(decision, xid)
            done = False
        else:
            entry = self._entries.get(number)
            done = self._decide_entry(decision, xid, entry)
        if entry is None:
            yield {"result": {"number": None}}, ()
            return
        result = {
            "number": number,
            "state": entry.state.value,
            "placed": entry.placed(),
            "committed": done,  # by this very request
        }
        yield {"result": result}, ()

    def _decide(self, decision: Decision, xid: str) -> None:
        if decision is protocol.Decision.COMMIT:
            self._store.prepared.commit(xid)
        else:
            self._store.prepared.rollback(xid)

    def _decide_entry(
        self, decision: Decision, xid: str, entry: UndecidedTransaction | None
    ) -> bool:
        """Decide; return True if this has committed it (UN2)."""
        if entry is None:
            raise TransactionNotFound(
                f"the prepared transaction {xid!r} is not known any more: store.prepared.list() "
                "lists those that wait for a decision"
            )
        if decision is protocol.Decision.ROLLBACK:
            entry.transaction.rollback()
            return False
        with contextlib.suppress(TransactionClosed):  # it was decided: the state tells how
            entry.transaction.commit()
            return True
        return False

    def _waiting(self, xid: str) -> tuple[int | None, UndecidedTransaction | None]:
        """Find the transaction that was prepared under the xid and waits."""
        with self._lock:
            for known, entry in self._entries.items():
                if entry.xid == xid and entry.state is TransactionState.PREPARED:
                    return known, entry
        return None, None


def _check_number(number: object) -> int | None:
    if number is not None and type(number) is not int:
        raise InvalidArgument(f"number {number!r:.100}: give that of a prepared transaction")
    return number
