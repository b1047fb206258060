"""One transaction's change, as the sequencer takes it: a COMMIT record, made and applied.

What a transaction has put, read and entered in the ledger most have; the rest are further sections
(see `state.sections`), among them its share in volatile queues, of which nothing is in the
record. See `committer` for the steps that come before.
"""

from __future__ import annotations

from collections.abc import Sequence

from quire.engine.live_state.live_state import State
from quire.engine.queues.queue import TakenRow
from quire.engine.reading.block_reader import BlockReader
from quire.engine.records import format
from quire.engine.records.commit_record import ID_AND_TIME_OFFSET, LedgerEntry, Packed, Read
from quire.engine.state.durable_state import OPEN, DurableQueue
from quire.engine.state.sections.section import PendingSection

from .memory_section import MemorySection

_put_id_and_time = format.ID_AND_TIME.pack_into


class TransactionChange:
    """See the module; `record` gets its ids and time in `place`."""

    __slots__ = (
        "_blocks", "_entries", "_groups", "_head", "_messages", "_reader", "_reads", "_state",
        "_transaction_id", "applied", "durable", "first_id", "record", "sections", "time_us",
    )  # fmt: skip

    first_id: int  # of its messages in other than volatile queues
    time_us: int

    def __init__(
        self,
        state: State,
        reader: BlockReader,
        transaction_id: int,
        packed: Packed[DurableQueue] | None,
        reads: Sequence[Read | TakenRow] = (),
        entries: Sequence[LedgerEntry] = (),
        durable: bool = True,
        sections: Sequence[PendingSection] = (),
    ) -> None:
        self.applied = False
        self.durable = durable
        if packed is None:
            packed = _NOTHING
            self.first_id = self.time_us = 0
        self.record, self._head, self._groups, self._blocks, self._messages = packed
        self._state = state
        self._reader = reader
        self._transaction_id = transaction_id
        self._reads = reads
        self._entries = entries
        self.sections = sections

    @property
    def relieves(self) -> bool:
        """Whether it makes room on the disk and takes none."""
        if self._groups:
            return False
        rooms = [section.room for section in self.sections]
        return max(rooms, default=0) <= 0 and (bool(self._reads) or min(rooms, default=0) < 0)

    @property
    def comes_first(self) -> bool:
        """Whether what it checks must not be changed by others of its group."""
        for section in self.sections:  # noqa: SIM110 - a generator would take longer than the look
            if section.comes_first:
                return True
        return False

    @property
    def memory(self) -> MemorySection | None:
        """Its share in volatile queues."""
        for section in self.sections:  # a generator that is interrupted would tell of it later
            if isinstance(section, MemorySection):
                return section
        return None

    def place(self) -> None:
        sections = self.sections
        messages = self._messages
        if sections or self._entries:
            messages += self._check()
        try:
            self.first_id, self.time_us = first_id, time_us = self._state.take_ids(messages)
            _put_id_and_time(self._head, ID_AND_TIME_OFFSET, first_id, time_us)
            if sections:
                for section in sections:
                    section.place(first_id, time_us)
        except BaseException:
            self.withdraw()
            raise

    def _check(self) -> int:
        """How many ids its sections take."""
        messages = 0
        try:
            for section in self.sections:
                section.check()
                messages += section.messages
            if self._entries:
                self._state.place_entries(self._entries)
            return messages
        except BaseException:
            for section in self.sections:
                section.withdraw()
            raise

    def withdraw(self) -> None:
        """Ids that were taken are not given again."""
        self._state.unplace_entries(self._entries)
        for section in self.sections:
            section.withdraw()

    def apply(self, address: int) -> None:
        remember = self._reader.remember
        for offset, data in self._blocks:
            remember(address + offset, data)
        state, entries = self._state, self._entries
        state.fold.commit(
            self._groups, self._reads, entries, self.first_id, self.time_us, address, OPEN,
            self._transaction_id,
        )  # fmt: skip
        if entries:
            state.unplace_entries(entries)
        if self.sections:
            for section in self.sections:
                section.apply(address)


_NOTHING: Packed[DurableQueue] = b"", bytearray(), (), (), 0
