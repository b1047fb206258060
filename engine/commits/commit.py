"""One transaction's commit, as the sequencer takes it: a COMMIT record, made and applied.

See `committer` for the steps that come before.
"""

from __future__ import annotations

from collections.abc import Sequence

from quire.engine.queues.queue import Queue, Taken
from quire.engine.queues.state import State
from quire.engine.reading.block_reader import BlockReader
from quire.engine.records import format
from quire.engine.records.commit_record import ID_AND_TIME_OFFSET, Entry, Packed, Read

_put_id_and_time = format.ID_AND_TIME.pack_into


class Commit:
    """A COMMIT record and what it means. `record` gets its ids and time in `place`.

    `packed`: the control records are in the charges. `reads` are the messages that were got, and
    what else counts as read.
    """

    __slots__ = (
        "_blocks", "_entries", "_groups", "_head", "_messages", "_reader", "_reads", "_state",
        "_time_us", "_transaction_id", "applied", "durable", "first_id", "record",
    )  # fmt: skip

    def __init__(
        self,
        state: State,
        reader: BlockReader,
        transaction_id: int,
        packed: Packed[Queue],
        reads: Sequence[Read | Taken] = (),
        entries: Sequence[Entry] = (),
        durable: bool = True,
    ) -> None:
        self.applied = False
        self.durable = durable
        self.record, self._head, self._groups, self._blocks, self._messages = packed
        self._state = state
        self._reader = reader
        self._transaction_id = transaction_id
        self._reads = reads
        self._entries = entries
        self.first_id = self._time_us = 0

    def place(self) -> None:
        if self._entries:
            self._state.place_entries(self._entries)
        self.first_id, self._time_us = first_id, time_us = self._state.take_ids(self._messages)
        _put_id_and_time(self._head, ID_AND_TIME_OFFSET, first_id, time_us)

    def withdraw(self) -> None:
        """Ids that were taken are not given again."""
        self._state.unplace_entries(self._entries)

    def apply(self, address: int) -> None:
        remember = self._reader.remember
        for offset, data in self._blocks:
            remember(address + offset, data)
        state, entries = self._state, self._entries
        state.fold.commit(
            self._groups, self._reads, entries, self.first_id, self._time_us, address, True,
            self._transaction_id,
        )  # fmt: skip
        if entries:
            state.unplace_entries(entries)
