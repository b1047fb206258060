"""One side of a connection between a store's owner and a client, without its socket.

A driver receives into `buffer` and tells the count to `received`, which gives a frame if one is
whole then; `next` gives those that came with it. It sends what is in `outgoing`. So the same object
serves a blocking socket, the owner's event loop, and asyncio (`BufferedProtocol`).

IN1. No more is kept than one frame and what came with its end; `RECEIVE_BYTES` of that at most, and
    as much of a frame that is no long one. It belongs to this object, whoever reads: a reader may
    leave between any two calls.
IN2. A long frame is received into the buffer that its parts are then read from: no copy.
IN3. That buffer is no larger than `FIRST_BUFFER_BYTES`, or twice what has arrived: a length that is
    only claimed costs nothing. No frame is longer than its kind may be (`MAX_BYTES_OF_KIND`).
IN4. Nothing is a frame before the other side's greeting is whole, and before the hello is answered
    none is longer than `MAX_HELLO_BYTES`.
IN5. A long frame that its reader does not admit (`admit_long`) is read and dropped as it comes: a
    `RefusedFrame` of its head stands in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from quire.arguments import Bytes
from quire.errors import QuireError, RemoteError
from quire.remote.limits import (
    FIRST_BUFFER_BYTES,
    FIRST_RECEIVE_BYTES,
    MAX_FRAME_BYTES,
    MAX_HELLO_BYTES,
    RECEIVE_BYTES,
)

from .failures import describe_error, raise_error
from .protocol import (
    CALL,
    CONNECTION,
    GREETING,
    HEAD,
    MAX_BYTES_OF_KIND,
    RESULT,
    STREAM,
    Header,
    Role,
    agree,
    capabilities,
    check_agreed,
    check_greeting,
    decode_call,
    encode_call,
    greeting,
    spoken_versions,
)

_unpack_head = HEAD.unpack_from
_HEAD_BYTES = HEAD.size
_ROLES: Final = tuple(role.value for role in Role)


AdmitLong = Callable[[int], QuireError | None]


class RefusedFrame(bytes):
    """The head of a frame that is not taken, in its place: it is answered by the error."""

    error: QuireError

    @classmethod
    def of(cls, frame: Bytes, error: QuireError) -> RefusedFrame:
        """Return what stands in the place of a frame."""
        found = cls(frame[:_HEAD_BYTES])
        found.error = error
        return found


class WireSide(Enum):
    """The side of a connection that speaks."""

    CLIENT = auto()  # begins
    OWNER = auto()  # answers


class WireConnection:
    """The state of one side. Used by one thread at a time. Frames come with their heads."""

    __slots__ = (
        "_at",
        "_dropped",
        "_filled",
        "_frame",
        "_is_between",
        "_is_greeted",
        "_is_owner",
        "_length",
        "_scratch",
        "admit_long",
        "buffer",
        "capabilities",
        "limit",
        "outgoing",
        "rest",
    )

    def __init__(self, side: WireSide, scratch: memoryview | None = None) -> None:
        """`scratch`: `RECEIVE_BYTES` to receive into, shared by connections of one thread.

        Without it the connection has its own, which grows with what is received at once.
        """
        self._is_owner = side is WireSide.OWNER
        self._is_greeted = False
        self._is_between = False  # frames: nothing is kept
        self.capabilities = frozenset[str]()  # that both sides have, once the hello is answered
        self.limit = MAX_HELLO_BYTES  # of a frame
        self._scratch = scratch or memoryview(bytearray(FIRST_RECEIVE_BYTES))
        self.buffer = self._scratch  # where the next bytes are received
        self.outgoing: list[Bytes] = []  # that is to be sent before anything else
        self.rest = b""  # from `_at` on: not given as frames yet
        self._at = 0
        self._frame: bytearray | None = None  # a long one of `_length`, `_filled` so far
        self._filled = 0
        self._length = 0
        self.admit_long: AdmitLong | None = None  # takes a length; why the frame is not taken
        self._dropped: RefusedFrame | None = None  # of which more is to come (IN5)

    # Bytes in, frames out

    def received(self, count: int) -> Bytes | None:
        """Take so many bytes that are in `buffer`; return a frame, if it is whole now.

        Raises RemoteError for what is no greeting, for the words of one that refuses this side, and
        for a length that cannot be.
        """
        if self._is_between:
            data = self.buffer[:count].tobytes()
            if count >= _HEAD_BYTES and _unpack_head(data)[0] + _HEAD_BYTES == count:
                return data
            self._is_between = False
        elif self._frame is not None:
            return self._received_long(self._frame, count)
        elif self._dropped is not None:
            return self._drop(self._dropped, count)
        else:
            data = self.rest[self._at :] + self.buffer[:count].tobytes()
            self._at = 0
        if count == len(self.buffer) < RECEIVE_BYTES:
            self.buffer = self._scratch = memoryview(bytearray(RECEIVE_BYTES))
        self.rest = data
        return self.next()

    def _received_long(self, frame: bytearray, count: int) -> Bytes | None:
        self.buffer = self._scratch  # a view of the frame keeps it from being extended
        self._filled += count
        if self._filled == self._length:
            self._frame = None
            self._is_between = True
            return frame
        if self._filled == len(frame):
            frame.extend(bytes(min(self._filled, self._length - self._filled)))
        self.buffer = memoryview(frame)[self._filled :]
        return None

    def _drop(self, refused: RefusedFrame, count: int) -> Bytes | None:
        """Drop so many bytes of a frame (IN5)."""
        self._filled += count
        left = self._length - self._filled
        self.buffer = self._scratch[:left] if left else self._scratch
        if left:
            return None
        self._dropped = None
        self._is_between = True
        return refused

    def next(self) -> Bytes | None:
        """Return a frame that came with the one before. Raises RemoteError as `received`."""
        if not self._is_greeted and not self._take_greeting():
            return None
        rest, start = self.rest, self._at
        size = len(rest) - start
        if size < _HEAD_BYTES:
            return None
        length = _unpack_head(rest, start)[0] + _HEAD_BYTES
        if length > RECEIVE_BYTES or length > self.limit:
            self._check_length(length, rest[start + 4])
        if length <= size:
            if length == size:
                self.rest, self._at = b"", 0
                self._is_between = True
                return rest[start:] if start else rest
            self._at = end = start + length
            return rest[start:end]
        if length > RECEIVE_BYTES:
            self._length = length
            error = None if self.admit_long is None else self.admit_long(length)
            if error is not None:
                self._dropped = RefusedFrame.of(rest[start:], error)
                self.rest, self._at, self._filled = b"", 0, 0
                return self._drop(self._dropped, size)
            self._frame = frame = bytearray(min(length, max(FIRST_BUFFER_BYTES, 2 * size)))
            frame[:size] = memoryview(rest)[start:]
            self._filled = size
            self.buffer = memoryview(frame)[size:]
            self.rest, self._at = b"", 0
        return None

    def _check_length(self, length: int, kind: int) -> None:
        """Raise RemoteError for a frame that is longer than its kind, or the limit, allows."""
        limit = min(self.limit, MAX_BYTES_OF_KIND.get(kind, MAX_HELLO_BYTES) + _HEAD_BYTES)
        if length > limit:
            raise RemoteError(
                f"a message of {length} bytes: at most {limit} are taken; the connection ends"
            )

    def _take_greeting(self) -> bool:
        """Return True if the other side's greeting is whole, and lets this side in."""
        if len(self.rest) < GREETING.size:
            return False
        length = check_greeting(self.rest[: GREETING.size])
        end = GREETING.size + length
        if len(self.rest) < end:
            return False
        if length:
            raise RemoteError(self.rest[GREETING.size : end].decode(errors="replace"))
        self.rest = self.rest[end:]
        self._is_greeted = True
        if self._is_owner:
            self.outgoing.append(greeting())
        return True

    @property
    def part_stream(self) -> int | None:
        """The stream of the frame of which a part has come, if its head has."""
        part, start = (self.rest, self._at) if self._frame is None else (self._frame, 0)
        if self._dropped is not None:
            part, start = self._dropped, 0
        return STREAM.unpack_from(part, start)[0] if len(part) - start >= _HEAD_BYTES else None

    def take_outgoing(self) -> list[Bytes]:
        """Return what is to be sent now, which is the driver's then."""
        found, self.outgoing = self.outgoing, []
        return found

    # The hello, from the client's side

    def send_hello(self, hello: Header) -> None:
        """Begin: the greeting, and the hello without waiting."""
        hello = {**hello, **spoken_versions()}
        self.outgoing += [greeting(), *encode_call(CALL, CONNECTION, hello)]

    def accepted(self, frame: Bytes) -> Header:
        """Return the owner's answer to the hello. Raises RemoteError, or what it reports."""
        answer = decode_call(frame).header
        raise_error(answer)
        check_agreed(answer)
        self._trust(answer)
        return answer

    # The hello, from the owner's side

    def hello_of(self, frame: Bytes) -> Header:
        """Return the hello that a client's first frame is. Raises RemoteError."""
        hello = decode_call(frame).header if frame[4] == CALL else {}
        if hello.get("op") != "hello" or hello.get("role") not in _ROLES:
            raise RemoteError("a connection begins with a hello of Quire's protocol")
        agree(hello)
        return hello

    def accept(self, hello: Header, answer: Header) -> None:
        """Answer the hello: the client is let in."""
        agreed = agree(hello)
        self._trust(agreed)
        self.outgoing += encode_call(RESULT, CONNECTION, {**answer, **agreed})

    def refuse(self, error: QuireError) -> None:
        """Say why the connection ends, in the greeting or after it."""
        if self._is_greeted:
            self.outgoing += encode_call(RESULT, CONNECTION, describe_error(error))
        else:
            self.outgoing.append(greeting(str(error)))

    def _trust(self, agreed: Header) -> None:
        """The hello is answered (IN4)."""
        self.limit = MAX_FRAME_BYTES
        self.capabilities = capabilities(agreed)
