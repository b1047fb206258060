"""A client's connection, as its owner's threads see it: requests in, answers out.

CL1. One thread at a time works on a connection. It answers the requests that are there, one by one,
    and reads no further while an answer is not sent: so a client that sends and does not read
    takes the memory of one request, one answer and the system's buffers.
CL2. A client that does not read its answer in time is cut off.
CL3. The first frame is a hello; before it next to nothing is taken.
"""

from __future__ import annotations

import socket
import threading
from typing import Final, NoReturn, Protocol

from quire.arguments import Bytes
from quire.errors import QuireError, RemoteError

from .failures import describe_error
from .incoming import Incoming
from .protocol import (
    CALL,
    GREETING,
    RESULT,
    Header,
    Role,
    check_greeting,
    decode_call,
    encode_call,
    greeting,
)
from .session import Session, is_answered
from .sockets import now, send_all, shut

_ROLES: Final = tuple(role.value for role in Role)
_NO_WAIT: Final = socket.MSG_DONTWAIT


class Gone(Exception):
    """The client has ended the connection, or is cut off."""


class Admission(Protocol):
    """The server, as far as a connection that begins has to do with it."""

    def admit(self, connection: ServedConnection, hello: Header) -> tuple[Header, Session | None]:
        """The answer to a hello, and what answers the requests. Raises QuireError."""


class ServedConnection:
    """See the module."""

    __slots__ = (
        "_admission", "_connection", "_greeted", "_incoming", "busy", "closed", "fd", "gone",
        "role", "session",
    )  # fmt: skip

    def __init__(self, connection: socket.socket, admission: Admission) -> None:
        self._connection = connection
        self.fd = connection.fileno()
        self._admission = admission
        self._incoming = Incoming()
        self._greeted = False
        self.busy = threading.Lock()  # held by the thread that works on it (CL1)
        self.gone = False  # nobody will read an answer
        self.closed = False
        self.role: Role | None = None  # once it was admitted
        self.session: Session | None = None

    def serve(self) -> None:
        """Answer what has come. Raises Gone when the connection is over."""
        try:
            self._serve()
        except (OSError, EOFError):
            raise Gone from None

    def _serve(self) -> None:
        incoming = self._incoming
        try:
            frame = incoming.receive(self._connection, _NO_WAIT) if self._greeted else self._greet()
        except BlockingIOError:
            return
        except RemoteError as error:
            self._refuse(error)
        session = self.session
        while frame is not None:
            if session is None:
                self._hello(frame)
                session = self.session
            else:
                self._answer(session, frame)
            if self.gone:
                raise Gone
            try:
                frame = incoming.next()
            except RemoteError as error:
                self._refuse(error)

    def _answer(self, session: Session, frame: Bytes) -> None:
        answer = session.answer(frame)
        if answer is None or not is_answered(frame):
            return
        if isinstance(answer, bytes):
            sent = self._connection.send(answer)
            if sent < len(answer):
                send_all(self._connection, [memoryview(answer)[sent:]], now)
            return
        for parts in answer:
            send_all(self._connection, parts, now)

    def _greet(self) -> Bytes | None:
        """The other side's greeting, and the frame after it if it is there."""
        incoming = self._incoming
        data = incoming.receive_greeting(self._connection, GREETING.size, _NO_WAIT)
        if data is None:
            return None
        try:
            check_greeting(data)
        except RemoteError as error:
            self._connection.send(greeting(str(error)))
            raise Gone from None
        self._greeted = True
        self._connection.send(greeting())
        return incoming.next()

    def _hello(self, frame: Bytes) -> None:
        """Admit the client, or say why not (CL3)."""
        try:
            hello = decode_call(frame).header if frame[4] == CALL else {}
            if hello.get("op") != "hello" or hello.get("role") not in _ROLES:
                raise RemoteError("a connection begins with a hello of Quire's protocol")
            answer, self.session = self._admission.admit(self, hello)
        except QuireError as error:
            self._refuse(error)
        self._incoming.trust()
        send_all(self._connection, encode_call(RESULT, answer), now)

    def _refuse(self, error: QuireError) -> NoReturn:
        """Say why, and end the connection."""
        send_all(self._connection, encode_call(RESULT, describe_error(error)), now)
        raise Gone

    def take_no_more(self) -> None:
        """What the client sends from now on is refused by the system; what has come is there."""
        try:
            self._connection.shutdown(socket.SHUT_RD)
        except OSError:  # it has ended
            self.gone = True

    def finish(self, deadline: float) -> None:
        """Answer what has come, until its end. By the thread that works on it."""
        while not self.gone and now() < deadline:
            try:
                self.serve()
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
            if self.session is not None:
                self.session.close()
        finally:
            self._connection.close()

    def abandon(self) -> None:
        """In the child of a fork: it is the parent's, whose end must be seen by its client."""
        self.closed = True
        self._connection.close()
