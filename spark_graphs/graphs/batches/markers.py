"""Markers: messages with an attribute that a step's batches end behind, in all its inputs.

YMK1. Markers of the inputs belong together that have the same value. The next cut is behind the
    first marker of the first input whose value all others have, too: in each behind the first that
    has it. Markers before it that some input does not have are passed over.
YMK2. What was searched is not searched again, as long as this object lives and the positions of the
    inputs only rise.
- One look reads about MARKER_LOOK_BYTES at most, and no more values are kept of an input than
  MARKERS_BYTES hold; it is searched on when some of them have been passed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from quire.errors import InvalidArgument
from quire.spark_graphs import position_range
from quire.spark_graphs.checkpoint.offsets import Positions
from quire.spark_graphs.limits import (
    LEASE_SECONDS,
    MARKER_LOOK_BYTES,
    MARKER_OBJECT_BYTES,
    MARKERS_BYTES,
    STEP_PIECES,
)
from quire.spark_graphs.reading.partition import QueuePiece

from .task_store import TaskStore

if TYPE_CHECKING:
    from quire.interface.store import Store


class AwaitedMarker(Struct, frozen=True):
    """A search that has found no marker which all inputs have, and where it has looked."""

    lacking: Mapping[str, str]  # by queue: the marker that it does not have yet; "": any
    begins: Positions
    ends: Positions
    is_complete: bool  # looking on there would find nothing

    def is_about(self, positions: Mapping[str, tuple[int, int]]) -> bool:
        """Return True if between these positions, by queue, there is nothing else to be found."""
        return self.is_complete and all(
            self.begins.get(queue) == begin and self.ends[queue] >= end
            for queue, (begin, end) in positions.items()
        )


class _Searched(Struct):
    """The markers of an input, as far as they were looked for."""

    begin: int = 0
    end: int = 0
    size_bytes: int = 0
    found: deque[tuple[int, str]] = field(default_factory=deque)

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= MARKERS_BYTES

    def move(self, begin: int) -> None:
        """Begin at a position; what lies before is forgotten (YMK2)."""
        if not self.begin <= begin <= self.end:
            self.begin = self.end = begin
            self.size_bytes = 0
            self.found.clear()
        self.begin = begin
        while self.found and self.found[0][0] < begin:
            self.size_bytes -= _cost(self.found.popleft()[1])

    def add(self, position: int, value: str) -> None:
        self.found.append((position, value))
        self.size_bytes += _cost(value)


class Markers:
    """The markers of a step's inputs, as far as they were looked for."""

    def __init__(self, attribute: str, created_us: Mapping[str, int], tasks: TaskStore) -> None:
        self._attribute = attribute
        self._created_us = created_us
        self._tasks = tasks
        self._inputs = {queue: _Searched() for queue in created_us}
        self.awaited: AwaitedMarker | None = None
        """The markers that the last look has not found; None: it has found a cut."""

    def next(self, store: Store, begins: Positions, ends: Positions) -> Positions | None:
        """Behind the next markers (YMK1), none beyond the ends; None: see `awaited`.

        Raises InvalidArgument where no more values can be kept, and no input has what others do.
        """
        if self.awaited is not None and self.awaited.is_about(
            {queue: (begin, ends[queue]) for queue, begin in begins.items()}
        ):
            return None
        for queue, begin in begins.items():
            self._inputs[queue].move(begin)
        room = MARKER_LOOK_BYTES
        found = self._common()
        while found is None and room > 0 and not self._is_complete(ends):
            for queue, searched in self._inputs.items():
                if searched.end < ends[queue] and not searched.is_full and room > 0:
                    room -= self._search(store, queue, ends[queue], room)
            found = self._common()
        self.awaited = None if found is not None else self._lacking(begins, ends)
        return found

    def _is_complete(self, ends: Positions) -> bool:
        """Return True if all is searched, as far as it may be."""
        return all(each.end >= ends[queue] or each.is_full for queue, each in self._inputs.items())

    def _search(self, store: Store, queue: str, end: int, room: int) -> int:
        """Look at what follows in an input; how many bytes it was."""
        searched = self._inputs[queue]
        stop = min(end, searched.end + STEP_PIECES)
        lease = store.integration.lease(queue, searched.end, stop, seconds=LEASE_SECONDS, gaps=True)
        read = 0
        try:
            created_us = self._created_us[queue]
            if lease.created_us != created_us:
                raise position_range.made_again(queue)
            pieces = [QueuePiece.of(queue, piece, created_us) for piece in lease.pieces]
            for part in self._tasks.find(queue, pieces, self._attribute):
                for position, value in part.found:
                    searched.add(position, value)
                searched.end = part.end_position
                read += part.size_bytes
                if read >= room or searched.is_full:
                    return read
            searched.end = stop
        finally:
            store.integration.end_lease(lease.lease_id)
        return read

    def _common(self) -> Positions | None:
        """Behind the first markers that all inputs have."""
        (queue, first), *others = self._inputs.items()
        firsts: dict[str, dict[str, int]] = {}
        for name, searched in others:
            firsts[name] = {value: at for at, value in reversed(searched.found)}
        for position, value in first.found:
            if all(value in known for known in firsts.values()):
                behind = {name: known[value] + 1 for name, known in firsts.items()}
                return {queue: position + 1, **behind}
        return None

    def _lacking(self, begins: Positions, ends: Positions) -> AwaitedMarker:
        if all(each.is_full for each in self._inputs.values()):
            raise InvalidArgument(
                f"of the next markers '{self._attribute}' of {', '.join(self._inputs)}, as many as "
                f"{MARKERS_BYTES} bytes hold, no value is in all of them: put the same values to "
                "all, in the same order, or reset the step to behind what does not fit together"
            )
        all_values = [value for each in self._inputs.values() for _, value in each.found]
        lacking = {}
        for queue, searched in self._inputs.items():
            own = {value for _, value in searched.found}
            missing = next((value for value in all_values if value not in own), None)
            if missing is not None or not own:
                lacking[queue] = missing or ""
        return AwaitedMarker(lacking, dict(begins), dict(ends), self._is_complete(ends))


def _cost(value: str) -> int:
    return MARKER_OBJECT_BYTES + len(value)
