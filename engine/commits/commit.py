"""One transaction's commit, as the sequencer takes it: a COMMIT record, made and applied.

See `committer` for the steps that come before.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from typing import ClassVar, Self

from quire.engine.queues.queue import Queue, Taken
from quire.engine.queues.state import State
from quire.engine.reading.block_reader import BlockReader
from quire.engine.records import format
from quire.engine.records.commit_record import ID_AND_TIME_OFFSET, Entry, Packed, Read
from quire.engine.records.seek_record import Seek
from quire.errors import PositionLost, QueueNotFound, SubscriptionNotFound
from quire.journal import WholeRecord

_put_id_and_time = format.ID_AND_TIME.pack_into


class Commit:
    """A COMMIT record and what it means. `record` gets its ids and time in `place`.

    `packed`: the control records are in the charges. `reads` are the messages that were got, and
    what else counts as read.
    """

    __slots__ = (
        "_blocks", "_entries", "_groups", "_head", "_messages", "_reader", "_reads", "_state",
        "_transaction_id", "applied", "durable", "first_id", "record", "time_us",
    )  # fmt: skip

    beside: ClassVar[None] = None  # no volatile queue is concerned (see `volatile`)

    applied: bool
    durable: bool
    record: WholeRecord
    first_id: int
    time_us: int

    def fill(
        self,
        state: State,
        reader: BlockReader,
        transaction_id: int,
        packed: Packed[Queue],
        reads: Sequence[Read | Taken] = (),
        entries: Sequence[Entry] = (),
        durable: bool = True,
    ) -> Self:
        """First of all. Not `__init__`, by which an object takes twice the time."""
        self.applied = False
        self.durable = durable
        self.record, self._head, self._groups, self._blocks, self._messages = packed
        self._state = state
        self._reader = reader
        self._transaction_id = transaction_id
        self._reads = reads
        self._entries = entries
        return self

    def place(self) -> None:
        if self._entries:
            self._state.place_entries(self._entries)
        try:
            self.first_id, self.time_us = first_id, time_us = self._state.take_ids(self._messages)
            _put_id_and_time(self._head, ID_AND_TIME_OFFSET, first_id, time_us)
        except BaseException:  # of what has failed there is nobody who withdraws it
            self.withdraw()
            raise

    def withdraw(self) -> None:
        """Ids that were taken are not given again."""
        self._state.unplace_entries(self._entries)

    def apply(self, address: int) -> None:
        remember = self._reader.remember
        for offset, data in self._blocks:
            remember(address + offset, data)
        state, entries = self._state, self._entries
        state.fold.commit(
            self._groups, self._reads, entries, self.first_id, self.time_us, address, True,
            self._transaction_id,
        )  # fmt: skip
        if entries:
            state.unplace_entries(entries)


class Moves:
    """The subscriptions that a transaction moves, each with where to: part of its commit.

    `strict`: those of which all from that position on has to be there still.
    """

    __slots__ = ("_state", "seeks", "strict")

    def __init__(self, state: State, seeks: Sequence[Seek], strict: Collection[int]) -> None:
        self._state = state
        self.seeks = seeks
        self.strict = strict

    def split(self, queues: Container[int]) -> tuple[Moves | None, Moves | None]:
        """Those of other queues, and those of these; None: there are none."""
        others = [seek for seek in self.seeks if seek[0] not in queues]
        own = [seek for seek in self.seeks if seek[0] in queues]
        return (
            Moves(self._state, others, self.strict) if others else None,
            Moves(self._state, own, self.strict) if own else None,
        )

    def passed(self) -> list[Read]:
        """What is read by it at most, as reads."""
        return [Read(seek[0], seek[1], 0, seek[2]) for seek in self.seeks]

    def check(self) -> None:
        """Raises QueueNotFound, SubscriptionNotFound, PositionLost."""
        for queue_id, subscription_id, position in self.seeks:
            queue = self._state.queues.get(queue_id)
            if queue is None:
                raise QueueNotFound("a queue whose subscription is moved was dropped: roll back")
            if subscription_id not in queue.subscriptions:
                raise SubscriptionNotFound(
                    f"the subscription of queue {queue.name!r} that is moved was removed: roll back"
                )
            if subscription_id in self.strict:
                check_kept(queue, position)

    def apply(self) -> None:
        self._state.fold.seek(self.seeks)


def check_kept(queue: Queue, position: int) -> None:
    """Raises PositionLost where a subscription would go back further than what is kept."""
    first = queue.released.first_gap(0)
    if position < first:
        raise PositionLost(
            f"queue {queue.name!r} does not keep position {position} any more: the first position "
            f"that it keeps is {first}"
        )


class MovingCommit(Commit):
    """One that moves subscriptions as well; it is alone in its group."""

    __slots__ = ("moves",)

    moves: Moves

    def place(self) -> None:
        self.moves.check()
        super().place()

    def apply(self, address: int) -> None:
        super().apply(address)
        self.moves.apply()
