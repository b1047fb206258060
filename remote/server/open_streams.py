"""The streams of one connection at the owner: a transaction each, or a request outside of any.

OS1. A frame reaches the stream that its head names, or none: numbers rise, and a frame of one that
    has ended is answered by an error (PR3). The end of a stream ends its transaction and no other.
OS2. `MAX_STREAMS` transactions may be open on a connection; a further one is refused.
OS3. Each stream has an object that answers it, and that is used for another stream only when its
    last answer is made and sent, or queued to be. What belongs to no stream (the connection's own
    frames, and those that are refused) is answered by `own`, which never waits.
- The server's own thread finds streams and begins them, in the order in which their frames came;
  the thread that answers a stream ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from quire.arguments import Bytes
from quire.errors import ConnectionLost, QuireError, RemoteError, TransactionClosed
from quire.remote.limits import IDLE_STREAMS, MAX_STREAMS
from quire.remote.wire.protocol import ADD, CALL, COMMIT, GET, PUT, ROLLBACK, STEP, STREAM, TELL

if TYPE_CHECKING:
    from .awaited_sources import AwaitedSources

_IN_TRANSACTION: Final = frozenset({ADD, GET, COMMIT, ROLLBACK, TELL, STEP})
_OUTSIDE: Final = (PUT, CALL)
_stream_of: Final = STREAM.unpack_from


class StreamHandler(Protocol):
    """An object that answers the frames of a stream."""

    stream: int  # its number
    has_ended: bool  # its transaction, if it may have one

    @property
    def is_call(self) -> bool:
        """True if it answers requests outside of transactions, each a stream."""

    def close(self) -> None:
        """Roll back what is open."""


C = TypeVar("C", bound=StreamHandler)


class OpenStreams(Generic[C]):
    """The open streams of one connection."""

    def __init__(
        self,
        make: Callable[[OpenStreams[C], bool], C],
        awaited: AwaitedSources | None = None,
    ) -> None:
        """`make`: makes a handler, of calls or of transactions."""
        self._make = make
        self._begins_no_more = False
        self.awaited: Final = awaited
        self.latest = 0  # number of a stream
        self.own: Final = make(self, False)  # (OS3)
        self.own.has_ended = True
        self._open: dict[int, C] = {}  # with a transaction each
        self._calls: list[C] = []  # handlers of calls that have none to answer
        self._spare: list[C] = []  # of transactions that have ended
        self.holds = False  # subscriptions that end with the connection

    def client_of(self, data: Bytes) -> C:
        """Return what answers a frame (OS1). By the server's own thread."""
        stream = _stream_of(data)[0]
        if data[4] in _OUTSIDE:
            if stream > self.latest:
                self.latest = stream
                client = self._calls.pop() if self._calls else self._make(self, True)
            else:
                client = self.own
        else:
            found = self._open.get(stream)
            if found is not None:
                return found
            client = self._begin(stream) if data[4] in _IN_TRANSACTION else self.own
        client.stream = stream
        return client

    def _begin(self, stream: int) -> C:
        """Begin a transaction's stream; what refuses it, if it cannot."""
        if stream <= self.latest or len(self._open) >= MAX_STREAMS or self._begins_no_more:
            return self.own
        client = self._spare.pop() if self._spare else self._make(self, False)
        client.has_ended = False
        self.latest = stream
        self._open[stream] = client
        return client

    def refusal(self, stream: int) -> QuireError:
        """Return the error for a request of a transaction that is not open here."""
        if stream <= self.latest:
            return TransactionClosed(f"transaction {stream} of this connection has ended")
        if self._begins_no_more:
            return ConnectionLost("the server is about to end: begin the transaction again")
        return RemoteError(
            f"{MAX_STREAMS} transactions are open on this connection, as many as may be: end some"
        )

    @property
    def has_open(self) -> bool:
        """True if a transaction is open."""
        return bool(self._open)

    def begin_no_more(self) -> None:
        """No more transactions begin from now on."""
        self._begins_no_more = True

    def end(self, client: C) -> None:
        """A stream's transaction is over; its handler answers on until it is released."""
        if self._open.get(client.stream) is client:
            del self._open[client.stream]
            client.has_ended = True

    def release(self, client: C) -> None:
        """No request of the stream is under way: its handler is free, if the stream has ended."""
        if client.is_call:
            if len(self._calls) < IDLE_STREAMS:
                self._calls.append(client)
        elif client.has_ended and client is not self.own and len(self._spare) < IDLE_STREAMS:
            self._spare.append(client)

    def take_idle(self, busy: set[C]) -> list[C]:
        """Return the handlers of which no request is under way: they are the caller's to close."""
        idle = [client for client in list(self._open.values()) if client not in busy]
        for client in idle:
            self._open.pop(client.stream, None)
        return idle

    def close(self) -> None:
        """The connection has ended: nothing is awaited on it any more."""
        if self.awaited is not None:
            self.awaited.close()
