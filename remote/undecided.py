"""Transactions that this owner's clients have prepared, for their decision.

U1. What is prepared is not tied to the stream on which that was done: any stream may decide it, by
    its xid, or by the number that the answer to its prepare gave.
U2. A decision that names a number reaches that transaction or none.
U3. What is decided is remembered for a while, so that its client learns the outcome that another
    one brought about; the latest `REMEMBERED` of them.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from quire.errors import InvalidArgument, RemoteError, TransactionClosed, TransactionNotFound

from .delivery import Answer

DECISIONS: Final = {"commit_prepared": "committed", "rollback_prepared": "rolled back"}
REMEMBERED: Final = 256


class Entry(NamedTuple):
    """A transaction that was prepared, and the ids of what it puts first, by queue."""

    xid: str
    transaction: Any
    ids: dict[str, Any]

    @property
    def first_ids(self) -> dict[str, int]:
        if self.transaction.state != "committed":
            return {}
        return {queue: int(ids[0]) for queue, ids in self.ids.items()}


class Undecided:
    """See the module. Thread-safe."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._entries: dict[int, Entry] = {}

    def add(self, xid: str, transaction: Any, ids: dict[str, Any]) -> int:
        """A transaction was prepared; its number."""
        with self._lock:
            number = next(self._numbers)
            self._entries[number] = Entry(xid, transaction, ids)
            over = [n for n, e in self._entries.items() if e.transaction.state != "prepared"]
            for old in over[:-REMEMBERED]:
                del self._entries[old]
        return number

    def answer(self, op: str, header: Mapping[str, Any]) -> Iterator[Answer]:
        """Decide; tell what is known of the transaction if it was prepared here."""
        arguments = header.get("arguments")
        if not isinstance(arguments, dict) or arguments.keys() - {"xid", "number"}:
            raise RemoteError(f"{op} takes an xid, and the number of a transaction")
        number, entry = self._find(arguments.get("xid"), arguments.get("number"))
        done = False
        if arguments.get("number") is None:
            getattr(self._store, op)(arguments.get("xid"))
        elif entry is None:
            raise TransactionNotFound(
                f"the prepared transaction {arguments.get('xid')!r} is not known any more: "
                "recover() lists those that wait for a decision"
            )
        elif op == "commit_prepared":
            with contextlib.suppress(TransactionClosed):  # it was decided: the state tells how
                entry.transaction.commit()
                done = True
        else:
            entry.transaction.rollback()
        if entry is None:
            yield {"result": {"number": None}}, ()
            return
        result = {
            "number": number,
            "state": entry.transaction.state,
            "first_ids": entry.first_ids,
            "committed": done,  # by this very request
        }
        yield {"result": result}, ()

    def _find(self, xid: object, number: object) -> tuple[int | None, Entry | None]:
        """By number (U2), or by the xid among those that wait."""
        if number is not None:
            if type(number) is not int:
                raise InvalidArgument(f"number {number!r}: give that of a prepared transaction")
            return number, self._entries.get(number)
        with self._lock:
            for known, entry in self._entries.items():
                if entry.xid == xid and entry.transaction.state == "prepared":
                    return known, entry
        return None, None
