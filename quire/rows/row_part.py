"""Reading some columns of a block of rows, without the others' bytes.

- RP1: what is returned of a column was read and verified as a whole, by a checksum in the block's
  head, which is verified by its own. Where anything does not agree nothing is returned, and the
  block as a whole says what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from quire.block.format import HEADER, HEADER_BYTES, MAGIC, SUMS_VERSION, padded
from quire.block.header_columns import Buffer
from quire.checksum import checksum
from quire.definitions.row_schema import schema_of_words
from quire.errors import StoreCorrupt
from quire.libraries import pa
from quire.limits import HEAD_READ_BYTES

from .column_sums import SummedPart, read_sums
from .row_block import RowBlock, head_bytes, read_head, rows_of_message

ReadBytes = Callable[[int, int], Buffer]
"""Bytes of a block: from where, and how many."""


class StoredBlock(NamedTuple):
    """A block in a file, of which a part can be read: its head, or a few of its columns."""

    read: ReadBytes
    length: int
    checksum: int

    def columns(self) -> int:
        """The bits of the header columns that it has, not verified."""
        return int(HEADER.unpack_from(self.read(0, HEADER_BYTES))[4])

    def head(self) -> memoryview:
        """Return its first bytes, with its head if it is of rows; not verified."""
        found = memoryview(self.read(0, min(self.length, HEAD_READ_BYTES)))
        needed = min(self.length, head_bytes(found)) if len(found) >= HEADER_BYTES else 0
        return found if needed <= len(found) else memoryview(self.read(0, needed))

    def columns_of(self, names: Collection[str], head: memoryview) -> RowBlock | None:
        """Return the block with these columns alone, verified; None where the whole block is to be
        read.
        """
        block = read_columns(head, names, self.read)
        known = self.length, self.checksum
        return block if block is not None and (block.length, block.checksum) == known else None


def read_columns(head: memoryview, names: Collection[str], read: ReadBytes) -> RowBlock | None:
    """The block with these of its columns, as far as it has them, verified (RP1).

    None where it takes the whole block: it has header columns or no checksums of its columns,
    these are the most of it, or something is wrong.

    Args:
        head: the block's first bytes, with its head.
    """
    if len(head) < HEADER_BYTES:
        return None
    stored, magic, version, flags, columns, count, length, size = HEADER.unpack_from(head)
    if magic != MAGIC or version != SUMS_VERSION or flags or columns or not count:
        return None
    try:
        words, _, sums, rows_at = read_head(head, "")
        schema = schema_of_words(words)
        parts = read_sums(sums, len(schema))
        if not parts or _end(parts[-1]) != size or rows_at + padded(size) != length:
            return None
        places = [place for place, name in enumerate(schema.names) if name in names]
        selected = [parts[0], *(parts[1 + place] for place in places)]
        is_most = 2 * sum(part[1] for part in selected) > size
        rows = None if is_most else _read(selected, size, rows_at, read)
        if rows is None:
            return None
        batch = rows_of_message(rows, schema, count, places)
    except (StoreCorrupt, pa.ArrowException, OSError, EOFError, ValueError, MemoryError):
        return None
    return RowBlock.of_columns(batch, words, stored, length)


def _end(part: SummedPart) -> int:
    return part[0] + part[1]


def _read(selected: list[SummedPart], size: int, rows_at: int, read: ReadBytes) -> pa.Buffer | None:
    """The rows' bytes, of which only these parts are filled in; neighbours are read together."""
    buffer = pa.allocate_buffer(size)
    view = memoryview(buffer).cast("B")
    index = 0
    while index < len(selected):
        begin = end = selected[index][0]
        while index < len(selected) and selected[index][0] == end:
            end = _end(selected[index])
            index += 1
        found = read(rows_at + begin, end - begin)
        if len(found) != end - begin:
            return None
        view[begin:end] = found
    is_right = all(checksum(view[p[0] : _end(p)]) == p[2] for p in selected)
    return buffer if is_right else None
