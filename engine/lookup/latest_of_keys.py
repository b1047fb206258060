"""The latest message of each key, in a topic that keeps these only (`keep_latest`).

- LK1: it is derived, from the blocks that are kept, and never journaled: after an opening it is
  made anew. All messages below `known` were looked at, each once, in commit order.
- LK2: `superseded` holds what has a later message of its key, and is not released yet; so what
  somebody holds is found again when it is given back. `passing` holds what has no key, or deletes
  one, and so is not to be kept once all have read it.
- LK3: keys are compared themselves, not by hashes. Each key takes its own size and some 200 bytes;
  of keys whose latest message is gone there are as many as of others, and `KEYS_IN_VAIN`, at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quire.batches.delivered_slice import Delivered
from quire.block import StreamedBlock
from quire.definitions.properties import Properties
from quire.definitions.row_schema import schema_of_words
from quire.engine.queues.queue import Queue
from quire.engine.reading.fetcher import Fetcher
from quire.intervals import IntervalSet
from quire.libraries import np
from quire.limits import KEYS_IN_VAIN, PURGED_AT_ONCE
from quire.rows.row_block import RowBlock

from .attribute_index import runs_of, values_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from quire.selectors.analysis import FieldPlace

_HEADER: Final = ("sender", "correlation_id", "reply_to", "content_type")


class LatestOfKeys:
    """The latest message of each key, and those it supersedes. Not thread-safe: its user locks."""

    def __init__(self, properties: Properties) -> None:
        key = str(properties.keep_latest)
        is_column = (
            properties.schema is not None and key in schema_of_words(properties.schema).names
        )
        source = "column" if is_column else "header" if key in _HEADER else "attribute"
        self.place: Final[FieldPlace] = source, key
        self._latest: dict[str | int, int] = {}  # positions
        self._known = 0  # all below it was looked at
        self.superseded = IntervalSet()
        self.passing = IntervalSet()

    def catch_up(self, delivery: Fetcher, queue: Queue) -> bool:
        """Look at the next messages; False: there are no more. Raises StoreCorrupt."""
        with queue.lock:
            start = queue.released.first_gap(self._known)
            end = min(queue.end_position, start + PURGED_AT_ONCE)
        superseded: list[int] = []
        try:
            for position, part in delivery.parts(queue, start, end):
                self._look(part, position, superseded)
                self._known = position + part.stop - part.start
        finally:
            for run in runs_of(sorted(superseded)):
                self.superseded.add(*run)
        self._known = max(self._known, end)
        self._forget(queue)
        return start < end

    def _look(self, part: Delivered, first: int, superseded: list[int]) -> None:
        """At the messages of a part, whose first has the position; twice is once."""
        values = values_of(part, self.place)
        if values is None:
            self.passing.add(first, first + part.stop - part.start)
            return
        is_passing = _deletes(part, self.place)
        if values.null_count:
            is_passing = is_passing | values.is_null().to_numpy(zero_copy_only=False)
        for start, end in runs_of((np.flatnonzero(is_passing) + first).tolist()):
            self.passing.add(start, end)
        latest = self._latest
        for position, key in enumerate(values.to_pylist(), first):
            if key is not None:
                before = latest.get(key, -1)
                if before < position:
                    latest[key] = position
                    if before >= 0:
                        superseded.append(before)

    def _forget(self, queue: Queue) -> None:
        """Drop the positions that the queue has released (LK2, LK3)."""
        with queue.lock:
            released = queue.released
            for held in (self.superseded, self.passing):
                for lo, hi in held.to_list():
                    for start, end in list(released.intersection(lo, hi)):
                        held.remove(start, end)
            if len(self._latest) > 2 * queue.space.live_messages + KEYS_IN_VAIN:
                pairs = self._latest.items()
                self._latest = {key: at for key, at in pairs if not released.contains(at)}

    def parts(self, most_runs: int) -> list[list[tuple[int, int]]]:
        """Return the superseded runs, parted so that one commit can read each part."""
        found: list[list[tuple[int, int]]] = [[]]
        left = PURGED_AT_ONCE
        for start, end in self.superseded.to_list():
            while start < end:
                if not left or len(found[-1]) == most_runs:
                    found.append([])
                    left = PURGED_AT_ONCE
                stop = min(end, start + left)
                found[-1].append((start, stop))
                left -= stop - start
                start = stop
        return found if found[-1] else []


def _deletes(part: Delivered, place: FieldPlace) -> NDArray[np.bool_]:
    """Return for each message True if it deletes its key: it has a key and nothing else."""
    block, count = part.block, part.stop - part.start
    if isinstance(block, StreamedBlock):
        return np.full(count, block.stream.size == 0)
    if not isinstance(block, RowBlock):
        return np.equal(np.diff(block.offsets[part.start : part.stop + 1]), 0)
    others = [name for name in block.rows.schema.names if place != ("column", name)]
    is_nothing = np.full(count, bool(others))
    for name in others:
        column = block.rows.column(name).slice(part.start, count)
        is_nothing &= column.is_null().to_numpy(zero_copy_only=False)
    return is_nothing
