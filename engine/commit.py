"""One transaction's commit, as the sequencer takes it."""

from __future__ import annotations

from collections.abc import Iterable

from . import format
from .block_reader import BlockReader
from .commit_record import ID_AND_TIME_OFFSET, Entry, Part, Read
from .queue import Queue
from .state import State
from .written import Written

_put_id_and_time = format.ID_AND_TIME.pack_into


class Commit:
    """A packed COMMIT record and what it means. `record` gets its ids and time in `place`."""

    __slots__ = (
        "_blocks", "_entries", "_groups", "_messages", "_reader", "_reads", "_state",
        "_transaction_id", "applied", "first_id", "record", "time_us",
    )  # fmt: skip

    def __init__(
        self,
        state: State,
        reader: BlockReader,
        transaction_id: int,
        record: tuple[bytearray, *tuple[bytes | bytearray, ...]],
        groups: list[tuple[Queue, list[Part]]],
        messages: int,
        reads: list[Read],
        entries: list[Entry],
        blocks: list[tuple[int, bytes | bytearray]],
    ) -> None:
        self._state = state
        self._reader = reader
        self._transaction_id = transaction_id
        self.record = record
        self._groups = groups
        self._messages = messages
        self._reads = reads
        self._entries = entries
        self._blocks = blocks  # inline blocks by their address in the record
        self.applied = False
        self.first_id = 0
        self.time_us = 0

    def place(self) -> None:
        state = self._state
        if self._entries:
            state.check_entries(self._entries)
            for entry in self._entries:
                state.placed[entry.key] = entry.version
        self.first_id, self.time_us = state.take_ids(self._messages)
        _put_id_and_time(self.record[0], ID_AND_TIME_OFFSET, self.first_id, self.time_us)

    def withdraw(self) -> None:
        for entry in self._entries:
            self._state.placed.pop(entry.key, None)

    def apply(self, address: int) -> None:
        for place, data in self._blocks:
            self._reader.remember(address + place, data)
        self._state.apply_commit(
            self._groups,
            self._reads,
            self._entries,
            self.first_id,
            self.time_us,
            address,
            live=True,
            transaction_id=self._transaction_id,
        )


def committed(written: Iterable[Written], first_id: int) -> None:
    """Tell each queue's messages their ids: they count up in part order."""
    for part in written:
        part.first_id = first_id
        first_id += part.count
