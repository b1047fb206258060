"""A queue as the durable state has it, for a dump: folded anew, and only in memory.

The engine's own fold gives places back as it goes and refuses what contradicts itself; a dump must
change nothing and go on. What a change means is the same (see `queue`).

- D1: after damage positions are those at least: `certain` tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quire.engine.block_ref import BlockRef
from quire.engine.queue import WORK
from quire.engine.record_list import PageEntry
from quire.intervals import IntervalSet


class TailRecord(NamedTuple):
    """A record that the journal tells, not yet a record page."""

    ref: BlockRef
    transaction: int
    lsn: int
    certain: bool


@dataclass(slots=True)
class SubscriptionState:
    """Which positions were read."""

    subscription_id: int
    name: str
    done: IntervalSet

    @property
    def position(self) -> int:
        return self.done.first_gap(0)


@dataclass(slots=True)
class QueueState:
    """See the module."""

    queue_id: int
    name: str | None = None  # None: its definition is lost
    kind: str | None = None
    capacity: int | None = None
    max_messages: int | None = None
    created_us: int | None = None
    data_file: int | None = None
    end_position: int = 0
    certain: bool = True
    directory: list[PageEntry] = field(default_factory=list)
    tail: list[TailRecord] = field(default_factory=list)
    subscriptions: dict[int, SubscriptionState] = field(default_factory=dict)
    released: IntervalSet = field(default_factory=IntervalSet)

    @classmethod
    def of_definition(cls, body: Mapping[str, Any]) -> QueueState:
        """Raises KeyError, TypeError or ValueError for a definition that is none."""
        most = body["max_messages"]
        queue = cls(
            int(body["queue_id"]), str(body["name"]), str(body["kind"]), int(body["capacity"]),
            None if most is None else int(most), int(body["created_us"]),
            int(body.get("data_file", 0)),
        )  # fmt: skip
        if queue.kind == WORK:
            number = int(body["subscription_id"])
            queue.subscriptions[number] = SubscriptionState(number, "", queue.released)
        return queue

    @property
    def title(self) -> str:
        """Its name, or "#" and its id where damage hides the name."""
        return f"#{self.queue_id}" if self.name is None else self.name

    def append(self, ref: BlockRef, transaction: int, lsn: int) -> None:
        """A committed block; its position is `end_position`."""
        self.tail.append(TailRecord(ref, transaction, lsn, self.certain))
        self.end_position = ref.end

    def acknowledge(self, subscription_id: int, start: int, end: int) -> None:
        subscription = self.subscriptions.get(subscription_id)
        if subscription is not None and start < end:
            subscription.done.add(start, end)

    def subscribe(self, subscription_id: int, name: str, start: int) -> None:
        self.release()
        done = self.released.copy()
        if start > 0:
            done.add(0, start)
        self.subscriptions[subscription_id] = SubscriptionState(subscription_id, name, done)

    def unsubscribe(self, subscription_id: int) -> None:
        self.subscriptions.pop(subscription_id, None)
        self.release()

    def release(self) -> None:
        """What every subscription has read is released, and stays it."""
        others = list(self.subscriptions.values())
        if not others or self.end_position == 0 or others[0].done is self.released:
            return
        parts = list(self.released.gaps(0, self.end_position))
        for subscription in others:
            parts = [p for lo, hi in parts for p in subscription.done.intersection(lo, hi)]
        for lo, hi in parts:
            self.released.add(lo, hi)

    def released_of(self, ref: BlockRef) -> int:
        """How many of the record's messages are released."""
        if ref.count < 1:
            return 0
        return sum(hi - lo for lo, hi in self.released.intersection(ref.position, ref.end))

    def tail_from(self, position: int) -> Iterator[TailRecord]:
        return (record for record in self.tail if record.ref.end > position)
