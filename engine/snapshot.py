"""The durable state at one LSN, taken between two commits; small whatever the backlog.

Lists that only grow at their end are noted by their length, the rest is copied.
"""

from __future__ import annotations

from binascii import b2a_base64
from dataclasses import dataclass, field
from typing import Any

from quire.intervals import IntervalSet

from .attempts import Row
from .block_ref import BlockRef
from .checkpoint_file import Numbers
from .places import Places
from .queue import Queue
from .record_list import PageEntry
from .space_maps import SpaceSnapshot
from .state import State


@dataclass(slots=True)
class QueueSnapshot:
    """One queue. What the checkpoint makes of its records is filled in while it is written."""

    queue: Queue
    tail: int
    end_position: int
    used: int
    live_messages: int
    released: IntervalSet
    subscriptions: list[tuple[int, str, IntervalSet | None, list[Row]]]
    directory: list[PageEntry]
    # Filled by the checkpoint:
    replaced: PageEntry | None = None
    entries: list[PageEntry] = field(default_factory=list)
    rewritten: dict[PageEntry, PageEntry] = field(default_factory=dict)
    moved: list[tuple[list[BlockRef], BlockRef]] = field(default_factory=list)

    @classmethod
    def of(cls, queue: Queue) -> QueueSnapshot:
        with queue.lock:
            released = queue.released.copy()
            return cls(
                queue=queue,
                tail=len(queue.records.tail),
                end_position=queue.end_position,
                used=queue.space.used - queue.space.pending_bytes,
                live_messages=queue.space.live_messages,
                released=released,
                subscriptions=[
                    (
                        s.subscription_id,
                        s.name,
                        None if s.done is queue.released else s.done.copy(),
                        s.attempts.rows(),
                    )
                    for s in queue.subscriptions.values()
                ],
                directory=list(queue.records.directory),
            )

    def to_replace(self, capacity: int) -> PageEntry | None:
        """The last record page, if the checkpoint fills it up with the tail's first records."""
        last = self.directory[-1] if self.directory and self.tail else None
        return last if last is not None and last.records < capacity else None

    def document(self, numbers: Numbers) -> dict[str, Any]:
        config = self.queue.config
        kept = [
            self.rewritten.get(entry, entry) for entry in self.directory if entry != self.replaced
        ]
        return {
            "queue_id": config.queue_id,
            "name": config.name,
            "kind": config.kind,
            "capacity": config.capacity,
            "max_messages": config.max_messages,
            "created_us": config.created_us,
            "subscription_id": config.subscription_id,
            "data_file": config.data_file,
            "end_position": self.end_position,
            "used": self.used,
            "live_messages": self.live_messages,
            "released": numbers.add(self.released.to_list()),
            "directory": numbers.add([*kept, *self.entries]),
            "subscriptions": [
                {
                    "subscription_id": subscription_id,
                    "name": name,
                    "done": None if done is None else numbers.add(done.to_list()),
                    "given_back": numbers.add(attempts),
                }
                for subscription_id, name, done, attempts in self.subscriptions
            ],
        }


@dataclass(slots=True)
class Snapshot:
    """The whole store."""

    lsn: int
    restart_lsn: int
    next_id: int
    last_time_us: int
    next_queue_id: int
    next_subscription_id: int
    ledger: dict[str, int]
    ltds: dict[int, str]
    released: list[int]  # files of large transactions
    spaces: list[SpaceSnapshot]  # of each data file
    prepared: list[bytes]  # PREPARE records' bodies
    retired: list[int]
    queues: list[QueueSnapshot]

    @classmethod
    def of(cls, state: State, places: Places, lsn: int, restart_lsn: int) -> Snapshot:
        """Called while nothing is committed (see `Sequencer.exclusive`)."""
        return cls(
            lsn=lsn,
            restart_lsn=restart_lsn,
            next_id=state.next_id,
            last_time_us=state.last_time_us,
            next_queue_id=state.next_queue_id,
            next_subscription_id=state.next_subscription_id,
            ledger=dict(state.ledger),
            ltds=dict(places.ltds),
            released=places.released(),
            spaces=[manager.space.snapshot() for manager in places.managers],
            prepared=[prepared.body() for prepared in state.prepared],
            retired=list(state.pages.retired),
            queues=[QueueSnapshot.of(queue) for queue in state.queues.values()],
        )

    def document(self, numbers: Numbers) -> dict[str, Any]:
        return {
            "restart_lsn": self.restart_lsn,
            "next_id": self.next_id,
            "last_time_us": self.last_time_us,
            "next_queue_id": self.next_queue_id,
            "next_subscription_id": self.next_subscription_id,
            "ledger": self.ledger,
            "ltds": {f"{ltds_id:016x}": queue for ltds_id, queue in self.ltds.items()},
            "released": [f"{ltds_id:016x}" for ltds_id in self.released],
            "prepared": [b2a_base64(body, newline=False).decode() for body in self.prepared],
            "queues": [queue.document(numbers) for queue in self.queues],
        }
