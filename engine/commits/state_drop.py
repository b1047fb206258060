"""Dropping a name of a state: all its keys go."""

from __future__ import annotations

from contextlib import suppress

from quire.engine.queues.state import State
from quire.engine.records import format
from quire.engine.records.catalog import STATE, CatalogChange, pack
from quire.journal import RECORD_HEADER_BYTES, pack_record
from quire.limits import STATE_DROP_BYTES

from .sequencer import Sequencer


class StateDrop:
    """A change: keys of a name go. `most`: so many."""

    comes_first = True  # nobody sets one of them in between
    durable = relieves = True

    __slots__ = ("_changes", "_marks", "_most", "_name", "_state", "applied", "record")

    def __init__(self, state: State, name: str, most: int) -> None:
        self._state = state
        self._name = name
        self._most = most = min(most, max(1, len(state.values.keys(name))))
        self._changes: list[CatalogChange] = []
        self._marks: list[tuple[str, str, bool]] = []
        # It takes less, once it is made.
        self.record = bytes(RECORD_HEADER_BYTES + STATE_DROP_BYTES * (most + 1))
        self.applied = False

    @property
    def keys(self) -> int:
        """How many."""
        return len(self._changes)

    def place(self) -> None:
        values, name = self._state.values, self._name
        keys = values.keys(name)[: self._most]
        if not keys:
            raise _NothingLeft
        values.check({}, [(name, key) for key in keys])
        self._marks = [(name, key, False) for key in keys]
        numbers = values.place(self, self._marks)
        self._changes = [CatalogChange(STATE, number, None) for number in numbers]
        self.record = pack_record(format.CATALOG, 0, pack(self._state.durable, self._changes))

    def withdraw(self) -> None:
        self._state.values.unplace(self, self._marks)

    def apply(self, address: int) -> None:
        with self._state.values.changing:
            self._state.fold.define(self._changes, "the state")
        self._state.values.unplace(self, self._marks)


class _NothingLeft(Exception):
    """There is no such key any more."""


def drop_state(state: State, sequencer: Sequencer, name: str, most_bytes: int) -> int:
    """All keys of a name go; how many they were. `most_bytes`: of a record.

    With one commit, where they fit one record. Raises KeyHeld, DiskFull, StoreFailed.
    """
    dropped, most = 0, max(1, most_bytes // STATE_DROP_BYTES)
    with suppress(_NothingLeft):
        while True:
            change = StateDrop(state, name, most)
            sequencer.submit(change)
            dropped += change.keys
    return dropped
