"""A block's columns as conditions look at them: numbers as numpy has them, texts as Arrow has them.

What no message of the block has is not there at all: None for texts, one number for all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.block import Block, StreamedBlock
from quire.block.arrow import binary_array, text_array
from quire.block.format import ABSENT_TIME, COLUMN_NAMES
from quire.block.header_columns import Attributes
from quire.definitions.row_schema import nulls
from quire.libraries import np, pa, pc
from quire.limits import PLAIN_NUMBER_DIGITS
from quire.rows.row_block import RowBlock

from .numbers import Flags, NumberColumn, number_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COLUMNS = {name: bit for bit, name in COLUMN_NAMES.items()}
_TIMES = ("expires_at", "deliver_at")


class Truths(NamedTuple):
    """Flags of each message: something is true, is false, or, with neither flag, unknown.

    What is the same for all is there once, without a length.
    """

    true: Flags
    false: Flags

    @classmethod
    def where(cls, true: Flags, known: Flags) -> Truths:
        """True or false where it is known."""
        if known is np.True_:
            return cls(true, ~true)
        return cls(true & known, ~true & known)

    @classmethod
    def of_array(cls, flags: pa.Array) -> Truths:
        """Null is unknown."""
        validity, values = flags.buffers()
        true = _flags(values, flags)
        if not flags.null_count:
            return cls(true, ~true)
        return cls.where(true, _flags(validity, flags))


def _flags(bits: pa.Buffer, array: pa.Array) -> NDArray[np.bool_]:
    octets = np.frombuffer(bits, np.uint8)
    count = array.offset + len(array)
    return np.unpackbits(octets, count=count, bitorder="little")[array.offset :].view(np.bool_)


@cache
def unknown() -> Truths:
    """Return the flags of all messages where nothing is known."""
    return Truths(np.False_, np.False_)


class BlockColumns:
    """The messages from `start` to `stop` of a block. Each column is made when it is asked for."""

    __slots__ = ("_block", "_first_id", "_made", "_start", "_stop", "_time_us", "count")

    def __init__(self, block: Block, start: int, stop: int, first_id: int, time_us: int) -> None:
        self._block, self._start, self._stop = block, start, stop
        self._first_id, self._time_us = first_id, time_us
        self._made: dict[tuple[str, str], Any] = {}
        self.count = stop - start

    def number(self, name: str) -> NumberColumn:
        """A header column of numbers."""
        block = self._block
        if name == "id":
            return NumberColumn.of_exact(block.ids(self._first_id, self._start, self._stop))
        if name == "time":
            if not block.columns & _COLUMNS["time"]:
                return NumberColumn.of_exact(self._time_us)
            return NumberColumn.of_exact(block.times(self._time_us, self._start, self._stop))
        column = _COLUMNS[name]
        if not block.columns & column:
            return NumberColumn.of_number(None if name in _TIMES else 0)
        values = block.headers_with(column).fixed[column][self._start : self._stop].astype(np.int64)
        return NumberColumn.of_exact(values, values != ABSENT_TIME if name in _TIMES else np.True_)

    def text(self, name: str) -> pa.Array | None:
        """A header column of texts."""
        if not self._block.columns & _COLUMNS[name]:
            return None
        return self._kept_column("header", name, self._text)

    def attribute(self, key: str) -> pa.Array | None:
        """The values of an attribute; null where a message does not have it."""
        if not self._block.columns & _COLUMNS["attributes"]:
            return None
        return self._kept_column("attribute", key, self._attribute)

    def payload_text(self) -> pa.Array | None:
        """Payloads that are UTF-8; null where they are not, or are streams."""
        return self._kept_column("payload", "text", lambda _: self._payload_text())

    def payload(self) -> pa.Array | None:
        """Payloads; null where they are streams."""
        if isinstance(self._block, (StreamedBlock, RowBlock)):
            return None
        offsets = self._block.offsets[self._start : self._stop + 1]
        return binary_array(offsets, self._block.payload)

    def row_column(self, name: str, type_: pa.DataType) -> pa.Array:
        """A column of rows; null throughout where the block is older than the column."""
        return row_column(self._block.rows, name, type_).slice(self._start, self.count)

    def _kept_column(self, source: str, name: str, make: Callable[[str], Any]) -> Any:
        key = source, name
        if key not in self._made:
            self._made[key] = make(name)
        return self._made[key]

    def _text(self, name: str) -> pa.Array:
        column = _COLUMNS[name]
        strings = self._block.headers_with(column).strings[column]
        return text_array(strings.slice(self._start, self._stop))

    def _attribute(self, key: str) -> pa.Array | None:
        attributes = self._block.headers_with(_COLUMNS["attributes"]).attributes
        assert attributes is not None
        if self.count != self._block.count:
            attributes = attributes.slice(self._start, self._stop)
        return attribute_array(attributes, key, self.count)

    def _payload_text(self) -> pa.Array | None:
        payload = self.payload()
        if payload is None:
            return None
        try:
            return payload.cast(pa.string())  # which checks it
        except pa.ArrowInvalid:
            return pa.array([text_of(each) for each in payload.to_pylist()], pa.string())


def row_column(rows: pa.RecordBatch, name: str, type_: pa.DataType) -> pa.Array:
    """A column of rows, whose schema may not have it yet."""
    index = rows.schema.get_field_index(name)
    return nulls(rows.num_rows, type_) if index < 0 else rows.column(index)


def text_of(payload: bytes) -> str | None:
    """The payload as text; None: it is none."""
    try:
        return str(payload, "utf-8")
    except UnicodeDecodeError:
        return None


def attribute_array(attributes: Attributes, key: str, count: int) -> pa.Array | None:
    """Return the value of the attribute by message, or null; None: no message has it."""

    pairs = np.flatnonzero(Truths.of_array(pc.equal(text_array(attributes.keys), key)).true)
    if not len(pairs):
        return None
    values, starts = text_array(attributes.values), attributes.starts
    if len(pairs) == count and ((starts[:-1] <= pairs) & (pairs < starts[1:])).all():
        places = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(pairs)])
        return values.take(places)
    places = np.full(count, -1, np.int64)
    places[np.repeat(np.arange(count), np.diff(starts))[pairs]] = pairs
    return values.take(
        pa.Array.from_buffers(
            pa.int64(),
            count,
            [pa.py_buffer(np.packbits(places >= 0, bitorder="little")), pa.py_buffer(places)],
        )
    )


def by_distinct(texts: pa.Array, make: Callable[[str], Any]) -> tuple[NDArray[np.int64], list[Any]]:
    """Return a value made of each distinct text, and by message its place there; the last is of
    null.
    """
    encoded = texts.dictionary_encode()
    made = [make(text) for text in encoded.dictionary.to_pylist()]
    places = encoded.indices.fill_null(len(made)).to_numpy(zero_copy_only=False)
    return places, [*made, None]


def numbers_of(texts: pa.Array | None) -> NumberColumn:
    """Texts that are numbers, as numbers."""
    if texts is None:
        return NumberColumn.of_number(None)
    exact, is_plain = _plain_numbers(texts)
    if is_plain.all():
        return NumberColumn.of_exact(exact)
    places, made = by_distinct(texts.filter(pa.array(~is_plain)), number_of)
    others = np.flatnonzero(~is_plain)
    is_exact, known = is_plain.copy(), is_plain.copy()
    doubles = np.zeros(len(texts), np.float64)
    integers = [each if isinstance(each, int) else 0 for each in made]
    exact[others] = np.array(integers, np.int64)[places]
    doubles[others] = np.array([0.0 if each is None else float(each) for each in made])[places]
    is_exact[others] = np.array([isinstance(each, int) for each in made])[places]
    known[others] = np.array([each is not None for each in made])[places]
    return NumberColumn(exact, doubles, is_exact, known)


def _plain_numbers(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the numbers of texts of 1 to 18 digits, behind a minus or not, and which texts those
    are.
    """
    count = len(texts)
    validity, offsets_buffer, data = texts.buffers()
    first = texts.offset
    offsets = np.frombuffer(offsets_buffer, np.int32)[first : first + count + 1]
    sizes = np.diff(offsets)
    characters = np.frombuffer(data or b"", np.uint8)
    if not len(characters):
        return np.zeros(count, np.int64), np.zeros(count, np.bool_)
    total = np.zeros(count, np.int64)
    is_minus = characters[np.minimum(offsets[:-1], len(characters) - 1)] == ord("-")
    is_plain = (sizes > is_minus) & (sizes - is_minus <= PLAIN_NUMBER_DIGITS)
    if validity is not None:
        is_plain &= _flags(validity, texts)
    longest = int(sizes[is_plain].max(initial=0))
    for place in range(longest):
        is_in = (sizes > place) & ((place > 0) | ~is_minus)
        digits = characters[np.minimum(offsets[:-1] + place, len(characters) - 1)] - ord("0")
        is_plain &= (digits < 10) | ~is_in  # what is below "0" is far above as an octet
        np.copyto(total, total * 10 + digits, where=is_in)
    return np.where(is_plain, np.where(is_minus, -total, total), 0), is_plain


def truths_of(texts: pa.Array | None, make: Callable[[str], bool | None]) -> Truths:
    """Return the flags of a function of each text; of null it is unknown."""
    if texts is None:
        return unknown()
    places, made = by_distinct(texts, make)
    true = np.array([each is True for each in made])
    false = np.array([each is False for each in made])
    return Truths(true[places], false[places])
