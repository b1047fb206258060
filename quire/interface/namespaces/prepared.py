"""Prepared transactions that wait for a decision: `store.prepared`."""

# mypy: disable-error-code="empty-body"
# The body of a row is its call.

from __future__ import annotations

import builtins

from quire.calls.call_table import Subject, look
from quire.interface.integration import CallTarget
from quire.reports.info import PreparedInfo


class Prepared(Subject, path="prepared"):
    """`store.prepared`: two-phase commit, its second phase (see `Transaction.prepare`).

    What every method raises is told with `Store`.
    """

    __slots__ = ()
    _of: CallTarget

    @look(needs="admin store")
    def list(self) -> builtins.list[PreparedInfo]:
        """The prepared transactions that wait for a decision, the oldest first."""

    def commit(self, xid: str) -> None:
        """Commit a prepared transaction (see `Transaction.prepare`), by whomever it was prepared.

        A queue that is full does not matter. Raises TransactionNotFound: it was decided already,
        or there was none; DiskFull, StoreFailed and OutcomeUnknown leave it prepared, or decided
        (see `list`); StoreCorrupt, where what it has got cannot be released for damage, leaves
        it prepared.
        """
        self._of.decide(xid, commit=True)

    def rollback(self, xid: str) -> None:
        """Roll a prepared transaction back. Raises as `commit`."""
        self._of.decide(xid, commit=False)
