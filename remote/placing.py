"""What a client's transaction puts, as its owner notes it for the answer to the commit."""

from __future__ import annotations

from quire.message_id import MessageIds
from quire.transaction import Transaction

from .protocol import Header


class Placing:
    """By queue: the ids of its first messages, and how many each adopted file holds."""

    def __init__(self) -> None:
        self._first: dict[str, MessageIds] = {}
        self._adopted: dict[str, list[int]] = {}

    def put_block(self, transaction: Transaction, queue: str, block: memoryview) -> None:
        """The next messages of a queue."""
        self._note(queue, transaction.put_block(queue, block))

    def adopt(self, transaction: Transaction, queue: str, ltds_id: int) -> None:
        """Likewise, from a file."""
        ids = transaction.adopt(queue, ltds_id)
        self._note(queue, ids)
        self._adopted.setdefault(queue, []).append(len(ids))

    def answer(self) -> Header:
        """Once the transaction has committed: see `protocol`."""
        return {
            queue: [int(ids[0]) if ids else 0, *self._adopted.get(queue, ())]
            for queue, ids in self._first.items()
        }

    def _note(self, queue: str, ids: MessageIds) -> None:
        if not self._first.get(queue):
            self._first[queue] = ids
