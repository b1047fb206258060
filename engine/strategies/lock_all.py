"""`lock-all`: a commit locks all its queues, and nothing is kept free before.

Source: paragraphs 0065-0068. Kept for comparison: it is the one strategy under which a thread holds
something of two queues at a time (their writers' locks, in the order of the queues' ids).
"""

from __future__ import annotations

from quire.limits import COMMIT_BYTES, OPEN_BYTES


class LockAll:
    """See the module."""

    name = "lock-all"
    locks_queues = True

    def open_need(self, open_transactions: int) -> int:
        return OPEN_BYTES

    def write_need(self, charge: int, open_transactions: int, reserving: int) -> int:
        return charge

    def commit_need(self, open_transactions: int, reserving: int) -> int:
        return COMMIT_BYTES
