"""Large Arrow data in slices, so that what a put holds besides it is bounded.

Putting an array takes about 40 bytes a message, and its bytes again where they become blocks. One
that is large is put slice by slice: each takes `ARROW_SLICE_ROWS` or `ARROW_SLICE_BYTES` at most,
but for a message that is larger, or much larger than the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quire.arguments import count_of
from quire.block import BlockBuilder
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


def measure_all(parts: list[Any]) -> tuple[list[tuple[int, int]], list[Headers]]:
    """(charge, messages) of slices, and their headers, all checked. Raises InvalidArgument."""
    sizes: list[tuple[int, int]] = []
    headers: list[Headers] = []
    for part in parts:
        builder = BlockBuilder()
        mark = builder.mark()
        count = builder.add_arrow(part)
        sizes.append((builder.charge_bytes, count))
        headers += builder.headers_since(mark)
    return sizes, headers


def largest_of_all(parts: list[Any]) -> int:
    """The largest charge of the messages of slices, which were checked."""
    return max(map(largest_charge, parts))


def largest_charge(payloads: Any) -> int:
    """Of the messages of a list or of Arrow data, which were checked."""
    builder = BlockBuilder()
    if is_arrow(payloads):
        builder.add_arrow(payloads)
    else:
        builder.add_many(payloads)
    blocks = builder.blocks(MAX_DATA_BLOCK_BYTES)
    return max((check_block(block.data).largest_charge() for block in blocks), default=0)
