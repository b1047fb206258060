"""Reading the rows of leased pieces, of the columns and rows that are asked for only.

- RR1: what is returned was verified as R1 says. A block that is left out by its head (see
  `quire.row_filter`, RF2) is not read; its head is verified by the head's own checksum.
  Of a block of which few columns are asked for only these are read, verified by checksums of their
  own (RP1).
- RR2: rows come in the order of their positions, and each part tells the positions that it covers,
  chosen or not, so that a reader knows where to go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from quire.block import HEADER_BYTES, Block, RowBlock, head_bytes, header_arrays_of, reaches_of
from quire.errors import StoreCorrupt
from quire.info import Piece
from quire.limits import HEADED_BYTES
from quire.ltds import LtdsReader
from quire.row_filter import Condition, chosen
from quire.row_schema import META, nulls, schema_of_words

from .direct_read import PieceReader


class Asked(NamedTuple):
    """What of a typed queue's messages is asked for.

    `words`: the schema as it was when that was asked. `columns`: the names of columns. `meta`: of
    fields of `_meta`, where `queue` and `position` are among them. `where`: bound to the schema.
    """

    words: str
    columns: tuple[str, ...]
    meta: tuple[str, ...] = ()
    where: Condition | None = None

    def needed(self) -> set[str] | None:
        """The names of the columns that are looked at; None: all of them."""
        names = set(self.columns)
        if self.where is not None:
            names |= self.where.names()
        own = schema_of_words(self.words).names
        return None if names.issuperset(own) else names.intersection(own)


class RowPart(NamedTuple):
    """Chosen rows among the messages from one position to before another; None: there are none."""

    start: int
    stop: int
    batch: pa.RecordBatch | None


class _Slice(NamedTuple):
    block: Block
    start: int
    stop: int
    first_id: int
    time_us: int
    position: int  # of the block's first message


def read_rows(
    reader: PieceReader, pieces: Sequence[Piece], asked: Asked, queue: str
) -> Iterator[RowPart]:
    """The rows of the pieces, a part for each block; `_meta` is the last column if asked for.

    Raises PositionLost, StoreCorrupt.
    """
    needed = asked.needed()
    for piece in pieces:
        position = piece.first_position - piece.start
        if piece.kind == "ltds":
            with reader.large(piece) as file:
                yield from _of_file(file, piece, asked, needed, queue)
            continue
        stop = position + piece.stop
        block: Block | None = None
        if (asked.where is not None or needed is not None) and piece.length >= HEADED_BYTES:
            head = reader.head(piece)
            if not _may(asked.where, head, piece.stop, "a block"):
                yield RowPart(piece.first_position, stop, None)
                continue
            if needed is not None:
                block = reader.columns_of(piece, needed, head)
        if block is None:
            block = reader.block(piece)
        found = _Slice(block, piece.start, piece.stop, piece.first_id, piece.time_us, position)
        yield RowPart(piece.first_position, stop, _rows(found, asked, queue))


def _of_file(
    file: LtdsReader, piece: Piece, asked: Asked, needed: set[str] | None, queue: str
) -> Iterator[RowPart]:
    first_position = piece.first_position - piece.start
    index = piece.start
    while index < piece.stop:
        number = file.locate(index)
        first, count = file.messages_of(number)
        stop = min(piece.stop, first + count)
        batch = None
        is_whole = asked.where is None and needed is None
        head = None if is_whole else file.head(number)
        if head is None or _may(asked.where, head, count, file.path):
            block: Block | None = None
            if head is not None and needed is not None:
                block = file.columns_of(number, needed, head)
            if block is None:
                block, _ = file.block_at(number)
            found = _Slice(
                block,
                index - first,
                stop - first,
                piece.first_id + first,
                piece.time_us,
                first_position + first,
            )
            batch = _rows(found, asked, queue)
        yield RowPart(first_position + index, first_position + stop, batch)
        index = stop


def _may(where: Condition | None, head: memoryview, count: int, path: str) -> bool:
    """Whether a block may have rows that are asked for; of one that is damaged its bytes tell."""
    try:
        if where is None or len(head) < HEADER_BYTES or not head_bytes(head):
            return True
        reaches = reaches_of(head, path)
    except StoreCorrupt:
        return True
    return where.may(reaches, count)


def _rows(found: _Slice, asked: Asked, queue: str) -> pa.RecordBatch | None:
    """The chosen rows of a slice."""
    block = found.block
    if not isinstance(block, RowBlock):
        raise StoreCorrupt(f"queue {queue!r}: there are bytes where rows are read")
    count = found.stop - found.start
    rows = block.rows if count == block.count else block.rows.slice(found.start, count)
    schema = schema_of_words(asked.words)

    def column(name: str) -> pa.Array:
        if name.startswith(f"{META}."):
            return _meta(found, (name[len(META) + 1 :],), queue)[0]
        place = rows.schema.get_field_index(name)
        return nulls(count, schema.field(name).type) if place < 0 else rows.column(place)

    arrays = [column(name) for name in asked.columns]
    names = list(asked.columns)
    if asked.meta:
        own = _meta(found, asked.meta, queue)
        names.append(META)
        arrays.append(pa.StructArray.from_arrays(own, names=list(asked.meta)))
    if not arrays:  # only how many they are is asked for
        arrays, names = [pa.nulls(count)], [""]
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    if asked.where is None:
        return batch
    mask = chosen(asked.where, column)
    wanted = mask.true_count
    if not wanted:
        return None
    return batch if wanted == count else batch.filter(mask)


def _meta(found: _Slice, names: Sequence[str], queue: str) -> list[pa.Array]:
    """Header fields of a slice's messages."""
    block, start, stop, first_id, time_us, position = found
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
