"""What is used of Arrow Flight's objects, which come without types."""

from __future__ import annotations

from typing import Protocol


class Chunk(Protocol):
    """One message of a stream."""

    @property
    def app_metadata(self) -> bytes | None:
        """A frame."""


class StreamReader(Protocol):
    """The owner's end of what a client writes."""

    def read_chunk(self) -> Chunk:
        """Wait for the next message. Raises ArrowException, StopIteration."""


class StreamWriter(Protocol):
    """The owner's end of what a client reads."""

    def write_metadata(self, data: bytes, /) -> None:
        """Send a frame. Raises ArrowException."""


class ClientReader(StreamReader, Protocol):
    """A client's end, which can be cut off."""

    def cancel(self) -> None:
        """End the stream at once."""


class ClientWriter(StreamWriter, Protocol):
    """A client's end, which has to be closed."""

    def close(self) -> None:
        """End the stream; waits for the other side."""


class FlightClient(Protocol):
    """A connection."""

    def do_exchange(self, descriptor: object, /) -> tuple[ClientWriter, ClientReader]:
        """Open a stream."""

    def close(self) -> None:
        """End the connection."""


class StreamContext(Protocol):
    """A stream as its owner sees it."""

    def is_cancelled(self) -> bool:
        """Whether the client is gone."""


class StreamDescriptor(Protocol):
    """With what a stream was opened."""

    @property
    def command(self) -> bytes | None:
        """The hello."""


class FlightServer(Protocol):
    """A listener."""

    @property
    def port(self) -> int:
        """Of a TCP listener."""

    def shutdown(self) -> None:
        """Stop; waits for the clients."""
