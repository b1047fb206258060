"""Writing a run of a keyed state, from its first row to its last. Layout: `format`.

KW1. What is written is in memory a batch at a time, beside the index, the bits of the filter and 16
     bytes for each timer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from quire.checksum import checksum
from quire.libraries import np

from .format import (
    CHECKSUM,
    CHECKSUM_BYTES,
    LAST_HASH,
    MAGIC,
    NEVER,
    TIMED,
    TIMERS_TOGETHER,
    TRAILER,
    VERSION,
    index_type,
    timer_index_type,
    timer_type,
)
from .keyed_rows import KeyedRows, concat_rows
from .limits import PIECE_BYTES
from .row_layout import RowLayout
from .run_filter import filter_bytes, mark


class RunInfo(Struct, frozen=True):
    """A finished run."""

    id: int
    rows: int
    deleted: int
    timers: int
    bytes: int


class RunWriter:
    """Writes one run, of rows that come ascending by hash, each key once. For one thread."""

    def __init__(
        self,
        write: Callable[[bytes], object],
        layout: RowLayout,
        run_id: int,
        expected_bytes: int,
        expected_rows: int,
        first: int = 0,
        last: int = LAST_HASH,
    ) -> None:
        """`write`: takes the bytes in order. `expected_bytes`: of all rows, about; of which there
        are `expected_rows`, or fewer.

        `first`, `last`: the range of their hashes.
        """
        self._write = write
        self._layout = layout
        self._id = run_id
        self._range = first, last
        share = (last - first + 1) * PIECE_BYTES // max(expected_bytes, PIECE_BYTES)
        self._shift = min(63, max(1, share).bit_length() - 1)
        self._index = np.zeros(((last - first) >> self._shift) + 1, index_type())
        self._bits = np.zeros(8 * filter_bytes(expected_rows), np.bool_)
        self._end = 0
        self._next = 0  # the first piece that is not written
        self._waiting: KeyedRows | None = None  # of a piece that may get more
        self._rows = self._deleted = 0
        self._least = NEVER
        self._timers: list[Any] = []

    def add(self, rows: KeyedRows) -> None:
        """Append rows, ascending by hash and above all before."""
        if not len(rows.hashes):
            return
        if self._waiting is not None:
            rows = concat_rows([self._waiting, rows])
        numbers = self._pieces_of(rows)
        whole = int(np.searchsorted(numbers, numbers[-1]))
        self._waiting = rows.slice(whole, len(numbers))
        if whole:
            self._put(rows.slice(0, whole), numbers[:whole])

    def finish(self) -> RunInfo:
        """Write what is left, and the trailer."""
        rows, self._waiting = self._waiting, None
        if rows is not None:
            self._put(rows, self._pieces_of(rows))
        self._index["offset"][self._next :] = self._end
        timers, timer_index = self._put_timers()
        index, words = self._index.tobytes() + timer_index, self._layout.words.encode()
        filter = np.packbits(self._bits, bitorder="little").tobytes()
        head = index + filter + words + bytes(-len(words) & 7)
        place = self._end
        self._write(head)
        size = place + len(head) + TRAILER.size
        trailer = TRAILER.pack(
            0, MAGIC, VERSION, self._layout.key_columns, self._shift, self._id, self._rows,
            self._deleted, *self._range, len(self._index), size, place, checksum(head), len(words),
            self._layout.row_bytes, self._least, len(filter), timers,
            TIMED if self._layout.timed else 0,
        )  # fmt: skip
        self._write(seal_trailer(trailer))
        return RunInfo(self._id, self._rows, self._deleted, timers, size)

    def _put_timers(self) -> tuple[int, bytes]:
        """Write the timers; how many, and the bytes of their index."""
        if not self._timers:
            return 0, b""
        timers = np.concatenate(self._timers)
        timers = timers[np.lexsort((timers["hash"], timers["time"]))]
        index = np.zeros(-(-len(timers) // TIMERS_TOGETHER), timer_index_type())
        index["time"] = timers["time"][::TIMERS_TOGETHER]
        starts = range(0, len(timers), TIMERS_TOGETHER)
        parts = [timers[start : start + TIMERS_TOGETHER].tobytes() for start in starts]
        index["checksum"] = [checksum(part) for part in parts]
        data = b"".join(parts)
        self._write(data)
        self._end += len(data)
        return len(timers), index.tobytes()

    def _pieces_of(self, rows: KeyedRows) -> Any:
        return (rows.hashes - np.uint64(self._range[0])) >> np.uint64(self._shift)

    def _put(self, rows: KeyedRows, numbers: Any) -> None:
        """Write the pieces of these rows, which are whole."""
        fixed, heap, texts = self._layout.encode(rows)
        borders = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
        counts = np.diff(np.append(borders, len(numbers)))
        fixed["heap"] = texts[:-1] - np.repeat(texts[borders], counts)
        parts, strings = fixed.tobytes(), heap.tobytes()
        row_bytes, offset = self._layout.row_bytes, self._end
        pieces: list[bytes] = []
        entries: list[tuple[int, int, int, int]] = []
        for start, count in zip(borders.tolist(), counts.tolist(), strict=True):
            stop = start + count
            begin, end = int(texts[start]), int(texts[stop])
            used = count * row_bytes + end - begin
            padding = bytes(-used & 7)
            piece = b"".join(
                (parts[start * row_bytes : stop * row_bytes], strings[begin:end], padding)
            )
            entries.append((offset, checksum(piece), len(piece), count))
            pieces.append(piece)
            offset += len(piece)
        own = numbers[borders].astype(np.int64)
        self._index["offset"][self._next : int(own[-1]) + 1] = self._places(own, entries)
        self._index[own] = np.array(entries, index_type())
        self._next = int(own[-1]) + 1
        self._end = offset
        self._write(b"".join(pieces))
        if len(self._bits):
            mark(self._bits, rows.hashes)
        self._rows += len(numbers)
        self._deleted += int(rows.deleted.sum())
        self._least = min(self._least, int(rows.expires.min()))
        if self._layout.timed:
            timed = np.flatnonzero(rows.timers != NEVER)
            if len(timed):
                timers = np.zeros(len(timed), timer_type())
                timers["time"], timers["hash"] = rows.timers[timed], rows.hashes[timed]
                self._timers.append(timers)

    def _places(self, own: Any, entries: list[tuple[int, int, int, int]]) -> Any:
        """Return a place for each piece from the next one on: empty ones have that of the one
        behind them.
        """
        before = np.concatenate([[self._next - 1], own[:-1]])
        return np.repeat(np.array([entry[0] for entry in entries], np.uint64), own - before)


def seal_trailer(trailer: bytes) -> bytes:
    """Return the trailer with its checksum in its first bytes."""
    return CHECKSUM.pack(checksum(memoryview(trailer)[CHECKSUM_BYTES:])) + trailer[CHECKSUM_BYTES:]
