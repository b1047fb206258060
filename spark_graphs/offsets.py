"""Offsets of the streaming source: how far a query has come in each of its queues.

O1. An offset is canonical JSON (sorted keys): Spark compares offsets as strings.
O2. An end offset carries the query's origin. Spark does not log where batch 0 starts, and asks for
    the initial offset anew when it repeats that batch; the range of a repeated batch 0 therefore
    begins at the origin in its logged end, never at what the initial offset is by then.
O3. A micro-batch takes from its queues in proportion to what waits in them, and from each at least
    one message while its limit lasts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quire.errors import InvalidArgument

Positions = dict[str, int]


@dataclass(frozen=True)
class Offset:
    """Positions by queue: where the query began, and the end (exclusive) of what it has read."""

    origin: Positions
    positions: Positions

    @classmethod
    def initial(cls, positions: Mapping[str, int]) -> Offset:
        return cls(dict(positions), dict(positions))

    @classmethod
    def from_json(cls, value: Any) -> Offset:
        """The offset in a checkpoint. Raises InvalidArgument if it is not one of this source."""
        try:
            parts = [dict(value["origin"]), dict(value["positions"])]
        except (TypeError, KeyError, ValueError):
            parts = [{}]
        if not all(_is_position(p) for part in parts for p in part.values()) or len(parts) != 2:
            raise InvalidArgument(
                f"the checkpoint holds an offset that is not one of format 'quire': {value!r}; "
                "was the query's source exchanged? Start it with a new checkpoint"
            )
        return cls(*parts)

    def to_json(self) -> dict[str, Positions]:
        return {
            "origin": dict(sorted(self.origin.items())),
            "positions": dict(sorted(self.positions.items())),
        }

    def moved_to(self, positions: Mapping[str, int]) -> Offset:
        return Offset(self.origin, dict(positions))


def _is_position(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def ranges(start: Offset, end: Offset) -> dict[str, tuple[int, int]]:
    """The half-open range of positions of a micro-batch in each queue (O2)."""
    begin = start.positions if start.origin == end.origin else end.origin
    if set(begin) != set(end.positions):
        raise InvalidArgument(
            f"the checkpoint was made for the queues {', '.join(sorted(begin))}, and the query "
            f"reads {', '.join(sorted(end.positions))}; start it with a new checkpoint"
        )
    return {queue: (begin[queue], stop) for queue, stop in sorted(end.positions.items())}


def admit(start: Positions, available: Positions, limit: int | None) -> Positions:
    """Ends that take at most `limit` messages from what lies between start and available (O3)."""
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
