"""A client's connection, as its owner's threads see it: requests in, answers out.

CL1. One thread at a time works on a connection. It answers the requests that are there, one by one,
    and reads no further while an answer is not sent: so a client that sends and does not read
    takes the memory of one request, one answer and the system's buffers.
CL2. A client that does not read its answer in time is cut off.
CL3. The first frame is a hello; before it next to nothing is taken.
CL4. The server's own thread waits for no client: what it cannot answer or send at once is for
    another thread (`Rest`).
CL5. What the client awaits (READY) is sent between answers, by the thread that works on it.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple, NoReturn, Protocol

from quire.arguments import Bytes
from quire.errors import QuireError, RemoteError
from quire.remote.wire.protocol import (
    COMMIT,
    CONNECTION,
    HEAD,
    PUT,
    READY,
    Header,
    Role,
)
from quire.remote.wire.sockets import close, has_unread, now, refuse_more, send_all, shut
from quire.remote.wire.wire_connection import WireConnection, WireSide

from .open_streams import OpenStreams
from .served_client import Answers, MustWait, ServedClient
from .waiting_gets import WaitingGet

_COMMITS: Final = (PUT, COMMIT)
_NO_WAIT: Final = socket.MSG_DONTWAIT


class Gone(Exception):
    """The client has ended the connection, or is cut off."""


class Admission(Protocol):
    """The server, as far as a connection that begins has to do with it."""

    def admit(
        self, connection: ServedConnection, hello: Header
    ) -> tuple[Header, OpenStreams[ServedClient]]:
        """The answer to a hello, and the connection's streams. Raises QuireError."""


class Rest(NamedTuple):
    """The work left on a connection for a thread that may wait (CL4), from the first on."""

    unsent: memoryview | None = None  # of an answer
    answer: Iterator[list[Bytes]] | None = None
    get: WaitingGet | None = None  # which has waited, and is tried
    frame: Bytes | None = None  # a request


