"""Putting one message whose payload comes piece by piece.

- A payload of up to one chunk is put as any other; a longer one goes to a file as it comes.
- Memory holds what is short of one chunk, and the chunk that is being put.
- An error leaves nothing of the message, and the transaction as it was before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Protocol, Self, TypeAlias

from quire.arguments import Bytes, is_int
from quire.errors import InvalidArgument, TransactionClosed
from quire.limits import CHUNK_BYTES, MAX_STREAM_BYTES

from .message_id import MessageId


class Readable(Protocol):
    """A binary file."""

    def read(self, size: int, /) -> bytes | None:
        """Read up to so many bytes; none at the end."""


Source: TypeAlias = Bytes | Readable | Iterable[Bytes]


class Sink(Protocol):
    """The receiver of one message's payload. One of `chunk` ... `finish`, `whole`, `abandon`."""

    def whole(self, payload: bytes) -> MessageId:
        """Put a payload that is not more than a chunk."""

    def chunk(self, data: Bytes) -> None:
        """The next bytes: `CHUNK_BYTES`, but for the last ones."""

    def finish(self) -> MessageId:
        """There are no more."""

    def abandon(self) -> None:
        """Put nothing; may be called again, and after the transaction's end."""


class PayloadWriter:
    """A message that is being put: `write` its payload, then `finish`. For one thread.

    As a `with` block it is finished at the end, and abandoned on an exception. After an error
    nothing of the message is left. Once more than 1 MiB is written, and until it is finished or
    abandoned, its transaction puts nothing else into the queue, and does not commit. A shorter one
    that is not finished by the commit is not put: then `finish` raises TransactionClosed.
    """

    def __init__(self, sink: Sink, size: int | None) -> None:
        self._sink: Final = sink
        self._expected = size
        self._rest = bytearray()  # not in a chunk yet
        self._is_chunked = False
        self._is_open = True
        self._message_id: MessageId | None = None
        self.size = 0
        """Bytes that were written."""

    @property
    def message_id(self) -> MessageId:
        """The id of the message that was put; an int once the transaction has committed."""
        if self._message_id is None:
            raise InvalidArgument("the message has no id before it is finished: call finish()")
        return self._message_id

    def write(self, data: Bytes) -> int:
        """Add bytes to the payload; how many they are.

        Raises InvalidArgument, also where they are more than the queue takes or than was said,
        QueueFull, DiskFull and what else a put raises: the message is abandoned then.
        """
        self._check_open()
        try:
            content = view = bytes_of(data)
            self._check_size(self.size + len(view))
            self.size += len(view)
            while view:
                if len(self._rest) == CHUNK_BYTES:  # and more comes
                    self._put_rest()
                if not self._rest and len(view) > CHUNK_BYTES:
                    self._put_chunk(view[:CHUNK_BYTES])
                    view = view[CHUNK_BYTES:]
                    continue
                piece = view[: CHUNK_BYTES - len(self._rest)]
                self._rest += piece
                view = view[len(piece) :]
        except BaseException:
            self.abandon()
            raise
        return len(content)

    def finish(self) -> MessageId:
        """The payload is whole: put the message. Raises as `write`."""
        self._check_open()
        try:
            if self._expected is not None and self.size != self._expected:
                raise InvalidArgument(
                    f"the payload has {self.size} bytes, not the {self._expected} of its size"
                )
            if self._is_chunked:
                if self._rest:
                    self._put_rest()
                self._message_id = self._sink.finish()
            else:
                self._message_id = self._sink.whole(bytes(self._rest))
        except BaseException:
            self.abandon()
            raise
        self._close()
        return self._message_id

    def abandon(self) -> None:
        """Put nothing; what was written is gone. Nothing happens once it is finished."""
        if self._is_open:
            self._close()
            self._sink.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.abandon()
        elif self._is_open:
            self.finish()

    def _put_rest(self) -> None:
        rest, self._rest = self._rest, bytearray()
        self._put_chunk(rest)

    def _put_chunk(self, data: Bytes) -> None:
        self._is_chunked = True
        self._sink.chunk(data)

    def _check_open(self) -> None:
        if not self._is_open:
            raise TransactionClosed("the message is finished or abandoned: begin another one")

    def _check_size(self, size: int) -> None:
        if self._expected is not None and size > self._expected:
            raise InvalidArgument(
                f"the payload has more than the {self._expected} bytes of its size: give the size "
                "that it has, or None"
            )
        if size > MAX_STREAM_BYTES:
            raise InvalidArgument(
                f"a payload of more than {MAX_STREAM_BYTES} bytes: split it, or put a pointer to "
                "where it is kept"
            )

    def _close(self) -> None:
        self._is_open = False
        self._rest = bytearray()


def pieces_of(source: Source) -> Iterator[Bytes]:
    """Yield the pieces of a file, bytes or an iterable of bytes.

    Raises InvalidArgument for others.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        yield source
        return
    read = getattr(source, "read", None)
    if read is not None:
        while piece := read(CHUNK_BYTES):
            yield piece
        if piece is None:
            raise InvalidArgument("source: the file would block; give one that waits for its bytes")
        return
    if isinstance(source, str) or not isinstance(source, Iterable):
        raise InvalidArgument(
            f"source {source!r:.100}: give a binary file, bytes, or an iterable of bytes"
        )
    yield from source


def bytes_of(data: object) -> memoryview:
    """A piece of a payload. Raises InvalidArgument."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidArgument(
            f"a piece of a payload must be bytes, bytearray or memoryview, not "
            f"{type(data).__name__}; encode it first"
        )
    try:
        return memoryview(data).cast("B")
    except (TypeError, ValueError):  # with gaps, or released
        raise InvalidArgument("a piece of a payload must be contiguous bytes") from None


def check_size(size: object) -> int | None:
    """Return the size of a payload. Raises InvalidArgument."""
    if size is not None and (not is_int(size) or not 0 <= size <= MAX_STREAM_BYTES):
        raise InvalidArgument(
            f"size {size!r:.100}: give bytes from 0 to {MAX_STREAM_BYTES}, or None"
        )
    return size
