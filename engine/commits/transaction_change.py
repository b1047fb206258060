"""One transaction's change, as the sequencer takes it: a COMMIT record, made and applied.

What a transaction has put, read and entered in the ledger most have; the rest are further sections
(see `state.sections`). Its share in volatile queues, of which nothing is in the record, is applied
with it. See `committer` for the steps that come before.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from quire.engine.live_state.engine_state import EngineState
from quire.engine.pages.block_places import Extent
from quire.engine.queues.queue import InFlightRange
from quire.engine.reading.block_reader import BlockReader
from quire.engine.records import format
from quire.engine.records.commit_record import ID_AND_TIME_OFFSET, LedgerEntry, Read
from quire.engine.state.durable_state import OPEN, RowsByQueue
from quire.engine.state.sections.section import Section
from quire.engine.state.sections.sequence_numbers import SequenceNumbers, SequenceProgress
from quire.errors import InvalidArgument
from quire.journal import WholeRecord
from quire.limits import CHECKPOINT_ENTRY_BYTES

from .commit_plan import CommitPlan
from .memory_section import MemorySection, Volatile, split_rows
from .pending_sections import MovesSection, PendingSection
from .queue_writes import QueueWrites

_put_id_and_time = format.ID_AND_TIME.pack_into


class TransactionChange:
    """A change on its way through the steps of a commit, which fill it in. See `new_change`."""

    __slots__ = (
        "applied", "blocks", "durable", "entries", "extents", "first_id", "groups", "head",
        "memory", "messages", "pending", "reader", "reads", "record", "reserved", "sections",
        "state", "time_us", "transaction_id", "written",
    )  # fmt: skip

    state: EngineState
    reader: BlockReader
    transaction_id: int  # 0: it was never open, so no queue knows it
    durable: bool
    written: Collection[QueueWrites]  # without what is `memory`'s, as all that follows
    reads: Sequence[Read | InFlightRange]
    entries: Sequence[LedgerEntry]
    pending: Sequence[PendingSection]  # its further sections
    memory: MemorySection | None  # its share in volatile queues
    # Steps 2 and 3: what is undone where the record is not written.
    reserved: list[QueueWrites]
    extents: Collection[Extent]
    # What is written, and its parts (see `Packed`).
    record: WholeRecord
    head: bytearray
    groups: RowsByQueue
    blocks: Sequence[tuple[int, bytes | bytearray]]
    messages: int
    # Step 4.
    first_id: int  # of its messages in other than volatile queues
    time_us: int
    # Step 5.
    sections: Sequence[Section]  # that are folded
    applied: bool

    def split_volatile(
        self, volatile: Volatile, seeks: MovesSection | None, progress: Sequence[SequenceProgress]
    ) -> MovesSection | None:
        """Move the share in volatile queues to `memory`; return the seeks in other queues.

        `progress`: what it reads of their sequences.
        """
        queues = volatile.state.volatile
        put = [part for part in self.written if part.queue.queue_id in queues]
        read, others = split_rows(self.reads, queues)
        moved = None
        if seeks is not None:
            seeks, moved = seeks.split(queues)
        if put or read or moved is not None:
            numbers = [SequenceNumbers(progress)] if progress else []
            self.memory = MemorySection(volatile, self.transaction_id, put, read, moved, numbers)
            self.reads = others
            if put:
                self.written = [part for part in self.written if part.queue.queue_id not in queues]
        return seeks

    def check_not_volatile(self) -> None:
        """Raise InvalidArgument if a volatile queue is concerned, as it is to be prepared."""
        queues = self.state.volatile
        own = [part.queue.queue_id for part in self.written]
        for queue_id in [*own, *(read[0] for read in self.reads)]:
            if queue_id in queues:
                raise InvalidArgument(
                    f"queue {queues[queue_id].name!r} is volatile, and what is prepared is there "
                    "after a restart: a transaction that has put to it or got from it cannot be "
                    "prepared; commit it, or roll it back"
                )

    @property
    def relieves(self) -> bool:
        """Return True if it makes room on the disk and takes none."""
        if self.groups:
            return False
        rooms = [section.room for section in self.pending]
        if max(rooms, default=0) > 0 or not (self.reads or min(rooms, default=0) < 0):
            return False
        growth = sum([section.growth for section in self.pending])
        growth += sum([_entry_bytes(entry) for entry in self.entries])
        return not growth or self.state.coming.has_room_for(growth)  # (KB3 of `spare_space`)

    @property
    def comes_first(self) -> bool:
        """Return True if others of its group must not change what it checks."""
        if self.memory is not None and self.memory.comes_first:
            return True
        for section in self.pending:  # noqa: SIM110 - a generator would take longer than the look
            if section.comes_first:
                return True
        return False

    def place(self) -> None:
        """Check what it depends on, and take its ids and its time."""
        state, messages = self.state, self.messages
        if self.entries:
            state.place_entries(self.entries)
        try:
            if self.pending or self.memory:
                messages += self._check()
            self.first_id, self.time_us = first_id, time_us = state.take_ids(messages)
            _put_id_and_time(self.head, ID_AND_TIME_OFFSET, first_id, time_us)
            if first_id + messages > state.coming.counted_id and self.messages:
                state.coming.add(self)
            if self.pending:
                for section in self.pending:
                    section.place(first_id, time_us)
        except BaseException:
            self.withdraw()
            raise

    def _check(self) -> int:
        """Return how many ids its sections take."""
        messages = 0
        for section in self.pending:
            section.check()
            messages += section.messages
        if self.memory is not None:
            self.memory.check()
        return messages

    def withdraw(self) -> None:
        """Ids that were taken are not given again."""
        self.state.unplace_entries(self.entries)
        if self.state.coming.changes:
            self.state.coming.withdraw(self)
        for section in self.pending:
            section.withdraw()
        if self.memory is not None:
            self.memory.withdraw()

    def apply(self, address: int) -> None:
        if self.blocks:
            remember = self.reader.remember
            for offset, data in self.blocks:
                remember(address + offset, data)
        pending, state = self.pending, self.state
        if pending:
            self.sections = [section.content for section in pending if section.takes_effect]
        state.fold.commit(self, address, OPEN)
        if self.entries:
            state.unplace_entries(self.entries)
        if pending:
            for section in pending:
                section.settle()
        if self.memory is not None:
            self.memory.apply(self.time_us)

    def apply_unrecorded(self) -> None:
        """All of it is in memory: it takes effect without a record (VO1)."""
        assert self.memory is not None
        self.first_id = 0
        try:
            self.memory.check()
            self.applied = True
            self.memory.apply(0)
        except BaseException:
            self.memory.withdraw()
            raise


def _entry_bytes(entry: LedgerEntry) -> int:
    """Return the most that an entry of the ledger takes in a checkpoint."""
    return len(json.dumps(entry.key, ensure_ascii=False).encode()) + CHECKPOINT_ENTRY_BYTES


def new_change(
    state: EngineState, reader: BlockReader, transaction_id: int, durable: bool, plan: CommitPlan
) -> TransactionChange:
    """Return a change by a plan; its reads, and its further sections, follow.

    See `id_of` for its making.
    """
    made = TransactionChange()
    made.state = state
    made.reader = reader
    made.transaction_id = transaction_id
    made.durable = durable
    made.written = plan.written
    made.reads = plan.taken
    made.entries = plan.entries
    made.pending = made.extents = made.sections = ()
    made.memory = None
    made.reserved = []
    made.applied = False
    return made
