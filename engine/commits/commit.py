"""One transaction's commit, as the sequencer takes it: a COMMIT record, made and applied.

See `committer` for the steps that come before.
"""

from __future__ import annotations

from collections.abc import Sequence

from quire.engine.queues.queue import Taken
from quire.engine.queues.state import QueueParts, State
from quire.engine.reading.block_reader import BlockReader
from quire.engine.records import format
from quire.engine.records.commit_record import ID_AND_TIME_OFFSET, Entry, Groups, Read, pack

_put_id_and_time = format.ID_AND_TIME.pack_into


class Commit:
    """A COMMIT record and what it means. `record` gets its ids and time in `place`.

    `groups`: blocks and parts by queue, the control records in their charges. `taken` are the
    messages that were got, `passed` what else counts as read.
    """

    __slots__ = (
        "_blocks", "_entries", "_groups", "_messages", "_reader", "_reads", "_state", "_time_us",
        "_transaction_id", "applied", "first_id", "record",
    )  # fmt: skip

    def __init__(
        self,
        state: State,
        reader: BlockReader,
        transaction_id: int,
        groups: Groups,
        taken: Sequence[Taken] = (),
        passed: Sequence[Read] = (),
        entries: Sequence[Entry] = (),
    ) -> None:
        self._state = state
        self._reader = reader
        self._transaction_id = transaction_id
        self._reads: Sequence[Read | Taken] = [*taken, *passed] if passed else taken
        self._entries = entries
        self.applied = False
        self.first_id = self._time_us = 0
        self.record, self._blocks, self._messages = pack(
            transaction_id, groups, self._reads, entries
        )
        self._groups: QueueParts = groups  # type: ignore[assignment]  # there are parts only, now

    def place(self) -> None:
        if self._entries:
            self._state.place_entries(self._entries)
        self.first_id, self._time_us = self._state.take_ids(self._messages)
        record = self.record
        head = record[0] if isinstance(record, tuple) else record
        assert isinstance(head, bytearray)
        _put_id_and_time(head, ID_AND_TIME_OFFSET, self.first_id, self._time_us)

    def withdraw(self) -> None:
        """Ids that were taken are not given again."""
        self._state.unplace_entries(self._entries)

    def apply(self, address: int) -> None:
        for offset, data in self._blocks:
            self._reader.remember(address + offset, data)
        self._state.fold.commit(
            self._groups, self._reads, self._entries, self.first_id, self._time_us, address,
            True, self._transaction_id,
        )  # fmt: skip
        if self._entries:
            self._state.unplace_entries(self._entries)
