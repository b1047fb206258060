"""Reading a payload piece by piece, with one chunk of it in memory.

- What is returned was verified by its chunk's checksum before (promise 10).
- A reader holds one chunk, however large the payload is.
- Where the message is not there any more, a reader raises PositionLost; other bytes than the
  message's are never returned.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from quire.errors import InvalidArgument
from quire.limits import MAX_PAYLOAD_BYTES

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Stream(NamedTuple):
    """The place of the payload of a streamed message."""

    file: int
    """The id of the large transaction's file that holds it."""
    size: int
    """The size of the payload, in bytes."""
    chunk_bytes: int
    """The size of each chunk but the last, which may be shorter."""

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return -(-self.size // self.chunk_bytes)

    def length_of(self, number: int) -> int:
        """Return the length of a chunk, in bytes."""
        return min(self.chunk_bytes, self.size - number * self.chunk_bytes)


ReadChunk = Callable[[Stream, int], bytes | bytearray | memoryview]
"""The bytes of a stream's chunk, by its number, verified. Raises PositionLost, StoreCorrupt."""


class PayloadReader:
    """A payload as a binary file that is read, from `Message.open`. For one thread.

    It has the methods of Python's binary files, so that it can be given to what reads those:
    `shutil.copyfileobj`, `zipfile.ZipFile`, `io.TextIOWrapper`. A `with` block closes it.
    """

    def __init__(self, stream: Stream, read_chunk: ReadChunk) -> None:
        self.size: Final = stream.size
        """The size of the payload, in bytes."""
        self.closed = False
        """True once it was closed."""
        self._stream = stream
        self._read_chunk = read_chunk
        self._at = 0
        self._chunk = memoryview(b"")  # number `_number`
        self._number = -1

    def read(self, size: int | None = -1) -> bytes:
        """Read up to `size` bytes: fewer, or none, at the end only. None or -1: all that follow.

        Raises InvalidArgument above 1 GiB at once, PositionLost once the message is gone,
        StoreCorrupt for a part that is damaged, ConnectionLost.
        """
        left = max(0, self.size - self._at)
        if size is not None and size >= 0:
            left = min(left, size)
        check_fits(left)
        chunk = self._chunk_here() if left else memoryview(b"")
        if left <= len(chunk):
            self._at += left
            return bytes(chunk[:left])
        found = bytearray(left)
        self.readinto(found)
        return bytes(found)

    def read1(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, and not beyond the end of a chunk. Raises as `read`."""
        piece = bytes(self._chunk_here()[: size if size >= 0 else None])
        self._at += len(piece)
        return piece

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill a buffer; how many bytes: fewer than it has at the end only. Raises as `read`."""
        target = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(target):
            chunk = self._chunk_here()[: len(target) - filled]
            if not chunk:
                break
            target[filled : filled + len(chunk)] = chunk
            filled += len(chunk)
            self._at += len(chunk)
        return filled

    def readline(self, size: int | None = -1) -> bytes:
        """Read up to the next b"\n", and with it, or up to `size` bytes. Raises as `read`."""
        limit = self.size if size is None or size < 0 else size
        line = bytearray()
        while len(line) < limit and (chunk := self._chunk_here()[: limit - len(line)]):
            piece, newline, _ = bytes(chunk).partition(b"\n")
            line += piece + newline
            self._at += len(piece) + len(newline)
            check_fits(len(line))
            if newline:
                break
        return bytes(line)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place, in bytes from the beginning (0), from here (1) or from the end (2)."""
        self._check_open()
        start = {0: 0, 1: self._at, 2: self.size}.get(whence)
        if start is None or start + offset < 0:
            raise InvalidArgument(f"seek to {offset!r} from {whence!r}: there is no such place")
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        """The place that is read next, in bytes from the beginning."""
        return self._at

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

    def flush(self) -> None:
        """Do nothing: nothing waits to be written."""

    def close(self) -> None:
        """Let go of what is in memory; the message is not touched. Twice is once."""
        self.closed = True
        self._chunk, self._number = memoryview(b""), -1

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<PayloadReader at {self._at} of {self.size} bytes>"

    def _chunk_here(self) -> memoryview:
        """Return the bytes in memory from this place on: at least one, but at the end."""
        self._check_open()
        if self._at >= self.size:
            return memoryview(b"")
        number, start = divmod(self._at, self._stream.chunk_bytes)
        if number != self._number:
            self._chunk, self._number = memoryview(b""), -1  # not two of them at a time
            self._chunk = memoryview(self._read_chunk(self._stream, number))
            self._number = number
        return self._chunk[start:]

    def _check_open(self) -> None:
        if self.closed:
            raise InvalidArgument("the reader is closed: open the message again")


def reader_of(payload: bytes) -> PayloadReader:
    """Return a reader of a payload that is in memory."""
    return PayloadReader(Stream(0, len(payload), max(1, len(payload))), lambda *_: payload)


def whole_payload(stream: Stream, read_chunk: ReadChunk) -> bytearray:
    """Return all of a stream. Raises InvalidArgument above 1 GiB."""
    check_fits(stream.size)
    found = bytearray(stream.size)
    PayloadReader(stream, read_chunk).readinto(found)
    return found


def check_fits(size: int) -> None:
    """Raise InvalidArgument for a size that is too much for one piece of memory."""
    if size > MAX_PAYLOAD_BYTES:
        raise InvalidArgument(
            f"a payload of {size} bytes is above the limit of {MAX_PAYLOAD_BYTES} in one piece: "
            "get its message in a transaction, and read it piece by piece from message.open()"
        )