class ServedConnection:
    """A client's connection at the owner."""

    __slots__ = (
        "_admission",
        "_connection",
        "_reads_ahead",
        "_ready",
        "_refuses",
        "_streams",
        "_wire",
        "client",
        "closed",
        "fd",
        "get",
        "gone",
        "is_client",
        "is_elsewhere",
        "role",
    )  # fmt: skip

    def __init__(
        self, connection: socket.socket, admission: Admission, scratch: memoryview
    ) -> None:
        self._connection = connection
        self._reads_ahead = hasattr(connection, "has_unread")  # it is over TLS
        self.fd = connection.fileno()
        self._admission = admission
        self._wire = WireConnection(WireSide.OWNER, scratch)
        self._refuses = True  # once no more is taken: the system refuses what comes
        # Another thread than the server's own works on it (CL1), or a get of it is put aside.
        self.is_elsewhere = False
        self.get: WaitingGet | None = None  # that is put aside
        self.gone = False  # nobody will read an answer
        self.closed = False
        self.role: Role | None = None  # once it was admitted
        self.is_client = False  # the first connection of a client that the owner is open for
        self._streams: OpenStreams[ServedClient] | None = None  # likewise
        self.client: ServedClient | None = None  # what answers the request that is under way
        self._ready: deque[str] = deque()  # sources whose READY is to be sent

    @property
    def has_news(self) -> bool:
        """True if `send_news` has something to send."""
        return bool(self._ready)

    def add_news(self, source: str) -> None:
        """Something may be got from a source; called by any thread."""
        self._ready.append(source)

    def serve(self) -> Rest | WaitingGet | Bytes | None:
        """Answer what came, by the server's own thread; what is left to do, if anything.

        A frame that is returned is a commit, which may share its write with others. Raises Gone.
        """
        try:
            frame = self._receive()
            if self._streams is None:
                frame = self._admit(frame)
            streams = self._streams
            while frame is not None:
                assert streams is not None
                client = self.client = streams.client_of(frame)
                if client.is_heavy(frame):
                    return Rest(frame=frame)
                if frame[4] in _COMMITS:
                    return frame
                rest = self.answer(frame)
                if rest is not None:
                    return rest
                frame = self._next_frame()
        except BlockingIOError:
            return None
        except RemoteError as error:
            self._refuse(error)
        except OSError:
            raise Gone from None
        return None

    def _receive(self) -> Bytes | None:
        """Receive what has come, and what no poll tells of; a frame, if one is whole.

        Raises BlockingIOError if nothing has come, Gone, OSError and RemoteError.
        """
        while True:
            count = self._connection.recv_into(self._wire.buffer, 0, _NO_WAIT)
            if not count:
                raise Gone
            frame = self._wire.received(count)
            if frame is not None or not has_unread(self._connection):
                return frame

    def _next_frame(self) -> Bytes | None:
        """Return the next frame of what has come. Raises as `_receive`."""
        frame = self._wire.next() if self._wire.rest else None
        if frame is None and self._reads_ahead and has_unread(self._connection):
            with suppress(BlockingIOError):
                return self._receive()
        return frame

    def answer(self, frame: Bytes) -> Rest | WaitingGet | None:
        """Answer a request without waiting; what is left to do (CL4). Raises Gone."""
        assert self.client is not None
        try:
            answer = self.client.answer(frame)
        except MustWait:
            return Rest(frame=frame)
        return self.reply(answer)

    def reply(self, answer: Answers) -> Rest | WaitingGet | None:
        """Send an answer without waiting; what is left to do. Raises Gone."""
        if isinstance(answer, bytes):
            return self._send_now(answer)
        if isinstance(answer, WaitingGet):
            answer.requester = self
            return answer
        return None if answer is None else Rest(answer=answer)

    def _send_now(self, data: bytes) -> Rest | None:
        """Send what the system takes without waiting; return the rest. Raises Gone."""
        try:
            sent = self._connection.send(data, _NO_WAIT)
        except BlockingIOError:
            sent = 0
        except OSError:
            raise Gone from None
        return None if sent == len(data) else Rest(unsent=memoryview(data)[sent:])

    def next(self) -> Rest | None:
        """After an answer: the request that came with the one before, if there is one."""
        try:
            frame = self._next_frame()
        except RemoteError as error:
            self._refuse(error)
        except OSError:
            raise Gone from None
        return None if frame is None else Rest(frame=frame)

    def go_on(self, rest: Rest) -> WaitingGet | None:
        """Do the rest, waiting as need be, and answer what has come meanwhile. Raises Gone.

        A get that is returned has found nothing: it is to be put aside.
        """
        assert self.client is not None
        try:
            if rest.unsent is not None:
                send_all(self._connection, [rest.unsent], now)
            if rest.answer is not None:
                self._send(rest.answer)
            if rest.get is not None:
                answer = self.client.try_again(rest.get)
                if answer is rest.get:
                    return rest.get
                self._send(answer)
            frame = rest.frame or self._next_frame()
            while frame is not None:
                if self.gone:
                    raise Gone
                assert self._streams is not None
                client = self.client = self._streams.client_of(frame)
                answer = client.answer(frame)
                if isinstance(answer, WaitingGet):
                    answer.requester = self
                    return answer
                self._send(answer)
                frame = self._next_frame()
        except RemoteError as error:
            self._refuse(error)
        except OSError:
            raise Gone from None
        if self.gone:
            raise Gone
        return None

    def _send(self, answer: Answers) -> None:
        assert not isinstance(answer, WaitingGet)
        if isinstance(answer, bytes):
            send_all(self._connection, [answer], now)
        elif answer is not None:
            for parts in answer:
                send_all(self._connection, parts, now)

    def send_news(self) -> Rest | None:
        """Tell the client what is ready (CL5), by the server's own thread. Raises Gone."""
        if not self._ready:
            return None
        frames: list[bytes] = []
        while self._ready:
            source = self._ready.popleft().encode()
            frames.append(HEAD.pack(len(source), READY, CONNECTION) + source)
        return self._send_now(b"".join(frames))

    def _admit(self, frame: Bytes | None) -> Bytes | None:
        """Admit the client if its hello is there, or say why not (CL3); the frame after it."""
        wire = self._wire
        if frame is not None:
            try:
                hello = wire.hello_of(frame)
                answer, self._streams = self._admission.admit(self, hello)
            except QuireError as error:
                self._refuse(error)
            wire.accept(hello, answer)
            frame = self._next_frame()
        if wire.outgoing:
            self._connection.send(b"".join(wire.take_outgoing()), _NO_WAIT)
        return frame

    def _refuse(self, error: QuireError) -> NoReturn:
        """Say why, if that is read, and end the connection."""
        self._wire.refuse(error)
        with suppress(OSError):
            self._connection.send(b"".join(self._wire.take_outgoing()), _NO_WAIT)
        raise Gone

    def take_no_more(self) -> None:
        """Refuse, or do not read, what the client sends from now on; what has come is there."""
        try:
            self._refuses = refuse_more(self._connection)
        except OSError:  # it has ended
            self.gone = True

    def finish(self, deadline: float) -> None:
        """Answer what has come, until its end. By the thread that works on it."""
        while not self.gone and now() < deadline:
            try:
                left = self.serve()
                if isinstance(left, WaitingGet):
                    return  # the store is being closed, which ends its transaction
                if left is not None:
                    self.go_on(left if isinstance(left, Rest) else Rest(frame=left))
                elif not self._refuses:
                    return  # nothing is there
            except Gone:
                return

    def cut(self) -> None:
        """End the connection for both sides; who works on it finds out."""
        self.gone = True
        shut(self._connection)

    def close(self) -> None:
        """Let go of it; what was open is rolled back. By the thread that works on it."""
        if self.closed:
            return
        self.closed = True
        try:
            if self._streams is not None:
                self._streams.close()
        finally:
            close(self._connection)

    def abandon(self) -> None:
        """Close it in the child of a fork: it is the parent's, whose end its client must see."""
        self.closed = True
        close(self._connection)
