"""Large Arrow data in slices, so that what a put holds besides it is bounded.

Putting an array takes about 40 bytes a message, and its bytes again where they become blocks. One
that is large is put slice by slice: each takes `ARROW_SLICE_ROWS` or `ARROW_SLICE_BYTES` at most,
but for a message that is larger, or much larger than the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quire.arguments import count_of
from quire.block import BlockBuilder, runs_of_payloads
from quire.block.encoding import MessageRun
from quire.block.header_columns import Headers
from quire.libraries import is_arrow, pa
from quire.limits import (
    ARROW_SLICE_BYTES,
    ARROW_SLICE_ROWS,
    ARROW_WHOLE_BYTES,
    ARROW_WHOLE_ROWS,
    MAX_DATA_BLOCK_BYTES,
)
from quire.rows.open_block import check_block
from quire.rows.row_input import Rows


def slices_of(source: Any) -> list[Any]:
    """The source in slices that share its memory; only itself if it is not large."""
    rows = count_of(source)
    size = _size(source)
    if rows <= 1 or (rows <= ARROW_WHOLE_ROWS and size <= ARROW_WHOLE_BYTES):
        return [source]
    step = max(1, min(ARROW_SLICE_ROWS, rows * ARROW_SLICE_BYTES // max(size, 1)))
    return [source.slice(start, step) for start in range(0, rows, step)]


def row_slices(rows: Rows) -> Iterator[Rows]:
    """Rows that fit their queue, in slices that share their memory."""
    count = len(rows.sizes)
    size = int(rows.sizes.sum())
    step = max(1, min(ARROW_SLICE_ROWS, count * ARROW_SLICE_BYTES // max(size, 1)))
    for start in range(0, count, step):
        yield rows if step >= count else rows.slice(start, min(start + step, count))


def chosen_of(source: Any, rows: list[int]) -> Any:
    """Some of the payloads of a list or of Arrow data, or all."""
    if len(rows) == count_of(source):
        return source
    if is_arrow(source):
        return source.take(pa.array(rows, pa.int64()))
    return [source[row] for row in rows]


def _size(source: Any) -> int:
    """The bytes of the rows; 0 where Arrow cannot tell, as for views."""
    try:
        return int(source.nbytes)
    except (pa.ArrowException, NotImplementedError):
        return 0


class PayloadParts:
    """The messages of a list or of Arrow data, all checked; many are put slice by slice."""

    def __init__(self, payloads: Any, priority: int) -> None:
        """`priority`: of messages of Arrow data that have none. Raises InvalidArgument."""
        self._priority = priority
        self._parts = slices_of(payloads) if is_arrow(payloads) else [payloads]
        self._only: list[MessageRun] | None = None  # of several they would be too much to keep
        self._sizes: list[tuple[int, int]] = []
        self.headers: list[Headers] = []
        for part in self._parts:
            runs = runs_of_payloads(part, priority)
            charge, count = sum(r.charge_bytes for r in runs), sum(r.count for r in runs)
            self._sizes.append((charge, count))
            self.headers += [run.headers for run in runs]
            self._only = runs if len(self._parts) == 1 else None
        self.charge, self.count = (sum(size) for size in zip(*self._sizes, strict=True))

    def __iter__(self) -> Iterator[tuple[list[MessageRun], int, int]]:
        """Each part's messages, what they charge, and how many they are."""
        for part, size in zip(self._parts, self._sizes, strict=True):
            yield self._runs_of(part), *size

    def _runs_of(self, part: Any) -> list[MessageRun]:
        return runs_of_payloads(part, self._priority) if self._only is None else self._only

    def largest_charge(self) -> int:
        """The largest charge of the messages."""
        largest = 0
        for part in self._parts:
            builder = BlockBuilder()
            builder.add_runs(self._runs_of(part))
            for block in builder.blocks(MAX_DATA_BLOCK_BYTES):
                largest = max(largest, check_block(block.data).largest_charge())
        return largest
