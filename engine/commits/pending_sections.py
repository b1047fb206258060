"""The sections of a commit on their way into the journal: what is checked, and taken meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence

from msgspec.structs import replace

from quire.definitions.order import by_sequence
from quire.engine.live_state.engine_state import EngineState
from quire.engine.live_state.live_values import StateEntry, StateValues
from quire.engine.queues.prepared_transactions import PreparedTransaction, PreparedTransactions
from quire.engine.records import format
from quire.engine.records.commit_record import Read
from quire.engine.records.key_values import StateKey, ValueSet
from quire.engine.records.packed_runs import bound_of, most_bytes
from quire.engine.state.durable_state import DurableQueue, DurableSubscription
from quire.engine.state.sections.attachment import Attachment
from quire.engine.state.sections.decides import Decides
from quire.engine.state.sections.held import Held, Prepares
from quire.engine.state.sections.kinds import section_pieces
from quire.engine.state.sections.section import Section
from quire.engine.state.sections.seeks import Seek, Seeks, check_kept
from quire.engine.state.sections.values import Setting, Values, value_rows
from quire.errors import QueueNotFound, SubscriptionNotFound
from quire.limits import CHECKPOINT_INTERVAL_BYTES, SEQUENCE_SENDERS


class PendingSection:
    """A section on its way into the journal, in the steps of a commit."""

    __slots__ = ("body", "content", "growth", "room")

    room: int
    """1: it takes room on the disk; -1: it makes some, and may go on where the disk is full."""
    growth: int
    """So many bytes it may make each checkpoint larger all the same (KB3 of `spare_space`)."""
    comes_first = False
    """No other change of its group may come before it: it checks what they change."""
    messages = 0
    """So many ids it takes, once `check` has returned."""
    takes_effect = True
    """False: another section brings about what it says."""

    content: Section
    """It is folded when the record is durable; `place` may put another one here."""
    body: bytes | bytearray
    """Its bytes in the record, if any; `place` may fill some of them in."""

    def __init__(self, content: Section, room: int = 0, growth: int = 0) -> None:
        self.content = content
        self.body = content.pack()
        self.room = room
        self.growth = growth

    def check(self) -> None:
        """Check that it may be committed next. Raises to refuse the transaction."""

    def place(self, first_id: int, time_us: int) -> None:
        """It is committed next, with ids from there on and at that time. Must not raise."""

    def withdraw(self) -> None:
        """Its record was not written; perhaps it was not even checked. Must not raise."""

    def settle(self) -> None:
        """It was folded: let go of what `place` took. Must not raise."""


class MovesSection(PendingSection):
    """Moves of subscriptions on their way into the journal.

    `strict`: the subscriptions of which all from that position on has to be there still.
    """

    __slots__ = ("_coming_bytes", "_state", "_strict", "comes_first")

    content: Seeks

    def __init__(self, state: EngineState, seeks: Sequence[Seek], strict: Collection[int]) -> None:
        super().__init__(Seeks(seeks), room=-1)
        self._state = state
        self._coming_bytes = 0  # of its growth, in the state's
        self._strict = strict
        self.comes_first = any(seek.subscription_id in strict for seek in seeks)

    def split(self, queues: Container[int]) -> tuple[MovesSection | None, MovesSection | None]:
        """Return the moves in other queues, and those in these; None: there are none."""
        own = [seek for seek in self.content.seeks if seek.queue_id in queues]
        others = [seek for seek in self.content.seeks if seek.queue_id not in queues]
        return (
            MovesSection(self._state, others, self._strict) if others else None,
            MovesSection(self._state, own, self._strict) if own else None,
        )

    def passed(self) -> list[Read]:
        """Return the reads that it makes at most."""
        return [Read(seek[0], seek[1], 0, seek[2]) for seek in self.content.seeks]

    def check(self) -> None:
        """Raises QueueNotFound, SubscriptionNotFound, PositionLost."""
        growth = 0
        for queue_id, subscription_id, position in self.content.seeks:
            queue = self._state.durable.queues.get(queue_id)
            if queue is None:
                raise QueueNotFound("a queue whose subscription is moved was dropped: roll back")
            if subscription_id not in queue.subscriptions:
                raise SubscriptionNotFound(
                    f"the subscription of queue {queue.config.name!r} that is moved was removed: "
                    "roll back"
                )
            if subscription_id in self._strict:
                check_kept(queue, position)
            growth += _growth_by(queue, queue.subscriptions[subscription_id], position)
        self.growth = growth
        if growth:
            self._coming_bytes = growth
            self._state.coming.bytes += growth
            self._state.coming.count_anew()

    def withdraw(self) -> None:
        """The growth stays, by which it is known whether it may be tried again."""
        coming, self._coming_bytes = self._coming_bytes, 0
        self._state.coming.bytes -= coming

    settle = withdraw


def _growth_by(queue: DurableQueue, subscription: DurableSubscription, position: int) -> int:
    """Return how much larger each checkpoint may be, as the messages behind it are unread again."""
    released, done, end = queue.released, subscription.done, queue.end_position
    if done is released or queue.config.is_volatile or position >= end:
        return 0
    unread = sum(hi - lo for lo, hi in released.gaps(position, end))
    after, _ = bound_of(len(released) + 1, unread, end - released.first_gap(position))
    growth = max(after - most_bytes(done, end)[0], 0)
    if by_sequence(queue.config.properties.order):
        more = min(unread - (end - done.total), SEQUENCE_SENDERS)
        growth += max(more, 0) * CHECKPOINT_INTERVAL_BYTES
    return growth


class ValuesSection(PendingSection):
    """Values on their way into the journal, with what the transaction has read of states.

    `xid`: it is prepared by that, and holds the keys then.
    """

    __slots__ = ("_marks", "_order", "_reads", "_settings", "_xid", "takes_effect")

    content: Values  # the numbers are right once it has its place
    body: bytearray

    def __init__(
        self,
        order: StateValues,
        reads: Mapping[StateKey, StateEntry | None],
        settings: Sequence[Setting],
        xid: str | None = None,
    ) -> None:
        super().__init__(Values([ValueSet(0, *one) for one in settings]), room=1 if settings else 0)
        self._order = order
        self._reads = reads
        self._settings = settings
        self._xid = xid
        self._marks = [(one.name, one.key, one.value is not None) for one in settings]
        self.takes_effect = bool(settings) and xid is None

    def check(self) -> None:
        """Raises StateConflict, KeyHeld."""
        self._order.check(self._reads, [(name, key) for name, key, _ in self._marks])

    def place(self, first_id: int, time_us: int) -> None:
        """The numbers are known."""
        if not self._settings:
            return
        numbers = self._order.place(self, self._marks, self._xid)
        for (at, *_), number in zip(value_rows(self.body), numbers, strict=True):
            format.NUMBER.pack_into(self.body, at, number)
        pairs = zip(numbers, self._settings, strict=True)
        self.content = Values([ValueSet(number, *one) for number, one in pairs])

    def withdraw(self) -> None:
        self._order.unplace(self, self._marks)

    settle = withdraw


class HeldSection(PendingSection):
    """A prepare on its way into the journal, behind the section of the values that it sets."""

    __slots__ = ("_held", "_is_placed", "_state", "_values")

    def __init__(
        self, state: EngineState, held: PreparedTransaction, values: ValuesSection | None
    ) -> None:
        super().__init__(Held(held.record.xid, held.record.taken), room=1)
        self._state = state
        self._held = held
        self._values = values
        self._is_placed = False

    def check(self) -> None:
        """Raises AlreadyCommitted, KeyHeld, XidExists."""
        self._state.check_entries(self._held.record.entries)
        self._state.prepared.place(self._held)
        self._is_placed = True

    def place(self, first_id: int, time_us: int) -> None:
        sets = () if self._values is None else self._values.content.sets
        record = self._held.record._replace(prepared_us=time_us, sets=sets)
        self._held.record, self.content = record, Prepares(record)

    def withdraw(self) -> None:
        if self._is_placed:
            self._state.prepared.withdraw(self._held)
            self._is_placed = False


class DecidesSection(PendingSection):
    """A decision on its way into the journal.

    `expected`: the transaction that it is about, not a later one of the same xid.
    """

    __slots__ = ("_expected", "_order", "_prepared", "messages")

    content: Decides
    body: bytearray

    def __init__(
        self, order: PreparedTransactions, content: Decides, expected: PreparedTransaction | None
    ) -> None:
        super().__init__(content, room=-1)  # what it is about has its place already
        self._order = order
        self._expected = expected
        self._prepared: PreparedTransaction | None = None
        self.messages = 0

    def check(self) -> None:
        """Raises TransactionNotFound."""
        self._prepared = prepared = self._order.decide(self.content.xid, self._expected)
        self.content = content = replace(self.content, messages=prepared.record.messages)
        if content.commit:
            self.messages = content.messages

    def place(self, first_id: int, time_us: int) -> None:
        self.body[:] = self.content.pack()

    def withdraw(self) -> None:
        if self._prepared is not None:
            self._order.undecide(self._prepared)
            self._prepared = None


def pack_sections(
    sections: Sequence[PendingSection], attachment: Attachment | None = None
) -> list[bytearray | bytes]:
    """The pieces of a record for those that have bytes: none if none has."""
    bodies = [(section.content.kind, section.body) for section in sections if section.body]
    if attachment is not None:
        bodies.append((attachment.kind, attachment.pack()))
    return section_pieces(bodies)
