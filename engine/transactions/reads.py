"""The messages that a transaction has got or counts as read, until it ends. Its lock covers them.

- What it has got is in flight: no other reader of the subscription gets it, until the commit's
  record reads it for good or `give_back` makes it available again at its place in the order.
- GT1: what a call has taken is `pending` from the step that takes it to the last one, which gives
  it to the caller. Where the call ends in between, by an error or an interrupt, it is given back:
  at once, or before this is used next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from quire.batches import delivered_messages
from quire.batches.delivered_slice import Delivered
from quire.block import Block
from quire.definitions.retry import Retry
from quire.engine.lookup import taken_positions
from quire.engine.lookup.requested_reports import (
    REPORTING,
    may_ask_delivery,
)
from quire.engine.lookup.taken_positions import GotPart, TakenPositions
from quire.engine.queues.queue import InFlightRange, Queue
from quire.engine.queues.subscription import NONE, Subscription
from quire.engine.reading.block_cursor import BlockCursor
from quire.engine.reading.block_messages import message_of
from quire.engine.reading.block_reader import BlockMoved
from quire.engine.reading.fetcher import DeliveryRequest, DeliveryRuns, moving
from quire.engine.records.block_ref import BlockRef, BlockRow
from quire.engine.records.format import ON_DISK_APART
from quire.errors import InvalidArgument
from quire.limits import RUNS_JOINED
from quire.messages.message import Message, plain_message

from .context import Context
from .extra_reads import ExtraReads

if TYPE_CHECKING:
    from quire.batches.delivered_messages import Messages

IN_WHOLE: Final = cast("Message", object())
GotRuns = tuple[Queue, Subscription, list[tuple[int, int]]]  # what a call took


class TransactionReads:
    """The reads of one transaction."""

    __slots__ = ("_batch", "_block", "context", "extra", "pending", "spread", "taken")

    def __init__(self, context: Context) -> None:
        self.context = context
        # What the call that is under way has taken (GT1): of the simplest one the position.
        self.pending: DeliveryRequest | tuple[Queue, Subscription, int] | None = None
        self.taken: list[InFlightRange] = []  # in the order of the calls, but for what is spread
        self.spread: TakenPositions | None = None  # what of it single messages are taken out of
        self.extra: ExtraReads | None = None
        self._block: BlockCursor | None = None
        # The latest batch, and where what is taken ended then.
        self._batch: tuple[GotRuns, tuple[int, int]] | None = None

    def further(self) -> ExtraReads:
        """Return what it does beside getting messages."""
        self.extra = self.extra or ExtraReads(self.context)
        return self.extra

    def next_message(self, source: str) -> Message | None:
        """The next message, if there is one: at its first delivery. It is `pending`.

        Where it is not simply the next one, or was given back before: `IN_WHOLE`. Then it is to be
        taken in a whole call, which nothing interrupts.
        """
        if self.pending is not None:
            self.step_back()
        context = self.context
        queue, subscription = context.state.source(source)
        reading = self._block
        record = None
        with queue.lock:
            if queue.is_shut or subscription.removed:
                queue.check_there(subscription)
            position = subscription.take_one(queue.durable.end_position)
            if position < 0:
                return None if position == NONE else IN_WHOLE
            self.pending = queue, subscription, position
            epoch = queue.epoch
            if (
                reading is None
                or reading.queue is not queue
                or reading.epoch != epoch
                or not reading.first <= position < reading.end
            ):
                self._block = reading = None
                record = queue.records.tail.at(position)
        try:
            if reading is None and record is not None and not record[8] & ON_DISK_APART:
                if record[7] == 1:
                    payload = context.reader.only_payload(record)
                    if payload is not None:
                        self.note(queue, subscription, position, position + 1, record, epoch)
                        return plain_message(record[1], queue.name, payload, record[2], 1)
                else:
                    self._block = reading = self._open(queue, record, epoch)
            if reading is None:
                runs = [(position, position + 1, 1)]
                message = message_of(queue.name, self._delivered(queue, subscription, runs))
            else:
                message = reading.message(position)
        except Exception:
            self.step_back()
            raise
        self.note(queue, subscription, position, position + 1)
        return message

    def _plain(
        self, queue: Queue, subscription: Subscription, start: int, end: int, deliveries: int
    ) -> Message | None:
        """The message at `start`, if it was put by itself and is nothing but a payload."""
        if subscription.most or subscription.order.sequences is not None:
            return None  # more is to be told of it
        with queue.lock:
            epoch = queue.epoch
            record = None if queue.released.contains(start) else queue.records.tail.at(start)
        if record is None or record[7] != 1 or record[8] & ON_DISK_APART:
            return None
        payload = self.context.reader.only_payload(record)
        if payload is None:
            return None
        self.note(queue, subscription, start, end, record, epoch)
        return plain_message(record[1], queue.name, payload, record[2], deliveries)

    def _open(self, queue: Queue, row: BlockRow, epoch: int) -> BlockCursor | None:
        """A block of several messages, which are probably got one after another."""
        if queue.schema is not None:
            return None
        record = BlockRef._make(row)
        try:
            block = self.context.reader.block(record)
        except BlockMoved:
            return None
        self._note_reporting(block)
        return BlockCursor(queue, epoch, record, block)

    def _delivered(
        self, queue: Queue, subscription: Subscription, runs: DeliveryRuns
    ) -> list[Delivered]:
        parts = self.context.delivery.deliver(queue, subscription, runs)
        for part in parts:
            self._note_reporting(part.block)
        return parts

    def _note_reporting(self, block: Block) -> None:
        if block.columns & REPORTING == REPORTING and may_ask_delivery(block):
            self.further().may_report = True

    # What a request has taken

    def deliver(self, asking: DeliveryRequest) -> Messages:
        """The messages; none at all, when somebody has released them in between (`read_to`)."""
        return delivered_messages.Messages(asking.queue.name, self._deliver(asking))

    def _deliver(self, asking: DeliveryRequest) -> list[Delivered]:
        queue, subscription, runs = asking.queue, asking.subscription, asking.runs
        parts = self._delivered(queue, subscription, runs)
        if len(self.taken) >= RUNS_JOINED:
            self._spread_out()  # `has` goes through few rows
        for lo, hi, _ in runs:
            self.note(queue, subscription, lo, hi)
        self._note_batch(queue, subscription, runs)
        return parts

    def deliver_one(self, asking: DeliveryRequest) -> Message | None:
        """The one message that was taken."""
        plain = self._plain(asking.queue, asking.subscription, *asking.runs[0])
        return plain or message_of(asking.queue.name, self._deliver(asking))

    def remove(self, asking: DeliveryRequest) -> None:
        """It is read with the commit, and delivered to nobody."""
        removed = self.further().removed
        for lo, hi, _ in asking.runs:
            removed.add(asking.queue, asking.subscription, lo, hi)
        self._note_batch(asking.queue, asking.subscription, asking.runs)

    def hold(self, asking: DeliveryRequest) -> list[Delivered]:
        """It is kept from others until the end, and not read."""
        queue, subscription, runs = asking.queue, asking.subscription, asking.runs
        parts = self.context.delivery.deliver(queue, subscription, runs)
        extra = self.further()
        extra.is_bound = True
        extra.kept.keep(queue, subscription, runs)
        asking.runs = []
        return parts

    def note(
        self,
        queue: Queue,
        subscription: Subscription,
        lo: int,
        hi: int,
        record: BlockRow | None = None,
        epoch: int = 0,
    ) -> None:
        """[lo, hi) is taken: the commit reads it."""
        taken = self.taken
        if taken:
            queue_id, subscription_id, start, end, _, latest, _, _ = taken[-1]
            if latest is subscription and end == lo:
                taken[-1] = queue_id, subscription_id, start, hi, queue, subscription, None, 0
                return
        own = (queue.queue_id, subscription.subscription_id, lo, hi, queue, subscription, record,
               epoch)  # fmt: skip
        taken += (own,)

    # Giving back what the latest call took

    def step_back(self, request: DeliveryRequest | None = None) -> None:
        """Nobody was given what the pending call, or this one, has taken: perhaps it is noted here.

        May be called again.
        """
        pending = request or self.pending
        if isinstance(pending, tuple):
            queue, subscription, position = pending
            pending = DeliveryRequest(queue, subscription, self, lambda: False)
            pending.runs = [(position, position + 1, 1)]
            self.pending = pending
        if pending is not None:
            queue, subscription = pending.queue, pending.subscription
            self._take_back(queue, subscription, pending.runs, noted=pending.is_noted)
            if subscription.seeker is self and subscription not in self.further().seeks:
                self.context.delivery.let_go(queue, subscription, self)
        self.pending = None

    def _take_back(
        self, queue: Queue, subscription: Subscription, runs: DeliveryRuns, *, noted: bool
    ) -> None:
        """`noted`: where deliveries are noted, these were."""
        delivery = self.context.delivery
        taken_positions.drop_last(self.taken, subscription, runs)
        extra, is_removed = self.extra, False
        for lo, hi, *_ in runs:
            if self.spread is not None:
                self.spread.remove(subscription, lo, hi)
            if extra is not None:
                is_removed |= extra.removed.remove(subscription, lo, hi)
        if noted and not is_removed:  # first: what has its last delivery has it again
            delivery.note_untouched(queue, subscription, runs)
        if extra is not None:
            extra.kept.take_back(queue, subscription, runs)
        delivery.give_back(queue, subscription, runs)

    def unget(self) -> None:
        """Give back what the latest call took, as if it had not been made."""
        latest = self._latest()
        if latest is not None:
            queue, subscription, runs = latest
            if self.extra is not None:
                self.extra.moved.check(subscription, [p for lo, hi in runs for p in range(lo, hi)])
            own = [(lo, hi, 1) for lo, hi in runs]
            self._take_back(queue, subscription, own, noted=True)
            self._batch = (queue, subscription, []), self._mark()  # not the call before, too

    def _note_batch(self, queue: Queue, subscription: Subscription, runs: DeliveryRuns) -> None:
        if runs:
            self._batch = (queue, subscription, [run[:2] for run in runs]), self._mark()

    def _latest(self) -> GotRuns | None:
        """Return what is left of what the latest call took."""
        mark = self._mark()
        if self._batch is not None and self._batch[1] == mark:
            queue, subscription, runs = self._batch[0]
            if not self.taken and self.spread is not None:
                parts = [self.spread.overlapping(subscription, runs)]
                if self.extra is not None:
                    parts.append(self.extra.removed.overlapping(subscription, runs))
                runs = [run for part in parts for run in part]
            return queue, subscription, runs
        if not self.taken:
            return None
        _, _, _, end, queue, subscription, _, _ = self.taken[-1]
        return queue, subscription, [(end - 1, end)]  # one message: whatever is taken moves the end

    def _mark(self) -> tuple[int, int]:
        return (len(self.taken), self.taken[-1][3]) if self.taken else (0, 0)

    def _spread_out(self) -> TakenPositions:
        """All that was taken, by its positions, so that one of many is found without a search."""
        spread = self.spread or TakenPositions()
        if self.taken:
            latest = self._latest()
            for _, _, lo, hi, queue, subscription, _, _ in self.taken:
                spread.add(queue, subscription, lo, hi)
            self._batch = None if latest is None else (latest, (0, 0))
        self.spread, self.taken = spread, []  # no call in between
        return spread

    # What it has got

    def got(self) -> list[InFlightRange]:
        """All that its user was given; other threads may ask."""
        return [*self.taken, *(() if self.spread is None else self.spread.rows())]

    def rows(self) -> list[InFlightRange]:
        """All that its commit reads; other threads may ask."""
        return [*self.got(), *(() if self.extra is None else self.extra.removed.rows())]

    def has(self, subscription: Subscription, position: int) -> bool:
        """Return True if it has got the message, or keeps it. Other threads call it."""
        if any(row[5] is subscription and row[2] <= position < row[3] for row in list(self.taken)):
            return True
        spread, extra = self.spread, self.extra
        if spread is not None and spread.has(subscription, position):
            return True
        return extra is not None and (
            extra.removed.has(subscription, position) or extra.kept.has(subscription, position)
        )

    def held_of(self, subscription: Subscription) -> int:
        """How many messages of the subscription it has got, or keeps."""
        rows = [*self.rows(), *(() if self.extra is None else self.extra.kept.rows())]
        return sum(own[3] - own[2] for own in rows if own[5] is subscription)

    @property
    def messages(self) -> int:
        """How many messages are in flight."""
        return sum(taken[3] - taken[2] for taken in self.rows())

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the names of their queues."""
        names = sorted({(own[4].name, own[5].name) for own in self.rows()})
        return tuple(f"{queue}/{name}" if name else queue for queue, name in names)

    def reject(
        self, message: Message, reason: str, delay: float | Retry | None
    ) -> tuple[Queue, Subscription]:
        """Give back one message that was got. Raises InvalidArgument where it was not."""
        for queue, subscription, position, ids in self._got(message):
            if message.id not in ids:
                continue
            self.further().moved.check(subscription, [position])
            self._spread_out().remove(subscription, position, position + 1)
            self.further().kept.forget(subscription, position)
            self.context.delivery.reject(queue, subscription, position, reason, delay)
            return queue, subscription
        raise InvalidArgument(
            f"message {message.id} of queue {message.queue!r} is none that this transaction has "
            "got: reject what it got, once"
        )

    def mark_moved(self, messages: Sequence[Message]) -> None:
        """These are moved (MM1). Raises InvalidArgument where one was not got, or is moved."""
        moved = self.further().moved
        if messages:
            moved.mark(self._got(*messages), messages)

    def _got(self, *messages: Message) -> list[GotPart]:
        """Return what it has got of the messages' queues, from the first of them to the last."""
        context = self.context
        return self._spread_out().got(context.delivery, context.state.names, messages)

    # For the commit

    def seek(self, asking: DeliveryRequest, position: int, *, is_strict: bool) -> None:
        """The commit moves the subscription, of which nobody takes anything until then."""
        extra = self.further()
        extra.is_bound = True
        extra.seeks[asking.subscription] = asking.queue, position, is_strict
        extra.leave(extra.kept.leave(asking.subscription))  # nobody gets any of it until the end

    def read_to(self, positions: Mapping[str, int]) -> dict[str, int]:
        """Count everything below the position in each source as read; when each queue was made."""
        passed = []
        created_us = {}
        for source, position in positions.items():
            queue, subscription = self.context.state.source(source)
            if position > queue.end_position:
                raise InvalidArgument(
                    f"position {position!r}: {source} has the positions 0 to {queue.end_position}: "
                    "give one of them"
                )
            if subscription in self.further().seeks:
                raise moving(queue, subscription)
            passed.append((queue, subscription, 0, position))
            created_us[source] = queue.config.created_us
        self.further().skipped += passed
        return created_us

    def to_read(self) -> list[InFlightRange]:
        """Return what was taken, for the commit's record: in few runs, where they are many.

        By priority they come in any order.
        """
        if self.pending is not None:
            self.step_back()
        if self.spread is None and self.extra is None and len(self.taken) < RUNS_JOINED:
            return self.taken
        taken, seeks = self.rows(), () if self.extra is None else self.extra.seeks
        if len(taken) < RUNS_JOINED and not seeks:
            return taken
        # Where one of them goes to, if it is moved, says what it has read.
        return taken_positions.joined([row for row in taken if row[5] not in seeks])

    # Its end

    def let_go(self) -> None:
        """All of it is the store's, or others' again; may be called again."""
        self.taken, self.spread = [], None
        if self.extra is not None:
            self.extra.end(self)

    def give_back(self, reason: str | None = None) -> None:
        """The transaction is rolled back, for that reason; may be called again."""
        self.step_back()
        rows, extra, counted = self.got(), self.extra, True
        self.taken, self.spread = rows, None  # no call in between
        if extra is not None:
            counted = extra.is_counted
            extra.give_back_removed()
        fails = counted and (reason is not None or taken_positions.has_retry(rows))
        noted = self.context.delivery.fail(rows, reason) if fails else set()
        taken_positions.give_back_rows(rows, noted, counted=counted)
