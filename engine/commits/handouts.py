"""Deliveries that are noted before they happen, as a record of the journal each."""

from __future__ import annotations

from collections.abc import Sequence

from quire.engine.queues.queue import Queue
from quire.engine.queues.state import State
from quire.engine.queues.subscription import Subscription
from quire.engine.records.commit_record import Read
from quire.engine.records.handout_record import pack_handout

from .sequencer import Sequencer


class Handout:
    """A change: these messages are delivered once more."""

    durable = relieves = True  # the transaction that reads comes next
    comes_first = False

    __slots__ = ("_runs", "_state", "applied", "record")

    def __init__(self, state: State, runs: Sequence[Read]) -> None:
        self._state = state
        self._runs = runs
        self.record = pack_handout(runs)
        self.applied = False

    def place(self) -> None:
        """Its record is whole."""

    def withdraw(self) -> None:
        """Nothing was done."""

    def apply(self, address: int) -> None:
        self._state.fold.hand_out(self._runs)


class Handouts:
    """Notes deliveries. Thread-safe."""

    def __init__(self, state: State, sequencer: Sequencer) -> None:
        self._state = state
        self._sequencer = sequencer

    def note(
        self, queue: Queue, subscription: Subscription, runs: Sequence[tuple[int, int, int]]
    ) -> None:
        """These positions are about to be delivered. Raises StoreFailed, DiskFull."""
        ids = queue.queue_id, subscription.subscription_id
        reads = [Read(*ids, start, end) for start, end, _ in runs]
        if queue.is_volatile:
            self._state.memory.hand_out(reads)
            return
        self._sequencer.submit(Handout(self._state, reads))
