"""Reading the rows of leased pieces, of the columns and rows that are asked for only.

- What is returned was verified as R1 says. A block that is left out by its head (see
  `quire.rows.row_filter`, RF2) is not read; its head is verified by the head's own checksum. Of a
  block of which few columns are asked for only these are read, verified by checksums of their own
  (RP1).
- Rows come in the order of their positions, and each part tells the positions that it covers,
  chosen or not, so that a reader knows where to go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from quire.batches.delivered_slice import Delivered
from quire.block import HEADER_BYTES, Block
from quire.definitions.row_schema import META, nulls, schema_of_words
from quire.errors import StoreCorrupt
from quire.libraries import np, pa
from quire.libraries.late_modules import stand_in
from quire.limits import HEADED_BYTES
from quire.reports.info import Piece
from quire.rows.row_block import RowBlock, head_bytes, header_arrays_of, reaches_of

from .direct_read import PieceBlock, PieceReader

if TYPE_CHECKING:
    from quire.rows import row_filter
    from quire.rows.row_filter import RowCondition
else:
    row_filter = stand_in("quire.rows.row_filter")  # with the first condition


class RowQuery(NamedTuple):
    """The columns, fields and rows to read of a typed queue.

    `words`: the schema as it was when that was asked. `columns`: the names of columns. `meta`: of
    fields of `_meta`, where `queue` and `position` are among them. `where`: bound to the schema.
    """

    words: str
    columns: tuple[str, ...]
    meta: tuple[str, ...] = ()
    where: RowCondition | None = None

    def needed(self) -> set[str] | None:
        """The names of the columns that are looked at; None: all of them."""
        names = set(self.columns)
        if self.where is not None:
            names |= row_filter.column_names(self.where)
        own = schema_of_words(self.words).names
        return None if names.issuperset(own) else names.intersection(own)


class RowPart(NamedTuple):
    """Chosen rows among the messages from one position to before another; None: there are none."""

    start: int
    stop: int
    batch: pa.RecordBatch | None


def read_rows(
    reader: PieceReader, pieces: Sequence[Piece], query: RowQuery, queue: str
) -> Iterator[RowPart]:
    """The rows of the pieces, a part for each block; `_meta` is the last column if asked for.

    Raises PositionLost, StoreCorrupt.
    """
    needed = query.needed()
    reader.expect(queue, pieces)
    for piece in pieces:
        for each in reader.blocks(piece):
            position = piece.first_position - piece.start + each.first  # of its first message
            block = _needed(each, query.where, needed)
            batch = None
            if block is not None:
                first_id = piece.first_id + each.first
                found = Delivered(block, each.start, each.stop, first_id, piece.time_us, 1)
                batch = _rows(found, position, query, queue)
            yield RowPart(position + each.start, position + each.stop, batch)


def _needed(
    found: PieceBlock, where: RowCondition | None, names: Collection[str] | None
) -> Block | None:
    """The block, of these columns only if that is less; None: nothing of it is asked for."""
    part = found.part
    if (where is None and names is None) or part is None or part.length < HEADED_BYTES:
        return found.whole()
    head = part.head()
    if not _may_have_rows(where, head, found):
        return None
    block = None if names is None else part.columns_of(names, head)
    return found.whole() if block is None or block.count < found.stop else block


def _may_have_rows(where: RowCondition | None, head: memoryview, found: PieceBlock) -> bool:
    """Return True if a block may have rows to read, or is damaged: its bytes tell."""
    try:
        if where is None or len(head) < HEADER_BYTES or not head_bytes(head):
            return True
        return where.may(reaches_of(head, found.path), found.messages)
    except StoreCorrupt:
        return True


def _rows(found: Delivered, position: int, query: RowQuery, queue: str) -> pa.RecordBatch | None:
    """The chosen rows of a part of a block whose first message has the position."""
    block = found.block
    if not isinstance(block, RowBlock):
        raise StoreCorrupt(f"queue {queue!r}: there are bytes where rows are read")
    count = found.stop - found.start
    rows = block.rows if count == block.count else block.rows.slice(found.start, count)
    schema = schema_of_words(query.words)

    def column(name: str) -> pa.Array:
        if name.startswith(f"{META}."):
            return _meta(found, position, (name[len(META) + 1 :],), queue)[0]
        place = rows.schema.get_field_index(name)
        return nulls(count, schema.field(name).type) if place < 0 else rows.column(place)

    arrays = [column(name) for name in query.columns]
    names = list(query.columns)
    if query.meta:
        own = _meta(found, position, query.meta, queue)
        names.append(META)
        arrays.append(pa.StructArray.from_arrays(own, names=list(query.meta)))
    if not arrays:  # only how many they are is asked for
        arrays, names = [pa.nulls(count)], [""]
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    if query.where is None:
        return batch
    mask = row_filter.chosen(query.where, column)
    wanted = mask.true_count
    if not wanted:
        return None
    return batch if wanted == count else batch.filter(mask)


def _meta(found: Delivered, position: int, names: Sequence[str], queue: str) -> list[pa.Array]:
    """Header fields of its messages."""
    block, start, stop, first_id, time_us = found[:5]
    arrays = header_arrays_of(block, start, stop, first_id=first_id, time_us=time_us)
    made = []
    for name in names:
        if name == "position":
            made.append(pa.array(np.arange(position + start, position + stop, dtype=np.int64)))
        elif name == "queue":
            made.append(pa.repeat(pa.scalar(queue), stop - start))
        else:
            made.append(arrays[name])
    return made
