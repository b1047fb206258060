"""Space rules of a queue, and the reservation counters that they are about.

Source: "Managing message queues" (JP 2008-547130), paragraphs 0069-0079. Sizes are bytes; T is the
number of transactions that are open in the queue, R how many commits hold it in reserve mode. What
has to be available is for the store's strategy to say (`strategies`). Under `reserve-mode`, the
default:

- S1: to open, available >= OPEN_BYTES + COMMIT_BYTES * (T + 1)
- S2: to write s while R > 0, available >= s + COMMIT_BYTES * T; while R = 0, available >= s
- S3: to commit, R += 1, then available >= COMMIT_BYTES * T

`Space` is changed under its queue's lock only; every method is a check followed by its effect, so a
`QueueFull` leaves all as it was.
"""

from __future__ import annotations

import threading

from quire.engine.strategies import Strategy
from quire.errors import QueueDisabled, QueueFull
from quire.limits import COMMIT_BYTES, OPEN_BYTES


class Space:
    """How much of a queue's capacity is taken, by whom, and what may still be taken."""

    __slots__ = (
        "capacity", "is_guarded", "live_messages", "max_messages", "name", "open_transactions",
        "pending_bytes", "pending_messages", "prepared", "prepared_bytes", "prepared_messages",
        "puts", "reserving", "room", "stopped", "strategy", "used",
    )  # fmt: skip

    def __init__(
        self, name: str, capacity: int, max_messages: int | None, strategy: Strategy
    ) -> None:
        self.name = name
        self.strategy = strategy
        self.capacity = capacity
        self.max_messages = max_messages
        self.puts = True
        self.stopped = ""  # why nothing can be put, in words
        self.is_guarded = max_messages is not None  # a put has more to pass than the capacity
        self.used = 0  # committed and unread, and what open and prepared transactions hold
        self.pending_bytes = 0  # the part of open transactions
        self.live_messages = 0  # committed, not yet read by every subscription
        self.pending_messages = 0  # of open transactions
        self.open_transactions = 0  # T
        self.reserving = 0  # R
        self.prepared = 0  # transactions that wait for their decision
        self.prepared_bytes = 0  # what they hold, their commit records included
        self.prepared_messages = 0
        self.room: threading.Condition | None = None  # of commits that wait for space

    def limit(self, capacity: int, max_messages: int | None, puts: bool) -> None:
        """What may be taken is altered; what is taken stays, also where it is more than that."""
        self.capacity = capacity
        self.max_messages = max_messages
        self.puts = puts
        self.guard()
        self._freed()

    def guard(self) -> None:
        """Whether a put has more to pass than the capacity may have changed."""
        self.is_guarded = self.max_messages is not None or not self.puts or bool(self.stopped)

    def open(self, charge: int = 0, messages: int = 0) -> None:
        """S1: a transaction's first write to the queue; with messages, S2 of them too."""
        if self.is_guarded:
            self._check(messages)
        size = charge + OPEN_BYTES
        opened = self.open_transactions
        available = self.capacity - self.used
        if available < size + COMMIT_BYTES * (opened + self.reserving + 2):  # not plenty
            strategy = self.strategy
            need = strategy.open_need(opened)
            if available < need:
                raise self._full("a transaction cannot be opened in it", need)
            need = OPEN_BYTES + strategy.write_need(charge, opened + 1, self.reserving)
            if messages and available < need:
                raise self._full(f"{charge} bytes more do not fit", need)
        self.open_transactions = opened + 1
        self.used += size
        self.pending_bytes += size
        self.pending_messages += messages

    def write(self, charge: int, messages: int) -> None:
        """S2: messages of an open transaction."""
        if self.is_guarded:
            self._check(messages)
        if self._low(charge):
            need = self.strategy.write_need(charge, self.open_transactions, self.reserving)
            if self.capacity - self.used < need:
                raise self._full(f"{charge} bytes more do not fit", need)
        self.used += charge
        self.pending_bytes += charge
        self.pending_messages += messages

    def reserve(self) -> None:
        """S3: a commit announces itself."""
        reserving = self.reserving + 1
        plenty = COMMIT_BYTES * (self.open_transactions + reserving)
        if self.capacity - self.used < plenty:
            need = self.strategy.commit_need(self.open_transactions, reserving)
            if self.capacity - self.used < need:
                raise self._full("the commit records of its open transactions do not fit", need)
        self.reserving = reserving

    def unreserve(self) -> None:
        self.reserving -= 1
        self._freed()

    def may_commit(self) -> bool:
        """Whether `reserve` would find room."""
        need = self.strategy.commit_need(self.open_transactions, self.reserving + 1)
        return self.capacity - self.used >= need

    def whole(self, charge: int) -> None:
        """S1, S2 and S3 at once: a transaction of one message made under one hold of the lock."""
        if self.is_guarded:
            self._check(1)
        size = charge + OPEN_BYTES
        opened, reserving = self.open_transactions, self.reserving
        if self.capacity - self.used < size + COMMIT_BYTES * (opened + reserving + 2):  # not plenty
            strategy = self.strategy
            need = max(
                strategy.open_need(opened),
                OPEN_BYTES + strategy.write_need(charge, opened + 1, reserving),
                OPEN_BYTES + charge + strategy.commit_need(opened + 1, reserving + 1),
            )
            if self.capacity - self.used < need:
                raise self._full(f"{charge} bytes more do not fit", need)
        self.used += size
        self.pending_bytes += size
        self.pending_messages += 1
        self.open_transactions = opened + 1
        self.reserving = reserving + 1

    def commit(self, charge: int, messages: int) -> None:
        """The queue's commit record is written: T and R go down, the messages are the queue's.

        `charge` includes the control records.
        """
        self.used += COMMIT_BYTES
        self.pending_bytes -= charge - COMMIT_BYTES
        self.open_transactions -= 1
        self.reserving -= 1
        self.pending_messages -= messages
        self.live_messages += messages
        if self.room is not None:
            self.room.notify_all()

    def recovered(self, charge: int, messages: int) -> None:
        """A commit that is read from the journal."""
        self.used += charge
        self.live_messages += messages

    def prepare(self, charge: int, messages: int) -> None:
        """The transaction is prepared: its commit record is taken now, so T and R go down.

        `charge` includes the control records.
        """
        self.used += COMMIT_BYTES
        self.pending_bytes -= charge - COMMIT_BYTES
        self.open_transactions -= 1
        self.reserving -= 1
        self.pending_messages -= messages
        self.keep_prepared(charge, messages)
        self._freed()

    def recovered_prepared(self, charge: int, messages: int) -> None:
        """A prepared transaction that is read from the journal."""
        self.used += charge
        self.keep_prepared(charge, messages)

    def keep_prepared(self, charge: int, messages: int) -> None:
        """Of what is used, so much is a prepared transaction's."""
        self.prepared += 1
        self.prepared_bytes += charge
        self.prepared_messages += messages

    def commit_prepared(self, charge: int, messages: int) -> None:
        """A prepared transaction is committed; that needs no space (promise 5)."""
        self._decided(charge, messages)
        self.live_messages += messages

    def rollback_prepared(self, charge: int, messages: int) -> None:
        """A prepared transaction is rolled back."""
        self._decided(charge, messages)
        self.used -= charge
        self._freed()

    def _decided(self, charge: int, messages: int) -> None:
        self.prepared -= 1
        self.prepared_bytes -= charge
        self.prepared_messages -= messages

    def abandon(self, charge: int, messages: int) -> None:
        """An open transaction is rolled back; `charge` is what it had written."""
        self.used -= charge + OPEN_BYTES
        self.pending_bytes -= charge + OPEN_BYTES
        self.pending_messages -= messages
        self.open_transactions -= 1
        if self.room is not None:  # no call else: see `Written.held`
            self.room.notify_all()

    def release(self, charge: int, messages: int) -> None:
        """Messages have been read by every subscription."""
        self.used -= charge
        self.live_messages -= messages
        if self.room is not None:
            self.room.notify_all()

    def correct(self, charge: int) -> None:
        """What partly released messages are charged was taken anew."""
        self.used += charge
        self._freed()

    def _freed(self) -> None:
        if self.room is not None:
            self.room.notify_all()

    def _low(self, size: int) -> bool:
        """Whether so little is available that a strategy might refuse; the usual case is not."""
        need = size + COMMIT_BYTES * (self.open_transactions + self.reserving + 2)
        return self.capacity - self.used < need

    def _check(self, messages: int) -> None:
        if self.stopped:
            raise QueueDisabled(self.stopped)
        if not self.puts:
            raise QueueDisabled(
                f"queue {self.name!r} is stopped for puts: alter_queue({self.name!r}, puts=True) "
                "lets them in again"
            )
        if self.max_messages is not None:
            held = self.live_messages + self.pending_messages + self.prepared_messages
            if held + messages > self.max_messages:
                full = self._full(f"it holds at most {self.max_messages} messages", 0)
                full.lacks_messages = held + messages - self.max_messages
                raise full

    def _full(self, why: str, need_bytes: int) -> QueueFull:
        error = QueueFull(
            f"queue {self.name!r} is full: {why} ({self.used} of {self.capacity} bytes used, "
            f"{self.open_transactions} open and {self.prepared} prepared transactions); read and "
            "commit from it, or drop subscriptions that nobody reads, then try again"
        )
        error.queue = self.name
        error.lacks_bytes = max(need_bytes - (self.capacity - self.used), 0)
        return error
