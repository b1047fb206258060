"""A queue as a dump folds it: the durable one, and which record of the journal told what.

- DQ1: after damage positions are those at least: `certain` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from quire.dump_items import Described, told
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.commit_record import PartRow
from quire.engine.records.durable_state import LOST, DurableQueue

CHECKPOINT_LSN: Final = 0  # the journal begins with a page that holds no record


class TailRecord(NamedTuple):
    """A record that the journal tells, or a checkpoint on a full disk: not yet in a record page."""

    ref: BlockRef
    transaction: int
    lsn: int
    certain: bool


class QueueState:
    """See the module. To the fold (`FoldedQueue`) it is the durable queue, with nothing beside."""

    def __init__(self, durable: DurableQueue) -> None:
        self.durable = durable
        self.queue_id = durable.config.queue_id
        self.directory = durable.directory
        self.released = durable.released
        self.certain = durable.config.kind != LOST
        # Of each record: transaction, LSN, certain.
        self._told: list[tuple[int, int, bool]] = [(0, CHECKPOINT_LSN, True)] * len(durable.tail)
        self.acknowledge, self.hand_out = durable.acknowledge, durable.hand_out
        self.subscribe, self.unsubscribe = durable.subscribe, durable.unsubscribe
        self.seek, self.alter = durable.seek, durable.alter

    @property
    def name(self) -> str | None:
        """None: its definition is lost."""
        return None if self.durable.config.kind == LOST else self.durable.config.name

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
        for ref, known in zip(records, self._told, strict=True):
            if ref.end > position:
                yield TailRecord(ref, *known)

    def items(self) -> Iterator[Described]:
        """What is listed of it, and of its subscriptions."""
        durable = self.durable
        own: dict[str, Any] = {"queue_id": self.queue_id}
        made: dict[str, Any] = {"name": None, "kind": None}
        if self.name is not None:
            made = told(durable.config) | durable.config.properties.to_body()
            del made["properties"]
        stands = {
            "end_position": self.end_position,
            "released": self.released.total,
            "record_pages": len(self.directory),
            "request_ids": len(durable.requests),
            "certain": self.certain,
        }
        yield Described("queue", own | made | stands)
        own["queue"] = self.name
        for each in durable.subscriptions.values():
            read = {
                "position": each.done.first_gap(0),  # everything below is read
                "read": each.done.total,
                "pending": max(self.end_position - each.done.total, 0),
            }
            of_it = {"subscription_id": each.subscription_id, "name": each.name}
            yield Described("subscription", own | of_it | read)

    def commit(
        self, parts: Sequence[PartRow], first_id: int, time_us: int, address: int, live: bool,
        transaction_id: int, prepared: bool,
    ) -> int:  # fmt: skip
        start = self.end_position
        for part in parts:  # one by one: where one contradicts itself, those before it stay
            self.durable.append([part], first_id, time_us, address)
            self._told.append((transaction_id, address, self.certain))
            first_id += part[5]
        return self.end_position - start

    def drop(self) -> None:
        """It is in no list any more."""


class Beside:
    """What stands beside the fold of a dump: nothing but the word of a contradiction."""

    def __init__(self, fault: Callable[[str, str], None]) -> None:
        self.fault = fault

    def made(self, queue: DurableQueue, used: int) -> QueueState:
        return QueueState(queue)

    def held(self, record: object, groups: object, *, counted: bool) -> None:
        """Nothing more is to be done."""

    def ended(self, record: object, groups: object, first_id: int | None) -> None:
        """Nothing more is to be done."""
