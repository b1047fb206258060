"""How many messages of each record are released, where some are and some are not.

A queue that is not read in commit order releases messages here and there in a record of many. What
such a record charges depends on how many they are, and with each read it is one more: counted anew
each time, a read would take as long as there are runs of released messages in its record.

- PT1: `add` tells what `released.count` would tell, and counts a record once: when something of it
  is released for the first time since the queue was opened.
- PT2: there is an entry for a record only while some of its messages are released and some are not.
"""

from __future__ import annotations

from collections.abc import Sequence

from quire.engine.records.block_ref import BlockRef
from quire.intervals import IntervalSet


class PartlyReleased:
    """The counts of released messages in partly released records. Covered by the queue's lock."""

    __slots__ = ("_counts", "_released")

    def __init__(self, released: IntervalSet) -> None:
        """`released`: the queue's."""
        self._released = released
        self._counts: dict[int, int] = {}  # by the record's position

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, ref: BlockRef, now: int) -> int:
        """How many of the record are released, of which `now`, one or more, were just now."""
        position, count = ref.position, ref.count
        if now == count:
            return count
        before = self._counts.pop(position, 0)
        after = before + now if before else self._released.count(position, ref.end)
        if after < count:
            self._counts[position] = after
        return after

    def replace(self, old: Sequence[BlockRef], new: BlockRef) -> tuple[int, int]:
        """One record stands in the place of others, with the same messages.

        What they charge for messages that are released, and how many these are.
        """
        charge = released = 0
        for ref in old:
            self._counts.pop(ref.position, 0)
            count = self._released.count(ref.position, ref.end)
            charge += ref.released_charge(count)
            released += count
        if 0 < released < new.count:
            self._counts[new.position] = released
        return charge, released
