"""Blocks of rows: the messages of a typed queue, verified views over their bytes.

- What BL1 says holds for rows: they are whole, of the schema's types, in UTF-8, without nulls where
  there are to be none, and lie within the block's buffer.
RB2. Rows refer to the buffer, which must not change; nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.block.arrow import header_arrays
from quire.block.block import Block
from quire.block.encoding import EncodedBlock
from quire.block.format import (
    CHECKSUM_BYTES,
    HEAD_CHECKSUM_AT,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    PADDING,
    ROWS_HEAD,
    ROWS_HEAD_AT,
    ROWS_VERSION,
    ROWS_VERSIONS,
    SUMS_VERSION,
    TABLE_ENTRY_BYTES,
    Column,
    padded,
    section_count,
)
from quire.block.header_columns import Buffer, Headers, join_headers, offsets_of
from quire.block.header_sections import read_headers
from quire.block.single_block import seal
from quire.checksum import checksum
from quire.definitions.row_schema import META, is_part, nulls, schema_of_words
from quire.errors import InvalidArgument, StoreCorrupt
from quire.libraries import np, pa
from quire.limits import MAX_BLOCK_BYTES, ROWS_COLUMN_BYTES, ROWS_OBJECT_BYTES
from quire.messages import message_schema
from quire.messages.message import Message
from quire.messages.typed_message import TypedMessage

from . import column_reach, row_check
from . import column_sums as sums_of_columns
from . import row_bytes as bytes_of_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .column_reach import Reach


@cache
def meta_fields() -> tuple[pa.Field, ...]:
    """Return the fields of the column `_meta`."""
    return tuple(each for each in message_schema.MESSAGE_SCHEMA if each.name != "payload")


class RowBlock(Block):
    """`count` messages whose payloads are rows. `words`: their schema (see `row_schema`)."""

    __slots__ = ("_offsets", "rows", "words")

    rows: pa.RecordBatch
    words: str
    _offsets: NDArray[np.int64] | None

    @classmethod
    def of_rows(
        cls, view: memoryview, columns: int, count: int, length: int, size: int, location: str
    ) -> RowBlock:
        """A block whose checksum was verified, and what its header says. Raises StoreCorrupt."""
        self = cls.__new__(cls)
        self.columns = columns
        self.count = count
        self.length = length
        words, _, _, sections_at = read_head(view[:length], location)
        payload_at = length - padded(size)
        if not count or not sections_at <= payload_at:
            raise StoreCorrupt(f"{location}: the block's sections do not fit its {length} bytes")
        self.words = words
        self.payload = view[payload_at : payload_at + size]
        self.headers = Headers()
        if columns:
            self.headers = read_headers(view[:payload_at], columns, count, sections_at, location)
        elif sections_at != payload_at:
            raise StoreCorrupt(f"{location}: the block's sections do not fill its {length} bytes")
        try:
            self.rows = rows_of_message(pa.py_buffer(self.payload), schema_of_words(words), count)
        except (pa.ArrowException, OSError, EOFError, ValueError, MemoryError) as error:
            raise StoreCorrupt(f"{location}: the block's rows cannot be read ({error})") from error
        self._offsets = self.unread = None
        return self

    @classmethod
    def of_columns(
        cls, rows: pa.RecordBatch, words: str, stored_checksum: int, length: int
    ) -> RowBlock:
        """Some columns of a block without header columns: for reading them alone."""
        self = cls.__new__(cls)
        self.checksum, self.length, self.columns = stored_checksum, length, 0
        self.count, self.words, self.rows = rows.num_rows, words, rows
        self.payload = memoryview(b"")
        self.headers = Headers()
        self._offsets = self.unread = None
        return self

    @property
    def offsets(self) -> NDArray[np.int64]:  # type: ignore[override]
        """The offsets of the rows' values, as if they were payloads; counted at the first use."""
        if self._offsets is None:
            self._offsets = offsets_of(bytes_of_rows.row_bytes(self.rows))
        return self._offsets

    @property
    def memory_bytes(self) -> int:
        own: int = ROWS_OBJECT_BYTES + ROWS_COLUMN_BYTES * self.rows.num_columns
        return super().memory_bytes + own

    def widened(self, words: str) -> RowBlock:
        """The block with the columns of a later schema, which are null. Raises StoreCorrupt."""
        if words == self.words:
            return self
        other = RowBlock.__new__(RowBlock)
        for name in Block.__slots__:
            if name != "offsets":
                setattr(other, name, getattr(self, name))
        other._offsets = self._offsets
        other.words, other.rows = words, widen(self.rows, self.words, words)
        return other

    def message(self, row: int, **delivery: Any) -> Message:
        """Message `row` of the block."""
        return TypedMessage(super().message(row, **delivery), self.rows.slice(row, 1))

    def payloads(self, start: int = 0, stop: int | None = None) -> list[bytes]:
        """Return the messages from `start` to `stop`, each as an Arrow stream."""
        rows = range(start, self.count if stop is None else stop)
        header = Message(0, "", b"")
        return [TypedMessage(header, self.rows.slice(row, 1)).payload for row in rows]

    def to_arrow(
        self,
        start: int = 0,
        stop: int | None = None,
        *,
        queue: str,
        first_id: int,
        time_us: int,
        delivery_count: int | NDArray[np.int32],
        copy: bool = True,
    ) -> pa.RecordBatch:
        """The rows from `start` to `stop` with their headers as the column `_meta` (RB2)."""
        stop = self.count if stop is None else stop
        return with_meta(
            self.rows.slice(start, stop - start),
            self.headers.slice(start, stop),
            ids=self.ids(first_id, start, stop),
            times=self.times(time_us, start, stop),
            delivery_count=delivery_count,
            queue=queue,
        )

    def _payload(self, row: int) -> bytes:
        return b""


