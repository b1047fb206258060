"""Reading the sections of a block's header columns, with every bound checked."""

from __future__ import annotations

from functools import cache
from struct import unpack_from
from typing import TYPE_CHECKING, Any

from quire.errors import StoreCorrupt
from quire.libraries import np
from quire.limits import MAX_STREAM_BYTES
from quire.messages.payload_reader import Stream

from .format import (
    ALL_COLUMNS,
    ATTRIBUTES_SECTIONS,
    FIXED_COLUMNS,
    HEADER_BYTES,
    STREAM,
    STRING_COLUMNS,
    STRING_SECTIONS,
    Column,
    section_count,
)
from .header_columns import Attributes, Headers, Strings

if TYPE_CHECKING:
    from numpy.typing import NDArray


def check_offsets(offsets: NDArray[np.int32], end: int, location: str) -> None:
    """Offsets must begin with 0, never fall and end with `end`."""
    if offsets.item(0) != 0 or offsets.item(-1) != end:
        raise StoreCorrupt(f"{location}: a block's offsets do not span its bytes")
    if len(offsets) > 2 and np.count_nonzero(offsets[1:] < offsets[:-1]):
        raise StoreCorrupt(f"{location}: a block's offsets fall")


@cache
def dtype_of(name: str) -> np.dtype[Any]:
    """The NumPy type, once made: its name would be read at each use."""
    return np.dtype(name)


_OFFSETS = "<i4"
_OCTETS = "u1"


class _Sections:
    """Hands out the sections one after another. `view` ends where the payload begins."""

    __slots__ = ("_end", "_lengths", "_location", "_place", "_view")

    def __init__(self, view: memoryview, columns: int, place: int, location: str) -> None:
        self._lengths = iter(unpack_from(f"<{section_count(columns)}Q", view, HEADER_BYTES))
        self._view = view
        self._end = len(view)
        self._place = place
        self._location = location

    def next(self) -> memoryview:
        start, length = self._place, next(self._lengths)
        self._place = start + (length + 7 & ~7)
        if self._place > self._end:
            raise self.wrong("reach beyond it")
        return self._view[start : start + length]

    def array(self, name: str, count: int) -> NDArray[Any]:
        section, dtype = self.next(), dtype_of(name)
        if len(section) != count * dtype.itemsize:
            raise self.wrong("have a wrong length")
        return np.frombuffer(section, dtype, count)

    def text(self, valid: NDArray[np.uint8] | None, count: int) -> Strings:
        offsets = self.array(_OFFSETS, count + 1)
        content = self.next()
        check_offsets(offsets, len(content), self._location)
        try:
            characters = len(str(content, "utf-8"))
        except UnicodeDecodeError:
            raise self.wrong("hold text that is not UTF-8") from None
        if characters != len(content) and count > 1:
            # A string that begins inside a character is not UTF-8, though their sum is.
            octets = np.frombuffer(content, dtype_of(_OCTETS))
            starts = offsets[offsets < len(content)]
            if ((octets[starts] & 0xC0) == 0x80).any():
                raise self.wrong("hold text that is not UTF-8")
        return Strings(valid, offsets, content)

    def strings(self, count: int) -> Strings:
        validity = self.next()
        if len(validity) not in (0, count):
            raise self.wrong("have a wrong length")
        valid = np.frombuffer(validity, dtype_of(_OCTETS)) if len(validity) else None
        text = self.text(valid, count)
        if valid is not None and ((valid > 1) | ((valid == 0) & (text.lengths() != 0))).any():
            raise self.wrong("have a wrong validity")
        return text

    def attributes(self, count: int) -> Attributes:
        starts = self.array(_OFFSETS, count + 1)
        pairs = starts.item(-1)
        if pairs < 0:
            raise self.wrong("have offsets that fall")
        check_offsets(starts, pairs, self._location)
        return Attributes(starts, self.text(None, pairs), self.text(None, pairs))

    def stream(self, count: int) -> Stream:
        section = self.next()
        if len(section) != STREAM.size or count != 1:
            raise self.wrong("have a wrong length")
        stream = Stream(*STREAM.unpack(section))
        if not 0 < stream.chunk_bytes <= stream.size <= MAX_STREAM_BYTES:
            raise self.wrong("tell of a stream that there cannot be")
        return stream

    def skip(self, sections: int) -> None:
        """Pass sections without looking at them."""
        for _ in range(sections):
            self.next()

    def end(self) -> None:
        if self._place != len(self._view):
            raise self.wrong("do not fill it")

    def wrong(self, what: str) -> StoreCorrupt:
        return StoreCorrupt(f"{self._location}: the sections of the block {what}")


def read_headers(
    view: memoryview,
    columns: int,
    count: int,
    place: int,
    location: str,
    selected: int = ALL_COLUMNS,
) -> Headers:
    """The header columns whose sections lie in `view` from `place` to its end.

    Those that are not wanted are left out; their sections must lie there, too.
    """
    sections = _Sections(view, columns, place, location)
    headers = Headers()
    for column, (name, _) in FIXED_COLUMNS.items():
        if columns & selected & column:
            headers.fixed[column] = sections.array(name, count)
        elif columns & column:
            sections.skip(1)
    for column in STRING_COLUMNS:
        if columns & selected & column:
            headers.strings[column] = sections.strings(count)
        elif columns & column:
            sections.skip(STRING_SECTIONS)
    if columns & selected & Column.ATTRIBUTES:
        headers.attributes = sections.attributes(count)
    elif columns & Column.ATTRIBUTES:
        sections.skip(ATTRIBUTES_SECTIONS)
    if columns & Column.STREAM:
        headers.stream = sections.stream(count)
    sections.end()
    return headers
