"""Transactions that are begun again when they were lost to no fault of their own.

AG1. A function runs again only where nothing of the transaction before has taken effect: its
    connection was lost (`ConnectionLost`), others were in its way (a deadlock, a value or a message
    that another transaction had), or its user had as much in use as may be (`LimitReached`), where
    the server says when to try again. Anything else that it raises ends it at once.
AG2. A commit with an unknown outcome is repeated only with an `entry` in the ledger: where it took
    effect after all, the entry is found, before the function runs again or by the commit that
    repeats it; nothing is done twice, and the result is that of the attempt which took effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from quire.callbacks import check_done, check_function
from quire.env import OsEnv
from quire.errors import (
    AlreadyCommitted,
    ConnectionLost,
    Deadlock,
    InvalidArgument,
    KeyHeld,
    LimitReached,
    LockTimeout,
    OutcomeUnknown,
    QuireError,
    SessionFenced,
    StateConflict,
)
from quire.limits import FIRST_REPEAT_SECONDS, MAX_REPEAT_SECONDS

if TYPE_CHECKING:
    from quire.interface.store import Store
    from quire.interface.transaction import Transaction
    from quire.moments import Duration

T = TypeVar("T")
REPEATED: Final = (ConnectionLost, Deadlock, KeyHeld, LimitReached, LockTimeout, StateConflict)
Entry = tuple[str, int]


def run_transaction(
    store: Store,
    function: Callable[[Transaction], T],
    *,
    attempts: int = 5,
    entry: Entry | None = None,
    timeout: Duration | None = None,
    durable: bool = True,
) -> T:
    """Run a function in a transaction, commit, and return its result; begin anew where that helps.

    The function is called with the transaction, again with a new one after ConnectionLost,
    Deadlock, KeyHeld, LockTimeout, StateConflict and a LimitReached that says when (`retry_after`),
    `attempts` times in all with growing pauses.
    So what it does beside the transaction may happen more than once. After OutcomeUnknown it runs
    again only with an `entry`, a key and a number for the ledger (`Transaction.enter`), by which a
    commit that took effect is known; then the result of that attempt is returned. `timeout` and
    `durable` are those of `store.transaction`.

    Raises what the function raises, and what the last attempt raised; AlreadyCommitted if the entry
    was there before the first.
    """
    repeats = Repeats[T](attempts, entry)
    check_function("function", function, "give a function that takes a transaction")
    while True:
        repeats.begin()
        try:
            if repeats.unknown and repeats.is_entered(store.integration.ledger(repeats.key)):
                return repeats.unknown[-1]
            with store.transaction(timeout=timeout, durable=durable) as txn:
                if entry is not None:
                    txn.enter(*entry)
                result = function(txn)
                check_done("function", function, result)
                repeats.end_function(result)
        except QuireError as error:
            if repeats.has_taken_effect(error):
                return repeats.unknown[-1]
            OsEnv().sleep(repeats.pause_after(error))
        else:
            return result


class Repeats(Generic[T]):
    """The attempts of one transaction: whether there is a next one, and when (AG1, AG2)."""

    def __init__(self, attempts: int, entry: Entry | None) -> None:
        """Raises InvalidArgument."""
        if type(attempts) is not int or attempts < 1:
            raise InvalidArgument(f"attempts = {attempts!r:.100}: give an int above 0")
        self._left = attempts
        if entry is not None and not (isinstance(entry, tuple) and len(entry) == 2):
            raise InvalidArgument(
                f"entry is {entry!r:.100}: give a key and a number, as Transaction.enter takes them"
            )
        self._entry = entry
        self._pause = FIRST_REPEAT_SECONDS
        self.unknown: list[T] = []  # results of attempts whose commits may have taken effect
        self._results: list[T] = []  # of this attempt, once the function has returned

    @property
    def key(self) -> str:
        """The ledger's key of the entry; there is an entry."""
        return "" if self._entry is None else self._entry[0]

    def begin(self) -> None:
        """Begin an attempt."""
        self._left -= 1
        self._results = []

    def end_function(self, result: T) -> None:
        """The function has returned; the commit follows."""
        self._results.append(result)

    def is_entered(self, version: int | None) -> bool:
        """Return True if a ledger with this version for the key has the entry."""
        return self._entry is not None and version is not None and version >= self._entry[1]

    def has_taken_effect(self, error: QuireError) -> bool:
        """Return True if an attempt with an unknown outcome has committed, as this one finds."""
        is_late = bool(self.unknown and self._results)
        return isinstance(error, AlreadyCommitted) and is_late

    def pause_after(self, error: QuireError) -> float:
        """Return the seconds until the next attempt. Raises the error if there is to be none."""
        is_unknown = isinstance(error, OutcomeUnknown) and bool(self._results)
        is_repeated = isinstance(error, REPEATED) and not isinstance(error, SessionFenced)
        least = 0.0
        if isinstance(error, LimitReached):
            is_repeated, least = error.retry_after is not None, error.retry_after or 0.0
        if not (is_repeated or (is_unknown and self._entry is not None)) or self._left <= 0:
            raise error
        if is_unknown:
            self.unknown += self._results
        pause, self._pause = self._pause, min(2 * self._pause, MAX_REPEAT_SECONDS)
        return least + pause * (0.5 + OsEnv().random_u64() / (1 << 65))
