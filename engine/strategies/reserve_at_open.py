"""`reserve-at-open`: room for the commit record is kept from a transaction's opening on.

Source: paragraphs 0069-0073. Every write leaves room for the commit records of all open
transactions, so that a commit has nothing to check.
"""

from __future__ import annotations

from quire.limits import COMMIT_BYTES, OPEN_BYTES


class ReserveAtOpen:
    """See the module."""

    name = "reserve-at-open"
    locks_queues = False

    def open_need(self, open_transactions: int) -> int:
        return OPEN_BYTES + COMMIT_BYTES * (open_transactions + 1)

    def write_need(self, charge: int, open_transactions: int, reserving: int) -> int:
        return charge + COMMIT_BYTES * open_transactions

    def commit_need(self, open_transactions: int, reserving: int) -> int:
        return 0
