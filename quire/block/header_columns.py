"""Header columns in memory: what the builder collects, a block shows and packing merges.

Row `i` of a `Strings` is `data[offsets[i]:offsets[i + 1]]`; offsets need not begin at 0, so a
slice of rows is a view. All offsets here are int32 or int64; `base_zero` makes those of the format.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from quire.libraries import np
from quire.messages.payload_reader import Stream

from .format import FIXED_COLUMNS, STRING_COLUMNS, Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview
Offsets: TypeAlias = "NDArray[np.signedinteger[Any]]"


def base_zero(offsets: Offsets) -> NDArray[np.int32]:
    """The offsets counted from the first of them, as stored."""
    based: NDArray[np.int32] = (offsets - offsets[0]).astype("<i4", copy=False)
    return based


def offsets_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Offsets from lengths: one longer, beginning at 0."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    lengths.cumsum(out=offsets[1:])
    return offsets


def join_offsets(parts: Sequence[Offsets]) -> NDArray[np.int64]:
    """The offsets of the parts' rows put one after another."""
    return offsets_of(np.concatenate([np.diff(part) for part in parts]).astype(np.int64))


class Strings:
    """A column of UTF-8 strings; `valid` is None when no row is absent."""

    __slots__ = ("data", "offsets", "valid")

    def __init__(self, valid: NDArray[np.uint8] | None, offsets: Offsets, data: Buffer) -> None:
        self.valid = valid
        self.offsets = offsets
        self.data = data

    @classmethod
    def of(cls, values: Sequence[Buffer | None]) -> Strings:
        present: list[Buffer] = [value or b"" for value in values]
        lengths = np.fromiter(map(len, present), np.int64, len(present))
        valid = np.fromiter((value is not None for value in values), np.uint8, len(values))
        return cls(None if valid.all() else valid, offsets_of(lengths), b"".join(present))

    @classmethod
    def absent(cls, count: int) -> Strings:
        return cls(np.zeros(count, np.uint8), np.zeros(count + 1, np.int32), b"")

    def slice(self, start: int, stop: int) -> Strings:
        valid = None if self.valid is None else self.valid[start:stop]
        return Strings(valid, self.offsets[start : stop + 1], self.data)

    def content(self) -> memoryview:
        """The bytes of the rows."""
        return memoryview(self.data)[int(self.offsets[0]) : int(self.offsets[-1])]

    def get(self, row: int) -> str | None:
        if self.valid is not None and not self.valid[row]:
            return None
        return str(self.data[int(self.offsets[row]) : int(self.offsets[row + 1])], "utf-8")

    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets).astype(np.int64)

    def validity_section(self) -> Buffer:
        return b"" if self.valid is None or self.valid.all() else self.valid.tobytes()


def join_strings(parts: Sequence[Strings]) -> Strings:
    valid = None
    if any(part.valid is not None for part in parts):
        valid = np.concatenate(
            [
                np.ones(len(part.offsets) - 1, np.uint8) if part.valid is None else part.valid
                for part in parts
            ]
        )
    return Strings(
        valid,
        join_offsets([part.offsets for part in parts]),
        b"".join([part.content() for part in parts]),
    )


class Attributes:
    """A column of string maps: row `i` has the pairs `starts[i]` to `starts[i + 1]`."""

    __slots__ = ("keys", "starts", "values")

    def __init__(self, starts: Offsets, keys: Strings, values: Strings) -> None:
        self.starts = starts
        self.keys = keys
        self.values = values

    @classmethod
    def of(cls, rows: Sequence[Sequence[tuple[bytes, bytes]]]) -> Attributes:
        counts = np.fromiter(map(len, rows), np.int64, len(rows))
        pairs = [pair for row in rows for pair in row]
        return cls(
            offsets_of(counts),
            Strings.of([key for key, _ in pairs]),
            Strings.of([value for _, value in pairs]),
        )

    @classmethod
    def absent(cls, count: int) -> Attributes:
        return cls(np.zeros(count + 1, np.int32), Strings.absent(0), Strings.absent(0))

    def slice(self, start: int, stop: int) -> Attributes:
        """The rows, with the pairs narrowed to theirs."""
        starts = self.starts[start : stop + 1]
        first, last = int(starts[0]), int(starts[-1])
        return Attributes(
            starts - starts[0], self.keys.slice(first, last), self.values.slice(first, last)
        )

    def get(self, row: int) -> dict[str, str]:
        pairs = range(int(self.starts[row]), int(self.starts[row + 1]))
        return {str(self.keys.get(i)): str(self.values.get(i)) for i in pairs}

    def find(self, key: bytes, start: int, stop: int) -> Iterable[tuple[int, Buffer]]:
        """The rows of [start, stop) that have the key, each with the bytes of its value."""
        first, last = int(self.starts[start]), int(self.starts[stop])
        offsets = self.keys.offsets[first : last + 1]
        pairs = first + np.flatnonzero(np.diff(offsets) == len(key))
        if not len(pairs):
            return
        data = np.frombuffer(self.keys.data, np.uint8)
        there = data[self.keys.offsets[pairs][:, None] + np.arange(len(key))]
        pairs = pairs[(there == np.frombuffer(key, np.uint8)).all(axis=1)]
        rows = np.searchsorted(self.starts, pairs, "right") - 1
        ends = self.values.offsets
        values = memoryview(self.values.data)
        for row, lo, hi in zip(
            rows.tolist(), ends[pairs].tolist(), ends[pairs + 1].tolist(), strict=True
        ):
            yield row, values[lo:hi]

    def lengths(self) -> NDArray[np.int64]:
        """Per row, the bytes of its keys and values."""
        pair_bytes = offsets_of(self.keys.lengths() + self.values.lengths())
        return np.diff(pair_bytes[self.starts])

    def counts(self) -> NDArray[np.int64]:
        return np.diff(self.starts).astype(np.int64)


