"""The files that blocks have put into their transactions, until it is known what became of those.

- KU1: a file whose transaction was rolled back is removed before the state is changed the next
  time: the store itself removes it after a day. A file is never removed that a transaction, or a
  commit, has.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from weakref import ref

from quire.errors import QuireError
from quire.interface.integration import Integration
from quire.interface.transaction import Transaction

from .manifest import KeyedManifest


class PutRunFiles:
    """The files that this process has put into transactions for a keyed state. Thread-safe."""

    def __init__(self, integration: Integration) -> None:
        self._integration = integration
        self._put: deque[tuple[ref[Transaction], int]] = deque()

    def note(self, txn: Transaction, file: int) -> None:
        """Note that the transaction is to adopt a file; 0: there is none."""
        if file:
            self._put.append((ref(txn), file))

    def remove_left(self, manifest: KeyedManifest) -> None:
        """Remove those whose transaction was rolled back (KU1)."""
        left, open_ones = list[int](), list[tuple[ref[Transaction], int]]()
        named = {run.file for run in manifest.runs} if self._put else set()
        while self._put:
            with suppress(IndexError):  # another thread was faster
                of, file = self._put.popleft()
                txn = of()
                if txn is not None and txn.state in ("open", "prepared"):
                    open_ones.append((of, file))
                elif file not in named and (txn is None or txn.state == "rolled back"):
                    left.append(file)
        self._put.extend(open_ones)
        if left:
            with suppress(QuireError):  # then they are left to age
                self._integration.remove_fragments(left)