def with_meta(
    rows: pa.RecordBatch,
    headers: Headers,
    *,
    ids: NDArray[np.int64],
    times: NDArray[np.int64],
    delivery_count: int | NDArray[np.int32],
    queue: str,
) -> pa.RecordBatch:
    """Rows and, behind them, the column `_meta`."""
    arrays = header_arrays(headers, ids=ids, times=times, delivery_count=delivery_count)
    meta = pa.StructArray.from_arrays(arrays, fields=meta_fields())
    schema = rows.schema.append(pa.field(META, meta.type, nullable=False))
    return pa.RecordBatch.from_arrays(
        [*rows.columns, meta], schema=schema.with_metadata({"queue": queue})
    )


def header_arrays_of(
    block: Block, start: int, stop: int, *, first_id: int, time_us: int, delivery_count: int = 1
) -> dict[str, pa.Array]:
    """The header columns of the messages from `start` to `stop`, by name."""
    arrays = header_arrays(
        block.headers.slice(start, stop),
        ids=block.ids(first_id, start, stop),
        times=block.times(time_us, start, stop),
        delivery_count=delivery_count,
    )
    return {field.name: array for field, array in zip(meta_fields(), arrays, strict=True)}


def no_rows(words: str, queue: str) -> pa.RecordBatch:
    """Return such a batch of no messages."""
    schema = schema_of_words(words)
    nothing = np.zeros(0, np.int64)
    return with_meta(
        pa.RecordBatch.from_arrays([nulls(0, f.type) for f in schema], schema=schema),
        Headers(),
        ids=nothing,
        times=nothing,
        delivery_count=1,
        queue=queue,
    )


def widen(rows: pa.RecordBatch, words: str, later: str) -> pa.RecordBatch:
    """Rows with the columns of a later schema, which are null. Raises StoreCorrupt."""
    if words == later:
        return rows
    if not is_part(words, later):
        raise StoreCorrupt(f"rows of the schema {words!r:.200} are where {later!r:.200} is")
    schema = schema_of_words(later)
    more = [nulls(rows.num_rows, field.type) for field in list(schema)[rows.num_columns :]]
    return pa.RecordBatch.from_arrays([*rows.columns, *more], schema=schema)


def encode_rows(
    words: str, batch: pa.RecordBatch, headers: Headers, charge_bytes: int
) -> EncodedBlock:
    """Return one block of all the rows. Raises InvalidArgument where they are too many for one."""
    rows = batch.serialize()
    schema, statistics = words.encode(), column_reach.statistics_of(batch)
    sums = sums_of_columns.column_sums(rows, batch.schema)
    version = SUMS_VERSION if sums else ROWS_VERSION
    sections: list[Buffer] = []
    table = []
    for section in headers.sections():
        table.append(len(section))
        sections += (section, PADDING[len(section) & 7])
    size = rows.size
    head = np.array(table, "<u8").tobytes() + schema + PADDING[len(schema) & 7]
    head += statistics + PADDING[len(statistics) & 7] + sums
    length = HEADER_BYTES + len(head) + sum(map(len, sections)) + padded(size)
    if length > MAX_BLOCK_BYTES:
        raise InvalidArgument(
            f"the rows make a block of {length} bytes; at most {MAX_BLOCK_BYTES} are possible: "
            "take fewer at a time"
        )
    header = bytearray(
        HEADER.pack(0, MAGIC, version, 0, headers.columns(), batch.num_rows, length, size)
    )
    ROWS_HEAD.pack_into(header, ROWS_HEAD_AT, len(schema), len(statistics), len(sums), 0)
    header[HEAD_CHECKSUM_AT:] = _head_checksum(header, head).to_bytes(8, "little")
    data = seal([header, head, *sections, memoryview(rows), PADDING[size & 7]])
    return EncodedBlock(data, batch.num_rows, charge_bytes, size)