def join_attributes(parts: Sequence[Attributes]) -> Attributes:
    return Attributes(
        join_offsets([part.starts for part in parts]),
        join_strings([part.keys for part in parts]),
        join_strings([part.values for part in parts]),
    )


class Headers:
    """The header columns of a run of messages; columns that are absent are not there."""

    __slots__ = ("attributes", "fixed", "stream", "strings")

    def __init__(self) -> None:
        self.stream: Stream | None = None  # of the only message
        self.fixed: dict[int, NDArray[Any]] = {}
        self.strings: dict[int, Strings] = {}
        self.attributes: Attributes | None = None

    def columns(self) -> int:
        bits = 0
        for column in (*self.fixed, *self.strings):
            bits |= column
        return bits | (0 if self.attributes is None else Column.ATTRIBUTES)

    def slice(self, start: int, stop: int) -> Headers:
        part = Headers()
        part.fixed = {column: array[start:stop] for column, array in self.fixed.items()}
        part.strings = {column: text.slice(start, stop) for column, text in self.strings.items()}
        if self.attributes is not None:
            part.attributes = self.attributes.slice(start, stop)
        return part

    def present(self) -> Headers:
        """Without the columns in which no message has a value; but a priority of 0 is one."""
        part = Headers()
        part.fixed = {
            column: array
            for column, array in self.fixed.items()
            if column == Column.PRIORITY or (array != FIXED_COLUMNS[column][1]).any()
        }
        part.strings = {
            column: text
            for column, text in self.strings.items()
            if text.valid is None or text.valid.any()
        }
        if self.attributes is not None and self.attributes.starts[-1]:
            part.attributes = self.attributes
        return part

    def charges(self, count: int) -> NDArray[np.int64]:
        """Per message, the bytes of its strings and attributes."""
        total = np.zeros(count, np.int64)
        for text in self.strings.values():
            total += text.lengths()
        if self.attributes is not None:
            total += self.attributes.lengths()
        return total

    def charge_bytes(self) -> int:
        """The bytes of all strings and attributes."""
        total = sum(len(text.content()) for text in self.strings.values())
        if self.attributes is not None:
            total += len(self.attributes.keys.content()) + len(self.attributes.values.content())
        return total

    def stored(self, count: int) -> NDArray[np.int64]:
        """Per message, the bytes that it takes in the sections, without padding."""
        total = self.charges(count)
        total += sum(array.dtype.itemsize for array in self.fixed.values()) + 5 * len(self.strings)
        if self.attributes is not None:
            total += 4 + 8 * self.attributes.counts()
        return total

    def sections(self) -> Iterable[Buffer]:
        """The sections of the present columns in the order of the format."""
        for column, (dtype, _) in FIXED_COLUMNS.items():
            if column in self.fixed:
                yield self.fixed[column].astype(dtype, copy=False).tobytes()
        for column in STRING_COLUMNS:
            if column in self.strings:
                text = self.strings[column]
                yield text.validity_section()
                yield base_zero(text.offsets).tobytes()
                yield text.content()
        if self.attributes is not None:
            yield base_zero(self.attributes.starts).tobytes()
            for text in (self.attributes.keys, self.attributes.values):
                yield base_zero(text.offsets).tobytes()
                yield text.content()


def join_headers(parts: Sequence[tuple[Headers, int]]) -> Headers:
    """The headers of runs (with their counts) put one after another, absent columns filled."""
    joined = Headers()
    for column, (dtype, absent) in FIXED_COLUMNS.items():
        if any(column in headers.fixed for headers, _ in parts):
            joined.fixed[column] = np.concatenate(
                [
                    headers.fixed[column] if column in headers.fixed else np.full(n, absent, dtype)
                    for headers, n in parts
                ]
            )
    for column in STRING_COLUMNS:
        if any(column in headers.strings for headers, _ in parts):
            joined.strings[column] = join_strings(
                [headers.strings.get(column) or Strings.absent(n) for headers, n in parts]
            )
    if any(headers.attributes is not None for headers, _ in parts):
        joined.attributes = join_attributes(
            [headers.attributes or Attributes.absent(n) for headers, n in parts]
        )
    return joined
