"""Explanations of messages that are not delivered: by their state, and what is in their way.

- WY1: every state of the table of delivery has a row in `EXPLAINED`; a test goes over all of them.
- WY2: it is a look. Nothing is taken, given back or written. Headers that nobody has looked at are
  looked at as by a get, if they are few (`EXPLAINED_MESSAGES`) and no code of a user says what they
  are worth; else the answer says so. So its time does not depend on how many wait.
- What has become due, or has expired, and stands as before, since nobody has asked for it yet, is
  explained as what a get would find.
- What is answered was so a moment ago: a look at transactions comes after that at the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from quire.batches.delivered_slice import Delivered
from quire.definitions.order import by_code, by_sequence
from quire.engine.delivery.delivery_table import DeliveryState
from quire.engine.delivery.selection import Selection
from quire.engine.delivery.steady_clock import clock_us
from quire.engine.lookup import choice as choices
from quire.engine.lookup.candidates import rows_in
from quire.engine.reading.indexing import catch_up, group_of
from quire.engine.reading.position_search import places_of
from quire.engine.reading.ranks import sequence_links
from quire.engine.transactions.context import Context
from quire.limits import EXPLAINED_MESSAGES, EXPLAINED_PAGES, EXPLAINED_SLACK_US
from quire.reports.explanation import Explanation, UndeliveredReason

if TYPE_CHECKING:
    from quire.messages.message import Message

_REASON: Final = UndeliveredReason
NEXT_STATES: Final = (
    DeliveryState.AVAILABLE,
    DeliveryState.WAITING,
    DeliveryState.SCHEDULED,
    DeliveryState.REJECTED,
    DeliveryState.UNSEEN,
    DeliveryState.IN_FLIGHT,
    DeliveryState.LATE,
    DeliveryState.SPENT,
    DeliveryState.EXPIRED,
    DeliveryState.UNWANTED,
)
"""The states in which a message may be the next one, the likeliest first."""


class FoundMessage(NamedTuple):
    """A message that is asked about."""

    position: int
    part: Delivered
    message: Message

    @property
    def id(self) -> int:
        """Return its number."""
        return int(self.message.id)


class Explainer:
    """Explains one source. For one call."""

    def __init__(
        self,
        context: Context,
        source: str,
        *,
        has_failed: bool,
        maintenance_error: Callable[[], str | None],
    ) -> None:
        """`has_failed`: the store. `maintenance_error`: what keeps it from moving messages."""
        self._context = context
        self.source = source
        self.queue, self.subscription = context.state.source(source)
        self._has_failed = has_failed
        self._maintenance_error = maintenance_error
        self._unseen = 0  # messages that nobody has looked at

    def explain(self, message_id: int | None) -> Explanation:
        """Return why the message, or the next one, is not delivered. Raises StoreCorrupt."""
        with self.queue.lock:
            if not self.queue.is_shut:
                self.queue.check_there(self.subscription)
        self._look()
        found = self._next() if message_id is None else self._named(message_id)
        if isinstance(found, Explanation):
            return found
        with self.queue.lock:
            state = self.subscription.order.state_of(found.position)
            if self.subscription.done.contains(found.position):
                state = DeliveryState.READ
        state, as_of = self._by_now(state, found), state
        explained = EXPLAINED[state](self, found)
        is_available = state in (DeliveryState.AVAILABLE, DeliveryState.UNSEEN)
        also = explained.also if is_available else self._stops()
        return replace(explained, id=found.id, position=found.position, state=as_of.name, also=also)

    def answer(self, reason: UndeliveredReason, **fields: Any) -> Explanation:
        """Return an explanation of this source."""
        return Explanation(self.source, reason, **fields)

    # Which message it is

    def _look(self) -> None:
        """Look at headers as a get does, if that is for a moment (WY2)."""
        queue, subscription = self.queue, self.subscription
        with queue.lock:
            order, end = subscription.order, queue.end_position
            if not isinstance(order, Selection) or not order.is_behind(end):
                return
            self._unseen = order.unknown.total + max(0, end - order.known)
        is_plain = not by_code(queue.config.properties.order)
        is_free = not subscription.indexing.locked()
        if is_plain and is_free and self._unseen <= EXPLAINED_MESSAGES:
            catch_up(self._context.env, self._context.reader, queue, subscription)
            self._unseen = 0

    def _named(self, message_id: int) -> FoundMessage | Explanation:
        queue, delivery = self.queue, self._context.delivery
        [(position, is_there)] = places_of(delivery, queue, [message_id])
        with queue.lock:
            is_there = is_there and not queue.released.contains(position)
        found = self._at(position) if is_there else None
        if found is not None:
            return found
        target = queue.config.properties.dead_letter
        dead = self._context.state.names.get(target or "")
        if dead is not None and places_of(delivery, dead, [message_id])[0][1]:
            return self.answer(_REASON.DEAD_LETTER, id=message_id, queue=dead.name)
        return self.answer(_REASON.NOT_THERE, id=message_id, queue=target)

    def _next(self) -> FoundMessage | Explanation:
        """Return the message that comes next, or would if anything let it."""
        queue, subscription = self.queue, self.subscription
        with queue.lock:
            end = queue.end_position
            positions = [subscription.order.peek(end)]
            positions += [
                subscription.order.first_of(each, EXPLAINED_PAGES) for each in NEXT_STATES
            ]
            first = subscription.done.first_gap(0)
        positions.append(first if first < end else None)
        for position in positions:
            found = None if position is None else self._at(position)
            if found is not None:
                return found
        return self._of_empty()

    def _at(self, position: int) -> FoundMessage | None:
        """Return the message at a position; None: it is not kept."""
        for _, part in self._context.delivery.parts(self.queue, position, position + 1):
            return FoundMessage(position, part, part.message(self.queue.name, part.start))
        return None

    def _of_empty(self) -> Explanation:
        """Return why nothing is there: of transactions that have put, the oldest is told."""
        name = self.queue.name
        prepared = self._context.state.prepared.putter_to(self.queue.queue_id)
        for transaction in self._context.registry:
            info = transaction.info()
            if name in info.queues:
                found = self.answer(
                    _REASON.UNCOMMITTED,
                    transaction=info.id,
                    owner=info.owner,
                    since_us=info.opened_us,
                )
                break
        else:
            found = self.answer(_REASON.EMPTY)
            if prepared is not None:
                found = self.answer(
                    _REASON.UNDECIDED, xid=prepared.xid, since_us=prepared.prepared_us
                )
        also = self._stops()
        switches = self.queue.switches
        if not (self.queue.config.properties.puts and switches.puts):
            also = (*also, _REASON.PUTS_STOPPED)
        return replace(found, also=also)

    # What it is by now

    def _by_now(self, state: DeliveryState, found: FoundMessage) -> DeliveryState:
        """Return the state in which a get would find it."""
        now_us, is_timed = self._context.env.now_us(), bool(self.queue.config.properties.timed)
        due_us = found.message.deliver_at if is_timed else None
        expires_us = found.message.expires_at if is_timed else None  # a queue's `ttl` ages (SL9)
        by_now = state
        if state is DeliveryState.UNSEEN and self._is_unwanted(found.part):
            by_now = DeliveryState.UNWANTED
        elif state in _MAY_EXPIRE and expires_us is not None and expires_us <= now_us:
            by_now = DeliveryState.EXPIRED
        elif state is DeliveryState.UNSEEN and (due_us or 0) > now_us:
            by_now = DeliveryState.SCHEDULED
        elif (state is DeliveryState.SCHEDULED and (due_us or 0) <= now_us) or (
            state is DeliveryState.REJECTED and not self.retry_us(found.position)
        ):
            by_now = DeliveryState.AVAILABLE
        is_spent = by_now in _MAY_BE_SPENT and self.subscription.is_spent(found.position)
        return DeliveryState.SPENT if is_spent else by_now

    def _is_unwanted(self, part: Delivered) -> bool:
        part = part._replace(stop=part.start + 1)
        return not len(rows_in(self.subscription, part, choices.Choice()))

    def expires_us(self, message: Message) -> int | None:
        """Return when a message's time is over; None: never."""
        properties = self.queue.config.properties
        if not properties.timed:
            return None
        longest = properties.default_ttl if message.expires_at is None else properties.max_ttl
        ends = [] if message.expires_at is None else [message.expires_at]
        if longest is not None:
            ends.append(message.time + int(longest * 1e6))
        return min(ends, default=None)

    def retry_us(self, position: int) -> int:
        """Return when a failed message comes again; 0: it is due, and comes with the next get.

        That is as it was noted, unless the wall clock was set since: waits go by the other (SL9).
        """
        env, subscription = self._context.env, self.subscription
        noted_us = subscription.attempts.due_us(position)
        with self.queue.lock:
            rows = list(islice(subscription.later, EXPLAINED_MESSAGES))
        left_us = noted_us - env.now_us()
        for due_us, start, end in rows:
            if start <= position < end:
                left_us = due_us - clock_us(env)
                break
        if left_us <= 0:
            return 0
        until_us = env.now_us() + left_us
        return noted_us if abs(until_us - noted_us) < EXPLAINED_SLACK_US else until_us

    # What holds it up, though nothing is the matter with the message

    def _stops(self) -> tuple[UndeliveredReason, ...]:
        """Return why nobody gets anything from here at all."""
        queue = self.queue
        reasons = {
            _REASON.STORE_FAILED: self._has_failed,
            _REASON.SHUTTING_DOWN: self._context.registry.is_draining,
            _REASON.QUEUE_UNUSABLE: bool(queue.stopped),
            _REASON.STORE_STOPPED: not queue.switches.gets,
            _REASON.QUEUE_STOPPED: not queue.config.properties.gets,
        }
        return tuple(reason for reason, is_so in reasons.items() if is_so)

    def of_available(self, found: FoundMessage) -> Explanation:
        """Return what keeps a message back that may be taken by itself."""
        stops = self._stops()
        if stops:
            return self.answer(stops[0], detail=self.queue.stopped, also=stops[1:])
        for reason in (self._of_readers, self._of_pace, lambda: self._of_group(found)):
            explained = reason()
            if explained is not None:
                return explained
        return self._of_order(found)

    def _of_readers(self) -> Explanation | None:
        """Return who else has the subscription."""
        subscription = self.subscription
        with self.queue.lock:
            seeker, held = subscription.seeker, None
            is_held = subscription.exclusive and subscription.delivered > 0
            if is_held:
                held = subscription.order.first_of(DeliveryState.IN_FLIGHT, EXPLAINED_PAGES)
        if seeker is not None:
            for transaction in self._context.registry:
                if transaction.takes_as(seeker):
                    return self._by_transaction(_REASON.SEEKING, transaction)
            return self.answer(_REASON.SEEKING)
        if not is_held:
            return None
        return self.answer(_REASON.EXCLUSIVE) if held is None else self.who(held, _REASON.EXCLUSIVE)

    def _of_pace(self) -> Explanation | None:
        """Return which limit of the queue lets no more start."""
        subscription = self.subscription
        with self.queue.lock:
            pace, in_flight = subscription.pace, subscription.delivered
            if pace is None or pace.room(in_flight, 1):
                return None
            limits, seconds = pace.limits, pace.due_in(in_flight, None)
        if limits.max_in_flight is not None and in_flight >= limits.max_in_flight:
            return self.answer(_REASON.MAX_IN_FLIGHT, limit=limits.max_in_flight)
        until_us = self._context.env.now_us() + round(seconds * 1e6)
        return self.answer(_REASON.RATE, limit=limits.rate, until_us=until_us)

    def _of_group(self, found: FoundMessage) -> Explanation | None:
        """Return what keeps its ordered group back."""
        with self.queue.lock:
            groups = self.subscription.order.groups
            number = 0 if groups is None else group_of(found.part)
            obstacle = None if groups is None else groups.obstacle(number, EXPLAINED_MESSAGES)
        if obstacle is None or obstacle.position == found.position:
            return None
        properties, env = self.queue.config.properties, self._context.env
        if obstacle.is_full:
            return self.answer(_REASON.GROUP_MAX_IN_FLIGHT, limit=properties.group_max_in_flight)
        if obstacle.due_us:
            until_us = env.now_us() + obstacle.due_us - clock_us(env)
            return self.answer(_REASON.GROUP_RATE, limit=properties.group_rate, until_us=until_us)
        if obstacle.position is None:
            return self.answer(_REASON.GROUP_IN_FLIGHT)
        return self._of_group_message(obstacle.position)

    def _of_group_message(self, position: int) -> Explanation | None:
        """Return what keeps a message of the same group, which comes first."""
        with self.queue.lock:
            state = self.subscription.order.state_of(position)
        if state is not DeliveryState.REJECTED:
            return self.who(position, _REASON.GROUP_IN_FLIGHT)
        until_us, other = self.retry_us(position), self._at(position)
        if not until_us:
            return None
        behind = None if other is None else other.id
        return self.answer(_REASON.GROUP_RETRY, behind=behind, until_us=until_us)

    def _of_order(self, found: FoundMessage) -> Explanation:
        """Return what comes before it: nothing else keeps it back."""
        if self._unseen:
            return self.answer(_REASON.NOT_LOOKED_AT, number=self._unseen)
        with self.queue.lock:
            position = self.subscription.order.peek(self.queue.end_position)
        before = None
        if position is not None and position != found.position:
            before = self._at(position)
        if before is None:
            return self.answer(_REASON.READY)
        return self.answer(_REASON.BEHIND, behind=before.id)

    # Who has it

    def who(self, position: int, reason: UndeliveredReason) -> Explanation:
        """Return the explanation by the transaction that has a message in flight."""
        subscription = self.subscription
        for transaction in self._context.registry:
            if transaction.has(subscription, position):
                if transaction.keeps(subscription, position) and reason is _REASON.IN_FLIGHT:
                    reason = _REASON.HELD
                return self._by_transaction(reason, transaction)
        record = self._context.state.prepared.taker_of(subscription.subscription_id, position)
        if record is None:
            return self.answer(reason)
        if reason is _REASON.IN_FLIGHT:
            reason = _REASON.PREPARED
        return self.answer(reason, xid=record.xid, since_us=record.prepared_us)

    def _by_transaction(self, reason: UndeliveredReason, transaction: Any) -> Explanation:
        if transaction.is_own and reason is _REASON.IN_FLIGHT:
            return self.answer(_REASON.LEAVING)
        info = transaction.info()
        return self.answer(reason, transaction=info.id, owner=info.owner, since_us=info.opened_us)

    # States with words of their own

    def of_waiting(self, found: FoundMessage) -> Explanation:
        """Return for which number of its sender it waits."""
        order, part = self.queue.config.properties.order, found.part
        if not (isinstance(order, Mapping) and by_sequence(order)):
            return self.answer(_REASON.SEQUENCE)
        [link] = sequence_links(part.block, part.start, part.start + 1, order["sequence"]).tolist()
        env = self._context.env
        with self.queue.lock:
            sequences = self.subscription.order.sequences
            number, due_us = (
                (None, 0) if sequences is None else sequences.awaited(found.position, link)
            )
        until_us = env.now_us() + due_us - clock_us(env) if due_us else None
        # Of a sender of whom nothing is known the first number is 1.
        return self.answer(
            _REASON.SEQUENCE, number=1 if number is None else number, until_us=until_us
        )

    def of_leaving(self, reason: UndeliveredReason, since_us: int | None = None) -> Explanation:
        """Return where it goes that nobody gets any more, and what stands in the way."""
        properties = self.queue.config.properties
        goes = reason is _REASON.SPENT or properties.keep_expired
        target = properties.dead_letter if goes else None
        error = "" if target is None else self._maintenance_error() or ""
        detail = error if error.startswith(f"dead letters of {self.queue.name!r}: ") else ""
        return self.answer(reason, queue=target, detail=detail, since_us=since_us)

    def of_in_flight(self, found: FoundMessage) -> Explanation:
        """Return who has it; of what the store moves by itself why it does."""
        explained = self.who(found.position, _REASON.IN_FLIGHT)
        if explained.reason is not _REASON.LEAVING:
            return explained
        with self.queue.lock:
            state = self.subscription.order.state_of(found.position)
        if state in (DeliveryState.LATE, DeliveryState.EXPIRED):  # by now it may be back
            return self.of_expired(found)
        is_spent = self.subscription.is_spent(found.position)
        return self.of_leaving(_REASON.SPENT) if is_spent else explained

    def of_expired(self, found: FoundMessage) -> Explanation:
        """Return when its time was over, and where it goes."""
        return self.of_leaving(_REASON.EXPIRED, self.expires_us(found.message))


