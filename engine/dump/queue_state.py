"""A queue as a dump folds it: the durable one, and which record of the journal told what.

- DQ1: after damage positions are those at least: `certain` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from quire.engine.records.block_ref import BlockRef
from quire.engine.records.commit_record import PartRow, ReadRow
from quire.engine.records.durable_state import (
    LOST,
    DurableQueue,
    PartsByQueue,
    QueueConfig,
    SubscriptionForm,
)
from quire.engine.records.prepared_record import PrepareRecord

CHECKPOINT_LSN: Final = 0  # the journal begins with a page that holds no record


class TailRecord(NamedTuple):
    """A record that the journal tells, or a checkpoint on a full disk: not yet in a record page."""

    ref: BlockRef
    transaction: int
    lsn: int
    certain: bool


class QueueState:
    """See the module."""

    def __init__(self, durable: DurableQueue) -> None:
        self.durable = durable
        self.queue_id = durable.config.queue_id
        self.directory = durable.directory
        self.released = durable.released
        self.certain = durable.config.kind != LOST
        # Of each record: transaction, LSN, certain.
        self._told: list[tuple[int, int, bool]] = [(0, CHECKPOINT_LSN, True)] * len(durable.tail)

    @property
    def config(self) -> QueueConfig | None:
        """None: its definition is lost."""
        config = self.durable.config
        return None if config.kind == LOST else config

    @property
    def name(self) -> str | None:
        """None: its definition is lost."""
        return None if self.config is None else self.config.name

    @property
    def title(self) -> str:
        """Its name, or "#" and its id where damage hides the name."""
        return self.durable.config.name

    @property
    def end_position(self) -> int:
        return self.durable.end_position

    def released_of(self, ref: BlockRef) -> int:
        """How many of the record's messages are released."""
        return self.released.count(ref.position, ref.end)

    def tail_from(self, position: int) -> Iterator[TailRecord]:
        records = self.durable.tail.between(0, len(self._told))
        for ref, told in zip(records, self._told, strict=True):
            if ref.end > position:
                yield TailRecord(ref, *told)

    # As the fold's queue (see `FoldedQueue`)

    def commit(
        self,
        parts: Sequence[PartRow],
        first_id: int,
        time_us: int,
        address: int,
        live: bool,
        transaction_id: int,
        prepared: bool,
    ) -> int:
        start = self.end_position
        for part in parts:  # one by one: where one contradicts itself, those before it stay
            self.durable.append([part], first_id, time_us, address)
            self._told.append((transaction_id, address, self.certain))
            first_id += part[5]
        return self.end_position - start

    def acknowledge(self, read: ReadRow) -> None:
        self.durable.acknowledge(read)

    def hand_out(self, read: ReadRow) -> None:
        self.durable.hand_out(read)

    def seek(self, subscription_id: int, position: int) -> None:
        self.durable.seek(subscription_id, position)

    def subscribe(
        self, subscription_id: int, name: str, start: int, form: SubscriptionForm
    ) -> None:
        self.durable.subscribe(subscription_id, name, start, form)

    def unsubscribe(self, subscription_id: int) -> None:
        self.durable.unsubscribe(subscription_id)

    def alter(self, config: QueueConfig) -> None:
        self.durable.alter(config)

    def drop(self) -> None:
        """It is in no list any more."""


class Beside:
    """What stands beside the fold of a dump: nothing but the word of a contradiction."""

    def __init__(self, fault: Callable[[str, str], None]) -> None:
        self.fault = fault

    def made(self, queue: DurableQueue, used: int) -> QueueState:
        return QueueState(queue)

    def held(
        self, record: PrepareRecord, groups: PartsByQueue[QueueState], *, counted: bool
    ) -> None:
        """Nothing more is to be done."""

    def ended(
        self, record: PrepareRecord, groups: PartsByQueue[QueueState], first_id: int | None
    ) -> None:
        """Nothing more is to be done."""
