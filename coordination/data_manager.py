"""A data manager for the package `transaction`: one `transaction.commit()` for Quire and others.

The calls come in this order, for all managers of a transaction in the order of their sort keys:

    commit    tpc_begin, commit, tpc_vote (prepare), tpc_finish (commit what is prepared)
    failure   abort of those that have not voted, then tpc_abort of all
    abort     abort

- A vote that returned is durable: the second phase cannot fail for want of space.
- CM2: it sorts first. So it has voted before a database that cannot prepare commits in its vote
  (the one-phase manager of `zope.sqlalchemy`, which sorts last for that reason), and a tpc_abort
  that comes before it was told to finish comes before anybody else was.
- CM3: once it was told to finish it is never rolled back, not even if that failed. What is left is
  in doubt, and `store.prepared.list()` lists it by its xid.

There are no savepoints: `transaction.savepoint()` raises TypeError while Quire has joined.
"""

from __future__ import annotations

import uuid
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from quire.errors import InvalidArgument
from quire.libraries.late_imports import importing

from .xid import Xid

if TYPE_CHECKING:
    from quire.interface.store import Store
    from quire.interface.transaction import Transaction

FORMAT_ID: Final = 0x717A6F70  # "qzop"


class DataManagerPhase(Enum):
    """The phase of a data manager."""

    JOINED = "joined"
    VOTED = "voted"
    FINISHING = "finishing"
    ENDED = "ended"


def join(store: Store, xid: str | None = None, transaction_manager: Any = None) -> Transaction:
    """The Quire transaction that is part of the current transaction of the package `transaction`.

    Put to and get from it; `transaction.commit()` and `transaction.abort()` end it. Called again
    within the same transaction it gives the same one. `xid`: what `store.prepared.list()` will list
    it as if the process dies between the two phases; drawn if it is not given.
    `transaction_manager`: one of your own, instead of the thread's.
    """
    if transaction_manager is None:
        with importing():
            import transaction

        transaction_manager = transaction.manager
    current = transaction_manager.get()
    try:
        manager = current.data(store)
    except KeyError:
        manager = QuireDataManager(store, xid, transaction_manager)
        current.join(manager)
        current.set_data(store, manager)
        return manager.quire_transaction
    if xid not in (None, manager.xid):
        raise InvalidArgument(
            f"xid {xid!r}: Quire is part of this transaction already, as {manager.xid!r}"
        )
    quire_transaction: Transaction = manager.quire_transaction
    return quire_transaction


class QuireDataManager:
    """The object that the package `transaction` calls to commit or abort Quire's part. Made by
    `join`.

    Its vote prepares, durably, and it votes first; once it was told to finish it is never rolled
    back, and what is left in doubt then is listed by `store.prepared.list()`.
    """

    def __init__(
        self, store: Store, xid: str | None = None, transaction_manager: Any = None
    ) -> None:
        self.transaction_manager = transaction_manager
        self.xid = str(Xid.from_parts(FORMAT_ID, uuid.uuid4().hex, "quire")) if xid is None else xid
        self.quire_transaction = store.transaction()
        self._store = store
        self._phase = DataManagerPhase.JOINED

    def abort(self, transaction: Any) -> None:
        """Roll back. Also called when hooks were run after a commit; then it does nothing."""
        if self._phase is DataManagerPhase.JOINED:
            self.quire_transaction.rollback()
            self._phase = DataManagerPhase.ENDED

    def tpc_begin(self, transaction: Any) -> None:
        """A commit begins."""

    def commit(self, transaction: Any) -> None:
        """Do nothing before the vote."""

    def tpc_vote(self, transaction: Any) -> None:
        """Prepare. Raises what `Transaction.prepare` raises: then nobody commits."""
        try:
            self.quire_transaction.prepare(self.xid)
        finally:
            if self.quire_transaction.state == "prepared":  # also where an interrupt came with it
                self._phase = DataManagerPhase.VOTED

    def tpc_finish(self, transaction: Any) -> None:
        """Commit what was prepared."""
        self._phase = DataManagerPhase.FINISHING
        self._store.prepared.commit(self.xid)
        self._phase = DataManagerPhase.ENDED

    def tpc_abort(self, transaction: Any) -> None:
        """Roll back, prepared or not, unless it was told to finish (CM3)."""
        if self._phase is DataManagerPhase.VOTED:
            self._store.prepared.rollback(self.xid)
            self._phase = DataManagerPhase.ENDED
        self.abort(transaction)

    def sortKey(self) -> str:  # noqa: N802 - the name that the package calls
        """Return a key by which it votes before all others, and is aborted before them (CM2)."""
        return f"!quire:{self._store.path}:{id(self)}"
