"""How long commits, and syncs of the journal, take: counts by time, for a store that has `timings`.

A store without it runs the calls as they are, and pays nothing. With it one call in `TIMED_ONE_IN`
is timed, which takes 1 us of processor time for a commit (measured in memory, of 12 us; 2 us where
each is timed). A count is one statement without a call, which no other thread interrupts (C13 of
`sequencer`); without the GIL counts of two threads at once may become one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any, NamedTuple, TypeVar

from quire.limits import TIME_COUNTS, TIMED_ONE_IN

R = TypeVar("R")


class TimeCounts:
    """The times of one kind of call, counted by powers of two of microseconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.counts = [0] * TIME_COUNTS  # count n: below 2**n microseconds; the last: all longer
        self.seconds = 0.0  # of all together

    def timed(self, call: Callable[..., R]) -> Callable[..., R]:
        """Return the call, of which one in so many has its time counted, unless it raises."""
        monotonic, counts, last = self._monotonic, self.counts, TIME_COUNTS - 1
        is_timed = cycle((True, *(False,) * (TIMED_ONE_IN - 1))).__next__

        def timed_call(*arguments: Any) -> R:
            if not is_timed():
                return call(*arguments)
            begin = monotonic()
            found = call(*arguments)
            seconds = monotonic() - begin
            number = min(int(seconds * 1e6).bit_length(), last)
            counts[number] += 1
            self.seconds += seconds
            return found

        return timed_call

    def status(self) -> dict[str, Any]:
        """Plain values, for the store's `status`."""
        return {"counts": list(self.counts), "seconds": self.seconds}


class StoreTimes(NamedTuple):
    """The times of one store."""

    commit: TimeCounts  # from the moment that a change is submitted until it is durable and applied
    sync: TimeCounts  # of the journal: of one write or sync, which makes a group durable

    @classmethod
    def of(cls, monotonic: Callable[[], float]) -> StoreTimes:
        """Nothing is counted yet."""
        return cls(TimeCounts(monotonic), TimeCounts(monotonic))
