"""The changes that release messages of a queue, and what they look up before they are recorded.

- Q4: what a change releases is looked up in record pages. They are read before its journal record
  is written (`reading`): damage refuses the change, and the store goes on. Found later it
  would leave a record that nobody can apply, recovery neither. What other changes on their way
  read counts as read, as they may be applied first.
- A block all of whose messages are released is given back at once, wherever it is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from quire.engine.records.block_ref import BlockRef
from quire.engine.state.durable_state import DurableQueue, Ranges
from quire.intervals import IntervalSet

from .partly_released import PartlyReleased
from .record_list import RecordList
from .reservation import Space


class BlockKeeper(Protocol):
    """A user of blocks, who may need them after their release."""

    def keep(self, refs: Sequence[BlockRef]) -> None:
        """These are about to be free. Must not raise."""


ReadRange = tuple[
    int, int, int
]  # a subscription's id, and the positions that it has read: from, to


class Releases:
    """Releases of a queue's messages. Covered by the queue's lock, which some methods take."""

    __slots__ = (
        "_durable", "_leaving", "_lock", "_partly", "_records", "_released", "_space", "views",
    )  # fmt: skip

    def __init__(
        self, durable: DurableQueue, records: RecordList, space: Space, lock: threading.Lock
    ) -> None:
        self._durable = durable
        self._records = records
        self._space = space
        self._lock = lock
        self._released = durable.released
        self._partly = PartlyReleased(durable.released)
        self._leaving: list[ReadRange] = []  # of changes on their way (Q4)
        self.views: list[BlockKeeper] = []

    def free(self, released: Ranges) -> list[BlockRef]:
        """Give back the space of what was released just now; the blocks that are free by that."""
        freed: list[BlockRef] = []
        is_volatile = self._durable.config.is_volatile
        charge = messages = 0
        last = -1
        for index, (start, end) in enumerate(released):
            messages += end - start
            for ref in self._records.overlapping(start, end):
                position, count = ref.position, ref.count
                if position == last:
                    continue  # counted with the range before
                last, stop = position, position + count
                if start <= position and stop <= end:
                    now = after = count
                else:
                    now = _overlap(released, index, position, stop)
                    after = self._partly.add(ref, now)
                if is_volatile:
                    charge += ref.released_charge(after) - ref.released_charge(after - now)
                else:
                    charge += ref.charge * after // count - ref.charge * (after - now) // count
                if after == count:
                    freed.append(ref)
        self._space.release(charge, messages)
        for start, end in released:
            self._records.drop_pages(start, end, self._released)
        for view in self.views:
            view.keep(freed)
        return freed

    def replace(self, old: Sequence[BlockRef], new: BlockRef) -> bool:
        """One record stands in the place of others: whether it is free, as they were by then."""
        before, after = self._partly.replace(old, new)
        self._space.correct(before - new.released_charge(after))
        return after == new.count

    # Before a change is made (Q4). With the lock

    @contextmanager
    def reading(self, reads: Sequence[ReadRange]) -> Iterator[None]:
        """While a change is made by which these are read. Raises StoreCorrupt."""
        with self._lock:
            self._leaving += reads
        try:
            with self._lock:
                self._check_release([(start, end) for _, start, end in reads])
            yield
        finally:
            with self._lock:
                for read in reads:
                    self._leaving.remove(read)

    def leaving(self, subscription_id: int) -> AbstractContextManager[None]:
        """While a change is made that removes a subscription, which holds nothing back then."""
        whole = (subscription_id, 0, self._durable.end_position)
        return self.reading([whole] if len(self._durable.subscriptions) > 1 else [])

    def check_beginning(self, position: int) -> None:
        """Read the pages that a new subscription releases by passing over what is before it."""
        with self._lock:
            self._check_release([(0, position)])

    def _check_release(self, ranges: list[tuple[int, int]]) -> None:
        """Read the record pages of what all have read there, with what is on its way."""
        parts = [part for lo, hi in ranges if lo < hi for part in self._released.gaps(lo, hi)]
        if not any(self._records.missing(lo, hi) for lo, hi in parts):
            return
        for subscription in self._durable.ring:
            uid = subscription.subscription_id
            going = IntervalSet.from_list(
                (lo, hi) for i, lo, hi in self._leaving if i == uid and lo < hi
            )
            parts = IntervalSet.from_list(
                part
                for lo, hi in parts
                for read in (subscription.done, going)
                for part in read.intersection(lo, hi)
            ).to_list()
        self._records.check(parts)

    def check_records(self) -> None:
        """Read all record pages of the queue."""
        for entry in list(self._records.directory):
            with self._lock:  # for one page: nobody waits for the others
                self._records.check([(entry.position, entry.end)])


def _overlap(ranges: Ranges, first: int, start: int, end: int) -> int:
    """How many of [start, end) the ranges from the first one on hold."""
    total = 0
    for index in range(first, len(ranges)):
        lo, hi = ranges[index]
        if lo >= end:
            break
        total += min(hi, end) - max(lo, start)
    return total
