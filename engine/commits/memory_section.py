"""What a commit does to volatile queues, whose messages are in memory and in no record.

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
from quire.engine.live_state.live_state import State
from quire.engine.pages.memory_blocks import MemoryBlocks
from quire.engine.queues.queue import Queue, TakenRow
from quire.engine.records.commit_record import Part, Read
from quire.engine.state.durable_state import OPEN, DurableQueue
from quire.engine.state.sections.moves import MovesSection
from quire.engine.state.sections.numbers import Heard, Numbers
from quire.engine.state.sections.section import PendingSection
from quire.env import Env
from quire.env.interpreter import RLock
from quire.errors import InvalidArgument
from quire.limits import VOLATILE_BLOCK_BYTES

from .written_messages import Written

Blocks = Sequence[tuple[Queue, Sequence[EncodedBlock | Part]]]
Row = TypeVar("Row", bound=tuple[Any, ...])  # which begins with the id of a queue


class Volatile:
    """The volatile queues of a store. Thread-safe."""

    def __init__(self, env: Env, state: State, memory: MemoryBlocks) -> None:
        self._env = env
        self.state: Final = state
        self.memory: Final = memory
        self.applying = RLock()  # one commit at a time (VO2)

    def concerns(
        self,
        written: Collection[Written],
        reads: Sequence[Read | TakenRow],
        moves: MovesSection | None,
    ) -> bool:
        """Whether a transaction has put to one of them, got from one, or moves its reader.

        The same of queues in an order by sequence.
        """
        apart = self.state.apart
        for part in written:  # loops: a generator would take longer than what it looks at
            if part.queue.queue_id in apart:
                return True
        for read in reads:
            if read[0] in apart:
                return True
        return moves is not None and any(seek.queue_id in apart for seek in moves.said.seeks)

    def share(
        self,
        transaction_id: int,
        written: Collection[Written],
        reads: Sequence[Read | TakenRow],
        moves: MovesSection | None,
        heard: Sequence[Heard],
    ) -> tuple[
        MemorySection | None, Collection[Written], Sequence[Read | TakenRow], MovesSection | None
    ]:
        """A transaction's share in volatile queues, and what is left of all this without it."""
        volatile = self.state.volatile
        put = [part for part in written if part.queue.queue_id in volatile] if written else ()
        moved = None
        if moves is not None:
            moves, moved = moves.split(volatile, self.state.memory)
        read, others = apart(reads, volatile)
        if not (put or read or moved):
            return None, written, reads, moves
        if put:
            written = [part for part in written if part.queue.queue_id not in volatile]
        memory = MemorySection(self, transaction_id, put, read, moved, heard)
        return memory, written, others, moves

    def check_none(self, written: Collection[Written], reads: Sequence[Read | TakenRow]) -> None:
        """None is concerned: it is to be prepared. Raises InvalidArgument."""
        for queue_id in (*(part.queue.queue_id for part in written), *(read[0] for read in reads)):
            if queue_id in self.state.volatile:
                raise InvalidArgument(
                    f"queue {self.state.volatile[queue_id].name!r} is volatile, and what is "
                    "prepared is there after a restart: a transaction that has put to it or got "
                    "from it cannot be prepared; commit it, or roll it back"
                )

    def now_us(self) -> int:
        """The time of a commit that has no record."""
        now_us = self._env.now_us
        return max(now_us(), self.state.last_time_us)


def apart(rows: Sequence[Row], queues: Container[int]) -> tuple[list[Row], list[Row]]:
    """The rows that are of these queues, and those that are not."""
    own = [row for row in rows if row[0] in queues]
    return own, [row for row in rows if row[0] not in queues] if len(own) < len(rows) else []


class MemorySection(PendingSection):
    """A transaction's share in volatile queues: a section of its change, without bytes."""

    __slots__ = (
        "_groups", "_heard", "_holds", "_moves", "_reads", "_time_us", "_transaction_id",
        "_volatile", "comes_first", "first_id", "written",
    )  # fmt: skip

    body = b""

    def __init__(
        self,
        volatile: Volatile,
        transaction_id: int,
        written: Collection[Written] = (),
        reads: Sequence[Read | TakenRow] = (),
        moves: MovesSection | None = None,
        heard: Sequence[Heard] = (),
    ) -> None:
        """`moves`: of subscriptions of volatile queues. `heard`: what is read of sequences."""
        self._heard = heard
        self.written = written
        self.comes_first = moves is not None
        self.first_id = 0  # of its messages in volatile queues
        self._moves = moves
        self._volatile = volatile
        self._transaction_id = transaction_id
        self._reads = reads
        self._groups: list[tuple[DurableQueue, list[Part]]] = []
        self._time_us = 0  # of the commit's record; 0: it has none
        self._holds = False  # `applying`, until it is applied or withdrawn

    def hold(self, blocks: Blocks) -> None:
        """What it puts is in memory, until it is applied, or `discard`."""
        keep = self._volatile.memory.keep
        for queue, pieces in blocks:
            parts: list[Part] = []
            self._groups.append((queue.durable, parts))
            for piece in pieces:
                assert isinstance(piece, EncodedBlock)  # it never leaves the memory
                if piece.count > 1 and len(piece.data) > VOLATILE_BLOCK_BYTES:
                    for block in split(piece, VOLATILE_BLOCK_BYTES):
                        keep(block, queue.queue_id, parts)
                else:
                    keep(piece, queue.queue_id, parts)

    def discard(self) -> None:
        """It is not applied."""
        for _, parts in self._groups:
            for part in parts:
                self._volatile.memory.discard(part.address)

    def check(self) -> None:
        """What it finds is so until it is applied: no other one is in between."""
        if self._moves is not None:
            self._volatile.applying.acquire()
            self._holds = True
            self._moves.check()

    def place(self, first_id: int, time_us: int) -> None:
        """It takes its ids when it is applied."""
        self._time_us = time_us

    def withdraw(self) -> None:
        if self._holds:
            self._holds = False
            self._volatile.applying.release()

    def apply(self, address: int) -> None:
        volatile = self._volatile
        with volatile.applying:
            try:
                memory = volatile.state.memory
                state = memory.state
                self.first_id = state.next_id
                time_us = self._time_us or volatile.now_us()
                if time_us < state.last_time_us:
                    time_us = state.last_time_us
                memory.commit(
                    self._groups, self._reads, (), state.next_id, time_us, 0, OPEN,
                    self._transaction_id,
                )  # fmt: skip
                if self._moves is not None:
                    self._moves.apply(0)
                if self._heard:
                    PendingSection(memory, Numbers(self._heard)).apply(0)
            finally:
                if self._holds:
                    self.withdraw()
