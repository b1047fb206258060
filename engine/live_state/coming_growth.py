"""What is on its way and makes a checkpoint larger once it is applied (KB1 of `spare_space`)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

from quire.engine.state.durable_state import RowsByQueue


class PlacedMessages(Protocol):
    """A change that puts messages."""

    @property
    def groups(self) -> RowsByQueue: ...

    @property
    def applied(self) -> bool: ...


def _count_nothing() -> None:
    """Nothing is kept back."""


class ComingGrowth:
    """What is counted for the space that is kept back, before it is added."""

    __slots__ = ("bytes", "changes", "count_anew", "counted_id", "has_room_for")

    def __init__(self) -> None:
        self.counted_id = sys.maxsize  # messages up to this id are counted
        self.changes: list[PlacedMessages] = []  # those that put messages beyond it
        self.bytes = 0  # what all else takes
        self.count_anew: Callable[[], None] = _count_nothing
        self.has_room_for: Callable[[int], bool] = lambda growth: True

    def add(self, change: PlacedMessages) -> None:
        """Count a change that puts messages beyond what is counted, before it is written."""
        self.changes = [each for each in self.changes if not each.applied]
        self.changes.append(change)
        self.count_anew()

    def withdraw(self, change: PlacedMessages) -> None:
        """Count a change no more: it is not written."""
        self.changes = [each for each in self.changes if each is not change]
