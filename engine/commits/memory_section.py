"""The effects of a commit on volatile queues, whose messages are in memory and in no record.

- VO1: it takes effect exactly if the commit's record does: it is applied with it, by the same
  thread, and not at all where the record is refused or cannot be written. A transaction of volatile
  queues alone has no record: it writes nothing and syncs nothing.
- VO2: all commits that concern volatile queues are applied one after another, by the fold of what
  is in memory only (see `live_state`), so that each of these queues has them in the same order.
- VO3: what has failed refuses them too (promise 11), as does an interrupt that came while one was
  applied (C6 of `sequencer`).
- Ids and positions that an opening of the store gives in volatile queues no other opening gives:
  what somebody knows of a message that is gone never means another one.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from typing import Any, Final, TypeVar

from quire.batches.packing import split
from quire.block import EncodedBlock
from quire.engine.live_state.engine_state import EngineState
from quire.engine.pages.block_places import MemoryBlocks
from quire.engine.queues.queue import InFlightRange, Queue
from quire.engine.records.commit_record import LedgerEntry, Part, Read
from quire.engine.state.durable_state import OPEN, DurableQueue
from quire.engine.state.sections.section import Section
from quire.env import Env
from quire.env.interpreter import RLock
from quire.limits import VOLATILE_BLOCK_BYTES

from .pending_sections import MovesSection
from .queue_writes import QueueWrites

Blocks = Sequence[tuple[Queue, Sequence[EncodedBlock | Part]]]
Row = TypeVar("Row", bound=tuple[Any, ...])  # which begins with the id of a queue


class Volatile:
    """The volatile queues of a store. Thread-safe."""

    def __init__(self, env: Env, state: EngineState, memory: MemoryBlocks) -> None:
        self._env = env
        self.state: Final = state
        self.memory: Final = memory
        self.applying = RLock()  # one commit at a time (VO2)

    def now_us(self) -> int:
        """The time of a commit that has no record."""
        now_us = self._env.now_us
        return max(now_us(), self.state.last_time_us)


def split_rows(rows: Sequence[Row], queues: Container[int]) -> tuple[list[Row], list[Row]]:
    """The rows that are of these queues, and those that are not."""
    own = [row for row in rows if row[0] in queues]
    return own, [row for row in rows if row[0] not in queues] if len(own) < len(rows) else []


class MemorySection:
    """A transaction's share in volatile queues, which is folded by itself, and in no record."""

    __slots__ = (
        "_holds", "_moves", "_volatile", "first_id", "groups", "reads", "sections", "time_us",
        "transaction_id", "written",
    )  # fmt: skip

    entries: Sequence[LedgerEntry] = ()

    def __init__(
        self,
        volatile: Volatile,
        transaction_id: int,
        written: Collection[QueueWrites],
        reads: Sequence[Read | InFlightRange],
        moves: MovesSection | None,
        sections: Sequence[Section],
    ) -> None:
        """`moves`: of subscriptions of volatile queues."""
        self._volatile = volatile
        self._moves = moves
        self._holds = False  # `applying`, until it is applied or withdrawn
        self.transaction_id = transaction_id
        self.written = written
        self.reads = reads
        self.sections = sections if moves is None else (moves.content, *sections)
        self.first_id = self.time_us = 0
        self.groups: list[tuple[DurableQueue, list[Part]]] = []

    @property
    def comes_first(self) -> bool:
        """Return True if it checks what the changes before it are to change."""
        return self._moves is not None

    def hold(self, blocks: Blocks) -> None:
        """Keep the put messages in memory until they are applied, or until `discard`."""
        keep = self._volatile.memory.keep
        for queue, pieces in blocks:
            parts: list[Part] = []
            self.groups.append((queue.durable, parts))
            for piece in pieces:
                assert isinstance(piece, EncodedBlock)  # it never leaves the memory
                if piece.count > 1 and len(piece.data) > VOLATILE_BLOCK_BYTES:
                    for block in split(piece, VOLATILE_BLOCK_BYTES):
                        keep(block, queue.queue_id, parts)
                else:
                    keep(piece, queue.queue_id, parts)

    def discard(self) -> None:
        """It is not applied."""
        for _, parts in self.groups:
            for part in parts:
                self._volatile.memory.discard(part.address)

    def check(self) -> None:
        """Check the moves. They hold until they are applied: no other commit comes in between."""
        if self._moves is not None:
            self._volatile.applying.acquire()
            self._holds = True
            self._moves.check()

    def withdraw(self) -> None:
        """It is not applied, or it was."""
        if self._holds:
            self._holds = False
            self._volatile.applying.release()

    def apply(self, time_us: int) -> None:
        """It takes effect, at the time of the commit's record; 0: it has none."""
        volatile = self._volatile
        with volatile.applying:
            try:
                memory = volatile.state.memory
                self.first_id = memory.state.next_id
                self.time_us = max(time_us or volatile.now_us(), memory.state.last_time_us)
                memory.commit(self, 0, OPEN)
            finally:
                self.withdraw()
