"""The next batch of a step: how far it goes, and its messages pinned in their places.

YPL1. A batch begins where the step's subscriptions stand, which move only by its own commits and by
    who moves them on purpose. What was removed from its range meanwhile, by hand or because the
    queue lets the oldest go, is not there; it is counted.
YPL2. From when it is planned until it is done with, a batch keeps its messages, whatever expires or
    is removed: they are leased. Should the lease end (the owner's end ends it), the tasks find the
    messages again or fail, and the batch is planned anew.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.errors import QuireError, SubscriptionNotFound
from quire.spark_graphs import position_range
from quire.spark_graphs.offsets import Positions
from quire.spark_graphs.partition import QueuePiece
from quire.spark_graphs.renewal import renewal_of

from .cut import cut, cut_bytes
from .definition import Limit
from .inputs import Leased
from .schemas import NO_SCHEMAS, Schemas
from .task_store import TaskStore

if TYPE_CHECKING:
    from quire.info import Lease
    from quire.store import Store


@dataclass(frozen=True)
class Batch:
    """Ranges of positions, leased."""

    begins: Positions
    ends: Positions
    inputs: tuple[Leased, ...]  # one for each queue, in the order of the ranges
    created_us: Mapping[str, int]
    lease_id: int | None

    @property
    def messages(self) -> int:
        """How many messages it has."""
        return sum(each.count for each in self.inputs)

    @property
    def removed(self) -> int:
        """How many messages of its ranges are not there any more (YPL1)."""
        return sum(self.ends.values()) - sum(self.begins.values()) - self.messages


class Planner:
    """Plans batches of some queues of a store."""

    def __init__(
        self,
        created_us: Mapping[str, int],
        limit: Limit,
        tasks: TaskStore,
        schemas: Schemas = NO_SCHEMAS,
    ) -> None:
        self._created_us = created_us
        self._limit = limit
        self._tasks = tasks
        self._schemas = schemas

    @property
    def limit(self) -> Limit:
        """What a batch has at most."""
        return self._limit

    def shrink(self, messages: int) -> None:
        """Later batches have no more messages than that: one that had was too large."""
        self._limit = Limit(max(1, messages), self._limit.size_bytes)

    def plan(
        self, store: Store, begins: Positions, ends: Positions, *, whole: bool = False
    ) -> Batch:
        """The batch that begins there and ends at `ends`, or before them.

        `whole`: raise PositionLost if a message of it is gone.
        """
        found = cut(store, begins, ends, self._limit)
        batch = self._leased(store, begins, found, whole)
        if batch.messages > 1 and self._is_too_large(batch):
            release(store.path, batch)
            found = cut_bytes(store, begins, found, ends, self._limit.size_bytes)
            batch = self._leased(store, begins, found, whole)
        return batch

    def _is_too_large(self, batch: Batch) -> bool:
        """Whether it has more bytes than it may, or that is not told by its places."""
        pieces = [item for each in batch.inputs for item in each.pieces]
        in_files = any(not item.piece.length for item in pieces)
        return in_files or sum(item.size_bytes for item in pieces) > self._limit.size_bytes

    def _leased(self, store: Store, begins: Positions, ends: Positions, whole: bool) -> Batch:
        ranges = {queue: (begins[queue], ends[queue]) for queue in begins}
        taken = {queue: span for queue, span in ranges.items() if span[0] < span[1]}
        leases = position_range.lease(
            store,
            taken,
            whole=whole,
            created_us=self._created_us,
            advice="give a range that the queue still keeps (`keep_messages` and the like)",
        )
        by_queue = {lease.queue: lease for lease in leases}
        inputs = tuple(self._input(queue, by_queue.get(queue)) for queue in begins)
        lease_id = leases[0].lease_id if leases else None
        if lease_id is not None:
            renewal_of(store.path, os.getpid()).add(lease_id)
        return Batch(begins, ends, inputs, self._created_us, lease_id)

    def _input(self, queue: str, lease: Lease | None) -> Leased:
        pieces = () if lease is None else lease.pieces
        items = tuple(QueuePiece.of(queue, each, self._created_us[queue]) for each in pieces)
        return Leased(queue, items, self._tasks, self._schemas.get(queue))


def release(path: str, batch: Batch) -> None:
    """The batch is done with, or given up; a lease that is not given back now runs out."""
    if batch.lease_id is not None:
        with suppress(QuireError):
            renewal_of(path, os.getpid()).remove(batch.lease_id)


def standing(store: Store, queues: Mapping[str, str]) -> Positions:
    """Where subscriptions stand, by queue. Raises QueueNotFound, SubscriptionNotFound."""
    found: Positions = {}
    for queue, name in queues.items():
        for each in store.subscriptions(queue):
            if each.name == name:
                found[queue] = each.position
        if queue not in found:
            raise SubscriptionNotFound(
                f"queue '{queue}' has no subscription '{name}' any more: messages that the step "
                "has not read may be gone. Start the graph anew, which makes it again"
            )
    return found
