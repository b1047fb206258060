"""The open transactions of a store: what is told of them, and what others do to them.

- RG1: a transaction is here from its beginning to its end, or until it is prepared. Its user alone
  holds it: one that is dropped open is handed to `drop` by its finaliser, and rolled back by the
  next call of `reap`. A finaliser runs anywhere, also under any lock: it does no more than that.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import Final, Protocol
from weakref import ref

from quire.engine.queues.subscription import Subscription
from quire.env.interpreter import numbers_from
from quire.errors import (
    NotAllowed,
    QuireError,
    TransactionAborted,
    TransactionNotFound,
    TransactionTimeout,
)
from quire.reports.info import TransactionInfo
from quire.writebuffer import WriteBuffer

_LATE: Final = (
    "the transaction was open for too long and has been rolled back: begin anew, or give "
    "transaction(timeout=...) more seconds"
)
_ABORTED: Final = (
    "the transaction was aborted on demand (store.abort) and has been rolled back: begin anew"
)


def reason_of_end(kind: type[QuireError], text: str) -> str:
    """The reason why the messages of a transaction failed that others than its user ended."""
    return f"{kind.__name__}: {text}"


class EndCallback:
    """Stands where a thread waits in a queue, for a get that waits in none: called at the end."""

    __slots__ = ("wake",)
    lock: Final = nullcontext()

    def __init__(self, callback: Callable[[], None]) -> None:
        self.wake: Final = callback

    def wake_all(self) -> None:
        """Nothing is waited for that the coming end has to interrupt."""


class BufferUser(Protocol):
    """A user of a write buffer, with messages in it."""

    def leave(self, buffer: WriteBuffer | None) -> bool:
        """Leave it (None: all of them); whether there was anything."""


class OpenTransaction(BufferUser, Protocol):
    """A transaction, as far as others than its user see it (see `life`)."""

    opened: float  # as of the monotonic clock
    deadline: float
    put_timeout: float | None  # seconds that its user lets puts wait
    is_own: bool  # the store's

    @property
    def id(self) -> int:
        """Its number."""

    @property
    def state(self) -> str:
        """As of a transaction."""

    def has(self, subscription: Subscription, position: int) -> bool:
        """Return True if the transaction has the message."""

    def keeps(self, subscription: Subscription, position: int) -> bool:
        """Return True if the transaction keeps the message from others, and has not got it."""

    def takes_as(self, taker: object) -> bool:
        """Return True if this is what the transaction takes messages as."""

    def info(self) -> TransactionInfo:
        """Return a description of the transaction."""

    def give_up(self) -> None:
        """Roll back, but not what is prepared."""

    def end_by(self, kind: type[QuireError], text: str, *, wait: bool) -> bool:
        """Roll back for another reason than its user's; whether that was done."""

    def abandon(self, reason: str) -> None:
        """It cannot be used any more, and nothing is undone."""


class Registry:
    """The open transactions of a store. Thread-safe."""

    def __init__(self) -> None:
        self.open: dict[int, ref[OpenTransaction]] = {}
        self.new_id = numbers_from(1)
        self.dropped: deque[OpenTransaction] = deque()
        self.is_draining = False  # no more are begun, as the store is being shut down
        # Told by who serves the store, and closes it then: how long open ones may go on.
        self.on_shutdown: Callable[[float], None] | None = None

    def __iter__(self) -> Iterator[OpenTransaction]:
        """The open transactions, the oldest first."""
        for reference in list(self.open.values()):
            transaction = reference()
            if transaction is not None:
                yield transaction

    def drop(self, transaction: OpenTransaction) -> None:
        """Nobody holds the open transaction any more (RG1)."""
        self.dropped.append(transaction)

    @property
    def held(self) -> bool:
        """Return True if anybody holds an open transaction."""
        return len(self.open) > len(self.dropped)

    def reap(self) -> bool:
        """Roll back those that were dropped; whether there were any."""
        found = False
        while self.dropped:
            try:
                transaction = self.dropped.popleft()
            except IndexError:  # another thread was faster
                break
            transaction.give_up()
            found = True
        return found

    def get(self, transaction_id: int) -> OpenTransaction | None:
        """By its number."""
        reference = self.open.get(transaction_id)
        return None if reference is None else reference()

    def expire(self, now: float) -> int:
        """Roll back the transactions whose time is over; how many."""
        self.reap()
        return sum(
            transaction.end_by(TransactionTimeout, _LATE, wait=False)
            for transaction in self
            if transaction.deadline <= now
        )

    def infos(self) -> list[TransactionInfo]:
        """Return the descriptions of all open transactions, the oldest first."""
        self.reap()
        return [transaction.info() for transaction in self]

    def info(self, transaction_id: int) -> TransactionInfo:
        """Return the description of a transaction. Raises TransactionNotFound."""
        transaction = self.get(transaction_id)
        info = None if transaction is None else transaction.info()
        if info is None or transaction is None or transaction.state != "open":  # meanwhile
            raise _not_open(transaction_id)
        return info

    def abort(self, transaction_id: int) -> None:
        """Roll back somebody's transaction. Raises TransactionNotFound."""
        transaction = self.get(transaction_id)
        if transaction is None or not transaction.end_by(TransactionAborted, _ABORTED, wait=True):
            raise _not_open(transaction_id)

    def shut_down(self, grace_seconds: float) -> None:
        """Have who serves the store close it. Raises NotAllowed where nobody does."""
        if self.on_shutdown is None:
            raise NotAllowed(
                "the process that owns the store is a program that uses it, and not `quire serve`: "
                "no client may shut it down; end that program (`quire status` tells its process), "
                "or have it close the store"
            )
        self.is_draining = True
        self.on_shutdown(grace_seconds)

    def leave_buffer(self, before: float) -> None:
        """Have transactions that were begun before leave the write buffer."""
        for transaction in self:
            if transaction.opened < before:
                transaction.leave(None)

    def relieve(self, buffer: WriteBuffer, asking: int, own: BufferUser) -> None:
        """Have transactions leave a write buffer until there is room (OV1), the asking one too."""
        index = 0
        while buffer.full:
            holder = buffer.holder(index)
            if holder is None:
                return
            left = own.leave(buffer) if holder == asking else self._spill(holder, buffer)
            if not left:
                index += 1

    def _spill(self, transaction_id: int, buffer: WriteBuffer) -> bool:
        """Have another one leave it; whether anything left."""
        transaction = self.get(transaction_id)
        with suppress(QuireError):  # its own trouble: if it was rolled back, its owner will see
            return transaction is not None and transaction.leave(buffer)
        return False


def owner_name(owner: str | int) -> str:
    """Return the words for an owner: a client by name, a thread of this process by number."""
    if isinstance(owner, str):
        return owner
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return f"thread {names.get(owner, owner)} of the store's process"


def _not_open(transaction_id: int) -> TransactionNotFound:
    return TransactionNotFound(
        f"there is no open transaction {transaction_id}: store.admin.transactions() lists them, "
        "store.prepared.list() those that are prepared"
    )
