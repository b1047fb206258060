"""Messages leave a queue by themselves: to its dead-letter queue, or because their time is over.

- A message is in one of the two queues: it is read here and put there by one commit.
- Until that is done it is hidden, and counted (`SubscriptionInfo.spent`). Where the other queue is
  full, stopped or missing, or the disk is full, it waits, and the maintenance tries again.
- It keeps its payload and header; attributes say where it comes from, and why it is here, as far as
  there is room for them beside its own. A row goes to a queue of bytes as an Arrow stream.
- What a subscription does not ask for counts as read once that is committed here, too.
- What the other queue can never take, as it is too large, holds up none of those behind it, but
  where there are more than `STUCK_AT_ONCE` such.
- LR1: who has asked for a report of it gets one, by the same commit (AR1): of an expiry where the
  message expires, of an exception where it leaves for another reason. So who waits for an answer to
  it is told that there will be none, unless the report's queue takes none (WR1).
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from quire.batches.moved_messages import TIME, joined, origin, put_again
from quire.calls.signal_safety import allow_reentry
from quire.engine.lookup import choice as choices
from quire.engine.lookup.requested_reports import REPORTING, report_on
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.transactions.context import Context
from quire.engine.transactions.transaction import EmbeddedTransaction
from quire.env.interpreter import RLock
from quire.errors import InvalidArgument, QueueFull, QuireError, StoreCorrupt
from quire.limits import DEAD_LETTERS_AT_ONCE, EXPIRED_AT_ONCE, STUCK_AT_ONCE
from quire.messages import message_types
from quire.messages.message import SETTABLE, Message
from quire.messages.typed_message import ARROW_STREAM, TypedMessage

from .own_transaction import EXPIRED, MessageRuns, own_transaction, pass_unwanted, take_gone


class DeadLetters:
    """The mover of spent and expired messages. Thread-safe."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._moving = threading.local()
        self._passing = RLock()
        self.last_error: str | None = None

    def move_all(self) -> None:
        """Move all that is spent or has expired, as far as it can be moved now."""
        ruled = self._context.state.ruled
        if not ruled:
            return
        self.last_error = None
        for queue in [queue for queue in list(ruled) if not queue.stopped]:
            for subscription in queue.readers():
                self._context.delivery.look(queue, subscription)
                with suppress(QuireError):  # the others go on
                    allow_reentry(self.move, queue, subscription)

    def after_reject(self, queue: Queue, subscription: Subscription) -> None:
        """A message that was rejected is spent: it goes at once. Does not raise, as it is hidden.

        What stands in the way is shown by `status`, and tried again later.
        """
        with suppress(QuireError):
            self.move(queue, subscription)

    def move(self, queue: Queue, subscription: Subscription) -> None:
        """Move what is spent or has expired of a subscription. Raises what stands in the way."""
        if getattr(self._moving, "is_here", False):
            return  # this thread does already: it is after a commit of this
        self._moving.is_here = True
        stuck: list[EmbeddedTransaction] = []
        try:
            self.pass_by(queue, subscription)
            self._move_all_of(queue, subscription, stuck)
        except QuireError as error:
            self.last_error = f"dead letters of {queue.name!r}: {error}"
            raise
        finally:
            for txn in stuck:
                txn.rollback()
            self._moving.is_here = False

    def pass_by(self, queue: Queue, subscription: Subscription) -> None:
        """Count as read what the subscription does not ask for. Raises what stands in the way."""
        with self._passing:
            while subscription.has_unwanted and not (queue.dropped or subscription.removed):
                with own_transaction(self._context, "maintenance") as txn:
                    if not txn.getting(pass_unwanted, queue, subscription, EXPIRED_AT_ONCE):
                        break
                    txn.commit()

    def _move_all_of(
        self, queue: Queue, subscription: Subscription, stuck: list[EmbeddedTransaction]
    ) -> None:
        """Move all; messages that the other queue never takes are left to transactions, for now."""
        limit, never = DEAD_LETTERS_AT_ONCE, None
        while subscription.has_gone and not (queue.dropped or subscription.removed):
            try:
                if not self._move_some(queue, subscription, limit):
                    break
            except (QueueFull, InvalidArgument) as error:
                if limit > 1:  # fewer it may take
                    limit //= 2
                    continue
                if len(stuck) == STUCK_AT_ONCE or self._may_take(queue, error):
                    raise
                stuck.append(own_transaction(self._context, "maintenance"))
                stuck[-1].getting(take_gone, queue, subscription, 1)
                limit, never = DEAD_LETTERS_AT_ONCE, error
        if never is not None:
            raise never

    def _may_take(self, queue: Queue, error: QuireError) -> bool:
        """Return True if the dead-letter queue takes the message some time."""
        target = self._context.state.names.get(queue.config.properties.dead_letter or "")
        return target is None or (isinstance(error, QueueFull) and target.space.may_admit(error))

    def _move_some(self, queue: Queue, subscription: Subscription, limit: int) -> bool:
        target = queue.config.properties.dead_letter
        with own_transaction(self._context, "maintenance") as txn:
            count, letters = txn.getting(take_gone, queue, subscription, limit)
            if letters and target is None:  # it was altered just now
                txn.rollback()
                return False
            now_us = self._context.env.now_us()
            for message, reason in letters:
                put_letter(txn, str(target), message, subscription.name, reason, now_us)
            if count and not letters:
                runs = txn.getting(lambda reads: [(row[2], row[3]) for row in reads.rows()])
                report_all(self._context, txn, queue, runs, EXPIRED)
            txn.commit()
        return count > 0


