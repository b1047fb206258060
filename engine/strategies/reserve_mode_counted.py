"""`reserve-mode-counted`: like reserve mode, but only the commits under way are provided for.

Source: paragraph 0079, the variant that counts R instead of T.
"""

from __future__ import annotations

from quire.limits import COMMIT_BYTES, OPEN_BYTES


class ReserveModeCounted:
    """See the module."""

    name = "reserve-mode-counted"
    locks_queues = False

    def open_need(self, open_transactions: int) -> int:
        return OPEN_BYTES + COMMIT_BYTES * (open_transactions + 1)

    def write_need(self, charge: int, open_transactions: int, reserving: int) -> int:
        return charge + COMMIT_BYTES * reserving

    def commit_need(self, open_transactions: int, reserving: int) -> int:
        return COMMIT_BYTES * reserving
