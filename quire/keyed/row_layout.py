"""Rows of a schema as the bytes of a run, and back. Layout: `format`."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from quire.definitions.row_schema import schema_of_words, words_of
from quire.errors import StoreCorrupt
from quire.libraries import np, pa, pc

from .format import DELETED, NEVER, row_type
from .key_hash import binary_of, fixed_bytes, joined_texts, width_of
from .keyed_rows import KeyedRows, too_many_found
from .limits import LONG_TEXT_BYTES, MAX_FOUND_BYTES
from .manifest import KeyedManifest

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RowLayout:
    """The bytes of the rows of one schema, of which the first columns are the key."""

    def __init__(self, words: str, key_columns: int, *, timed: bool = False) -> None:
        """`timed`: rows may have timers."""
        self.words: Final = words
        self.key_columns: Final = key_columns
        # A deleted row has nulls, whatever the schema says.
        self.shown: Final = schema_of_words(words)
        fields = [field.with_nullable(True) for field in self.shown]
        self.schema: Final = pa.schema(fields)
        self.key_names: Final = self.schema.names[:key_columns]
        self.key_words: Final = words_of(pa.schema(list(self.shown)[:key_columns]))
        self._types = [field.type for field in fields]
        self._widths = tuple(width_of(type_) for type_ in self._types)
        self.timed: Final = timed
        self.type: Final = row_type(self._widths, timed=timed)
        self.row_bytes: Final = self.type.itemsize
        self._texts = [number for number, width in enumerate(self._widths) if not width]

    def shown_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the schema of the state, which says what is never null."""
        return pa.RecordBatch.from_arrays(batch.columns, schema=self.shown)

    def encode(self, rows: KeyedRows) -> tuple[NDArray[Any], NDArray[np.uint8], NDArray[np.int64]]:
        """Return the fixed parts, the texts of all rows, and where those of each row begin.

        The place of its texts is to be set in each fixed part.
        """
        count, columns = len(rows.hashes), rows.batch.columns
        fixed = np.zeros(count, self.type)
        fixed["hash"], fixed["expires"] = rows.hashes, rows.expires
        fixed["flags"] = rows.deleted * np.uint8(DELETED)
        if self.timed:
            fixed["timer"] = rows.timers
        nulls = np.zeros((count, len(columns)), np.bool_)
        for number, (column, width) in enumerate(zip(columns, self._widths, strict=True)):
            if column.null_count:
                nulls[:, number] = np.asarray(column.is_null())
            if width:
                fixed[f"c{number}"] = fixed_bytes(column)
        fixed["nulls"] = np.packbits(nulls, axis=1, bitorder="little")
        if not self._texts:
            return fixed, np.zeros(0, np.uint8), np.zeros(count + 1, np.int64)
        texts = []
        for place, number in enumerate(self._texts):
            column = binary_of(columns[number])
            column = pc.fill_null(column, b"") if column.null_count else column
            fixed["lengths"][:, place] = np.asarray(pc.binary_length(column))
            texts.append(column)
        joined = joined_texts(texts)
        offsets = np.frombuffer(joined.buffers()[1], np.int32)
        offsets = offsets[joined.offset : joined.offset + count + 1].astype(np.int64)
        data = joined.buffers()[2]
        heap = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return fixed, heap[offsets[0] : offsets[-1]], offsets - offsets[0]

    def decode(
        self, data: NDArray[np.uint8], rows: NDArray[np.int64], heaps: NDArray[np.int64], where: str
    ) -> KeyedRows:
        """Return the rows whose fixed parts are there in the data, and whose texts count from
        `heaps`.

        All places are multiples of 8. Raises StoreCorrupt for texts beyond the data.
        """
        words, count = self.row_bytes // 8, len(rows)
        if count and (rows[1:] - rows[:-1] == self.row_bytes).all():
            raw = data[rows[0] : rows[0] + count * self.row_bytes]
        else:
            wide = data.view(np.uint64)
            raw = wide[(rows >> 3)[:, None] + np.arange(words)].view(np.uint8)
        fixed = np.ascontiguousarray(raw).reshape(count, self.row_bytes).view(self.type)[:, 0]
        nulls = np.unpackbits(
            fixed["nulls"], axis=1, count=len(self._types), bitorder="little"
        ).astype(np.bool_)
        columns: list[pa.Array] = []
        texts = heaps + fixed["heap"]
        place = 0
        for number, (type_, width) in enumerate(zip(self._types, self._widths, strict=True)):
            null = nulls[:, number]
            if width:
                columns.append(_fixed_column(type_, fixed[f"c{number}"], null))
                continue
            lengths = fixed["lengths"][:, place].astype(np.int64)
            place += 1
            if count and int((texts + lengths).max()) > len(data):
                raise StoreCorrupt(f"{where}: the texts of a row go beyond its piece")
            columns.append(_text_column(type_, data, texts, lengths, null))
            texts = texts + lengths
        return KeyedRows(
            fixed["hash"].astype(np.uint64),
            fixed["expires"].astype(np.int64),
            (fixed["flags"] & DELETED).astype(np.bool_),
            fixed["timer"].astype(np.int64) if self.timed else np.full(count, NEVER, np.int64),
            pa.RecordBatch.from_arrays(columns, schema=self.schema),
        )


@lru_cache(maxsize=256)
def layout_of(words: str, key_columns: int, *, timed: bool = False) -> RowLayout:
    """Return the layout of a schema, of rows with timers or without."""
    return RowLayout(words, key_columns, timed=timed)


def layout_by(manifest: KeyedManifest) -> RowLayout:
    """Return the layout of the rows of a manifest."""
    return layout_of(manifest.definition.schema, manifest.definition.key)


def with_columns(rows: KeyedRows, schema: pa.Schema) -> KeyedRows:
    """Return rows of an older schema with the columns that were added since, all null."""
    batch = rows.batch
    if len(batch.schema) == len(schema):
        return rows
    added = [pa.nulls(len(batch), field.type) for field in list(schema)[len(batch.schema) :]]
    whole = pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)
    return rows._replace(batch=whole)


def _validity(null: NDArray[np.bool_]) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None


def _fixed_column(type_: pa.DataType, raw: NDArray[np.uint8], null: NDArray[np.bool_]) -> pa.Array:
    if pa.types.is_boolean(type_):
        raw = np.packbits(raw[:, 0].astype(np.bool_), bitorder="little")
    data = pa.py_buffer(np.ascontiguousarray(raw))
    return pa.Array.from_buffers(type_, len(null), [_validity(null), data])


def _text_column(
    type_: pa.DataType,
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    null: NDArray[np.bool_],
) -> pa.Array:
    ends = np.cumsum(lengths)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    if len(ends) and ends[-1] > MAX_FOUND_BYTES:
        raise too_many_found(int(ends[-1]))
    offsets[1:] = ends
    if len(starts) and (starts[1:] == starts[:-1] + lengths[:-1]).all():  # they lie together
        found = data[starts[0] : starts[0] + ends[-1]]
    elif len(starts) and ends[-1] >= LONG_TEXT_BYTES * len(starts):
        view, places = data.data, zip(starts.tolist(), lengths.tolist(), strict=True)
        found = np.frombuffer(b"".join([view[at : at + size] for at, size in places]), np.uint8)
    elif len(starts):
        total = int(ends[-1])
        found = data[np.repeat(starts - (ends - lengths), lengths) + np.arange(total)]
    else:
        found = data[:0]
    buffers = [_validity(null), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(found))]
    return pa.Array.from_buffers(type_, len(null), buffers)
