"""`reserve-mode`, the default: writers look at the reservations only while a commit is under way.

Source: paragraphs 0074-0078. A commit puts its queues, one after another, into reserve mode and
checks each for the commit records of all its open transactions; from then until the queue's commit
record is there, writers have to leave that much.
"""

from __future__ import annotations

from quire.limits import COMMIT_BYTES, OPEN_BYTES


class ReserveMode:
    """See the module."""

    name = "reserve-mode"
    locks_queues = False

    def open_need(self, open_transactions: int) -> int:
        return OPEN_BYTES + COMMIT_BYTES * (open_transactions + 1)

    def write_need(self, charge: int, open_transactions: int, reserving: int) -> int:
        return charge + COMMIT_BYTES * open_transactions if reserving else charge

    def commit_need(self, open_transactions: int, reserving: int) -> int:
        return COMMIT_BYTES * open_transactions
