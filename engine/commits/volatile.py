"""What a commit does to volatile queues, whose messages are in memory and in no record.

- VO1: it takes effect exactly if the commit's record does: it is applied with it, by the same
  thread, and not at all where the record is refused or cannot be written. A transaction of volatile
  queues alone has no record: it writes nothing and syncs nothing.
- VO2: all commits that concern volatile queues are applied one after another, so that each of these
  queues has them in the same order.
- VO3: what has failed refuses them too (promise 11), as does an interrupt that came while one was
  applied (C6 of `sequencer`).
- VO4: ids and positions that an opening of the store gives in volatile queues no other opening
  gives: what somebody knows of a message that is gone never means another one.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import Final

from quire.block import EncodedBlock, split
from quire.engine.pages.memory_blocks import MemoryBlocks
from quire.engine.queues.queue import Queue, Taken
from quire.engine.queues.state import State, first_of
from quire.engine.records.commit_record import Part, Read
from quire.env import Env
from quire.journal import WholeRecord
from quire.limits import VOLATILE_BLOCK_BYTES, VOLATILE_IDS

from .commit import Commit, Moves
from .written import Written

Blocks = Sequence[tuple[Queue, Sequence[EncodedBlock | Part]]]


class Volatile:
    """The volatile queues of a store. Thread-safe."""

    def __init__(self, env: Env, state: State, memory: MemoryBlocks) -> None:
        self._env = env
        self.state: Final = state
        self.memory: Final = memory
        self.applying = threading.RLock()  # one commit at a time (VO2)
        self._next_id = VOLATILE_IDS + first_of(state.opening) + 1
        self._last_time_us = 0

    def concerns(
        self, written: Collection[Written], reads: Sequence[Read | Taken], moves: Moves | None
    ) -> bool:
        """Whether a transaction has put to one of them, got from one, or moves its reader."""
        for part in written:  # loops: a generator would take longer than what it looks at
            if part.queue.is_volatile:
                return True
        volatile = self.state.volatile
        for read in reads:
            if read[0] in volatile:
                return True
        return moves is not None and any(seek[0] in volatile for seek in moves.seeks)

    def name_of(self, written: Collection[Written], reads: Sequence[Read | Taken]) -> str | None:
        """The name of one that is concerned."""
        volatile = self.state.volatile
        names = [part.queue.name for part in written if part.queue.is_volatile]
        names += [volatile[read[0]].name for read in reads if read[0] in volatile]
        return names[0] if names else None

    def take_ids(self, messages: int, time_us: int | None) -> tuple[int, int]:
        """The first of so many ids, and the time. `time_us`: of the commit's record, if it has one.

        `applying` is held.
        """
        first = self._next_id
        self._next_id = first + messages
        if time_us is None:
            time_us = max(self._env.now_us(), self.state.durable.last_time_us)
        self._last_time_us = max(self._last_time_us, time_us)
        return first, self._last_time_us


class VolatileCommit:
    """A transaction's share in volatile queues."""

    __slots__ = (
        "_groups", "_messages", "_reads", "_transaction_id", "_volatile", "applied", "first_id",
        "moves",
    )  # fmt: skip

    def __init__(
        self,
        volatile: Volatile,
        transaction_id: int,
        reads: Sequence[Read | Taken],
        moves: Moves | None = None,
    ) -> None:
        """`moves`: of subscriptions of volatile queues."""
        self.applied = False
        self.moves = moves
        self.first_id = 0  # of its messages in volatile queues
        self._volatile = volatile
        self._transaction_id = transaction_id
        self._reads = reads
        self._groups: list[tuple[Queue, list[Part]]] = []
        self._messages = 0

    def hold(self, blocks: Blocks) -> None:
        """What it puts is in memory, until it is applied, or `discard`."""
        memory = self._volatile.memory
        for queue, pieces in blocks:
            parts: list[Part] = []
            self._groups.append((queue, parts))
            for piece in pieces:
                assert isinstance(piece, EncodedBlock)  # it never leaves the memory
                self._messages += piece.count
                smaller = [piece]
                if piece.count > 1 and len(piece.data) > VOLATILE_BLOCK_BYTES:
                    smaller = split(piece, VOLATILE_BLOCK_BYTES)
                for block in smaller:
                    part = memory.place(block, queue.queue_id)
                    parts.append(part)  # before the block is there: an interrupt leaves none behind
                    memory.keep(part.address, block)

    @property
    def beside(self) -> VolatileCommit:
        """Itself: there may be nothing else."""
        return self

    def discard(self) -> None:
        """It is not applied."""
        for _, parts in self._groups:
            for part in parts:
                self._volatile.memory.discard(part.address)

    def place(self) -> None:
        """`applying` is held from now on until it is applied, if it moves subscriptions."""
        if self.moves is not None:
            self.moves.check()

    def apply(self, time_us: int | None = None) -> None:
        """Now it takes effect; `applying` is held. `time_us`: when its record's part did."""
        self.applied = True  # also where an interrupt comes before it is done: the store has failed
        volatile = self._volatile
        queues = volatile.state.queues
        first_id, now_us = volatile.take_ids(self._messages, time_us)
        self.first_id = first_id
        for queue, parts in self._groups:
            first_id += queue.commit(parts, first_id, now_us, 0, True, self._transaction_id, False)
        for read in self._reads:
            reader = queues.get(read[0])
            if reader is not None:  # else it was dropped after the transaction had read
                reader.acknowledge(read)
        if self.moves is not None:
            self.moves.apply()
        for queue, _ in self._groups:
            queue.forget_released()


class MixedCommit:
    """A change: a transaction of volatile and of other queues (VO1)."""

    __slots__ = ("_applying", "_commit", "applied", "beside", "durable")

    def __init__(self, commit: Commit, beside: VolatileCommit, volatile: Volatile) -> None:
        self._applying = volatile.applying
        self._commit = commit
        self.durable = commit.durable
        self.beside = beside
        self.applied = False

    @property
    def record(self) -> WholeRecord:
        """Of what is durable."""
        return self._commit.record

    @property
    def first_id(self) -> int:
        """Of its messages in other queues."""
        return self._commit.first_id

    def place(self) -> None:
        self.beside.place()
        self._commit.place()

    def withdraw(self) -> None:
        self._commit.withdraw()

    def apply(self, address: int) -> None:
        self._commit.apply(address)
        with self._applying:
            self.beside.apply(self._commit.time_us)
