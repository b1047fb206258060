"""Frames out of the bytes that a connection brings.

IN1. No more is kept than one frame and what came with its end, `RECEIVE_BYTES` at most.
IN2. A long frame is received into the buffer that its parts are then read from: no copy.
"""

from __future__ import annotations

import socket

from quire.arguments import Bytes
from quire.errors import RemoteError
from quire.remote.limits import MAX_FRAME_BYTES, MAX_HELLO_BYTES, RECEIVE_BYTES

from .protocol import HEAD

_unpack_head = HEAD.unpack_from
_HEAD_BYTES = HEAD.size


class Incoming:
    """Used by one thread at a time. Frames come with their heads."""

    __slots__ = ("_at", "_filled", "_frame", "_rest", "limit")

    def __init__(self) -> None:
        self.limit = MAX_HELLO_BYTES  # of a frame; `trust` raises it
        self._rest = b""  # from `_at` on
        self._at = 0
        self._frame: bytearray | None = None  # a long one, `_filled` so far
        self._filled = 0

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
        """So many bytes, which are no frame, if they are there now. Raises as `receive`."""
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
        if length > self.limit:
            raise RemoteError(
                f"a message of {length} bytes: at most {self.limit} are taken; the connection ends"
            )
        if length <= size:
            self._at = start + length
            if length == size:
                self._rest, self._at = b"", 0
            return rest[start : start + length]
        if length > RECEIVE_BYTES:
            self._frame = frame = bytearray(length)
            frame[:size] = memoryview(rest)[start:]
            self._filled = size
            self._rest, self._at = b"", 0
        return None
