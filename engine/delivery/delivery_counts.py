"""How often the messages of a subscription were delivered and failed, as its readers know it.

- What records tell is in `durable`, which the fold alone changes; what no record tells is in
  `memory`, which ends with the process. So nothing of it is in a checkpoint, or in the state's
  hash. The numbers that readers see are the sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quire.engine.state.attempts import Attempts


class DeliveryCounts:
    """The deliveries of a subscription's messages that are not read. The queue's lock covers it."""

    __slots__ = ("durable", "memory")

    def __init__(self, durable: Attempts) -> None:
        self.durable = durable
        self.memory = Attempts()

    def __bool__(self) -> bool:
        return bool(self.durable.starts or self.memory.starts)

    def of(self, position: int) -> int:
        """How often the position was given back (or noted, where deliveries are)."""
        return self.durable.of(position) + self.memory.of(position)

    def failures(self, position: int) -> int:
        """How often it failed, where deliveries are noted."""
        return self.durable.failures(position) + self.memory.failures(position)

    def due_us(self, position: int) -> int:
        """The time of the retry, as the record of the latest failure says; 0: at once."""
        return self.durable.due_us(position)

    def hidden(self, now_us: int) -> list[tuple[int, int, int]]:
        """The runs of what has failed and comes later than now, and when."""
        return self.durable.hidden(now_us)

    def no_fewer(self, most: int) -> list[tuple[int, int]]:
        """The runs that were given back so often, as records tell; none of 0: no limit."""
        return [row[:2] for row in self.durable.rows() if most and row[2] >= most]

    def equal(self, start: int, end: int) -> int:
        """Return the end of the run from `start` with equal counts."""
        end = self.durable.equal(start, end)
        return self.memory.equal(start, end) if self.memory.starts else end

    def runs(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """[start, end) in runs with equal counts."""
        while start < end:
            stop = self.equal(start, end)
            yield start, stop
            start = stop

    def fail(self, start: int, end: int, *, noted: bool) -> None:
        """A delivery has failed, and no record tells of it. `noted`: it is counted already."""
        self.memory.fail(start, end, 0, noted=noted)

    def recovered(self) -> None:
        """Recovery is done: what it gave back, as decisions say, is counted by no record."""
        self.memory = Attempts()

    def read(self, start: int, end: int) -> None:
        """[start, end) is read."""
        self.memory.forget(start, end)

    def moved(self, done: Iterable[tuple[int, int]]) -> None:
        """The subscription is at another place: nothing has failed, and this is read."""
        self.memory.forget_failures()
        if self.memory.starts:
            for start, end in done:
                self.memory.forget(start, end)