_MAY_EXPIRE: Final = (
    DeliveryState.UNSEEN,
    DeliveryState.WAITING,
    DeliveryState.SCHEDULED,
    DeliveryState.AVAILABLE,
    DeliveryState.REJECTED,
)
_MAY_BE_SPENT: Final = (DeliveryState.UNSEEN, DeliveryState.AVAILABLE)
EXPLAINED: Final[Mapping[DeliveryState, Callable[[Explainer, FoundMessage], Explanation]]] = {
    DeliveryState.UNSEEN: Explainer.of_available,
    DeliveryState.WAITING: Explainer.of_waiting,
    DeliveryState.SCHEDULED: lambda it, found: it.answer(
        _REASON.SCHEDULED, until_us=found.message.deliver_at
    ),
    DeliveryState.AVAILABLE: Explainer.of_available,
    DeliveryState.IN_FLIGHT: Explainer.of_in_flight,
    DeliveryState.LATE: Explainer.of_in_flight,
    DeliveryState.REJECTED: lambda it, found: it.answer(
        _REASON.RETRY, until_us=it.retry_us(found.position)
    ),
    DeliveryState.SPENT: lambda it, _: it.of_leaving(_REASON.SPENT),
    DeliveryState.EXPIRED: Explainer.of_expired,
    DeliveryState.UNWANTED: lambda it, _: it.answer(_REASON.UNWANTED, where=it.subscription.where),
    DeliveryState.READ: lambda it, _: it.answer(_REASON.READ),
}
"""By the state of a message, why it is not delivered (WY1)."""
