"""Offsets of the streaming source: how far a query has come in each of its queues.

YO1. An offset is canonical JSON (sorted keys): Spark compares offsets as strings.
YO2. An end offset carries the query's origin. Spark does not log where batch 0 starts, and asks for
    the initial offset anew when it repeats that batch; the range of a repeated batch 0 therefore
    begins at the origin in its logged end, never at what the initial offset is by then. A queue
    that came to the query's pattern later begins at the origin in the end of its first micro-batch.
YO3. A micro-batch takes from its queues in proportion to what waits in them, and from each at least
    one message while its limit lasts.
YO4. An offset says which queues it is about, by the microsecond in which each was made: positions
    of a queue that was dropped are never taken for those of another with its name. Where the end of
    a micro-batch is in another queue than its start, its range begins at the origin in its end. The
    offsets of an older checkpoint do not know their queues, and are taken as they are.
YO5. Where Spark makes several sources of one load, an offset says which of them it is of. It says
    by which subscription its messages were kept, so that queries with copies of one checkpoint are
    not taken for one another (write_ledger.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from quire.errors import InvalidArgument

Positions = dict[str, int]


class Offset(Struct, frozen=True):
    """Positions by queue: where the query began, and the end (exclusive) of what it has read."""

    origin: Positions
    positions: Positions
    created_us: dict[str, int] = field(default_factory=dict)  # of queues; some, or none (YO4)
    source: int = 1  # of those that Spark makes of one load (YO5)
    subscription: str | None = None

    @classmethod
    def initial(
        cls, positions: Mapping[str, int], created_us: Mapping[str, int] | None = None
    ) -> Offset:
        return cls(dict(positions), dict(positions), dict(created_us or {}))

    @classmethod
    def from_json(cls, value: Any) -> Offset:
        """The offset in a checkpoint. Raises InvalidArgument if it is not one of this source."""
        try:
            created_us = value.get("created_us", {})
            parts = [dict(value["origin"]), dict(value["positions"]), dict(created_us)]
            parts += [dict(value.get("source", {})), dict(value.get("subscription", {}))]
        except (AttributeError, TypeError, KeyError, ValueError):
            parts = []
        if not parts or not all(map(_are_positions, parts)):
            raise InvalidArgument(
                f"the checkpoint holds an offset that is not one of format 'quire': {value!r}; "
                "was the query's source exchanged? Start it with a new checkpoint"
            )
        origin, positions, created, source, subscription = parts
        by = next(iter(subscription), None)
        return cls(origin, positions, created, source.get("number", 1), by)

    def to_json(self) -> dict[str, Positions]:
        parts = {"origin": self.origin, "positions": self.positions}
        if self.created_us:
            parts["created_us"] = self.created_us
        if self.source != 1:
            parts["source"] = {"number": self.source}
        if self.subscription is not None:
            parts["subscription"] = {self.subscription: 1}
        return {name: dict(sorted(part.items())) for name, part in sorted(parts.items())}

    def moved_to(self, positions: Mapping[str, int]) -> Offset:
        return replace(self, positions=dict(positions))

    def remade(self, now: Offset) -> list[str]:
        """The queues that are known to be others in `now` than in this offset."""
        known, other = self.created_us, now.created_us
        return sorted(q for q in known if q in other and known[q] != other[q])

    def gone(self, now: Offset) -> list[str]:
        """The queues of this offset that are not there in `now`."""
        return sorted(set(self.positions) - set(now.positions))

    def behind(self, now: Offset) -> Positions:
        """Return how many messages of each queue follow in `now`."""
        return {
            queue: max(0, now.positions[queue] - position)
            for queue, position in sorted(self.positions.items())
            if queue in now.positions
        }

    def beginning_at(self, positions: Positions) -> Offset:
        """This offset with further queues, from these positions on, or not before them."""
        ends = {
            queue: max(position, self.positions.get(queue, 0))
            for queue, position in positions.items()
        }
        return replace(
            self, origin={**self.origin, **positions}, positions={**self.positions, **ends}
        )

    def in_queues_of(self, now: Offset) -> Offset:
        """This offset in the queues of `now`: of those made again, at where `now` begins (YO4).

        Queues that are not there in `now` are left out.
        """
        anew = {queue: now.origin[queue] for queue in self.remade(now)}
        origin = {queue: anew.get(queue, self.origin[queue]) for queue in now.positions}
        positions = {queue: anew.get(queue, self.positions[queue]) for queue in now.positions}
        return replace(self, origin=origin, positions=positions, created_us=now.created_us)


def _are_positions(part: dict[str, Any]) -> bool:
    values = part.values()
    return set(map(type, values)) <= {int} and min(values, default=0) >= 0


def ranges(start: Offset, end: Offset) -> dict[str, tuple[int, int]]:
    """The half-open range of positions of a micro-batch in each queue (YO2, YO4)."""
    if set(end.origin) != set(end.positions):
        raise InvalidArgument(
            f"the checkpoint holds an offset whose queues have no origin: {end.to_json()}; start "
            "the query with a new checkpoint"
        )
    anew = start.remade(end)
    goes_on = {
        queue: queue in start.positions and queue not in anew and start.origin.get(queue) == origin
        for queue, origin in end.origin.items()
    }
    return {
        queue: (start.positions[queue] if goes_on[queue] else end.origin[queue], stop)
        for queue, stop in sorted(end.positions.items())
    }


def admit(start: Positions, available: Positions, limit: int | None) -> Positions:
    """Ends that take at most `limit` messages from what lies between start and available (YO3)."""
    waiting = {queue: max(0, available[queue] - begin) for queue, begin in start.items()}
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return dict(available)
    # An end that fell behind its start stays in sight: the range is lost, not empty.
    ends = {queue: min(begin, available[queue]) for queue, begin in start.items()}
    for queue, count in sorted(waiting.items(), key=lambda item: (item[1], item[0])):
        share = min(count, -(-limit * count // total)) if total else 0
        ends[queue] += share
        limit -= share
        total -= count
    return ends