def put_letter(
    txn: EmbeddedTransaction,
    target: str,
    message: Message,
    subscription: str,
    reason: str,
    now_us: int,
) -> None:
    """Put a message into the queue that takes it now, with the attributes that say why."""
    fields = {name: getattr(message, name) for name in SETTABLE}
    own = origin(message, subscription, reason) | {TIME: str(now_us)}
    for name in ("expires_at", "deliver_at"):  # times of the queue that it is out of
        fields[name] = None
    fields["attributes"] = joined(message.attributes, own)
    content: Any = None
    if isinstance(message, TypedMessage):
        content = message.payload
        if txn.schema_of(target) is None:
            fields["content_type"] = ARROW_STREAM
        else:
            content = message.row
    try:
        put_again(txn, target, message, fields, content)
    except InvalidArgument:  # with these it is larger than the queue takes
        fields["attributes"] = message.attributes
        put_again(txn, target, message, fields, content)
    put_report(txn, message, reason)


def put_report(txn: EmbeddedTransaction, message: Message, reason: str) -> None:
    """Tell who has asked for it that the message is handled by nobody (LR1)."""
    event = message_types.EXPIRY if reason == EXPIRED else message_types.EXCEPTION
    to, attributes = message.reply_to, message.attributes
    if to is not None and message_types.requests_report(attributes, event):
        known = message.correlation_id or str(message.id)
        with suppress(ValueError):  # InvalidArgument, too
            report = report_on(event, message.queue, to, known, attributes, reason)
            txn.putting(lambda writes: writes.owe([report]))


def report_all(
    context: Context, txn: EmbeddedTransaction, queue: Queue, runs: MessageRuns, reason: str
) -> None:
    """The same of all messages at these positions, which nobody gets, and nobody keeps."""
    for start, end in runs:
        with suppress(StoreCorrupt):  # nobody knows who had asked for one
            # But for what others have read meanwhile.
            found = context.chooser.finder.browse(
                queue, None, choices.Choice(), start, end - start, end
            )
            for part in found:
                if part.block.columns & REPORTING == REPORTING:
                    for row in range(part.start, part.stop):
                        put_report(txn, part.message(queue.name, row), reason)
