"""Streamed messages: the header is in memory, the payload is read when it is asked for."""

from __future__ import annotations

from typing import Any

from .message import Message
from .payload_reader import PayloadReader, ReadChunk, Stream, whole_payload

_HEADER = (
    "id", "queue", "priority", "group", "time", "sender", "correlation_id", "reply_to",
    "content_type", "expires_at", "deliver_at", "delivery_count", "attributes", "failed_count",
)  # fmt: skip


class StreamedMessage(Message):
    """A message that was put as a stream, of more than 1 MiB. Immutable.

    `payload` reads all of it, each time, where it has up to 1 GiB, and raises InvalidArgument where
    it has more; `open` reads it piece by piece. Two are equal if their headers are, and they have
    the same stream.
    """

    __slots__ = ("_read_chunk", "stream")

    stream: Stream
    _read_chunk: ReadChunk

    def __new__(cls, header: Message, stream: Stream, read_chunk: ReadChunk) -> StreamedMessage:
        self = object.__new__(cls)
        for name in _HEADER:
            object.__setattr__(self, name, getattr(header, name))
        object.__setattr__(self, "stream", stream)
        object.__setattr__(self, "_read_chunk", read_chunk)
        return self

    @property
    def payload(self) -> bytes:  # type: ignore[override]
        """The whole payload. Raises InvalidArgument above 1 GiB, and what `open` raises."""
        return bytes(whole_payload(self.stream, self._read_chunk))

    @property
    def size(self) -> int:
        """The size of the payload, in bytes; nothing is read for it."""
        return self.stream.size

    def open(self) -> PayloadReader:
        """Return a reader of the payload: see `Message.open`."""
        return PayloadReader(self.stream, self._read_chunk)

    def whole(self) -> Message:
        """The message with its payload in memory. Raises as `payload`."""
        return Message(*Message._astuple(self))

    def _astuple(self) -> tuple[Any, ...]:
        return (*(getattr(self, name) for name in _HEADER), self.stream)

    def __reduce__(self) -> tuple[type[Message], tuple[Any, ...]]:
        return Message, Message._astuple(self)

    def __repr__(self) -> str:
        return f"Message(id={self.id}, queue={self.queue!r}, {self.size} bytes to be streamed)"
