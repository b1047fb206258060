"""The puts of a client's transaction, as its owner notes them for the answer to the commit."""

from __future__ import annotations

from typing import Protocol

from quire.arguments import Bytes
from quire.errors import QueueNotFound
from quire.interface.transaction import Transaction
from quire.messages.message_id import MessageId, MessageIds

from .protocol import COMMITTED, HEAD, MESSAGE_ID, Header


class PutsBlocks(Transaction, Protocol):
    """A transaction that is served."""

    def put_moved_block(self, queue: str, data: Bytes) -> MessageIds:
        """Put a block of messages that are moved, as `put_block` of its `integration` does."""


class Placing:
    """The ids of each queue's first messages, in the order of the first puts, and how many each
    adopted file holds."""

    __slots__ = ("_adopted", "_empty", "first")

    def __init__(self) -> None:
        self.first: dict[str, MessageId | MessageIds] = {}
        self._empty: set[str] = set()  # whose first put holds no message
        self._adopted: dict[str, list[int]] = {}

    def put_block(
        self, transaction: PutsBlocks, queue: str, block: Bytes, *, is_moved: bool
    ) -> MessageIds:
        """The next messages of a queue."""
        if is_moved:
            ids = transaction.put_moved_block(queue, block)
        else:
            ids = transaction.integration.put_block(queue, block)
        self._note(queue, ids)
        return ids

    def adopt(self, transaction: Transaction, queue: str, ltds_id: int) -> None:
        """Likewise, from a file."""
        ids = transaction.integration.adopt(queue, ltds_id)
        self._note(queue, ids)
        self._adopted.setdefault(queue, []).append(len(ids))

    def answer(self) -> Header:
        """Once the transaction has committed: see `protocol`."""
        return {queue: [self._id(queue), *self._adopted.get(queue, ())] for queue in self.first}

    def limits(self) -> Header:
        """Return when the messages expire, of queues that say so (`MessageId.expires_by`)."""
        found = {queue: ids.run.expires_by for queue, ids in self.first.items()}
        return {queue: limit for queue, limit in found.items() if limit is not None}

    def short_answer(self, stream: int) -> bytes | None:
        """The places as a COMMITTED frame; None where that cannot hold them."""
        if self._adopted:
            return None
        for first in self.first.values():
            if first.run.expires_by is not None:
                return None
        ids = [MESSAGE_ID.pack(self._id(queue)) for queue in self.first]
        return HEAD.pack(MESSAGE_ID.size * len(ids), COMMITTED, stream) + b"".join(ids)

    def check(self) -> None:
        """Raises QueueNotFound where two names are of one queue: their puts have no order.

        Then it was renamed, and its old name is an alias; a client that knows it so asks anew.
        """
        if len(self.first) > 1:
            queues = {id(first.run) for first in self.first.values()}
            if len(queues) < len(self.first):
                raise QueueNotFound(
                    f"of the queues {', '.join(self.first)} one was renamed meanwhile: roll back, "
                    "and begin the transaction anew"
                )

    def _id(self, queue: str) -> int:
        if queue in self._empty:
            return 0
        ids = self.first[queue]
        return int(ids if isinstance(ids, MessageId) else ids[0])

    def _note(self, queue: str, ids: MessageIds) -> None:
        if queue not in self.first or queue in self._empty:
            self.first[queue] = ids
            (self._empty.discard if len(ids) else self._empty.add)(queue)
