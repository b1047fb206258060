"""A block whose sections nobody has looked at yet: they are verified when somebody does.

Who gets messages in an order by keys takes one from each block. Where a row is in each section
follows from the table: so one message costs less than the verification of all sections. So does one
column, for who asks a condition of all messages. The block's
checksum was verified before; here it is seen that the sections fill the block, and that what is
taken from them lies in them and is UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any

from quire.errors import StoreCorrupt
from quire.libraries import np

from .format import (
    ALL_COLUMNS,
    FIXED_COLUMNS,
    HEADER_BYTES,
    STRING_COLUMNS,
    TABLE_ENTRY_BYTES,
    Column,
    padded,
    section_count,
)
from .header_columns import Headers
from .header_sections import check_offsets, dtype_of, read_headers

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NUMBERS = {"<u2": Struct("<H"), "<i8": Struct("<q")}
_FIXED = [(column, _NUMBERS[dtype]) for column, (dtype, _) in FIXED_COLUMNS.items()]
_BOUNDS = Struct("<ii").unpack_from
_OFFSETS = "<i4"
_OFFSET_BYTES = Struct("<i").size
_NONE_KNOWN = 0, Headers()


def sections_of(columns: int, count: int) -> int:
    """Return the place where the sections of the columns begin in a block of so many messages."""
    return _offsets_of(columns) + padded(_OFFSET_BYTES * (count + 1))


@lru_cache(maxsize=64)
def _table_of(columns: int) -> Callable[[memoryview, int], tuple[int, ...]]:
    """Reads the lengths of a block's sections."""
    return Struct(f"<{section_count(columns)}Q").unpack_from


@lru_cache(maxsize=64)
def _run_of(count: int) -> Callable[[memoryview, int], tuple[int, ...]]:
    """Reads so many offsets that stand together."""
    return Struct(f"<{count}i").unpack_from


def _offsets_of(columns: int) -> int:
    return HEADER_BYTES + (TABLE_ENTRY_BYTES * section_count(columns) if columns else 0)


class Unread:
    """The unverified content of a block: its bytes up to its end.

    `payload_at`: where the payloads begin.
    """

    __slots__ = (
        "_columns", "_count", "_known", "_lengths", "_places", "location", "only_row",
        "payload_at", "view",
    )  # fmt: skip

    only_row: int  # for this message alone; -1: for none
    _known: tuple[int, Headers]  # columns that were asked for alone, and these
    _lengths: tuple[int, ...]  # of the sections
    _places: list[int]

    def __init__(
        self, view: memoryview, columns: int, count: int, payload_at: int, location: str
    ) -> None:
        self.view, self.payload_at, self.location = view, payload_at, location
        self.only_row = -1
        self._known = _NONE_KNOWN
        self._columns, self._count = columns, count

    def offsets(self, payload_bytes: int) -> NDArray[np.int32]:
        """Return the offsets of all payloads. Raises StoreCorrupt, as all of these do."""
        offsets: NDArray[np.int32] = np.frombuffer(
            self.view, dtype_of(_OFFSETS), self._count + 1, _offsets_of(self._columns)
        )
        check_offsets(offsets, payload_bytes, self.location)
        return offsets

    def headers(self, selected: int = ALL_COLUMNS) -> Headers:
        """Return the headers of all messages, or those of some columns."""
        place = sections_of(self._columns, self._count)
        sections = self.view[: self.payload_at]
        return read_headers(sections, self._columns, self._count, place, self.location, selected)

    def column(self, column: int) -> Headers:
        """A header column that is there, verified alone; and those that were asked for before."""
        known, found = self._known
        if known & column:
            return found
        more = self.headers(column)
        more.fixed.update(found.fixed)
        more.strings.update(found.strings)
        more.attributes = more.attributes or found.attributes
        self._known = known | column, more
        return more

    def row(self, row: int, payload_bytes: int) -> tuple[bytes, dict[int, Any]]:
        """Return the payload of a row, and the values of its header by column."""
        view, count, columns = self.view, self._count, self._columns
        lengths = _table_of(columns)(view, HEADER_BYTES)
        offsets_at = HEADER_BYTES + TABLE_ENTRY_BYTES * len(lengths)
        first = offsets_at + (_OFFSET_BYTES * (count + 1) + 7 & ~7)
        places = list(accumulate([length + 7 & ~7 for length in lengths], initial=first))
        if places[-1] != self.payload_at:
            raise self._wrong("do not fill it")
        self._lengths, self._places = lengths, places
        payload = bytes(self._cut(offsets_at, row, self.payload_at, payload_bytes))
        found: dict[int, Any] = {}
        index = 0
        for column, number in _FIXED:
            if columns & column:
                self._check(index, number.size * count)
                found[column] = number.unpack_from(view, places[index] + number.size * row)[0]
                index += 1
        try:
            for column in STRING_COLUMNS:
                if columns & column:
                    if lengths[index]:
                        self._check(index, count)
                    is_there = not lengths[index] or view[places[index] + row]
                    found[column] = self._text(index + 1, row, count) if is_there else None
                    index += 3
            if columns & Column.ATTRIBUTES:
                found[Column.ATTRIBUTES] = self._attributes(index, row)
        except UnicodeDecodeError:
            raise self._wrong("hold text that is not UTF-8") from None
        return payload, found

    def _attributes(self, index: int, row: int) -> dict[str, str]:
        self._check(index, _OFFSET_BYTES * (self._count + 1))
        first, last = _BOUNDS(self.view, self._places[index] + _OFFSET_BYTES * row)
        pairs = self._lengths[index + 1] // _OFFSET_BYTES - 1
        if not 0 <= first <= last <= pairs:
            raise self._wrong("have offsets that fall")
        keys = self._texts(index + 1, first, last, pairs)
        return dict(zip(keys, self._texts(index + 3, first, last, pairs), strict=True))

    def _texts(self, index: int, first: int, last: int, count: int) -> list[str]:
        """The texts `first` to `last` of so many, whose offsets are in a section."""
        self._check(index, _OFFSET_BYTES * (count + 1))
        size, place = self._lengths[index + 1], self._places[index + 1]
        offsets = _run_of(last - first + 1)(self.view, self._places[index] + _OFFSET_BYTES * first)
        if offsets[0] < 0 or offsets[-1] > size or sorted(offsets) != list(offsets):
            raise self._outside()
        content = self.view[place : place + size]
        return [str(content[lo:hi], "utf-8") for lo, hi in pairwise(offsets)]

    def _text(self, index: int, row: int, count: int) -> str:
        """Return the text of a row, whose offset is in one section and whose bytes are in the next
        one.
        """
        self._check(index, _OFFSET_BYTES * (count + 1))
        places, size = self._places, self._lengths[index + 1]
        return str(self._cut(places[index], row, places[index + 1], size), "utf-8")

    def _cut(self, offsets_at: int, row: int, place: int, size: int) -> memoryview:
        lo, hi = _BOUNDS(self.view, offsets_at + _OFFSET_BYTES * row)
        if not 0 <= lo <= hi <= size:
            raise self._outside()
        return self.view[place + lo : place + hi]

    def _check(self, index: int, length: int) -> None:
        if self._lengths[index] != length:
            raise self._wrong("have a wrong length")

    def _outside(self) -> StoreCorrupt:
        return StoreCorrupt(f"{self.location}: a block's offsets do not span its bytes")

    def _wrong(self, what: str) -> StoreCorrupt:
        return StoreCorrupt(f"{self.location}: the sections of the block {what}")
