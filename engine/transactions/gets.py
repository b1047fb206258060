"""What a transaction has got, and what it counts as read, until it ends. Its lock covers it.

- What it has got is in flight: no other reader of the subscription gets it, until the commit's
  record reads it for good or `give_back` makes it available again at its place in the order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Final, cast

from quire.batches import delivered_messages
from quire.batches.delivered_slice import Delivered
from quire.block import Block
from quire.definitions.retry import Retry
from quire.engine.commits.pending_sections import MovesSection
from quire.engine.finding import moved_marks, taken_positions
from quire.engine.finding.asked_reports import REPORTING, Additions, Pass, may_ask_delivery
from quire.engine.finding.kept_messages import KeptMessages
from quire.engine.finding.queue_view import QueueView
from quire.engine.finding.taken_positions import GotPart, TakenPositions
from quire.engine.queues.queue import Queue, TakenRow
from quire.engine.queues.subscription import NONE, Subscription
from quire.engine.reading import position_search
from quire.engine.reading.block_cursor import BlockCursor
from quire.engine.reading.block_messages import message_of
from quire.engine.reading.block_reader import BlockMoved
from quire.engine.reading.delivery import DeliveryRequest, DeliveryRuns, moving
from quire.engine.records.block_ref import BlockRef, BlockRow
from quire.engine.records.commit_record import Read
from quire.engine.records.format import ON_DISK_APART
from quire.engine.state.sections.moves import Seek
from quire.errors import InvalidArgument, PositionLost, QueueInUse
from quire.limits import EXPIRED_AT_ONCE, PURGED_RUNS, RUNS_JOINED
from quire.messages.message import Message, plain_message

from .context import Context

if TYPE_CHECKING:
    from quire.batches.delivered_messages import Messages
    from quire.engine.finding.choice import Choice

IN_WHOLE: Final = cast("Message", object())
TOO_OFTEN: Final = "delivered too often"
EXPIRED: Final = "expired"
Runs = Sequence[tuple[int, int]]  # of positions
Browsed = tuple[Queue, Subscription | None]
GotRuns = tuple[Queue, Subscription, list[tuple[int, int]]]  # what a call took
Taking = dict[Subscription, list[tuple[int, int]]]  # runs of positions that are taken


class Gets:
    """See the module."""

    __slots__ = (
        "_batch", "_block", "_context", "_is_counted", "_uncounted", "adds", "has_more",
        "kept", "moved", "removed", "seeks", "spread", "taken", "views",
    )  # fmt: skip

    def __init__(self, context: Context) -> None:
        self._context = context
        self.taken: list[TakenRow] = []  # in the order of the calls, but for what is spread
        self.spread: TakenPositions | None = None  # what of it single messages are taken out of
        self.adds: Additions | None = None
        # What it moves: where to, and whether all from there on has to be there still.
        self.seeks: dict[Subscription, tuple[Queue, int, bool]] = {}
        self.kept: KeptMessages | None = None
        self.has_more = False  # it moves or keeps anything
        self.moved: moved_marks.MovedMarks | None = None  # to other queues
        self.views: dict[Browsed, QueueView] = {}
        self._block: BlockCursor | None = None
        self._is_counted = True  # what is given back was delivered once
        self.removed: Set[tuple[Subscription, int]] = frozenset()  # but for these positions
        self._uncounted: list[TakenRow] = []  # those, while they are given back
        # The latest batch, and where what is taken ended then.
        self._batch: tuple[GotRuns, tuple[int, int]] | None = None

    def one(self, source: str) -> Message | None:
        """The next message, if there is one: at its first delivery.

        Where it is not simply the next one, or was given back before: `IN_WHOLE`. Then
        `one_by_rule` is to be called, in a whole call, which nothing interrupts.
        """
        context = self._context
        queue, subscription = context.state.source(source)
        reading = self._block
        record = None
        position = -1
        try:
            with queue.lock:
                if queue.is_shut or subscription.removed:
                    queue.check_there(subscription)
                position = subscription.take_one(queue.durable.end_position)
                if position < 0:
                    return None if position == NONE else IN_WHOLE
                epoch = queue.epoch
                if (
                    reading is None
                    or reading.queue is not queue
                    or reading.epoch != epoch
                    or not reading.first <= position < reading.end
                ):
                    self._block = reading = None
                    record = queue.records.tail.at(position)
            if reading is None and record is not None and not record[8] & ON_DISK_APART:
                if record[7] == 1:
                    payload = context.reader.only_payload(record)
                    if payload is not None:
                        self._note(queue, subscription, position, position + 1, record, epoch)
                        return plain_message(record[1], queue.name, payload, record[2], 1)
                else:
                    self._block = reading = self._open(queue, record, epoch)
            if reading is None:
                runs = [(position, position + 1, 1)]
                parts = context.delivery.deliver(queue, subscription, runs)
                if parts and parts[0].block.columns & REPORTING == REPORTING:
                    self._look_asked(parts[0].block)
                message = message_of(queue.name, parts)
            else:
                message = reading.message(position)
            self._note(queue, subscription, position, position + 1, None, 0)
        except BaseException:
            self.take_back(queue, subscription, [(position, position + 1)] if position >= 0 else [])
            raise
        return message

    def one_by_rule(self, source: str) -> Message | None:
        """The next message of a queue whose rules say which one that is."""
        queue, subscription = self._context.state.source(source)
        asking = DeliveryRequest(queue, subscription, self, lambda: False)
        runs = self._context.delivery.take(asking, 1, 0.0)
        return self._only(queue, subscription, runs)

    def scheduled(self, source: str, message_id: int, *, to_change: bool) -> Message | None:
        """The message, if it is not due yet."""
        queue, subscription = self._context.state.source(source)
        delivery = self._context.delivery
        try:
            position = position_search.position_of(delivery, queue, message_id)
        except PositionLost:
            return None
        runs = delivery.take_scheduled(queue, subscription, position, self, to_change=to_change)
        return self._only(queue, subscription, runs)

    def _only(self, queue: Queue, subscription: Subscription, runs: DeliveryRuns) -> Message | None:
        try:
            message = self._plain(queue, subscription, *runs[0]) if runs else None
            return message or message_of(queue.name, self.deliver(queue, subscription, runs))
        except BaseException:
            self.take_back(queue, subscription, [run[:2] for run in runs])
            raise

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
        payload = self._context.reader.only_payload(record)
        if payload is None:
            return None
        self._note(queue, subscription, start, end, record, epoch)
        return plain_message(record[1], queue.name, payload, record[2], deliveries)

    def _open(self, queue: Queue, row: BlockRow, epoch: int) -> BlockCursor | None:
        """A block of several messages, which are probably got one after another."""
        if queue.schema is not None:
            return None
        record = BlockRef._make(row)
        try:
            block = self._context.reader.block(record)
            if block.columns & REPORTING == REPORTING:
                self._look_asked(block)
            return BlockCursor(queue, epoch, record, block)
        except BlockMoved:
            return None

    def deliver(
        self, queue: Queue, subscription: Subscription, runs: DeliveryRuns
    ) -> list[Delivered]:
        """The messages of positions that were just taken; if that fails: `take_back`.

        None at all, when somebody's read_to or unsubscribe has released them in between.
        """
        parts = self._context.delivery.deliver(queue, subscription, runs)
        for part in parts:
            if part.block.columns & REPORTING == REPORTING:
                self._look_asked(part.block)
        if len(self.taken) >= RUNS_JOINED:
            self._spread_out()  # `has` goes through few rows
        for lo, hi, _ in runs:
            self._note(queue, subscription, lo, hi, None, 0)
        if runs:
            got = queue, subscription, [run[:2] for run in runs]
            self._batch = got, (len(self.taken), runs[-1][1])
        return parts

    def take_back(
        self,
        queue: Queue,
        subscription: Subscription,
        runs: list[tuple[int, int]],
        noted: bool = True,
    ) -> None:
        """What was just taken did not reach its reader; perhaps it is here already.

        `noted`: where deliveries are noted, these were.
        """
        taken_positions.drop_last(self.taken, subscription, runs)
        is_counted = noted and self._is_counted
        if self.spread is not None:
            for lo, hi in runs:
                self.spread.remove(subscription, lo, hi)
        if self.removed:
            undone = {(subscription, position) for lo, hi in runs for position in range(lo, hi)}
            is_counted = is_counted and self.removed.isdisjoint(undone)
            self.removed -= undone
        if is_counted:  # first: what has its last delivery has it again
            self._context.delivery.note_untouched(queue, subscription, runs)
        if self.kept is not None:
            runs = self.kept.take_back(queue, subscription, runs)
        self._context.delivery.give_back(queue, subscription, runs)

    def unget(self) -> None:
        """Give back what the latest call took, as if it had not been made."""
        latest = self._latest()
        if latest is not None:
            queue, subscription, runs = latest
            if self.moved is not None:
                self.moved.check(subscription, [p for lo, hi in runs for p in range(lo, hi)])
            self.take_back(queue, subscription, runs)
        self._batch = None

    def _latest(self) -> GotRuns | None:
        """What the latest call took, of what is left of it."""
        mark = self._mark()
        if self._batch is not None and self._batch[1] == mark:
            queue, subscription, runs = self._batch[0]
            if not self.taken and self.spread is not None:
                runs = self.spread.overlapping(subscription, runs)
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

    def rows(self) -> list[TakenRow]:
        """All that was taken; other threads may ask."""
        spread = self.spread
        return list(self.taken) if spread is None else [*spread.rows(), *self.taken]

    def gone(
        self, queue: Queue, subscription: Subscription, most: int
    ) -> tuple[int, list[tuple[Message, str]]]:
        """Take what is spent or expired: how many, and those that are to be kept.

        Of these `most` at once, and with each, why nobody else gets it any more.
        """
        self._is_counted = False
        with queue.lock:
            if subscription.expired and not queue.config.properties.keep_expired:
                most = EXPIRED_AT_ONCE
            run = subscription.take_gone(most)
            if run is None:
                return 0, []
            start, end, is_expired = run
            deliveries = subscription.deliveries(start)
            why = [subscription.reasons.get(position, TOO_OFTEN) for position in range(start, end)]
        try:
            if is_expired and not queue.config.properties.keep_expired:
                self._note(queue, subscription, start, end, None, 0)
                return end - start + self._expired(queue, subscription, most - end + start), []
            parts = self.deliver(queue, subscription, [(start, end, deliveries)])
        except BaseException:
            self.take_back(queue, subscription, [(start, end)])
            raise
        messages = list(delivered_messages.Messages(queue.name, parts))
        if is_expired:
            why = [EXPIRED] * len(messages)
        elif len(messages) != len(why):  # some were read past meanwhile: which is not known
            why = [TOO_OFTEN] * len(messages)
        return end - start, list(zip(messages, why, strict=True))

    def unwanted(self, queue: Queue, subscription: Subscription, most: int) -> int:
        """Count as read what the subscription does not ask for: how many, at most so many.

        It is taken by nobody, so an exclusive subscription is not somebody's by that.
        """
        with queue.lock:
            is_moving = subscription.seeker is not None
            runs = [] if is_moving else subscription.order.unwanted_runs(most, PURGED_RUNS)
        self.pass_over([(queue, subscription, start, end) for start, end in runs])
        return sum(end - start for start, end in runs)

    def _look_asked(self, block: Block) -> None:
        if may_ask_delivery(block):
            self.adds = self.adds or Additions()
            self.adds.may_report = True

    def pass_over(self, passes: list[Pass]) -> None:
        """These count as read, too."""
        self.adds = self.adds or Additions()
        self.adds.passes += passes

    def _expired(self, queue: Queue, subscription: Subscription, most: int) -> int:
        """Take more that has expired and is not kept: how many, at most so many."""
        left = most
        for _ in range(PURGED_RUNS - len(self.taken)):
            with queue.lock:
                run = subscription.take_gone(left) if left and subscription.expired else None
            if run is None:
                break
            start, end, _ = run
            try:
                self._note(queue, subscription, start, end, None, 0)
            except BaseException:
                self.take_back(queue, subscription, [(start, end)])
                raise
            left -= end - start
        return most - left

    def waiting(
        self,
        queue: Queue,
        subscription: Subscription,
        most: int,
        end: int,
        among: Runs | None = None,
    ) -> list[tuple[int, int]]:
        """Take what waits below `end`, up to so many messages, and deliver nothing of it.

        `among`: all that waits of these runs instead.
        """
        runs: list[tuple[int, int]] = []

        def choose() -> None:
            if subscription.seeker is not None:
                raise QueueInUse(
                    f"a transaction moves {queue.name}/{subscription.name}: end it first"
                )
            if not (queue.dropped or subscription.removed):
                left = max(0, PURGED_RUNS - len(self.taken))
                subscription.take_waiting(runs, most, left, end, among)

        self.take_by(queue, {subscription: runs}, choose)
        return runs

    def oldest(
        self, queue: Queue, subscriptions: list[Subscription], runs: list[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Take what is not read of these positions, for all subscriptions.

        But runs of which somebody holds a part. Those that it has taken.
        """
        found: list[tuple[int, int]] = []
        taken: Taking = {each: [] for each in subscriptions}

        def choose() -> None:
            for start, end in runs:
                if queue.dropped or any(
                    each.removed or each.seeker is not None or each.held_in(start, end)
                    for each in subscriptions
                ):
                    continue
                for each, own in taken.items():
                    own += each.take_part(start, end)
                found.append((start, end))

        self.take_by(queue, taken, choose)
        return found

    def chosen(self, queue: Queue, subscription: Subscription, positions: list[int]) -> list[int]:
        """Take these ascending positions, wherever they stand in the order; those it has taken.

        Not what others hold, what comes later, and what is gone.
        """
        runs: list[tuple[int, int]] = []

        def choose() -> None:
            nonlocal runs
            queue.check_there(subscription)
            if subscription.is_guarded and not subscription.admits(self):
                return
            for position in positions:
                if subscription.may_pick(position):
                    runs += subscription.take_part(position, position + 1)

        self.take_by(queue, {subscription: runs}, choose)
        return [lo for lo, _ in runs]

    def take_by(self, queue: Queue, taken: Taking, choose: Callable[[], None]) -> None:
        """Have `choose` add to `taken` what it takes under the lock, and deliver nothing of it."""
        self._is_counted = False
        try:
            with queue.lock:
                choose()
            for subscription, runs in taken.items():
                for lo, hi in runs:
                    self._note(queue, subscription, lo, hi, None, 0)
        except BaseException:
            for subscription, runs in reversed(taken.items()):
                self.take_back(queue, subscription, runs)
            raise

    def reject(
        self, message: Message, reason: str, delay: float | Retry | None
    ) -> tuple[Queue, Subscription]:
        """Give back one message that was got. Raises InvalidArgument where it was not."""
        for queue, subscription, position, ids in self._got(message):
            if message.id not in ids:
                continue
            if self.moved is not None:
                self.moved.check(subscription, [position])
            self._spread_out().remove(subscription, position, position + 1)
            self.keeping().forget(subscription, position)
            self._context.delivery.reject(queue, subscription, position, reason, delay)
            return queue, subscription
        raise InvalidArgument(
            f"message {message.id} of queue {message.queue!r} is none that this transaction has "
            "got: reject what it got, once"
        )

    def mark_moved(self, messages: Sequence[Message]) -> None:
        """These are moved (MM1). Raises InvalidArgument where one was not got, or is moved."""
        self.moved = self.moved or moved_marks.MovedMarks()
        if messages:
            self.moved.mark(self._got(*messages), messages)

    def _got(self, *messages: Message) -> list[GotPart]:
        """What it has got of the messages' queues, from the first of them to the last."""
        context = self._context
        return self._spread_out().got(context.delivery, context.state.names, messages)

    def _note(
        self,
        queue: Queue,
        subscription: Subscription,
        lo: int,
        hi: int,
        record: BlockRow | None,
        epoch: int,
    ) -> None:
        taken = self.taken
        if taken:
            queue_id, subscription_id, start, end, _, latest, _, _ = taken[-1]
            if latest is subscription and end == lo:
                taken[-1] = queue_id, subscription_id, start, hi, queue, subscription, None, 0
                return
        own = (queue.queue_id, subscription.subscription_id, lo, hi, queue, subscription, record,
               epoch)  # fmt: skip
        taken.append(own)

    def read_to(self, positions: Mapping[str, int]) -> dict[str, int]:
        """Count everything below the position in each source as read; when each queue was made."""
        passed = []
        created_us = {}
        for source, position in positions.items():
            queue, subscription = self._context.state.source(source)
            if position > queue.end_position:
                raise InvalidArgument(
                    f"position {position!r}: {source} has the positions 0 to {queue.end_position}: "
                    "give one of them"
                )
            if subscription in self.seeks:
                raise moving(queue, subscription)
            passed.append((queue, subscription, 0, position))
            created_us[source] = queue.config.created_us
        self.pass_over(passed)
        return created_us

    def passed(self) -> list[Read]:
        """What else counts as read, as the commit's record names it."""
        records: list[Read] = []
        for queue, subscription, start, end in () if self.adds is None else self.adds.passes:
            if subscription in self.seeks or start >= end:
                continue  # where it goes to says what it has read
            with queue.lock:
                records += [
                    Read(queue.queue_id, subscription.subscription_id, lo, hi)
                    for lo, hi in subscription.done.gaps(start, end)
                ]
        return records

    def to_read(self) -> list[TakenRow]:
        """What was taken, for the commit's record: in as few runs as can be, where they are many.

        By priority they come in any order.
        """
        taken = self.taken if self.spread is None else self._spread_out().rows()
        if len(taken) < RUNS_JOINED and not self.seeks:
            return taken
        # Where one of them goes to, if it is moved, says what it has read.
        return taken_positions.joined([row for row in taken if row[5] not in self.seeks])

    def held_of(self, subscription: Subscription) -> int:
        """How many messages of the subscription it has got, or keeps."""
        rows = [*self.rows(), *(() if self.kept is None else self.kept.rows())]
        return sum(own[3] - own[2] for own in rows if own[5] is subscription)

    def moves(self) -> MovesSection:
        """What it moves, as a section of the commit."""
        seeks = [
            Seek(queue.queue_id, subscription.subscription_id, position)
            for subscription, (queue, position, _) in self.seeks.items()
        ]
        strict = {s.subscription_id for s, (_, _, strict) in self.seeks.items() if strict}
        return MovesSection(self._context.state.durable.queues, seeks, strict)

    def keep(self, queue: Queue, subscription: Subscription, runs: DeliveryRuns) -> None:
        """What was just taken is kept from others until the end, and not read."""
        self.has_more = True
        self.keeping().keep(queue, subscription, runs)

    def keeping(self) -> KeptMessages:
        """What others do not get meanwhile, and it does not read."""
        self.kept = self.kept or KeptMessages()
        return self.kept

    def browse(self, key: Browsed, choice: Choice, most: int, after: int | None) -> Messages:
        """A page of the queue as it was when this transaction looked through it first."""
        queue, context = key[0], self._context
        self.has_more = True
        if key not in self.views:
            self.views[key] = QueueView(*key, context.delivery, context.places, context.journal)
        found = [part.looked_at() for part in self.views[key].page(choice, most, after)]
        return delivered_messages.Messages(queue.name, found, queue.schema)

    def note(self, queue: Queue, subscription: Subscription, runs: DeliveryRuns) -> None:
        """What was just taken is read with the commit, and delivered to nobody."""
        if len(self.taken) >= RUNS_JOINED:
            self._spread_out()  # `has` goes through few rows
        if not isinstance(self.removed, set):
            self.removed = set()
        for lo, hi, _ in runs:
            self.removed.add((subscription, lo))
            self._note(queue, subscription, lo, hi, None, 0)

    def has(self, subscription: Subscription, position: int) -> bool:
        """Whether it has got the message, or keeps it; asked by other threads."""
        rows, spread = list(self.taken), self.spread
        is_got = any(row[5] is subscription and row[2] <= position < row[3] for row in rows)
        is_got = is_got or (spread is not None and spread.has(subscription, position))
        return is_got or (self.kept is not None and self.kept.has(subscription, position))

    def let_go(self) -> None:
        """What it was to move, or has kept, is others' again; may be called again."""
        if self.kept is not None:
            self.kept.let_go()
        while self.views:
            self.views.popitem()[1].close()
        for subscription, (queue, _, _) in list(self.seeks.items()):
            self._context.delivery.let_go(queue, subscription, self)
            self.seeks.pop(subscription, None)

    @property
    def messages(self) -> int:
        """How many messages are in flight."""
        return sum(taken[3] - taken[2] for taken in self.rows())

    @property
    def sources(self) -> tuple[str, ...]:
        """Where they are from, by name."""
        names = sorted({(own[4].name, own[5].name) for own in self.rows()})
        return tuple(f"{queue}/{name}" if name else queue for queue, name in names)

    def give_back(self, reason: str | None = None) -> None:
        """The transaction is rolled back, for that reason; twice is once, after an interrupt."""
        if self.spread is not None:
            rows = self._spread_out().rows()
            self.taken, self.spread = rows, None  # no call in between
        if self.removed:
            rest, uncounted = taken_positions.cut_out(self.taken, self.removed)
            self.taken, self._uncounted, self.removed = rest, uncounted, frozenset()  # no call
        counted = self._is_counted
        fails = counted and (reason is not None or taken_positions.has_retry(self.taken))
        noted = self._context.delivery.fail(self.taken, reason) if fails else set()
        taken_positions.give_back_rows(self._uncounted, set(), counted=False)
        taken_positions.give_back_rows(self.taken, noted, counted=counted)
        if self.has_more:
            self.let_go()
