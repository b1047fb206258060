"""The streams of one connection at the owner: a transaction each, or a request outside of any.

OS1. A frame reaches the stream that its head names, or none: numbers rise, and a frame of one that
    has ended is answered by an error (PR3). The end of a stream ends its transaction and no other.
OS2. `MAX_STREAMS` transactions may be open on a connection; a further one is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from quire.arguments import Bytes
from quire.errors import QuireError, RemoteError, TransactionClosed
from quire.remote.limits import MAX_STREAMS
from quire.remote.wire.protocol import ADD, COMMIT, GET, ROLLBACK, STEP, STREAM, TELL

if TYPE_CHECKING:
    from .awaited_sources import AwaitedSources

_IN_TRANSACTION: Final = frozenset({ADD, GET, COMMIT, ROLLBACK, TELL, STEP})
_stream_of: Final = STREAM.unpack_from


class StreamHandler(Protocol):
    """An object that answers the frames of a stream."""

    stream: int  # of the latest frame

    def close(self) -> None:
        """Roll back what is open."""


C = TypeVar("C", bound=StreamHandler)


class OpenStreams(Generic[C]):
    """The open streams of one connection. Used by the thread that works on it."""

    def __init__(self, make: Callable[[OpenStreams[C]], C], awaited: AwaitedSources):
        self._make = make
        self._awaited = awaited
        self.latest = 0  # number of a stream
        self.calls: Final = make(self)  # answers what is outside of transactions
        self._open: dict[int, C] = {}  # with a transaction each
        self._spare: C | None = None  # of one that has ended

    def client_of(self, data: Bytes) -> C:
        """Return what answers a frame (OS1)."""
        stream = _stream_of(data)[0]
        client = self._open.get(stream)
        if client is None:
            client = self._begin(stream) if data[4] in _IN_TRANSACTION else self.calls
        client.stream = stream
        return client

    def _begin(self, stream: int) -> C:
        """Begin a transaction's stream; what refuses it, if it cannot."""
        if stream <= self.latest or len(self._open) >= MAX_STREAMS:
            return self.calls
        client = self._spare or self._make(self)
        self._spare = None
        self.latest = stream
        self._open[stream] = client
        return client

    def refusal(self, stream: int) -> QuireError:
        """Return the error for a request of a transaction that is not open here."""
        if stream <= self.latest:
            return TransactionClosed(f"transaction {stream} of this connection has ended")
        return RemoteError(
            f"{MAX_STREAMS} transactions are open on this connection, as many as may be: end some"
        )

    def begin_call(self, stream: int) -> None:
        """Begin a stream of one request. Raises RemoteError if its number was used."""
        if stream <= self.latest:
            raise RemoteError(
                f"stream {stream} of this connection was begun before: a call has its own"
            )
        self.latest = stream

    def end(self, client: C) -> None:
        """A stream's transaction is over."""
        if self._open.get(client.stream) is client:
            del self._open[client.stream]
            self._spare = client

    def close(self) -> None:
        """The connection has ended, and with it all that is open on it."""
        self._awaited.close()
        with ExitStack() as stack:
            for client in [*self._open.values(), self.calls]:
                stack.callback(client.close)
