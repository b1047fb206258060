"""The frames in one direction of a connection, for who passes their bytes on and keeps none.

- What is counted is a greeting, then heads and the lengths that they tell: nothing else of a frame
  is looked at, so one that is no good passes as well, and the side that it is for refuses it.
"""

from __future__ import annotations

from quire.arguments import Bytes

from .protocol import GREETING, HEAD


class FrameBoundaries:
    """Finds the ends of frames in bytes that pass. Used by one thread at a time."""

    __slots__ = ("_head", "_head_size", "_left", "count", "kinds")

    def __init__(self) -> None:
        self._head = bytearray()  # as far as it has come
        self._head_size = GREETING.size  # then that of a frame's
        self._left = 0  # bytes of the frame, or of the greeting's words, behind its head
        self.count = 0  # of the heads that have passed
        self.kinds = set[int]()  # of these frames

    @property
    def is_between(self) -> bool:
        """True if the bytes so far end with a frame, or with the greeting."""
        return self._head_size == HEAD.size and not self._head and not self._left

    def scan(self, data: Bytes) -> int | None:
        """Take bytes that pass; return the last place in them where a frame may begin, if any."""
        place = 0 if self.is_between else None
        at, size = 0, len(data)
        while at < size:
            if self._left:
                step = min(self._left, size - at)
                self._left -= step
            else:
                step = min(self._head_size - len(self._head), size - at)
                self._head += data[at : at + step]
                if len(self._head) == self._head_size:
                    self._take_head()
            at += step
            if self.is_between:
                place = at
        return place

    def _take_head(self) -> None:
        if self._head_size == GREETING.size:
            self._left = GREETING.unpack(self._head)[2]
            self._head_size = HEAD.size
        else:
            self._left, kind, _ = HEAD.unpack(self._head)
            self.count += 1
            self.kinds.add(kind)
        self._head.clear()
