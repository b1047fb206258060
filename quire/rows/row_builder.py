"""Collecting the rows of one transaction for one typed queue, and building their blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from quire.block.encoding import EncodedBlock, split_ends
from quire.block.format import HEADER_BYTES
from quire.block.header_columns import join_headers, offsets_of
from quire.libraries import np, pa
from quire.limits import MAX_BLOCK_BYTES, ROWS_HEAD_BYTES

from .row_block import encode_rows
from .row_input import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RowBuilder:
    """Rows in put order; the same as `BlockBuilder` is for bytes.

    Rows of one schema that follow each other are built together. Their Arrow memory is referred to
    until then.
    """

    __slots__ = ("_runs", "charge_bytes", "count", "payload_bytes")

    def __init__(self) -> None:
        self.clear()

    def __bool__(self) -> bool:
        return bool(self.count)

    def clear(self) -> None:
        """Forget all rows."""
        self.count = 0
        self.payload_bytes = 0
        self.charge_bytes = 0
        self._runs: list[Rows] = []

    def add(self, rows: Rows) -> None:
        """Add rows."""
        self._runs.append(rows)
        self.count += len(rows.sizes)
        self.payload_bytes += int(rows.sizes.sum())
        self.charge_bytes += rows.charge_bytes

    def blocks(self, max_block_bytes: int) -> Iterator[EncodedBlock]:
        """The blocks one after another; none much above the size unless by a single row."""
        for words, runs in groupby(self._runs, key=lambda rows: rows.words):
            yield from _encode(words, list(runs), max_block_bytes)

    def build(self, max_block_bytes: int) -> list[EncodedBlock]:
        """Return all blocks. Keeps the rows."""
        return list(self.blocks(max_block_bytes))


def _encode(words: str, runs: Sequence[Rows], max_block_bytes: int) -> Iterator[EncodedBlock]:
    batch, headers, sizes = runs[0].batch, runs[0].headers, runs[0].sizes
    if len(runs) > 1:
        batch = pa.concat_batches([rows.batch for rows in runs])
        headers = join_headers([(rows.headers, len(rows.sizes)) for rows in runs])
        sizes = np.concatenate([rows.sizes for rows in runs])
    whole = Rows(words, batch, headers, sizes)
    start = 0
    for stop in _ends(whole, min(max_block_bytes, MAX_BLOCK_BYTES)):
        part = whole if stop - start == len(sizes) else whole.slice(start, stop)
        yield encode_rows(words, part.batch, part.headers, part.charge_bytes)
        start = stop


def _ends(rows: Rows, max_block_bytes: int) -> list[int]:
    """Return the ends of blocks."""
    count = len(rows.sizes)
    own: NDArray[np.int64] = rows.sizes
    if rows.headers.columns():
        own = own + rows.headers.stored(count)
    # Offsets and validity are spread evenly; Arrow's buffers are padded.
    beside = max(0, rows.batch.nbytes - int(rows.sizes.sum())) // max(count, 1) + 1
    stored = offsets_of(own + beside)
    fixed = HEADER_BYTES + ROWS_HEAD_BYTES + 2 * len(rows.words) + 64 * rows.batch.num_columns
    room_bytes = max_block_bytes - fixed
    total = int(stored[-1])
    if total <= room_bytes:
        return [count]
    # About as many in each: a reader hands out block by block, and small ones cost it most.
    even_bytes = total // -(-total // max(room_bytes, 1)) + int(np.diff(stored).max())
    return split_ends(stored, max(min(room_bytes, even_bytes), 1))


def split_rows(rows: Rows, max_block_bytes: int) -> list[EncodedBlock]:
    """The blocks of rows."""
    return list(_encode(rows.words, [rows], max_block_bytes))
