"""Deliveries that are noted before they happen, as a record of the journal each."""

from __future__ import annotations

from collections.abc import Sequence

from quire.engine.queues.queue import Queue
from quire.engine.queues.state import State
from quire.engine.queues.subscription import Subscription
from quire.engine.records.commit_record import Read
from quire.engine.records.sections import Deliveries, DeliveriesSection

from .committer import Committer


class Handouts:
    """Notes deliveries. Thread-safe."""

    def __init__(self, state: State, committer: Committer) -> None:
        self._state = state
        self._committer = committer

    def note(
        self, queue: Queue, subscription: Subscription, runs: Sequence[tuple[int, int, int]]
    ) -> None:
        """These positions are about to be delivered. Raises StoreFailed, DiskFull."""
        ids = queue.queue_id, subscription.subscription_id
        reads = [Read(*ids, start, end) for start, end, _ in runs]
        if queue.is_volatile:
            self._state.memory.hand_out(reads)
        else:
            self._committer.record(DeliveriesSection(self._state.fold, Deliveries(reads)))
