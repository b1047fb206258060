"""A run of a keyed state, open: rows found by their keys, and in their order. Layout: `format`.

KR1. What is returned was verified: a piece by its checksum, which the index has, and the index by
     that of the trailer, which has the id of the run. A run that is damaged, or another one, is
     StoreCorrupt, which names it.
KR2. A look for keys reads the pieces of these keys only, of `KEYS_AT_ONCE` keys at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from quire.checksum import checksum
from quire.definitions.row_schema import schema_of_words
from quire.errors import InvalidArgument, StoreCorrupt, StoreVersion
from quire.libraries import np, pa

from .format import (
    CHECKSUM_BYTES,
    MAGIC,
    TIMED,
    TIMERS_TOGETHER,
    TRAILER,
    VERSION,
    index_type,
    timer_index_type,
    timer_type,
)
from .keyed_rows import KeyedRows
from .limits import KEYS_AT_ONCE, SPAN_BYTES
from .piece_search import (
    FoundRows,
    PiecesInMemory,
    first_damaged,
    joined,
    match,
    not_as_written,
)
from .row_layout import layout_of
from .run_filter import may_have
from .timer_mark import TimerMark

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RunBytes(Protocol):
    """The bytes of a run, wherever they are."""

    def read(self, offset: int, length: int) -> bytes | memoryview:
        """Return so many bytes from there on; fewer where there are not so many."""

    def expect_several(self, places: Sequence[tuple[int, int]]) -> None:
        """These places are about to be read: by several runs, of which the first one's wait."""

    def read_several(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each place, an offset and a length: of a server in few requests."""


class KeyedRun:
    """An open run. For any number of threads."""

    def __init__(self, source: RunBytes, size: int, run_id: int, where: str) -> None:
        """`where`: names it in errors. Raises StoreCorrupt, StoreVersion."""
        self.where = where
        self._source = source
        self.bytes = size
        self._kept: memoryview | None = None
        self._open(run_id)

    def _open(self, run_id: int) -> None:
        data = self._read(self.bytes - TRAILER.size, TRAILER.size)
        fields = TRAILER.unpack(data)
        if fields[1] != MAGIC or checksum(data[CHECKSUM_BYTES:]) != fields[0]:
            raise StoreCorrupt(f"{self.where}: damaged, its trailer does not match its checksum")
        if fields[2] != VERSION:
            raise StoreVersion(
                f"{self.where}: a run of version {fields[2]}; this release reads version "
                f"{VERSION}: use a newer one"
            )
        (
            key_columns, shift, found_id, self.rows, self.deleted, self.first, self.last, pieces,
            size, place, head_checksum, words_bytes, row_bytes, self.least_expires, filter_bytes,
            self.timers, flags,
        ) = fields[3:]  # fmt: skip
        if (found_id, size) != (run_id, self.bytes):
            raise StoreCorrupt(f"{self.where}: it is run {found_id:016x} of {size} bytes")
        length, blocks = pieces * index_type().itemsize, -(-self.timers // TIMERS_TOGETHER)
        head_bytes = length + blocks * timer_index_type().itemsize
        begin, end = head_bytes + filter_bytes, head_bytes + filter_bytes + words_bytes
        head = self._read(place, (end + 7) & -8)
        if checksum(head) != head_checksum:
            raise StoreCorrupt(f"{self.where}: damaged, its index does not match its checksum")
        self.shift = shift
        self.index = np.frombuffer(head, index_type(), pieces)
        self._timer_index = np.frombuffer(head, timer_index_type(), blocks, length)
        self._filter = np.frombuffer(head, np.uint8, filter_bytes, head_bytes)
        self._timers_at = place - self._timer_bytes
        try:
            words = str(head[begin:end], "utf-8")
            schema_of_words(words)
            self.layout = layout_of(words, key_columns, timed=bool(flags & TIMED))
        except (UnicodeDecodeError, InvalidArgument) as error:
            raise StoreCorrupt(f"{self.where}: its schema is not readable ({error})") from error
        self._check_index(row_bytes)

    def _check_index(self, row_bytes: int) -> None:
        offsets, lengths = self.index["offset"], self.index["length"].astype(np.uint64)
        rows = self.index["rows"].astype(np.uint64)
        ends = np.concatenate(
            [offsets[1:], np.array([self._timers_at], np.int64).astype(np.uint64)]
        )
        if (
            row_bytes != self.layout.row_bytes
            or not len(offsets) == ((self.last - self.first) >> self.shift) + 1
            or offsets[0] != 0
            or (offsets + lengths != ends).any()
            or (rows * np.uint64(row_bytes) > lengths).any()
            or int(rows.sum()) != self.rows
            or self.timers > self.rows * self.layout.timed
        ):
            raise StoreCorrupt(f"{self.where}: its index contradicts itself")

    def whole(self) -> bytes | memoryview:
        """Return all its bytes, as they were written. Raises StoreCorrupt."""
        return self._read(0, self.bytes)

    def keep(self) -> None:
        """Read and verify all of it, and keep it in memory."""
        if self._kept is None:
            self._pieces_between(0, len(self.index))
            self._kept = memoryview(self.whole())

    @property
    def is_whole(self) -> bool:
        """Return True if all of it is in memory."""
        return self._kept is not None

    @property
    def kept_bytes(self) -> int:
        """Return the bytes that it takes in memory, about."""
        return (
            self.index.nbytes
            + self._timer_index.nbytes
            + len(self._filter)
            + (0 if self._kept is None else self.bytes)
        )

    def may_have(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return False for hashes that it has not for certain. They are all in its range."""
        if not len(self._filter):
            return np.ones(len(hashes), np.bool_)
        return may_have(self._filter, hashes)

    def find(
        self, hashes: NDArray[np.uint64], keys: Sequence[pa.Array], wanted: NDArray[np.int64]
    ) -> FoundRows | None:
        """Return the rows of those keys, of the indices `wanted`, that it has; None: none.

        `keys`: none of their columns: all rows that have the hashes. Raises StoreCorrupt.
        """
        ordered = wanted[np.argsort(hashes[wanted], kind="stable")]  # so a piece is read once
        own = hashes[ordered]
        inside = (own >= np.uint64(self.first)) & (own <= np.uint64(self.last))
        ordered, own = ordered[inside], own[inside]
        ordered = ordered[self.may_have(own)]
        parts = []
        for at in range(0, len(ordered), KEYS_AT_ONCE):
            some = ordered[at : at + KEYS_AT_ONCE]
            found = match([self], np.zeros(len(some), np.int64), some, hashes, keys)
            if found is not None:
                parts.append(found)
        return joined(parts)

    def between(self, first: int, last: int) -> KeyedRows:
        """Return the rows whose hashes are from `first` to `last`. Raises StoreCorrupt."""
        first, last = max(first, self.first), min(last, self.last)
        low, high = (first - self.first) >> self.shift, (last - self.first) >> self.shift
        rows = self._pieces_between(low, high + 1 if first <= last else low).all_rows()
        start = int(np.searchsorted(rows.hashes, np.uint64(first)))
        stop = int(np.searchsorted(rows.hashes, np.uint64(max(first, last)), "right"))
        return rows.slice(start, stop)

    def due(
        self, after: TimerMark, until: TimerMark, hashes: tuple[int, int], most: int
    ) -> NDArray[np.void]:
        """Return timers after a mark and up to another one, in their order, the first ones.

        `hashes`: the first and the last of the keys that count. Raises StoreCorrupt.
        """
        starts = self._timer_index["time"]
        block = max(0, int(np.searchsorted(starts, after.time)) - 1)
        stop = int(np.searchsorted(starts, until.time, "right"))
        found, count = [np.zeros(0, timer_type())], 0
        while block < stop and count < most:
            timers = self._timer_block(block)
            times, keys = timers["time"], timers["hash"]
            due = until.reaches(times, keys) & ~after.reaches(times, keys)
            due &= (keys >= np.uint64(hashes[0])) & (keys <= np.uint64(hashes[1]))
            found.append(timers[due])
            count += len(found[-1])
            block += 1
        return np.concatenate(found)[:most]

    def count_timers(self) -> int:
        """Return how many timers there are, all of which are read. Raises StoreCorrupt."""
        return sum(len(self._timer_block(number)) for number in range(len(self._timer_index)))

    def _timer_block(self, number: int) -> NDArray[np.void]:
        size = TIMERS_TOGETHER * timer_type().itemsize
        offset = self._timers_at + number * size
        data = self._read(offset, min(size, self._timers_at + self._timer_bytes - offset))
        if checksum(data) != self._timer_index["checksum"][number]:
            raise StoreCorrupt(
                f"{self.where}: damaged, {len(data)} bytes of timers at {offset} do not match "
                "their checksum"
            )
        return np.frombuffer(data, timer_type())

    @property
    def _timer_bytes(self) -> int:
        return int(self.timers) * timer_type().itemsize

    def expect_pieces(self, places: Sequence[tuple[int, int]]) -> None:
        """Some pieces are about to be read."""
        if self._kept is None:
            self._source.expect_several(places)

    def read_pieces(self, places: Sequence[tuple[int, int]]) -> Sequence[bytes | memoryview]:
        """Return the bytes of some pieces, not verified. `places`: an offset and a length each."""
        if self._kept is None:
            return self._source.read_several(places)
        return [self._kept[at : at + length] for at, length in places]

    def _pieces_between(self, low: int, high: int) -> PiecesInMemory:
        """Read and verify the pieces of these numbers. Raises StoreCorrupt."""
        entries = self.index[low:high]
        starts = entries["offset"].astype(np.int64)
        begin = int(starts[0]) if len(starts) else 0
        starts -= begin
        stops = starts + entries["length"]
        data = self._span(begin, int(stops[-1]) if len(stops) else 0)
        view = memoryview(data)
        places = zip(starts.tolist(), stops.tolist(), strict=True)
        damaged = first_damaged([view[start:stop] for start, stop in places], entries)
        if damaged is not None:
            raise not_as_written(self, entries[damaged])
        return PiecesInMemory.of(data, entries, self)

    def _span(self, offset: int, length: int) -> bytes | memoryview:
        """Read bytes that lie together, some at a time."""
        if self._kept is not None:
            return self._kept[offset : offset + length]
        if length <= SPAN_BYTES:
            return self._source.read(offset, length)
        end = offset + length
        starts = range(offset, end, SPAN_BYTES)
        places = [(at, min(SPAN_BYTES, end - at)) for at in starts]
        return b"".join(self._source.read_several(places))

    def _read(self, offset: int, length: int) -> bytes | memoryview:
        data = self._source.read(offset, length) if 0 <= offset <= self.bytes - length else b""
        if len(data) != length:
            raise StoreCorrupt(f"{self.where}: damaged, it ends too early")
        return data
