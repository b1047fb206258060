"""Room for what a queue refuses: its capacity is enlarged, or its oldest messages give way.

Source of the first: "Managing message queues" (JP 2008-547130), paragraph 0066.

- What no subscription asks for, or has a later message of its key, is read first, as the
  maintenance notes it a moment later.
- Nothing else is done but what the queue's properties say (`grow_to`, `keep_...`, `overflow`), in
  this order, and only where something was refused.
- What is done is durable before what was refused is tried again, and stays also if that is rolled
  back.
- Only messages that nobody holds give way: of a topic those that no subscription has in flight,
  unread ones for all of its subscriptions. The commit that drops them counts them; the one that
  moves them to the dead-letter queue puts them there. Those of a volatile queue are counted in
  memory.
- This is never done by a thread that has several changes written together, as each of them waits
  for those that follow: who is refused there tries again elsewhere.
- RO5: a dead-letter queue that is full itself grows, if it may; its own messages stay.
- A queue that is to obey times first (OB2) is made to here, too, as what is done for a put that was
  refused.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from quire.batches import delivered_messages
from quire.definitions.properties import DEAD_LETTER, GIVING_WAY
from quire.engine.commits.definitions import Definitions
from quire.engine.lookup import choice as choices
from quire.engine.queues.header_rules import TIMED
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.transactions.context import Context
from quire.env.interpreter import RLock
from quire.errors import ArchiveFull, QueueFull, QuireError
from quire.intervals import IntervalSet
from quire.limits import DEAD_LETTERS_AT_ONCE, PURGED_AT_ONCE, PURGED_RUNS

from .dead_letters import DeadLetters, put_letter, report_all
from .own_transaction import MessageRuns, own_transaction, run_parts, take_oldest
from .retention import Retention

DROPPED_KEY: Final = "quire.dropped:{}"
OVERFLOW: Final = "overflow"
"""The reason of dead letters that gave way to later messages."""


class OverflowHandler:
    """The policy of queues that are full. Thread-safe."""

    def __init__(
        self,
        context: Context,
        definitions: Definitions,
        retention: Retention,
        dead_letters: DeadLetters,
    ) -> None:
        self._context = context
        self._definitions = definitions
        self._retention = retention
        self._dead_letters = dead_letters
        self._make_lock = RLock()
        self._is_making = False

    def make(self, queue: Queue, full: QueueFull) -> bool:
        """Do what the queue's properties say; whether what was refused may be tried again."""
        if self._context.sequencer.is_together or isinstance(full, ArchiveFull):
            return False
        if full.refused[0] == TIMED:
            self._definitions.obey_times(queue)
            return True
        may_be_made = queue.config.properties.has_remedy or queue.space.passes
        return may_be_made and self._make_room(queue, full)

    def _make_room(self, queue: Queue, full: QueueFull) -> bool:
        properties = queue.config.properties
        with self._make_lock:
            if queue.space.passes:
                self._pass_by(queue)
            with queue.lock:
                has_room = queue.space.lack(full) == (0, 0)
            may_grow = properties.grow_to is not None
            if has_room or (may_grow and self._definitions.grow(queue, full)):
                return True
            if self._is_making:  # its own commits are refused (RO5)
                return False
            self._is_making = True
            try:
                return self._retention.make_room(queue, full) or self._gives_way(queue, full)
            except QuireError:  # what was refused says what is missing
                return False
            finally:
                self._is_making = False

    def _pass_by(self, queue: Queue) -> None:
        """Count as read what no subscription asks for, and what is not a key's latest."""
        with suppress(QuireError):  # what was refused says what is missing
            self._retention.supersede(queue)
            for subscription in queue.readers():
                if subscription.where is not None:
                    self._context.delivery.look(queue, subscription)
                    self._dead_letters.pass_by(queue, subscription)

    def _gives_way(self, queue: Queue, full: QueueFull) -> bool:
        """The oldest messages, as many as there is no room for; whether there were any."""
        overflow = queue.config.properties.overflow
        if overflow not in GIVING_WAY:
            return False
        with queue.lock:
            missing, messages = queue.space.lack(full)
            oldest = _oldest(queue, missing, messages)
            subscriptions = list(queue.subscriptions.values())
        if not oldest:
            return False
        if overflow == DEAD_LETTER:
            if not subscriptions:  # they are nobody's
                return False
            parts = run_parts(oldest, DEAD_LETTERS_AT_ONCE)
            return sum([self._move(queue, subscriptions, part) for part in parts]) > 0
        if not subscriptions:
            start, end = oldest[0][0], oldest[-1][1]
            is_counted = not queue.is_volatile
            count = self._definitions.release(queue, start, end, dropped=is_counted)
            queue.gave_way += 0 if is_counted else count
            return count > 0
        return self._drop(queue, subscriptions, oldest) > 0

    def _drop(self, queue: Queue, subscriptions: list[Subscription], oldest: MessageRuns) -> int:
        """Drop some of them, in one commit; return how many."""
        key = DROPPED_KEY.format(queue.queue_id)
        with own_transaction(self._context, "overflow") as txn:
            taken = txn.getting(take_oldest, queue, subscriptions, oldest)
            count = sum(end - start for start, end in taken)
            report_all(self._context, txn, queue, taken, OVERFLOW)
            if count and not queue.is_volatile:
                ledger = self._context.state.ledger
                txn.enter(key, ledger.get(key, 0) + count)
            txn.commit()
        if queue.is_volatile:
            queue.gave_way += count
        return count

    def _move(self, queue: Queue, subscriptions: list[Subscription], oldest: MessageRuns) -> int:
        """Move some of them to the dead-letter queue, in one commit; return how many."""
        context, target = self._context, queue.config.properties.dead_letter
        now_us = context.env.now_us()
        with own_transaction(context, "overflow") as txn:
            taken = txn.getting(take_oldest, queue, subscriptions, oldest)
            for start, end in taken:
                letters = context.chooser.finder.browse(
                    queue, None, choices.Choice(), start, end - start, end
                )
                for message in delivered_messages.Messages(queue.name, letters):
                    put_letter(txn, str(target), message, "", OVERFLOW, now_us)
            txn.commit()
        return sum(end - start for start, end in taken)


