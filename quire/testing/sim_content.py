"""The bytes of a simulated file, without the zeros at their end.

A segment of 64 MiB of which a few pages are written takes a few pages, however often it is copied.
"""

from __future__ import annotations

_HOLE = bytes(4096)  # so many zeros are told as a hole, wherever they begin


class SimContent:
    """Bytes of which the first are stored; all behind them, up to the length, are zeros."""

    __slots__ = ("_length", "_stored")

    def __init__(self) -> None:
        self._stored = bytearray()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __bytes__(self) -> bytes:
        return self.read(0, self._length)

    @property
    def stored_bytes(self) -> int:
        """The bytes that it takes in memory."""
        return len(self._stored)

    @property
    def stored(self) -> memoryview:
        """The bytes without the zeros at their end, to be looked at at once."""
        return memoryview(self._stored).toreadonly()

    def holds(self, other: SimContent) -> bool:
        """Return True if these are the bytes of the other one."""
        return self._length == other._length and self._stored == other._stored

    def copy(self) -> SimContent:
        """The same bytes, to be changed on their own."""
        content = SimContent()
        content._stored = bytearray(self._stored)
        content._length = self._length
        return content

    def read(self, offset: int, length: int) -> bytes:
        """Return these bytes, as many of them as there are."""
        end = min(offset + length, self._length)
        found = bytes(memoryview(self._stored)[offset:end])
        return found + bytes(max(end - offset, 0) - len(found))

    def next_data(self, offset: int) -> range:
        """The next bytes that are not zero, up to a hole; empty if none is left."""
        rest = self._stored[offset:]
        start = offset + len(rest) - len(rest.lstrip(b"\0"))
        end = self._stored.find(_HOLE, start)
        return range(start, len(self._stored) if end < 0 else end)

    def write(self, offset: int, data: bytes) -> None:
        """Put the data there; the content grows where it ends before that."""
        missing = offset - len(self._stored)
        if missing > 0 and data:
            self._stored.extend(bytes(missing))
        self._stored[offset : offset + len(data)] = data
        self._length = max(self._length, offset + len(data))

    def clear(self, offset: int, length: int) -> None:
        """Zeros instead of these bytes; the length stays."""
        end = min(offset + length, len(self._stored))
        if offset >= end:
            return
        if end == len(self._stored):
            del self._stored[offset:]
        else:
            self._stored[offset:end] = bytes(end - offset)

    def grow(self, length: int) -> None:
        """Add zeros at the end, up to this length."""
        self._length = max(self._length, length)

    def cut(self, length: int) -> None:
        """Remove the bytes behind this length."""
        if length < self._length:
            del self._stored[length:]
            self._length = length

    def flip(self, offset: int, mask: bytes) -> None:
        """Flip the mask's bits, as far as there are bytes."""
        if old := self.read(offset, len(mask)):
            self.write(
                offset, bytes(old_byte ^ bit for old_byte, bit in zip(old, mask, strict=False))
            )
