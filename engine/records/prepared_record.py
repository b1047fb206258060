"""A prepared transaction, as the durable state has it: all that its decision needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .commit_record import LedgerEntry, Part, Read
from .key_values import ValueSet


class PrepareRecord(NamedTuple):
    """The record of a prepared transaction. `reads` begins with the `taken` ones, in flight."""

    xid: str
    taken: int
    prepared_us: int
    parts: Sequence[Part]
    reads: Sequence[Read]
    entries: Sequence[LedgerEntry]
    sets: Sequence[ValueSet] = ()  # of states
    attachment: int = 0  # the id of its blocks on pages; 0: it has none

    @property
    def messages(self) -> int:
        """How many it puts."""
        return sum(part.count for part in self.parts)
