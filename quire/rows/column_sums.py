"""Checksums of the columns of a block of rows, so that some are read without the others.

Layout: `format`. The parts of the rows are Arrow's message and then column after column.
"""

from __future__ import annotations

from itertools import pairwise

from quire.block.format import COLUMN_SUM_BYTES
from quire.checksum import checksum
from quire.libraries import np, pa
from quire.limits import COLUMN_SUMS_BYTES, COLUMN_SUMS_SHARE

SummedPart = tuple[int, int, int]
"""The place of a part in the rows, its length in bytes, and its checksum."""


def column_sums(rows: pa.Buffer, schema: pa.Schema) -> bytes:
    """Return the checksums of the rows' parts as the block has them; nothing for few bytes or many
    columns.
    """
    room = rows.size // COLUMN_SUMS_SHARE
    if rows.size < COLUMN_SUMS_BYTES or COLUMN_SUM_BYTES * (1 + len(schema)) > room:
        return b""
    message = pa.ipc.read_message(rows)
    begin, end = rows.address, rows.address + rows.size
    places = [end]
    for array in reversed(pa.ipc.read_record_batch(message, schema).columns):
        own = [b.address for b in array.buffers() if b is not None and b.size]
        # Of a column without bytes, such as one that is all null, it is where the next one begins.
        places.append(min(own, default=places[-1]))
    places[-1] = message.body.address
    places = [0, *(place - begin for place in reversed(places))]
    if any(place > after for place, after in pairwise(places)):
        return b""  # not in the order of the columns: nobody reads them one by one
    view = memoryview(rows)
    sums = [(b - a, checksum(view[a:b])) for a, b in pairwise(places)]
    return np.array(sums, "<u8").tobytes()


def read_sums(data: bytes, columns: int) -> list[SummedPart]:
    """The parts; nothing where there are no checksums.

    Raises ValueError for what is none.
    """
    if not data:
        return []
    table = np.frombuffer(data, "<u8").reshape(-1, 2)
    if len(table) != 1 + columns:
        raise ValueError(f"{len(table)} checksums of {columns} columns")
    found, begin = [], 0
    for length, expected in table.tolist():
        found.append((begin, length, expected))
        begin += length
    return found
