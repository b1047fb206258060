"""Deliveries that are noted before they happen, or when they have failed: a record each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from quire.engine.queues.queue import Queue
from quire.engine.queues.state import State
from quire.engine.queues.subscription import Subscription
from quire.engine.records.commit_record import Read
from quire.engine.records.sections import (
    Deliveries,
    DeliveriesSection,
    Failure,
    Failures,
    PendingSection,
)
from quire.errors import QuireError

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

    def fail(self, failures: Sequence[Failure]) -> None:
        """These have failed. Does not raise: what cannot be recorded holds until the store ends.

        What is recorded is durable with the next that waits for a sync.
        """
        state = self._state
        volatile = [each for each in failures if each.queue_id in state.volatile]
        if volatile:
            state.memory.fail(volatile)
        recorded = [each for each in failures if each.queue_id not in state.volatile]
        if recorded:
            section = PendingSection(state.fold, Failures(recorded))
            is_done = False
            with suppress(QuireError):
                self._committer.record(section, durable=False)
                is_done = True
            if is_done:
                self._committer.after_commit()
            else:
                section.apply(0)
