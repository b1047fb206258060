"""Space rules of a queue, and the reservation counters that they are about.

Source: "Managing message queues" (JP 2008-547130), paragraphs 0069-0079. Sizes are bytes; T is the
number of transactions that are open in the queue, R how many commits hold it in reserve mode:

- S1: to open, available >= OPEN_BYTES + COMMIT_BYTES * (T + 1)
- S2: to write s, available >= s + COMMIT_BYTES * T
- S3: to commit, R += 1, then available >= what the store's strategy says (`strategies`), which is
  COMMIT_BYTES * T at most

So COMMIT_BYTES * T are available after each of them, and S3 finds its room: what was accepted
commits, whatever others put and whoever commits first, though nobody reads (promise 5). Where the
patent has writers use the last byte while no commit is under way, a transaction that did could
never be committed if nobody read. Only where the capacity was lowered below what is taken does a
commit wait for readers.

`Space` is changed under its queue's lock only; every method is a check followed by its effect, so a
`QueueFull` leaves all as it was.

- S4: but where there is plenty for all commit records, a commit raises R without the lock, in one
  step with its look: a statement without a call, and what follows it, is never interrupted by
  another thread (see C13 of `sequencer`). S1 and S2 do not ask for R. Without the GIL every commit
  takes the lock.
"""

from __future__ import annotations

from typing import Final

from quire.calls.wake_up import Condition
from quire.engine.state.durable_state import QueueConfig
from quire.engine.strategies import Strategy
from quire.errors import ArchiveFull, InvalidArgument, QueueDisabled, QueueFull, StoreFull
from quire.limits import COMMIT_BYTES, CONTROL_BYTES, MESSAGE_OVERHEAD_BYTES, OPEN_BYTES

from .header_rules import looked_at

Refused = tuple[str, int, int]
"""By which rule, bytes, messages."""
OPEN: Final = "open"
WRITE: Final = "write"
COMMIT: Final = "commit"
WHOLE: Final = "whole"  # all three at once


