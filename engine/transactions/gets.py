"""What a transaction has got, and what it counts as read, until it ends. Its lock covers it.

- What it has got is in flight: no other reader of the subscription gets it, until the commit's
  record reads it for good or `give_back` makes it available again at its place in the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final, cast

from quire.batches.delivered_messages import Messages
from quire.batches.delivered_slice import Delivered
from quire.block import Block
from quire.definitions.retry import Retry
from quire.engine.finding import removals
from quire.engine.finding.asked_reports import REPORTING, Additions, Pass, may_ask_delivery
from quire.engine.finding.choice import Choice
from quire.engine.finding.kept_messages import KeptMessages
from quire.engine.finding.moved_marks import GotPart, MovedMarks
from quire.engine.finding.queue_view import QueueView
from quire.engine.queues.queue import Queue, TakenRow
from quire.engine.queues.subscription import NONE, Subscription
from quire.engine.reading.block_cursor import BlockCursor
from quire.engine.reading.block_messages import message_of
from quire.engine.reading.block_reader import BlockMoved
from quire.engine.reading.delivery import DeliveryRequest, DeliveryRuns, moving
from quire.engine.reading.position_search import position_of
from quire.engine.records.block_ref import BlockRef, BlockRow
from quire.engine.records.commit_record import Read
from quire.engine.records.format import ON_DISK_APART
from quire.engine.state.sections.moves import MovesSection, Seek
from quire.errors import InvalidArgument, PositionLost, QueueInUse
from quire.libraries import np
from quire.limits import EXPIRED_AT_ONCE, PURGED_RUNS, RUNS_JOINED
from quire.messages.message import Message, plain_message

from .context import Context

if TYPE_CHECKING:
    from numpy.typing import NDArray

IN_WHOLE: Final = cast("Message", object())
TOO_OFTEN: Final = "delivered too often"
EXPIRED: Final = "expired"
Runs = Sequence[tuple[int, int]]  # of positions
Browsed = tuple[Queue, Subscription | None]
Taking = dict[Subscription, list[tuple[int, int]]]  # runs of positions that are taken


class Gets:
    """See the module."""

    __slots__ = (
        "_batch", "_block", "_context", "_is_counted", "adds", "has_more", "kept", "moved",
        "removed", "seeks", "taken", "views",
    )  # fmt: skip

    def __init__(self, context: Context) -> None:
        self._context = context
        self.taken: list[TakenRow] = []
        self.adds: Additions | None = None
        # What it moves: where to, and whether all from there on has to be there still.
        self.seeks: dict[Subscription, tuple[Queue, int, bool]] = {}
        self.kept: KeptMessages | None = None
        self.has_more = False  # it moves or keeps anything
        self.moved: MovedMarks | None = None  # to other queues
        self.views: dict[Browsed, QueueView] = {}
        self._block: BlockCursor | None = None
        self._is_counted = True  # what is given back was delivered once
        self.removed: Sequence[tuple[Subscription, int]] = ()  # but for these positions
        # The positions of the latest batch, and where what is taken ended then.
        self._batch: tuple[list[tuple[int, int]], tuple[int, int]] | None = None

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
            position = position_of(delivery, queue, message_id)
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
        for lo, hi, _ in runs:
            self._note(queue, subscription, lo, hi, None, 0)
        if runs:
            self._batch = [run[:2] for run in runs], (len(self.taken), runs[-1][1])
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
        removals.drop_last(self.taken, subscription, runs)
        left = removals.but_for(self.removed, subscription, runs)
        is_counted = noted and self._is_counted and len(left) == len(self.removed)
        self.removed = left
        if is_counted:  # first: what has its last delivery has it again
            self._context.delivery.note_untouched(queue, subscription, runs)
        if self.kept is not None:
            runs = self.kept.take_back(queue, subscription, runs)
        self._context.delivery.give_back(queue, subscription, runs)

    def unget(self) -> None:
        """Give back what the latest call took, as if it had not been made."""
        if self.taken:
            _, _, _, _, queue, subscription, _, _ = self.taken[-1]
            latest = self._latest()
            if self.moved is not None:
                self.moved.check(subscription, [p for lo, hi in latest for p in range(lo, hi)])
            self.take_back(queue, subscription, latest)
        self._batch = None

    def _latest(self) -> list[tuple[int, int]]:
        """What the latest call took, of what is left of it. Something is taken."""
        end = self.taken[-1][3]
        if self._batch is not None and self._batch[1] == (len(self.taken), end):
            return self._batch[0]
        return [(end - 1, end)]  # one message, as whatever is taken moves the end

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
        messages = list(Messages(queue.name, parts))
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
        renamed = all(taken[4].name != message.queue for taken in self.taken)
        for index, taken in enumerate(self.taken):
            _, _, lo, hi, queue, subscription, _, _ = taken
            is_its = renamed or queue.name == message.queue
            position = self._position(taken, message.id) if is_its else -1
            if position >= 0:
                if self.moved is not None:
                    self.moved.check(subscription, [position])
                latest = self._latest()
                if self.taken[-1][5] is subscription:
                    latest = removals.without(position, latest)
                self.taken[index : index + 1] = [
                    removals.part_of(taken, start, end)
                    for start, end in removals.without(position, [(lo, hi)])
                ]
                ends = (len(self.taken), self.taken[-1][3]) if self.taken else (0, 0)
                self._batch = latest, ends
                self.keeping().forget(subscription, position)
                self._context.delivery.reject(queue, subscription, position, reason, delay)
                return queue, subscription
        raise InvalidArgument(
            f"message {message.id} of queue {message.queue!r} is none that this transaction has "
            "got: reject what it got, once"
        )

    def mark_moved(self, messages: Sequence[Message]) -> None:
        """These are moved (MM1). Raises InvalidArgument where one was not got, or is moved."""
        if self.moved is None:
            self.moved = MovedMarks()
        got = (
            GotPart(own[4].name, own[5], start, ids)
            for own in self.taken
            for start, ids in self._ids(own)
        )
        self.moved.mark(got, {own[4].name for own in self.taken}, messages)

    def _position(self, taken: TakenRow, message_id: int) -> int:
        """Where a message is among what was taken; -1: it is not."""
        for start, ids in self._ids(taken):
            if ids[0] <= message_id <= ids[-1]:
                found = int(np.searchsorted(ids, message_id))
                return start + found if ids[found] == message_id else -1
        return -1

    def _ids(self, taken: TakenRow) -> Iterator[tuple[int, Sequence[int] | NDArray[np.int64]]]:
        """The ids of what was taken, ascending, and the position where each part begins."""
        _, _, lo, hi, queue, _, record, epoch = taken
        if record is not None and epoch == queue.epoch:
            yield lo, [record[1]]
            return
        for start, part in self._context.delivery.parts(queue, lo, hi):
            yield start, part.block.ids(part.first_id, part.start, part.stop)

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
        if len(self.taken) < RUNS_JOINED and not self.seeks:
            return self.taken
        joined: list[TakenRow] = []
        for taken in sorted(self.taken, key=itemgetter(0, 1, 2)):
            if taken[5] in self.seeks:
                continue  # where it goes to says what it has read
            last = joined[-1] if joined else None
            if last and last[5] is taken[5] and last[3] == taken[2]:
                joined[-1] = removals.part_of(last, last[2], taken[3])
            else:
                joined.append(taken)
        return joined

    def held_of(self, subscription: Subscription) -> int:
        """How many messages of the subscription it has got, or keeps."""
        rows = [*self.taken, *(() if self.kept is None else self.kept.rows)]
        return sum(own[3] - own[2] for own in rows if own[5] is subscription)

    def moves(self) -> MovesSection:
        """What it moves, as a section of the commit."""
        seeks = [
            Seek(queue.queue_id, subscription.subscription_id, position)
            for subscription, (queue, position, _) in self.seeks.items()
        ]
        strict = {s.subscription_id for s, (_, _, strict) in self.seeks.items() if strict}
        state = self._context.state
        return MovesSection(state.durable.queues, state.fold, seeks, strict)

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
        found = self.views[key].page(choice, most, after)
        return Messages(queue.name, found, queue.schema)

    def note(self, queue: Queue, subscription: Subscription, runs: DeliveryRuns) -> None:
        """What was just taken is read with the commit, and delivered to nobody."""
        for lo, hi, _ in runs:
            self.removed = [*self.removed, (subscription, lo)]
            self._note(queue, subscription, lo, hi, None, 0)

    def has(self, subscription: Subscription, position: int) -> bool:
        """Whether it has got the message, or keeps it; asked by other threads."""
        rows = list(self.taken)
        is_got = any(row[5] is subscription and row[2] <= position < row[3] for row in rows)
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
        return sum(taken[3] - taken[2] for taken in list(self.taken))

    @property
    def sources(self) -> tuple[str, ...]:
        """Where they are from, by name."""
        names = sorted({(own[4].name, own[5].name) for own in list(self.taken)})
        return tuple(f"{queue}/{name}" if name else queue for queue, name in names)

    def give_back(self) -> None:
        """The transaction is rolled back; may be called again after an interrupt."""
        if self.removed:
            removals.bring_back(self.taken, self.removed)
        taken, counted = self.taken, self._is_counted
        noted = self._context.delivery.fail(taken) if counted and removals.has_retry(taken) else ()
        while taken:
            _, _, lo, hi, queue, subscription, _, _ = taken[-1]
            with queue.lock:
                try:
                    subscription.give_back(lo, hi, counted=counted, noted=subscription in noted)
                except BaseException:
                    subscription.go_on_giving_back(lo, hi)
                    del taken[-1]
                    raise
                del taken[-1]  # no call in between: an interrupt comes before or after both
                queue.wake()
        if self.has_more:
            self.let_go()
