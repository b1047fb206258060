"""A run of a keyed state, open: rows found by their keys, and in their order. Layout: `format`.

KR1. What is returned was verified: a piece by its checksum, which the index has, and the index by
     that of the trailer, which has the id of the run. A run that is damaged, or another one, is
     StoreCorrupt, which names it.
KR2. A look for keys reads the pieces of these keys only, of `KEYS_AT_ONCE` keys at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

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
from .keyed_rows import KeyedRows, concat_rows, equal_keys
from .limits import KEYS_AT_ONCE, SPAN_BYTES
from .row_layout import layout_of
from .run_filter import may_have
from .timer_mark import TimerMark

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RunBytes(Protocol):
    """The bytes of a run, wherever they are."""

    def read(self, offset: int, length: int) -> bytes | memoryview:
        """Return so many bytes from there on; fewer where there are not so many."""

    def read_several(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each place, an offset and a length: of a server in few requests."""


class _FetchedPieces(NamedTuple):
    """Pieces in memory, verified."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]  # where each begins in the data
    rows: NDArray[np.int64]  # how many each has


class ProbedPieces(NamedTuple):
    """Pieces of the keys that are looked for."""

    wanted: NDArray[np.int64]  # the index of each key
    numbers: NDArray[np.int64]  # in which of the pieces each may be
    pieces: _FetchedPieces


class FoundRows(NamedTuple):
    """The rows of some keys."""

    wanted: NDArray[np.int64]  # the index of each one's key among those that were looked for
    rows: KeyedRows


class KeyedRun:
    """An open run. For any number of threads."""

    def __init__(self, source: RunBytes, size: int, run_id: int, where: str) -> None:
        """`where`: names it in errors. Raises StoreCorrupt, StoreVersion."""
        self.where = where
        self._source = source
        self.bytes = size
        self._cached: _FetchedPieces | None = None
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
        self._shift = shift
        self._index = np.frombuffer(head, index_type(), pieces)
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
        offsets, lengths = self._index["offset"], self._index["length"].astype(np.uint64)
        rows = self._index["rows"].astype(np.uint64)
        ends = np.concatenate(
            [offsets[1:], np.array([self._timers_at], np.int64).astype(np.uint64)]
        )
        if (
            row_bytes != self.layout.row_bytes
            or not len(offsets) == ((self.last - self.first) >> self._shift) + 1
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
        """Read all pieces, and keep them in memory."""
        if self._cached is None:
            numbers = np.arange(len(self._index))
            self._cached = self._fetch(numbers)

    @property
    def is_whole(self) -> bool:
        """Return True if all of it is in memory."""
        return self._cached is not None

    @property
    def kept_bytes(self) -> int:
        """Return the bytes that it takes in memory, about."""
        return (
            self._index.nbytes
            + self._timer_index.nbytes
            + len(self._filter)
            + (self.bytes if self._cached is not None else 0)
        )

    def find(
        self, hashes: NDArray[np.uint64], keys: Sequence[pa.Array], wanted: NDArray[np.int64]
    ) -> FoundRows | None:
        """Return the rows of those keys, of the indices `wanted`, that it has; None: none.

        `keys`: none of their columns: all rows that have the hashes. Raises StoreCorrupt.
        """
        if len(wanted) <= KEYS_AT_ONCE:
            return self._find_some(hashes, keys, wanted)
        ordered = wanted[np.argsort(hashes[wanted], kind="stable")]  # so a piece is read once
        slices = range(0, len(wanted), KEYS_AT_ONCE)
        parts = [self._find_some(hashes, keys, ordered[at : at + KEYS_AT_ONCE]) for at in slices]
        return _joined([part for part in parts if part is not None])

    def _find_some(
        self, hashes: NDArray[np.uint64], keys: Sequence[pa.Array], wanted: NDArray[np.int64]
    ) -> FoundRows | None:
        probe = self.probe(hashes, wanted)
        return None if probe is None else self.match(probe, hashes, keys)

    def probe(self, hashes: NDArray[np.uint64], wanted: NDArray[np.int64]) -> ProbedPieces | None:
        """Return the pieces that may have the keys of the indices `wanted`; None: there are none.

        Raises StoreCorrupt.
        """
        own = hashes[wanted]
        inside = (own >= np.uint64(self.first)) & (own <= np.uint64(self.last))
        if len(self._filter):
            inside &= may_have(self._filter, own)
        if not inside.all():
            wanted, own = wanted[inside], own[inside]
        if not len(wanted):
            return None
        numbers = ((own - np.uint64(self.first)) >> np.uint64(self._shift)).astype(np.int64)
        pieces = self._cached
        if pieces is None:
            needed, numbers = np.unique(numbers, return_inverse=True)
            pieces = self._fetch(needed)
        return ProbedPieces(wanted, numbers, pieces)

    def match(
        self, probe: ProbedPieces, hashes: NDArray[np.uint64], keys: Sequence[pa.Array]
    ) -> FoundRows | None:
        """Return the rows of the keys in pieces, of this run or of others with its layout."""
        wanted, numbers, pieces = probe
        own = hashes[wanted]
        found, indices = self._search(pieces, numbers, own)
        parts: list[FoundRows] = []
        key_columns = self.layout.key_columns
        while len(found):
            at, where = wanted[found], numbers[found]
            rows = self._decode(pieces, where, indices[found])
            if keys:
                equal = equal_keys(keys, at, rows.batch.columns[:key_columns], np.arange(len(at)))
                right = np.flatnonzero(equal)
                if len(right):
                    whole = len(right) == len(at)
                    parts.append(FoundRows(at[right], rows if whole else rows.take(right)))
                found = found[~equal]  # another key of the same hash may follow
            else:
                parts.append(FoundRows(at, rows))
            indices[found] += 1
            found = found[indices[found] < pieces.rows[numbers[found]]]
            found = found[self._hashes_at(pieces, numbers[found], indices[found]) == own[found]]
        return _joined(parts)

    def between(self, first: int, last: int) -> KeyedRows:
        """Return the rows whose hashes are from `first` to `last`. Raises StoreCorrupt."""
        first, last = max(first, self.first), min(last, self.last)
        low, high = (first - self.first) >> self._shift, (last - self.first) >> self._shift
        pieces = self._fetch(np.arange(low, high + 1 if first <= last else low))
        numbers = np.repeat(np.arange(len(pieces.rows)), pieces.rows)
        before = np.cumsum(pieces.rows) - pieces.rows
        rows = self._decode(pieces, numbers, np.arange(len(numbers)) - before[numbers])
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

    def _search(
        self, pieces: _FetchedPieces, numbers: NDArray[np.int64], own: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which hashes are there, and for each the index of its first row in its piece."""
        wide = pieces.data.view(np.uint64)
        base, step = pieces.starts[numbers] >> 3, self.layout.row_bytes >> 3
        left, right = np.zeros(len(own), np.int64), pieces.rows[numbers]
        last = right - 1
        for _ in range(int(right.max()).bit_length()):
            middle = (left + right) >> 1
            at = np.minimum(middle, last)  # of an empty piece none is looked at
            above = (wide[base + np.maximum(at, 0) * step] < own) & (left < right)
            left = np.where(above, middle + 1, left)
            right = np.where(above, right, middle)
        hit = left <= last
        hit &= wide[base + np.where(hit, left, 0) * step] == own
        return np.flatnonzero(hit), left

    def _hashes_at(
        self, pieces: _FetchedPieces, numbers: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.uint64]:
        wide = pieces.data.view(np.uint64)
        places = (pieces.starts[numbers] + indices * self.layout.row_bytes) >> 3
        found: NDArray[np.uint64] = wide[places]
        return found

    def _decode(
        self, pieces: _FetchedPieces, numbers: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> KeyedRows:
        starts, size = pieces.starts[numbers], self.layout.row_bytes
        heaps = starts + pieces.rows[numbers] * size
        return self.layout.decode(pieces.data, starts + indices * size, heaps, self.where)

    def _fetch(self, numbers: NDArray[np.int64]) -> _FetchedPieces:
        """Read and verify pieces, ascending. Raises StoreCorrupt."""
        entries = self._index[numbers]
        lengths = entries["length"].astype(np.int64)
        ends = np.cumsum(lengths)
        starts = ends - lengths
        offsets = entries["offset"]
        if len(numbers) and int(offsets[-1] - offsets[0]) == int(starts[-1]):  # they lie together
            joined = self._span(int(offsets[0]), int(ends[-1]))
            view = memoryview(joined)
            parts: list[bytes | memoryview] = [
                view[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
            ]
        else:
            places = list(zip(offsets.tolist(), lengths.tolist(), strict=True))
            parts = [*self._source.read_several(places)]
            joined = b"".join(parts)
        expected = entries["checksum"].tolist()
        for number, piece in enumerate(parts):
            if checksum(piece) != expected[number] and lengths[number]:
                raise StoreCorrupt(
                    f"{self.where}: damaged, {lengths[number]} bytes at {offsets[number]} do not "
                    "match their checksum"
                )
        starts[lengths == 0] = 0
        # A row's bytes at least: where an empty piece begins something may be looked at.
        data = np.frombuffer(joined or bytes(8), np.uint8)
        return _FetchedPieces(data, starts, entries["rows"].astype(np.int64))

    def _span(self, offset: int, length: int) -> bytes | memoryview:
        """Read bytes that lie together, some at a time."""
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


def joined_probes(probes: Sequence[ProbedPieces]) -> ProbedPieces:
    """Return pieces of several runs as if they were of one."""
    if len(probes) == 1:
        return probes[0]
    sizes = np.array([len(probe.pieces.data) for probe in probes])
    counts = np.array([len(probe.pieces.rows) for probe in probes])
    bases, before = np.cumsum(sizes) - sizes, np.cumsum(counts) - counts
    both = list(zip(probes, bases, before, strict=True))
    pieces = _FetchedPieces(
        np.concatenate([probe.pieces.data for probe in probes]),
        np.concatenate([probe.pieces.starts + base for probe, base, _ in both]),
        np.concatenate([probe.pieces.rows for probe in probes]),
    )
    numbers = np.concatenate([probe.numbers + first for probe, _, first in both])
    return ProbedPieces(np.concatenate([probe.wanted for probe in probes]), numbers, pieces)


def _joined(parts: Sequence[FoundRows]) -> FoundRows | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    wanted = np.concatenate([part.wanted for part in parts])
    return FoundRows(wanted, concat_rows([part.rows for part in parts]))
