"""The next batch of a step: how far it goes, and its messages pinned in their places.

YPL1. A batch begins where the step's subscriptions stand, which move only by its own commits and by
    who moves them on purpose. What was removed from its range meanwhile, by hand or because the
    queue lets the oldest go, is not there; it is counted.
- From when it is planned until it is done with, a batch keeps its messages, whatever expires or is
  removed: they are leased. Should the lease end (the owner's end ends it), the tasks find the
  messages again or fail, and the batch is planned anew.
YPL3. Where batches end behind markers (markers.py), no batch has messages from before and behind
    one. Without a limit a batch is all that lies before the markers, and they. What is more than a
    limit is taken in parts, the last of which has the markers of all inputs.

YCU1. The inputs of a step end at one point of the store's commit order: of a transaction that has
    put to several of them a batch has all messages, or none.
YCU2. A batch has no more than its limits say; but one message at least, and where the inputs are
    several the whole of one transaction.
- No more places are looked at than about those of what is taken.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from quire.errors import (
    InvalidArgument,
    PositionLost,
    QueueNotFound,
    QuireError,
    SubscriptionNotFound,
)
from quire.spark_graphs import position_range
from quire.spark_graphs.checkpoint.offsets import Positions, admit
from quire.spark_graphs.graphs.definition import UNLIMITED, Limit
from quire.spark_graphs.graphs.schemas import NO_SCHEMAS, Schemas
from quire.spark_graphs.limits import (
    DEFAULT_STEP_BYTES,
    FIRST_LOOK_MESSAGES,
    LEASE_SECONDS,
    LOOK_GROWTH,
    MARKER_PIECES,
    STEP_PIECES,
)
from quire.spark_graphs.planning.byte_limit import within
from quire.spark_graphs.planning.lease_renewal import renewal_of
from quire.spark_graphs.reading.partition import QueuePiece
from quire.spark_graphs.task_files.task_files import files_at

from .batch_inputs import Input, Leased
from .markers import AwaitedMarker, Markers
from .task_store import TaskStore

if TYPE_CHECKING:
    from quire.interface.store import Store
    from quire.reports.info import Lease, Piece


class Batch(Struct, frozen=True):
    """Ranges of positions, leased."""

    begins: Positions
    ends: Positions
    inputs: tuple[Input, ...]  # one for each queue, in the order of the ranges, or due rows
    created_us: Mapping[str, int]
    lease_id: int | None

    @property
    def messages(self) -> int:
        """The number of its messages."""
        return sum(each.count for each in self.inputs if each.due is None)

    @property
    def rows(self) -> int:
        """The number of its messages, or of its due rows."""
        return sum(each.count for each in self.inputs)

    @property
    def removed(self) -> int:
        """The number of messages of its ranges that are not there any more (YPL1)."""
        return sum(self.ends.values()) - sum(self.begins.values()) - self.messages


class Planner:
    """Plans batches of some queues of a store."""

    def __init__(
        self,
        created_us: Mapping[str, int],
        limit: Limit,
        tasks: TaskStore,
        schemas: Schemas = NO_SCHEMAS,
        marker: str | None = None,
    ) -> None:
        self._markers = None if marker is None else Markers(marker, created_us, tasks)
        self._created_us = created_us
        self._limit = self._full_limit = limit
        self._tasks = tasks
        self._schemas = schemas

    @property
    def limit(self) -> Limit:
        """The most that a batch has."""
        return self._limit

    @property
    def awaited(self) -> AwaitedMarker | None:
        """The markers that have kept the last plan from giving a batch."""
        return None if self._markers is None else self._markers.awaited

    def shrink(self, messages: int) -> None:
        """Later batches have no more messages than that: one that had was too large.

        Those that end behind markers and nowhere else stay as they are.
        """
        self.narrow(messages)
        self._full_limit = self._limit

    def narrow(self, messages: int) -> None:
        """The next batches have no more messages than that, until they grow again.

        Those that end behind markers and nowhere else stay as they are.
        """
        if self._limit != UNLIMITED:
            self._limit = Limit(max(1, messages), self._limit.size_bytes)

    def can_narrow(self, messages: int) -> bool:
        """Return True if a batch of so many messages can be planned with fewer."""
        return self._limit != UNLIMITED and 1 < messages <= self._limit.messages

    def grow(self) -> None:
        """A batch went well: the next may have twice as many messages, up to the limit."""
        if self._limit != self._full_limit:
            messages = min(2 * self._limit.messages, self._full_limit.messages)
            self._limit = Limit(messages, self._limit.size_bytes)

    def plan(
        self,
        store: Store,
        begins: Positions,
        ends: Positions,
        *,
        whole: bool = False,
        is_last: bool = False,
    ) -> Batch | None:
        """The batch that begins there and ends at `ends`, or before them.

        None: it has to end behind markers, of which there are none that fit together, or it is to
        be looked for more of them (`awaited`). `whole`: raise PositionLost if a message of it is
        gone. `is_last`: what lies behind the last markers is a batch too.
        """
        if self._markers is None:
            return self._limited(store, begins, ends, whole)
        found = self._markers.next(store, begins, ends)
        if found is not None:
            return self._marked(store, begins, found, whole)
        if is_last and self._markers.awaited is not None and self._markers.awaited.is_complete:
            return self._limited(store, begins, ends, whole)
        return None

    def _marked(self, store: Store, begins: Positions, ends: Positions, whole: bool) -> Batch:
        """The batch that ends behind markers, or a part of what lies before them (YPL3)."""
        if self._limit == UNLIMITED:
            return self._all(store, begins, ends, whole)
        before = {queue: end - 1 for queue, end in ends.items()}
        if before == begins or cut(store, begins, ends, self._limit) == ends:
            batch = self._leased(store, begins, ends, whole)
            if before == begins or not self._is_too_large(batch):
                return batch
            release(self._tasks.path, batch)
        return self._limited(store, begins, before, whole)

    def _limited(self, store: Store, begins: Positions, ends: Positions, whole: bool) -> Batch:
        """The batch that ends at the limit, or at `ends`."""
        if self._limit == UNLIMITED:
            return self._all(store, begins, ends, whole)
        found = cut(store, begins, ends, self._limit)
        batch = self._leased(store, begins, found, whole)
        if batch.messages > 1 and self._is_too_large(batch):
            release(self._tasks.path, batch)
            files = files_at(self._tasks.path)
            found = within(store, files, begins, found, ends, self._limit.size_bytes)
            found = _aligned(store, begins, found, ends)
            batch = self._leased(store, begins, found, whole)
        return batch

    def _all(self, store: Store, begins: Positions, ends: Positions, whole: bool) -> Batch:
        """The batch that ends at `ends`. Raises InvalidArgument for more than tasks can be told."""
        if with_few_pieces(store, begins, ends, MARKER_PIECES) != ends:
            raise InvalidArgument(
                f"up to the next markers there are messages in more than {MARKER_PIECES:,} places, "
                "which is more than can be one batch: give the step a `limit`, up to which it "
                "takes them in parts, or put more messages by each transaction"
            )
        return self._leased(store, begins, ends, whole)

    def _is_too_large(self, batch: Batch) -> bool:
        """Return True if it has more bytes than it may."""
        return sum(each.size_bytes for each in batch.inputs) > self._limit.size_bytes

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
            renewal_of(self._tasks.path, os.getpid()).add(lease_id)
        return Batch(begins, ends, inputs, self._created_us, lease_id)

    def _input(self, queue: str, lease: Lease | None) -> Leased:
        pieces = () if lease is None else lease.pieces
        items = tuple(self._item(queue, each) for each in pieces)
        return Leased(queue, items, self._tasks, self._schemas.get(queue))

    def _item(self, queue: str, piece: Piece) -> QueuePiece:
        """A piece with its bytes; where they cannot be told, it counts as a whole batch."""
        size = self._tasks.size_bytes(queue, piece)
        made = self._created_us[queue]
        return QueuePiece(queue, piece, DEFAULT_STEP_BYTES if size is None else size, made)


def release(path: str, batch: Batch) -> None:
    """The batch is done with, or given up; a lease that is not given back now runs out."""
    if batch.lease_id is not None:
        with suppress(QuireError):
            renewal_of(path, os.getpid()).remove(batch.lease_id)


def standing(store: Store, queues: Mapping[str, str]) -> Positions:
    """Return where subscriptions stand, by queue. Raises QueueNotFound, SubscriptionNotFound."""
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


def cut(store: Store, begins: Positions, ends: Positions, limit: Limit) -> Positions:
    """Return where the batch ends that begins there, none beyond the ends, of one point (YCU1).

    The limit of bytes is not looked at.
    """
    found = admit(begins, ends, limit.messages)
    if sum(found[queue] - begin for queue, begin in begins.items()) > FIRST_LOOK_MESSAGES:
        found = with_few_pieces(store, begins, found, STEP_PIECES)
    return _aligned(store, begins, found, ends)


def with_few_pieces(store: Store, begins: Positions, ends: Positions, max_pieces: int) -> Positions:
    """Ends, none beyond those given, before which there are not many more places than so many."""
    found, room = dict(ends), max_pieces
    for queue, begin in begins.items():
        position, look = begin, FIRST_LOOK_MESSAGES
        while position < ends[queue]:
            stop = min(ends[queue], position + look)
            try:
                lease = store.integration.lease(
                    queue, position, stop, seconds=LEASE_SECONDS, gaps=True
                )
            except (PositionLost, QueueNotFound):
                break  # leasing the batch says what is to be done about it
            store.integration.end_lease(lease.lease_id)
            room -= len(lease.pieces)
            position = stop
            if room <= 0:
                found[queue] = stop
                break
            look *= LOOK_GROWTH
    return found


def _aligned(store: Store, begins: Positions, found: Positions, ends: Positions) -> Positions:
    """The last point of the commit order that is in no queue beyond these ends (YCU1, YCU2).

    Commit times ascend in that order. So what was committed before a time is all before one point.
    """
    if len(begins) == 1 or found == ends:
        return dict(found)
    times = [
        message.time
        for queue, end in found.items()
        if end < ends[queue]
        for message in store.browse(queue, start=end, max_messages=1)
    ]
    time_us = min(times, default=math.inf)
    if time_us == math.inf:
        return dict(ends)
    aligned = _before(store, int(time_us), begins, ends)
    if aligned == begins:  # one transaction is more than the limit
        aligned = _before(store, int(time_us) + 1, begins, ends)
    return aligned


def _before(store: Store, time_us: int, begins: Positions, ends: Mapping[str, int]) -> Positions:
    return {
        queue: max(begins[queue], min(end, store.admin.position_at(queue, time_us / 1e6)))
        for queue, end in ends.items()
    }