def dropped(context: Context, queue: Queue) -> int:
    """Return how many messages of a queue gave way so far."""
    state = context.state
    entry = state.durable.catalog["queue"].get(queue.queue_id)
    before = 0 if entry is None else int(entry.body.get("dropped", 0))
    return queue.gave_way + before + state.ledger.get(DROPPED_KEY.format(queue.queue_id), 0)


def _oldest(queue: Queue, missing: int, messages: int) -> MessageRuns:
    """The first positions that nobody holds and that charge so much; under the queue's lock."""
    subscriptions = list(queue.subscriptions.values())
    found: MessageRuns = []
    left = PURGED_AT_ONCE
    for start, end in queue.released.gaps(0, max(queue.end_position, 1)):
        for lo, hi in _free(subscriptions, start, min(end, queue.end_position)):
            for ref in queue.records.overlapping(lo, hi):
                first, last = max(lo, ref.position), min(hi, ref.end)
                each = max(1, ref.charge // ref.count)
                needed = max(-(-missing // each), messages, 0)
                last = min(last, first + min(needed, left))
                if first < last:
                    found.append((first, last))
                    missing -= each * (last - first)
                    messages -= last - first
                    left -= last - first
                if (missing <= 0 and messages <= 0) or not left or len(found) >= PURGED_RUNS:
                    return found
    return []  # all of them would not do


def _free(subscriptions: list[Subscription], start: int, end: int) -> MessageRuns:
    """The parts of [start, end) that no subscription holds."""
    reserved = IntervalSet()
    for subscription in subscriptions:
        for lo, hi in subscription.held_in(start, end):
            reserved.add(lo, hi)
    return list(reserved.gaps(start, end)) if start < end else []
