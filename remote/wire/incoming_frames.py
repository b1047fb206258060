"""Frames out of the bytes that a connection brings.

IN1. No more is kept than one frame and what came with its end, `RECEIVE_BYTES` at most.
IN2. A long frame is received into the buffer that its parts are then read from: no copy.
IN3. That buffer is no larger than `FIRST_BUFFER_BYTES`, or twice what has arrived: a length that is
    only claimed costs nothing. No frame is longer than its kind may be (`MAX_BYTES_OF_KIND`).
"""

from __future__ import annotations

import socket

from quire.arguments import Bytes
from quire.errors import RemoteError
from quire.remote.limits import (
    FIRST_BUFFER_BYTES,
    MAX_FRAME_BYTES,
    MAX_HELLO_BYTES,
    RECEIVE_BYTES,
)

from .protocol import HEAD, MAX_BYTES_OF_KIND

_unpack_head = HEAD.unpack_from
_HEAD_BYTES = HEAD.size


class Incoming:
    """Used by one thread at a time. Frames come with their heads."""

    __slots__ = ("_at", "_filled", "_frame", "_length", "_rest", "limit")

    def __init__(self) -> None:
        self.limit = MAX_HELLO_BYTES  # of a frame; `trust` raises it
        self._rest = b""  # from `_at` on
        self._at = 0
        self._frame: bytearray | None = None  # a long one of `_length`, `_filled` so far
        self._filled = 0
        self._length = 0

    def trust(self) -> None:
        """The other side has said hello."""
        self.limit = MAX_FRAME_BYTES

    def receive(self, connection: socket.socket, flags: int = 0) -> Bytes | None:
        """Take what came, by one call of the system; a frame, if it is whole now.

        Raises EOFError at the end of the stream, RemoteError for a length that cannot be, OSError.
        """
        frame = self._frame
        if frame is not None:
            count = connection.recv_into(memoryview(frame)[self._filled :], 0, flags)
            if not count:
                raise EOFError
            self._filled += count
            if self._filled < len(frame):
                return None
            if self._filled < self._length:
                frame.extend(bytes(min(self._filled, self._length - self._filled)))
                return None
            self._frame = None
            return frame
        data = connection.recv(RECEIVE_BYTES, flags)
        if not data:
            raise EOFError
        if self._rest:
            data = self._rest[self._at :] + data
            self._rest, self._at = b"", 0
        if len(data) >= _HEAD_BYTES and _unpack_head(data)[0] + _HEAD_BYTES == len(data):
            return data
        self._rest = data
        return self.next()

    def take(self, connection: socket.socket) -> Bytes | None:
        """A frame that came with the one before, or else as `receive`."""
        if self._rest:
            found = self.next()
            if found is not None:
                return found
        return self.receive(connection)

    def receive_greeting(
        self, connection: socket.socket, count: int, flags: int = 0
    ) -> bytes | None:
        """Receive so many bytes, no frame, if they are there now. Raises as `receive`."""
        if len(self._rest) < count:
            data = connection.recv(RECEIVE_BYTES, flags)
            if not data:
                raise EOFError
            self._rest += data
        if len(self._rest) < count:
            return None
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken

    def next(self) -> Bytes | None:
        """A frame that came with the one before. Raises RemoteError as `receive`."""
        rest, start = self._rest, self._at
        size = len(rest) - start
        if size < _HEAD_BYTES:
            return None
        length = _unpack_head(rest, start)[0] + _HEAD_BYTES
        if length > RECEIVE_BYTES or length > self.limit:
            self._check_length(length, rest[start + 4])
        if length <= size:
            self._at = start + length
            if length == size:
                self._rest, self._at = b"", 0
            return rest[start : start + length]
        if length > RECEIVE_BYTES:
            self._length = length
            self._frame = frame = bytearray(min(length, max(FIRST_BUFFER_BYTES, 2 * size)))
            frame[:size] = memoryview(rest)[start:]
            self._filled = size
            self._rest, self._at = b"", 0
        return None

    def _check_length(self, length: int, kind: int) -> None:
        """Raise RemoteError for a frame that is longer than its kind, or the limit, allows."""
        limit = min(self.limit, MAX_BYTES_OF_KIND.get(kind, MAX_HELLO_BYTES) + _HEAD_BYTES)
        if length > limit:
            raise RemoteError(
                f"a message of {length} bytes: at most {limit} are taken; the connection ends"
            )
