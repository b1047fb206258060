"""Waits for messages: transactions that ask for one that another transaction has.

- WA1: a transaction waits for one message at a time, and says so here before it waits. So a circle
  of transactions that wait for each other is closed by the one that comes last, which is refused;
  that it is a circle is seen under one lock.
- Who has a message is looked up when somebody asks, in what the open transactions have got: a
  get that nobody waits for pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from quire.engine.queues.subscription import Subscription
from quire.env.interpreter import Lock
from quire.errors import Deadlock


class AwaitedMessage(NamedTuple):
    """A message of a subscription, by its position."""

    subscription: Subscription
    position: int


class MessageHolder(Protocol):
    """An open transaction, as far as others wait for what it has got."""

    @property
    def id(self) -> int:
        """Its number."""

    def has(self, subscription: Subscription, position: int) -> bool:
        """Return True if the transaction has the message."""


class MessageWaits:
    """Waits for messages of other transactions. Thread-safe. `holders`: the open ones."""

    def __init__(self, holders: Callable[[], Iterable[MessageHolder]]) -> None:
        self._holders: Final = holders
        self._awaited: dict[int, AwaitedMessage] = {}  # by transaction
        self._lock = Lock()

    def holder(self, place: AwaitedMessage) -> int | None:
        """The transaction that has the message; None: no open one has."""
        for transaction in self._holders():
            if transaction.has(*place):
                return transaction.id
        return None

    @contextmanager
    def wait(self, transaction_id: int, place: AwaitedMessage, what: str) -> Iterator[None]:
        """A block in which the transaction waits for a message. Raises Deadlock (WA1)."""
        with self._lock:
            circle = self._circle(transaction_id, place)
            if circle:
                others = ", ".join(map(str, circle))
                raise Deadlock(
                    f"transaction {transaction_id} asks for {what}, which a transaction has that "
                    f"waits for one of its own (by way of {others}): it has been rolled back, so "
                    "that the others go on; begin anew, and take messages in the same order "
                    "everywhere"
                )
            self._awaited[transaction_id] = place
        try:
            yield
        finally:
            self._awaited.pop(transaction_id, None)

    def _circle(self, transaction_id: int, place: AwaitedMessage) -> list[int]:
        """The transactions by which this one would wait for itself; none: it would not."""
        passed: list[int] = []
        while True:
            holder = self.holder(place)
            if holder == transaction_id:
                return passed
            awaited = None if holder is None else self._awaited.get(holder)
            if holder is None or awaited is None or holder in passed:
                return []
            passed.append(holder)
            place = awaited
