"""Dropping a name of a state: all its keys go."""

from __future__ import annotations

from contextlib import suppress

from quire.engine.queues.state import State
from quire.engine.records.catalog import STATE, CatalogChange
from quire.limits import STATE_DROP_BYTES

from .definitions import Definition
from .sequencer import Sequencer


class _NothingLeft(Exception):
    """There is no such key any more."""


def drop_state(state: State, sequencer: Sequencer, name: str, most_bytes: int) -> int:
    """All keys of a name go; how many they were. `most_bytes`: of a record.

    With one commit, where they fit one record. Raises KeyHeld, DiskFull, StoreFailed.
    """
    dropped = 0
    with suppress(_NothingLeft):
        while True:
            dropped += _drop(state, sequencer, name, most_bytes)
    return dropped


def _drop(state: State, sequencer: Sequencer, name: str, most_bytes: int) -> int:
    """As many as fit a record."""
    values = state.values
    most = min(max(1, most_bytes // STATE_DROP_BYTES), max(1, len(values.keys(name))))
    marks: list[tuple[str, str, bool]] = []

    def prepare() -> list[CatalogChange]:
        keys = values.keys(name)[:most]
        if not keys:
            raise _NothingLeft
        values.check({}, [(name, key) for key in keys])
        marks.extend((name, key, False) for key in keys)
        numbers = values.place(marks, marks)
        return [CatalogChange(STATE, number, None) for number in numbers]

    def unplace() -> None:
        values.unplace(marks, marks)

    # Nobody sets one of them in between: it comes first of its group.
    sequencer.submit(Definition(state, most_bytes, prepare, unplace, unplace))
    return len(marks)
