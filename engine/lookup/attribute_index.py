"""An index of messages by a value's hash: of an attribute, a header field or a column.

- AI1: it is derived, made when somebody first asks for a value, and never journaled. It knows all
  messages of the queue up to a position, read or not; what it names is looked at before it counts,
  so that two values of one hash, and what is gone, do no harm.
- AI3: messages behind that position, if they are few, may all have the value: to look at them costs
  less than to take them into the index at each get. So a queue that is almost empty needs none.
- AI2: it takes 16 bytes a message. Runs are sorted by hash, and joined where the last is at least
  half as long as the one before it, so there are few; then what every subscription has read goes.
- What comes together is hashed together, without a loop over messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from quire.batches.delivered_slice import Delivered
from quire.engine.queues.queue import Queue
from quire.engine.reading.fetcher import Fetcher
from quire.env.interpreter import Lock
from quire.libraries import np, pa
from quire.libraries.late_modules import stand_in
from quire.limits import HASHED_ONE_BY_ONE, INDEXED_POSITIONS, LATE_INDEXED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from quire.selectors import block_columns
    from quire.selectors.analysis import FieldPlace
else:
    block_columns = stand_in("quire.selectors.block_columns")  # with the first index

_Hashes: TypeAlias = "NDArray[np.uint64]"
_Indexed: TypeAlias = "NDArray[np.int64]"
_FACTOR: Final = 0x9E3779B97F4A7C15  # odd, its bits in no order: 2**64 divided by the golden ratio
_MIX: Final = 0xFF51AFD7ED558CCD  # of MurmurHash3's finish
_HALF: Final = 33
_BITS: Final = (1 << 64) - 1


class AttributeIndex:
    """The values of one field by their hashes, with positions. Thread-safe. `place`: the field."""

    def __init__(self, place: FieldPlace) -> None:
        self._place: Final = place
        self._lock = Lock()
        self._known = 0  # all below it is in the runs
        self._runs: list[tuple[_Hashes, _Indexed]] = []

    def find(self, delivery: Fetcher, queue: Queue, value: str | int) -> list[int]:
        """Ascending positions of messages that may have the value (AI1). Raises StoreCorrupt."""
        with self._lock:
            late = self._catch_up(delivery, queue)
            runs = self._runs
        found: list[int] = []
        if runs:
            hashed = hash_of(value)
            parts = [positions[slice(*_span(hashes, hashed))] for hashes, positions in runs]
            found = np.sort(np.concatenate(parts)).tolist()
        return found + list(late)

    def _catch_up(self, delivery: Fetcher, queue: Queue) -> range:
        """The positions that are left out (AI3)."""
        with queue.lock:
            start, end = max(self._known, queue.released.first_gap(0)), queue.end_position
        if end - start <= LATE_INDEXED:
            return range(start, end)
        found: list[tuple[_Hashes, _Indexed]] = []
        size = 0
        for position, part in delivery.parts(queue, start, end):
            values = values_of(part, self._place)
            if values is not None:
                hashes, rows = hashes_of(values)
                found.append((hashes, rows + position))
                size += len(rows)
            if size >= INDEXED_POSITIONS:
                self._add(queue, found, position + part.stop - part.start)
                found, size = [], 0
        self._add(queue, found, end)
        return range(end, end)

    def _add(self, queue: Queue, found: list[tuple[_Hashes, _Indexed]], end: int) -> None:
        """One run more, of what was found (AI2)."""
        runs = [*self._runs]
        if found:
            runs.append(_sorted(found))
        while len(runs) > 1 and 2 * len(runs[-1][0]) >= len(runs[-2][0]):
            last = runs.pop()
            runs[-1] = _sorted([_kept(queue, each) for each in (runs[-1], last)])
        self._runs, self._known = runs, end

    @property
    def memory_bytes(self) -> int:
        """Return the bytes that the runs take."""
        return sum(hashes.nbytes + positions.nbytes for hashes, positions in self._runs)


def _sorted(parts: list[tuple[_Hashes, _Indexed]]) -> tuple[_Hashes, _Indexed]:
    hashes = np.concatenate([part[0] for part in parts])
    order = np.argsort(hashes, kind="stable")
    return hashes[order], np.concatenate([part[1] for part in parts])[order]


def _kept(queue: Queue, run: tuple[_Hashes, _Indexed]) -> tuple[_Hashes, _Indexed]:
    """Without what every subscription has read."""
    hashes, positions = run
    with queue.lock:
        released = queue.released.to_list()
    if not released:
        return run
    starts, ends = np.array(released, np.int64).T
    at = np.searchsorted(starts, positions, side="right") - 1
    left = (at < 0) | (positions >= ends[at])
    return hashes[left], positions[left]


def _span(hashes: _Hashes, value: np.uint64) -> tuple[int, int]:
    return (
        int(np.searchsorted(hashes, value, side="left")),
        int(np.searchsorted(hashes, value, side="right")),
    )


def values_of(part: Delivered, place: FieldPlace) -> pa.Array | None:
    """Return the field's value of each message; None if no message has one."""
    source, name = place
    columns = block_columns.BlockColumns(
        part.block, part.start, part.stop, part.first_id, part.time_us
    )
    if source == "attribute":
        return columns.attribute(name)
    if source == "header":
        return columns.text(name)
    return columns.row_column(name, pa.string())  # the type is for blocks without the column


def hash_of(value: str | int) -> np.uint64:
    """The hash of one, as `hashes_of` has it: for a few bytes arrays cost more than the sum."""
    if isinstance(value, int):
        total = value
    else:
        data = value.encode()
        if len(data) > HASHED_ONE_BY_ONE:
            hashes, _ = hashes_of(pa.array([value], pa.string()))
            return np.uint64(hashes[0])
        total, power = len(data), 1
        for octet in data:
            power = power * _FACTOR & _BITS
            total += (octet + 1) * power
    total &= _BITS
    mixed = (total ^ total >> _HALF) * _MIX & _BITS
    return np.uint64(mixed ^ mixed >> _HALF)


def hashes_of(values: pa.Array) -> tuple[_Hashes, NDArray[np.int64]]:
    """The hashes of texts or whole numbers, and which of the values they are of: not of nulls."""
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    if len(rows) < len(values):
        values = values.drop_null()
    if pa.types.is_integer(values.type):
        sums = values.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    else:
        sums = _sums(values.cast(pa.large_string()))
    with np.errstate(over="ignore"):
        mixed = (sums ^ (sums >> _HALF)) * _MIX
        return mixed ^ (mixed >> _HALF), rows


def _sums(texts: pa.Array) -> _Hashes:
    """A polynomial of each text's bytes, and of its length."""
    count, skipped = len(texts), texts.offset
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[skipped : skipped + count + 1]
    lengths = np.diff(offsets)
    sums = lengths.astype(np.uint64)
    if not count or not lengths.any():
        return sums
    data = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    there = np.flatnonzero(lengths)
    starts = offsets[there] - offsets[0]
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(int(lengths.max()), _FACTOR, np.uint64))
        places = np.arange(len(data)) - np.repeat(starts, lengths[there])
        products = (data.astype(np.uint64) + np.uint64(1)) * powers[places]
        sums[there] += np.add.reduceat(products, starts)
    return sums


def runs_of(positions: list[int]) -> Iterator[tuple[int, int]]:
    """Ascending positions as runs."""
    start = end = -1
    for position in positions:
        if position == end:
            end += 1
            continue
        if start >= 0:
            yield start, end
        start, end = position, position + 1
    if start >= 0:
        yield start, end