def _head_checksum(header: Buffer, head: Buffer) -> int:
    return checksum(bytes(header[CHECKSUM_BYTES:HEAD_CHECKSUM_AT]) + bytes(head))


def head_bytes(view: memoryview) -> int:
    """Return the length of the head of a block of rows, as its header says; 0 for a block of bytes.

    `view`: its first HEADER_BYTES at least, not verified.
    """
    _, magic, version, _, columns = HEADER.unpack_from(view)[:5]
    if magic != MAGIC or version not in ROWS_VERSIONS:
        return 0
    schema_bytes, statistics_bytes, sums_bytes, _ = ROWS_HEAD.unpack_from(view, ROWS_HEAD_AT)
    table_bytes = TABLE_ENTRY_BYTES * section_count(columns)
    head = HEADER_BYTES + table_bytes + padded(schema_bytes) + padded(statistics_bytes)
    return head + padded(sums_bytes)


class RowsHead(NamedTuple):
    """The schema's words, statistics and checksums of columns as they are, and where it ends."""

    words: str
    statistics: bytes
    sums: bytes
    end: int


def read_head(view: memoryview, location: str) -> RowsHead:
    """The head, of a block's first bytes, verified by its own checksum. Raises StoreCorrupt."""
    columns = HEADER.unpack_from(view)[4]
    schema_bytes, statistics_bytes, sums_bytes, expected = ROWS_HEAD.unpack_from(view, ROWS_HEAD_AT)
    schema_at = HEADER_BYTES + TABLE_ENTRY_BYTES * section_count(columns)
    statistics_at = schema_at + padded(schema_bytes)
    sums_at = statistics_at + padded(statistics_bytes)
    end = sums_at + padded(sums_bytes)
    if end > len(view):
        raise StoreCorrupt(f"{location}: the block's head takes {end} bytes, of {len(view)}")
    if _head_checksum(view, view[HEADER_BYTES:end]) != expected:
        raise StoreCorrupt(f"{location}: the checksum of the block's head does not match its bytes")
    try:
        words = str(view[schema_at : schema_at + schema_bytes], "utf-8")
        schema_of_words(words)
    except (UnicodeDecodeError, InvalidArgument) as error:
        raise StoreCorrupt(f"{location}: the block's schema cannot be read ({error})") from error
    statistics = bytes(view[statistics_at : statistics_at + statistics_bytes])
    return RowsHead(words, statistics, bytes(view[sums_at : sums_at + sums_bytes]), end)


def reaches_of(view: memoryview, location: str) -> dict[str, Reach]:
    """Return how far the columns reach, as a block's head says. Raises StoreCorrupt."""
    try:
        return column_reach.read_statistics(read_head(view, location).statistics)
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(
            f"{location}: the block's statistics cannot be read ({error})"
        ) from error


def rows_of_message(
    data: pa.Buffer, schema: pa.Schema, count: int, selected: Sequence[int] | None = None
) -> pa.RecordBatch:
    """The rows, or these columns of them, checked. Others' bytes are not looked at."""
    message = pa.ipc.read_message(data)
    if message.type != "record batch":
        raise ValueError(f"a message of type {message.type!r}")
    batch = pa.ipc.read_record_batch(message, schema)
    if selected is not None:
        batch = batch.select(list(selected))
    for array in batch.columns:
        row_check.check_column(array)
    if batch.num_rows != count:
        raise ValueError(f"{batch.num_rows} rows, where the header says {count}")
    if batch.get_total_buffer_size() > message.body.size:
        raise ValueError("the rows are compressed")
    for field, array in zip(batch.schema, batch.columns, strict=True):
        if array.null_count and not field.nullable:
            raise ValueError(f"column {field.name!r} has nulls")
    return batch


def rows_and_headers(parts: Sequence[Any]) -> tuple[str, pa.RecordBatch, Headers]:
    """Slices of blocks of rows, each as `BlockSlice` has it, as one; with ids and times on top.

    The words are those of the latest schema among them.
    """
    for part in parts:
        if not isinstance(part[0], RowBlock):
            raise StoreCorrupt("there are bytes among the rows of a typed queue")
    words = max((part[0].words for part in parts), key=len)
    batches, headers = [], []
    for part in parts:
        block, start, stop, first_id, time_us = part[:5]
        batches.append(widen(block.rows.slice(start, stop - start), block.words, words))
        own = block.headers.slice(start, stop)
        own.fixed[Column.ID] = block.ids(first_id, start, stop)
        own.fixed[Column.TIME] = block.times(time_us, start, stop)
        headers.append((own, stop - start))
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    return words, batch, headers[0][0] if len(headers) == 1 else join_headers(headers)