class Space:
    """How much of a queue's capacity is taken, by whom, and what may still be taken."""

    __slots__ = (
        "capacity", "has_remedy", "is_guarded", "is_typed", "is_unread", "live_messages",
        "looked_at", "max_messages", "most_bytes", "name", "no_room", "open_transactions", "passes",
        "pending_bytes", "pending_messages", "prepared", "prepared_bytes", "prepared_messages",
        "reserving", "room", "stopped", "strategy", "used",
        "waits_for",
    )  # fmt: skip

    def __init__(self, config: QueueConfig, strategy: Strategy) -> None:
        self.strategy = strategy
        self.room: Condition | None = None  # of commits that wait for space
        self.is_unread = False  # nobody reads, and nothing gives way
        self.passes = False  # what is not asked for counts as read
        self.limit(config)
        self.used = 0  # committed and unread, and what open and prepared transactions hold
        self.pending_bytes = 0  # the part of open transactions
        self.live_messages = 0  # committed, not yet read by every subscription
        self.pending_messages = 0  # of open transactions
        self.open_transactions = 0  # T
        self.reserving = 0  # R
        self.prepared = 0  # transactions that wait for their decision
        self.prepared_bytes = 0  # what they hold, their commit records included
        self.prepared_messages = 0

    def limit(
        self, config: QueueConfig, stopped: str = "", waits_for: str = "", no_room: str = ""
    ) -> None:
        """Set the limits anew. What is taken stays, also where it is more than that.

        `stopped`: why nothing may be put, if so; `waits_for`: why puts wait, room or not;
        `no_room`: why there is none on the disk.
        """
        properties = config.properties
        self.name = config.name
        self.capacity = config.capacity
        self.max_messages = config.max_messages
        self.has_remedy = properties.has_remedy  # where there is no room, something may be done
        self.stopped = stopped
        self.waits_for = waits_for
        self.no_room = no_room
        self.most_bytes = properties.max_message_bytes  # of a message
        self.looked_at = looked_at(properties)  # what puts may ask for their messages, or not
        self.is_typed = properties.schema is not None  # its messages are rows
        self.is_guarded = (  # a put has more to pass than the capacity
            self.max_messages is not None
            or bool(stopped or waits_for or no_room)
            or self.most_bytes is not None
            or self.is_typed
        )
        self._freed()

    def open(self, charge: int = 0, messages: int = 0) -> None:
        """S1: a transaction's first write to the queue; with messages, S2 of them too."""
        if self.is_guarded:
            if messages:
                self.check_form(is_row=False)  # as a row never comes with it
            self._check(charge, messages)
        size = charge + OPEN_BYTES
        opened = self.open_transactions
        available = self.capacity - self.used
        if available < size + COMMIT_BYTES * (opened + 1):
            why = f"{charge} bytes more do not fit"
            if available < OPEN_BYTES + COMMIT_BYTES * (opened + 1):
                why = "a transaction cannot be opened in it"
            raise self._full(why, (OPEN, charge, messages))
        self.open_transactions = opened + 1
        self.used += size
        self.pending_bytes += size
        self.pending_messages += messages

    def write(self, charge: int, messages: int, is_whole: bool = True) -> None:
        """S2: messages of an open transaction; or a part of one, which may be of any size."""
        if self.is_guarded:
            self._check(charge, messages, is_whole)
        if self.capacity - self.used < charge + COMMIT_BYTES * self.open_transactions:
            raise self._full(f"{charge} bytes more do not fit", (WRITE, charge, messages))
        self.used += charge
        self.pending_bytes += charge
        self.pending_messages += messages

    def unwrite(self, charge: int, messages: int) -> None:
        """They are not put after all; the transaction stays open."""
        self.used -= charge
        self.pending_bytes -= charge
        self.pending_messages -= messages
        self._freed()

    def reserve(self) -> None:
        """S3: a commit announces itself."""
        if self.capacity - self.used < self._need(COMMIT, 0):
            why = "its capacity was lowered, and the commit records of its transactions do not fit"
            raise self._full(why, (COMMIT, 0, 0))
        self.reserving += 1

    def unreserve(self) -> None:
        self.reserving -= 1
        self._freed()

    def lack(self, full: QueueFull) -> tuple[int, int]:
        """Return the bytes missing now for a refused put, and the messages that are too many."""
        rule, charge, messages = full.refused
        missing = self._need(rule, charge) - (self.capacity - self.used)
        if self.waits_for:
            missing = max(missing, 1)
        too_many = 0
        if self.max_messages is not None and messages:
            too_many = self.held + messages - self.max_messages
        return max(missing, 0), max(too_many, 0)

    def may_admit(self, full: QueueFull) -> bool:
        """Return True if a refused put would find room in the empty queue."""
        _, charge, messages = full.refused
        most = self.max_messages
        return charge <= self.capacity and (most is None or messages <= most)

    def _need(self, rule: str, charge: int) -> int:
        """Bytes that have to be available, as things are."""
        if rule == COMMIT:
            return self.strategy.commit_need(self.open_transactions, self.reserving + 1)
        kept = charge + COMMIT_BYTES * self.open_transactions
        return kept if rule == WRITE else kept + OPEN_BYTES + COMMIT_BYTES

    @property
    def held(self) -> int:
        """How many messages count against the queue's number."""
        return self.live_messages + self.pending_messages + self.prepared_messages

    def whole(self, charge: int) -> None:
        """S1, S2 and S3 at once: a transaction of one message made under one hold of the lock.

        It takes its commit record too, so that it counts neither in T nor in R.
        """
        if self.is_guarded:
            self.check_form(is_row=False)
            self._check(charge, 1)
        size = charge + CONTROL_BYTES
        if self.capacity - self.used < size + COMMIT_BYTES * self.open_transactions:
            raise self._full(f"{charge} bytes more do not fit", (WHOLE, charge, 1))
        self.used += size
        self.pending_bytes += size
        self.pending_messages += 1

    def commit_whole(self, charge: int, messages: int) -> None:
        """Make the reservation of `whole` the queue's; `charge` includes the control records."""
        self.pending_bytes -= charge
        self.pending_messages -= messages
        self.live_messages += messages

    def abandon_whole(self, charge: int) -> None:
        """Give back the reservation of `whole`."""
        self.unwrite(charge + CONTROL_BYTES, 1)

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

    def prepare(self, charge: int, messages: int) -> None:
        """A transaction is prepared: its commit record is taken, its messages wait."""
        self.commit(charge, messages)
        self.live_messages -= messages
        self.keep_prepared(charge, messages)

    def recovered(self, charge: int, messages: int) -> None:
        """A commit that is read from the journal."""
        self.used += charge
        self.live_messages += messages

    def recovered_prepared(self, charge: int, messages: int) -> None:
        """A prepared transaction that is read from the journal."""
        self.used += charge
        self.keep_prepared(charge, messages)

    def keep_prepared(self, charge: int, messages: int, transactions: int = 1) -> None:
        """Note that so much more of the used space belongs to prepared transactions."""
        self.prepared += transactions
        self.prepared_bytes += charge
        self.prepared_messages += messages

    def commit_prepared(self, charge: int, messages: int) -> None:
        """A prepared transaction is committed; that needs no space (promise 5)."""
        self.keep_prepared(-charge, -messages, -1)
        self.live_messages += messages

    def rollback_prepared(self, charge: int, messages: int) -> None:
        """A prepared transaction is rolled back."""
        self.keep_prepared(-charge, -messages, -1)
        self.used -= charge
        self._freed()

    def abandon(self, charge: int, messages: int) -> None:
        """An open transaction is rolled back; `charge` is what it had written."""
        if self.room is not None:  # first: no call comes after the change (PU4)
            self.room.notify_all()
        self.used -= charge + OPEN_BYTES
        self.pending_bytes -= charge + OPEN_BYTES
        self.pending_messages -= messages
        self.open_transactions -= 1

    def release(self, charge: int, messages: int) -> None:
        """Messages have been read by every subscription."""
        self.used -= charge
        self.live_messages -= messages
        if self.room is not None:
            self.room.notify_all()

    def correct(self, charge: int) -> None:
        """Add a correction to the charge of partly released messages."""
        self.used += charge
        self._freed()

    def _freed(self) -> None:
        if self.room is not None:
            self.room.notify_all()

    def check_size(self, charge: int) -> None:
        """Raises InvalidArgument for a message that is larger than the queue takes."""
        if self.most_bytes is not None and charge - MESSAGE_OVERHEAD_BYTES > self.most_bytes:
            raise InvalidArgument(
                f"a message of {charge - MESSAGE_OVERHEAD_BYTES} bytes: queue {self.name!r} takes "
                f"up to {self.most_bytes} each (max_message_bytes), payload, strings and "
                "attributes together; put a smaller one, or alter_queue it"
            )

    def check_form(self, *, is_row: bool) -> None:
        """Raises InvalidArgument for bytes where messages are rows, and the other way round."""
        if self.is_typed and not is_row:
            raise InvalidArgument(
                f"queue {self.name!r} is typed: put a mapping of its columns, and put_many tables; "
                "queue(name).schema tells the columns"
            )
        if is_row and not self.is_typed:
            raise InvalidArgument(
                f"queue {self.name!r} holds bytes: encode the value first (quire.codecs), or make "
                "a queue with a schema"
            )

    def _check(self, charge: int, messages: int, is_whole: bool = True) -> None:
        if self.stopped:
            raise QueueDisabled(self.stopped)
        if self.no_room:
            store_full = StoreFull(self.no_room)
            store_full.queue, store_full.refused = self.name, (WRITE, charge, messages)
            raise store_full
        if self.waits_for:
            full = ArchiveFull(self.waits_for)
            full.queue, full.refused, full.has_remedy = self.name, (WRITE, charge, messages), True
            raise full
        if is_whole and messages == 1:  # of more, who puts them has looked at each
            self.check_size(charge)
        if self.max_messages is not None and self.held + messages > self.max_messages:
            why = f"it holds at most {self.max_messages} messages"
            raise self._full(why, (WRITE, charge, messages))

    def _full(self, why: str, refused: Refused) -> QueueFull:
        remedy = "read and commit from it, or drop subscriptions that nobody reads, then try again"
        if self.is_unread:
            remedy = (
                "it is a topic without subscriptions, which nobody reads: "
                f"subscribe({self.name!r}, NAME) and read it; or have what nobody reads give way, "
                f"with alter_queue({self.name!r}, overflow='drop_oldest') or keep_messages"
            )
        error = QueueFull(
            f"queue {self.name!r} is full: {why} ({self.used} of {self.capacity} bytes used, "
            f"{self.open_transactions} open and {self.prepared} prepared transactions); {remedy}"
        )
        error.queue, error.refused = self.name, refused
        error.has_remedy = self.has_remedy or self.passes
        return error
